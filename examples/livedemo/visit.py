"""The demo in a cluster of yours (`make run KUBECONFIG=...`): it initialises the nodes that wait for it, and no more.

Only cloud-node-controller runs, without a Lease, with a fake cloud that knows whatever node is asked about: no Service,
no route and no other node is touched. Before anything is written, the demo says which nodes it will write to, and it
stops if the fake cloud would take any other node for its own.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from controllers.runtime.api import ClientBuilder, ClientConfigError, Forbidden
from controllers.runtime.cache import InformerFactory
from controllers.runtime.metrics import Metrics
from livedemo.cluster import any_node_cloud, write_config
from livedemo.describe import describe
from livedemo.manager import Figures, ManagerProcess
from livedemo.nodes import NodeRows, times
from livedemo.scene import NodeRow, Scene
from livedemo.script import LOOK, Failed
from livedemo.view import View, choose

START_PATIENCE = 40.0
THINK_SECONDS = 5.0


class Visit:
    """One run against the cluster of `kubeconfig`."""

    def __init__(self, kubeconfig: str, directory: Path) -> None:
        self._kubeconfig = kubeconfig
        self._nodes = NodeRows()
        config = write_config(any_node_cloud(), directory / "fake-cloud.json")
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
        metrics = Metrics()
        try:
            clients = ClientBuilder.from_options(kubeconfig=self._kubeconfig, metrics=metrics)
        except ClientConfigError as error:
            raise Failed(str(error)) from error
        informers = InformerFactory(clients.rest("demo"), metrics=metrics)
        view: View | None = None
        try:
            self._nodes.watch(informers)
            informers.start()
            deadline = time.monotonic() + START_PATIENCE
            while not informers.has_synced():
                if time.monotonic() > deadline:
                    raise Failed(f"the API server did not answer: {informers.health()[0].error}")
                time.sleep(0.02)
            time.sleep(0.1)  # the handler has its own queue
            self._check_strangers()
            self._warn()
            print(f"cloud-controller-manager with the fake cloud, against the cluster of {self._kubeconfig}:")
            print("  " + " \\\n      ".join(self._manager.command) + "\n", flush=True)
            self._manager.start()
            view = choose("Nodes of your cluster", log=True)
            self._watch(view)
            view.close()
            self._summary(clients, view)
        finally:
            if view is not None:
                view.close()
            self._manager.stop()
            informers.stop()
            clients.close()

    def _check_strangers(self) -> None:
        if self._nodes.strangers:
            names = ", ".join(sorted(self._nodes.strangers)[:5])
            raise Failed(
                f"these nodes have neither the taint nor a provider ID: {names}. The fake cloud would take them for "
                "its own and overwrite their addresses, so the demo does not run against this cluster."
            )

    def _warn(self) -> None:
        """What is about to be written cannot be taken back, so a person gets a moment to think."""
        names = [row.name for row in self._nodes.rows()]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        print(f"Nodes with the taint: {shown or 'none'}.")
        print(
            "They, and those that join meanwhile, get made-up addresses, labels and provider IDs from the fake cloud."
        )
        print("A provider ID can never be changed. No other node and no Service is touched.\n", flush=True)
        if names and sys.stdin.isatty():
            print(f"Starting in {THINK_SECONDS:g} s; Ctrl-C leaves everything as it is.", flush=True)
            time.sleep(THINK_SECONDS)

    def _watch(self, view: View) -> None:
        """Until every node with the taint is initialised."""
        deadline = time.monotonic() + START_PATIENCE
        while not self._manager.ready():
            if time.monotonic() > deadline:
                raise Failed(f"the manager was not ready after {START_PATIENCE:g} s{self._manager.last_words()}")
            self._show(view)
        while any(row.ready is None and row.deleted is None for row in self._nodes.rows()):
            self._check_strangers()
            self._show(view)
        for _ in range(5):
            self._show(view)  # the last Events and figures

    def _show(self, view: View) -> None:
        code = self._manager.exit_code
        if code is not None:
            raise Failed(f"the manager ended with exit code {code}{self._manager.last_words()}")
        view.show(
            Scene(
                elapsed=self._nodes.elapsed(),
                nodes=self._nodes.rows(),
                log=[(line.level, line.text) for line in self._manager.lines(4)],
            )
        )
        time.sleep(LOOK)

    def _summary(self, clients: ClientBuilder, view: View) -> None:
        rows = [row for row in self._nodes.rows() if row.ready is not None]
        if rows:
            self._describe(clients, view, rows[-1])
        figures = self._manager.figures() or Figures()
        code, took = self._manager.stop()
        if code != 0:
            raise Failed(f"the manager ended with exit code {code} after SIGTERM{self._manager.last_words()}")
        lines = [f"{len(rows)} nodes were initialised" if rows else "no node carries the taint: nothing to initialise"]
        spent = times(rows)
        if spent is not None:
            lines[0] += f", median {spent[0]:.2f} s, longest {spent[1]:.2f} s"
            lines.append(
                f"{figures.cloud_calls} cloud calls for all of them, {figures.writes / len(rows):.1f} writes and "
                f"{figures.events / len(rows):.1f} Event writes a node"
            )
        lines.append(f"the manager drained and ended with 0, {took:.1f} s after SIGTERM")
        view.block("In figures", [f"  {line}" for line in lines])

    @staticmethod
    def _describe(clients: ClientBuilder, view: View, row: NodeRow) -> None:
        rest = clients.rest("demo")
        node = rest.get(f"/api/v1/nodes/{row.name}")
        query = {"fieldSelector": f"involvedObject.name={row.name},involvedObject.kind=Node"}
        try:
            events = rest.get("/api/v1/namespaces/default/events", query=query)["items"]
        except Forbidden:
            events = []  # the manager may write Events without being allowed to list them
        title = f"One of them in detail (* is what the cloud gave): {row.name}"
        view.block(title, describe(node, events, datetime.now(UTC)))
