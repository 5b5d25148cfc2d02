"""A controller of one's own, added outside of the tree in the steps of CONTRIBUTING.md; then it
runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import attrs
import pytest
from kubernetes.client.models.v1_node import V1Node

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.waiting import eventually
from controllers.app import CATALOG, Context, Controller, ControllerEntry, Manager, Rule, main, parse
from controllers.cli.rbac import manifest
from controllers.cli.reference import page
from controllers.options import INT, STRING, between, drain_timeout_option, not_empty, option
from controllers.runtime.api import ClientBuilder
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory, key_of
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics
from tests.support.nodes import small_node


@attrs.frozen(kw_only=True)
class ToyOptions:
    """What would be in the `registration.py` of its folder."""

    greeting: str = option("hello", STRING, "toy-greeting", "toy-controller", "What nodes are told.", check=not_empty)
    concurrent_syncs: int = option(
        2, INT, "concurrent-toy-syncs", "toy-controller", "Workers that greet nodes.", check=between(1, 100)
    )
    drain_timeout: float = drain_timeout_option()


class ToyController(ControllerBase):
    """What would be its folder: greets each Node once with an Event, and counts."""

    NAME = "toy-controller"
    CLIENT = "toy"

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: object,
        *,
        options: ToyOptions,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        super().__init__(clients, options, metrics, clock)
        self._greeting = options.greeting
        self._greeted = metrics.counter("toy_controller_greetings_total", "Nodes that were greeted.")
        self._keys = self._queue("Toy")
        self._nodes = informers.informer(NODES)
        self._watch(self._nodes, self)
        self._add_worker(self._keys, self._reconcile, threads=options.concurrent_syncs)

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._keys.add(key_of(node))

    def _reconcile(self, name: str) -> None:
        node = self._nodes.lister.get(name)
        if node is not None:
            self._recorder.event(node, "Normal", "Greeted", self._greeting)
            self._greeted.inc()


def _construct(context: Context) -> Controller:
    return context.build(ToyController, ToyOptions)


ENTRY = ControllerEntry(
    name="toy-controller",
    aliases=("toy",),
    construct=_construct,
    informers=lambda: [NODES],
    options=(ToyOptions,),
    rules=(
        Rule(resource="nodes", verbs=("list", "watch"), consequence="no node is greeted"),
        Rule(resource="events", verbs=("create", "patch"), consequence="no Event greets", namespace="default"),
    ),
)
"""What would be its `registration.py`."""
LONGER = (*CATALOG, ENTRY)
"""What would be the line in `controllers/catalog.py`."""
FLAGS = ("--cloud-provider=fake", "--leader-elect=false", "--secure-port=0", "--controllers=toy")


def test_its_flags_are_parsed_checked_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], catalog=LONGER) == 0
    assert "--toy-greeting" in capsys.readouterr().out
    assert main([*FLAGS, "--toy-greeting= ", "--concurrent-toy-syncs=0"], catalog=LONGER) == 2
    told = capsys.readouterr().err
    assert "--toy-greeting= : must not be empty" in told
    assert "--concurrent-toy-syncs=0: must be between 1 and 100" in told
    assert "| `--toy-greeting` | `hello` | What nodes are told. |" in page(LONGER)
    assert "  # For toy-controller.\n" in manifest([ENTRY])


def test_it_runs_in_the_manager(tmp_path: Path) -> None:
    options = parse([*FLAGS, "--toy-greeting=good morning"], LONGER).options
    assert options is not None
    stop = threading.Event()
    with EmbeddedAPIServer() as server, FakeCloud() as cloud:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        server.create({"kind": "Node", **small_node("n1")})
        clients = ClientBuilder.from_options(kubeconfig=str(tmp_path / "kubeconfig"))
        manager = Manager(options, cloud, clients, catalog=LONGER)
        thread = threading.Thread(target=manager.run, args=(stop,))
        thread.start()
        try:
            eventually(lambda: _greetings(server) == ["good morning"], 60)
        finally:
            stop.set()
            thread.join(40)
    assert not thread.is_alive()
    assert b"toy_controller_greetings_total 1.0" in manager.metrics.text()


def _greetings(server: EmbeddedAPIServer) -> list[Any]:
    return [event["message"] for event in server.list("events") if event["reason"] == "Greeted"]
