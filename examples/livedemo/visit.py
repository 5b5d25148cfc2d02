"""The demo in a cluster of yours (`make run KUBECONFIG=...`): it initialises the nodes that wait
for it, and no more.

Only cloud-node-controller runs, without a Lease, with a fake cloud that knows whatever node is
asked about: no Service, no route and no other node is touched. Before anything is written, the demo
says which nodes it will write to, and it stops if the fake cloud would take any other node for its
own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.runtime.api import ClientBuilder, ClientConfigError, RestClient
from livedemo.manager import ManagerProcess
from livedemo.screen import Failed, Screen

THINK_SECONDS = 5.0
CLOUD = {
    "on_demand": {
        "types": ["standard-4", "standard-8"],
        "zones": ["north-1a", "north-1b", "north-1c"],
        "region": "north-1",
    }
}


class Visit:
    """One run against the cluster of `kubeconfig`."""

    def __init__(self, kubeconfig: str, directory: Path) -> None:
        config = directory / "fake-cloud.json"
        config.write_text(json.dumps(CLOUD, indent=2))
        self._kubeconfig = kubeconfig
        self._screen = Screen(self._look, lambda: self._manager.last_words())
        self._waiting: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._rest: RestClient
        self._manager = ManagerProcess(
            "the manager",
            [
                "--cloud-provider=fake",
                f"--cloud-config={config}",
                f"--kubeconfig={kubeconfig}",
                "--controllers=cloud-node-controller",
                "--leader-elect=false",
                "--secure-port=0",
                "--node-status-update-frequency=24h",  # nodes that are initialised already are not refreshed
                "--health-bind-address=127.0.0.1:0",
                "--logging-format=json",
            ],
        )

    def run(self) -> None:
        """Raises Failed, ApiError or KeyboardInterrupt."""
        try:
            clients = ClientBuilder.from_options(kubeconfig=self._kubeconfig)
        except ClientConfigError as error:
            raise Failed(str(error)) from error
        try:
            self._rest = clients.rest("demo")
            self._look()
            self._warn()
            screen = self._screen
            screen.write(f"cloud-controller-manager with the fake cloud, against the cluster of {self._kubeconfig}:")
            screen.write("  " + " \\\n      ".join(self._manager.command) + "\n", "dim")
            self._manager.start()
            screen.until({"the manager is ready": self._manager.ready})
            screen.until({"no node waits any more": lambda: not self._waiting})
            code, took = self._manager.stop()
            if code != 0:
                raise Failed(f"the manager ended with exit code {code} after SIGTERM{self._manager.last_words()}")
            screen.write("\nIn figures", "bold")
            screen.write(f"  {self._figures()}")
            screen.write(f"  the manager drained and ended with 0, {took:.1f} s after SIGTERM")
        finally:
            self._manager.stop()
            clients.close()

    def _figures(self) -> str:
        if not self._took:
            return "no node carries the taint: nothing to initialise"
        took = self._took.values()
        return f"{len(took)} nodes were initialised, median {median(took):.2f} s, longest {max(took):.2f} s"

    def _warn(self) -> None:
        """What is about to be written cannot be taken back, so a person gets a moment to think."""
        screen, names = self._screen, list(self._waiting)
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        screen.write(f"Nodes with the taint: {shown or 'none'}.")
        screen.write(
            "They, and those that join meanwhile, get made-up addresses, labels and provider IDs from the fake cloud."
        )
        screen.write("A provider ID can never be changed. No other node and no Service is touched.\n")
        if names and sys.stdin.isatty():
            screen.write(f"Starting in {THINK_SECONDS:g} s; Ctrl-C leaves everything as it is.")
            time.sleep(THINK_SECONDS)

    def _look(self) -> None:
        """Raises Failed, when the manager ended or there is a node that must not be written to."""
        code = self._manager.exit_code
        if code is not None:
            raise Failed(f"the manager ended with exit code {code}{self._manager.last_words()}")
        strangers, now = [], self._screen.elapsed
        for node in self._rest.get("/api/v1/nodes")["items"]:
            name = node["metadata"]["name"]
            if _waits(node):
                self._waiting.setdefault(name, now)
            elif name in self._waiting:
                took = self._took[name] = now - self._waiting.pop(name)
                self._screen.tell(name, f"node {name}: initialised in {took:.2f} s: {node['spec']['providerID']}")
            elif not node["spec"].get("providerID"):
                strangers.append(name)
        if strangers:
            raise Failed(
                f"these nodes have neither the taint nor a provider ID: {', '.join(sorted(strangers)[:5])}. The fake "
                "cloud would take them for its own and overwrite their addresses, so the demo does not run against "
                "this cluster."
            )


def _waits(node: dict[str, Any]) -> bool:
    return any(taint["key"] == TAINT_EXTERNAL_CLOUD_PROVIDER for taint in node["spec"].get("taints") or ())
