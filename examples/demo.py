"""`make run`: shows the real manager initialise the nodes of a cluster.

An embedded API server plays the cluster, nodes join it over a few seconds, each with the taint that keeps work off a
node until its cloud has been asked. The manager runs as its own process with the fake cloud. With `--kubeconfig` it
runs against a cluster of yours instead: every node there that carries the taint gets a made-up provider ID and address.

Exit codes: 0 all nodes were initialised, 1 something went wrong (and what), 130 after Ctrl-C before the end.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from livedemo import cluster
from livedemo.board import Board, Row
from livedemo.describe import describe
from livedemo.manager import ManagerProcess
from livedemo.view import View, choose

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from controllers.runtime.api import ApiError, ClientBuilder, ClientConfigError, Forbidden
from controllers.runtime.cache import InformerFactory
from controllers.runtime.metrics import Metrics

JOIN_SECONDS = 5.0
PATIENCE = 30.0
"""Seconds after which nodes that are still tainted mean failure, in the embedded cluster."""
START_PATIENCE = 20.0
THINK_SECONDS = 5.0
_LOOK = 0.08

NEXT = (
    "examples/main.py           the ten lines of a vendor's own manager",
    "examples/samplecloud/      a provider to copy, in a package of its own",
    "docs/architecture.md       how a watch event becomes a patch, file by file",
    "make test                  all tests, also over a real kube-apiserver",
    "make run KUBECONFIG=PATH   the same in your own cluster, with a fake cloud",
)


class Failed(Exception):
    """The demo did not reach its end; the message says why."""


class Demo:
    """One run. `kubeconfig` None: the embedded cluster."""

    def __init__(self, kubeconfig: str | None, directory: Path) -> None:
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._board = Board(self._changed)
        self._view: View | None = None
        self._metrics = Metrics()

    def run(self) -> None:
        """Raises Failed, or KeyboardInterrupt."""
        if self._kubeconfig is not None:
            self._run(self._kubeconfig, None)
            return
        with EmbeddedAPIServer() as server:
            self._run(str(server.write_kubeconfig(self._directory / "kubeconfig")), server)

    def _run(self, kubeconfig: str, server: EmbeddedAPIServer | None) -> None:
        try:
            clients = ClientBuilder.from_options(kubeconfig=kubeconfig, metrics=self._metrics)
        except ClientConfigError as error:
            raise Failed(str(error)) from error
        informers = InformerFactory(clients.rest("demo"), metrics=self._metrics)
        manager = ManagerProcess(self._flags(kubeconfig, embedded=server is not None))
        joining = cluster.Joining(server, JOIN_SECONDS) if server else None
        try:
            self._board.watch(informers)
            informers.start()
            deadline = time.monotonic() + START_PATIENCE
            while not informers.has_synced():
                if time.monotonic() > deadline:
                    raise Failed(f"the API server did not answer: {informers.health()[0].error}")
                time.sleep(0.02)
            time.sleep(0.1)  # the handler has its own queue
            if server is None:
                self._check_strangers()
                self._warn()
            where = "an embedded API server" if server else f"the cluster of {kubeconfig}"
            title = "New nodes are initialised" if server else "Nodes of your cluster"
            print(f"cloud-controller-manager with the fake cloud, against {where}:", flush=True)
            print("  " + " \\\n      ".join(manager.command) + "\n", flush=True)
            manager.start()
            self._view = choose(self._board, manager, title, cluster.TOTAL if server else None)
            for row in self._board.rows():
                self._view.row(row)
            self._watch(manager, joining)
            self._view.close()
            self._summary(clients, manager, server is not None)
        finally:
            if joining is not None:
                joining.stop()
            if self._view is not None:
                self._view.close()
            manager.stop()
            informers.stop()
            clients.close()

    def _flags(self, kubeconfig: str, *, embedded: bool) -> list[str]:
        config = cluster.cloud_config() if embedded else cluster.any_node_config()
        path = cluster.write_config(config, self._directory / "fake-cloud.json")
        flags = [
            "--cloud-provider=fake",
            f"--cloud-config={path}",
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--health-bind-address=127.0.0.1:0",
            "--logging-format=json",
        ]
        # In a cluster of yours nothing but the tainted nodes is to be touched: no refresh of others during the demo.
        return flags if embedded else [*flags, "--node-status-update-frequency=24h"]

    def _watch(self, manager: ManagerProcess, joining: cluster.Joining | None) -> None:
        """Until every node is initialised."""
        assert self._view is not None
        ready_deadline = time.monotonic() + START_PATIENCE
        while not manager.ready():
            self._check_alive(manager)
            if time.monotonic() > ready_deadline:
                raise Failed(f"the manager was not ready after {START_PATIENCE:g} s{_last_words(manager)}")
            self._view.refresh()
            time.sleep(_LOOK)
        self._view.say("the manager is ready")
        if joining is not None:
            joining.start()
        deadline = time.monotonic() + PATIENCE
        expected = cluster.TOTAL if joining is not None else None
        while not self._done(expected):
            self._check_alive(manager)
            if expected is not None and time.monotonic() > deadline:
                late = [row.name for row in self._board.rows() if row.ready is None]
                raise Failed(
                    f"{self._board.ready()} of {expected} nodes were initialised in {PATIENCE:g} s; still tainted: "
                    f"{', '.join(late) or 'nodes that never joined'}{_last_words(manager)}"
                )
            self._view.refresh()
            time.sleep(_LOOK)
        time.sleep(0.4)  # the last Events and totals
        self._view.refresh()

    def _done(self, expected: int | None) -> bool:
        rows = self._board.rows()
        if expected is not None:
            return self._board.ready() >= expected
        self._check_strangers()
        return all(row.ready is not None for row in rows)

    def _check_strangers(self) -> None:
        if self._board.strangers:
            names = ", ".join(sorted(self._board.strangers)[:5])
            raise Failed(
                f"these nodes have neither the taint nor a provider ID: {names}. The fake cloud would take them for "
                "its own and overwrite their addresses, so the demo does not run against this cluster."
            )

    def _warn(self) -> None:
        """What is about to be written cannot be taken back, so a person gets a moment to think."""
        names = [row.name for row in self._board.rows()]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        print(f"Nodes with the taint: {shown or 'none'}. They, and those that join meanwhile, get made-up addresses,")
        print(
            "labels and provider IDs from the fake cloud; a provider ID can never be changed. No other node is touched."
        )
        if names and sys.stdin.isatty():
            print(f"Starting in {THINK_SECONDS:g} s; Ctrl-C leaves everything as it is.", flush=True)
            time.sleep(THINK_SECONDS)

    @staticmethod
    def _check_alive(manager: ManagerProcess) -> None:
        code = manager.exit_code
        if code is not None:
            raise Failed(f"the manager ended with exit code {code}{_last_words(manager)}")

    def _changed(self, row: Row) -> None:
        if self._view is not None:
            self._view.row(row)

    def _summary(self, clients: ClientBuilder, manager: ManagerProcess, embedded: bool) -> None:
        assert self._view is not None
        rows = self._board.rows()
        totals = manager.totals()
        if rows:
            name = cluster.STUMBLE if embedded else rows[-1].name
            rest = clients.rest("demo")
            node = rest.get(f"/api/v1/nodes/{name}")
            query = {"fieldSelector": f"involvedObject.name={name},involvedObject.kind=Node"}
            try:
                events = rest.get("/api/v1/namespaces/default/events", query=query)["items"]
            except Forbidden:
                events = []  # the manager may write Events without being allowed to list them
            if embedded:
                intro = f"One of them in detail (the cloud failed once on purpose; * is what the cloud gave): {name}"
            else:
                intro = f"One of them in detail (* is what the cloud gave): {name}"
            self._view.block(intro, describe(node, events, datetime.now(UTC)))
        code, took = manager.stop()
        if code != 0:
            raise Failed(f"the manager ended with exit code {code} after SIGTERM{_last_words(manager)}")
        figures = [
            f"{len(rows)} nodes were initialised" if rows else "no node carries the taint: nothing to initialise"
        ]
        times = self._board.times()
        if times is not None:
            figures[0] += f", median {times[0]:.2f} s, longest {times[1]:.2f} s"
            if embedded:
                figures[0] += f" (the fake cloud takes {cluster.LATENCY[0]:g} to {cluster.LATENCY[1]:g} s a call)"
        if totals is not None and rows:
            figures.append(
                f"{totals.cloud_calls} cloud calls for all of them, {totals.writes / len(rows):.1f} writes and "
                f"{totals.events / len(rows):.1f} Event writes a node"
            )
        figures.append(f"the manager drained and ended with 0, {took:.1f} s after SIGTERM")
        self._view.block("In figures", [f"  {line}" for line in figures])
        self._view.block("Where to go next", [f"  {line}" for line in NEXT])


def _last_words(manager: ManagerProcess) -> str:
    lines = [line for line in manager.lines() if line.level != "info"] or manager.lines()
    return "".join(f"\n    {line.text}" for line in lines[-8:])


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does, so that the manager is stopped in any case."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kubeconfig", metavar="PATH", help="a cluster of yours instead of the embedded one")
    given = parser.parse_args(argv)
    logging.getLogger("controllers").setLevel(logging.CRITICAL)  # the demo's own informer; the manager logs for itself
    with tempfile.TemporaryDirectory(prefix="cloud-demo-") as directory, _terminated_as_interrupted():
        try:
            Demo(given.kubeconfig or None, Path(directory)).run()
        except (Failed, ApiError) as failure:
            print(f"\nThe demo failed: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nInterrupted; the manager was stopped.", file=sys.stderr)
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
