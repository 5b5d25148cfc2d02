"""CloudAllocator over an API server in memory: an answer about a former node of the name is never
written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from controllers.cloudcalls import Answer
from controllers.nodeipam.reconcile import START, NotChosenYet, RangesOverlap
from controllers.runtime.queue import AskAgain
from tests.unit.nodeipam.objects import Leader, Server


class Chooser:
    """A leader whose cloud chooses: by the machine that has the name at the time of the
    question."""

    provider_name, chooses_pod_cidrs = "chooser", True

    def __init__(self, server: Server) -> None:
        self.chosen: dict[str, str] = {}
        self.moment: Callable[[], None] = lambda: None
        self.leader = Leader(server, chooser=self)
        self.reconciler = self.leader.reconciler

    def fetch_pod_cidrs(self, nodes: Sequence[V1Node], deliver: Any) -> None:
        for node in nodes:
            assert node.metadata is not None
            self.moment()
            name = str(node.metadata.name)
            said = tuple(ip_network(text) for text in [self.chosen.get(name)] if text)
            self.moment()
            deliver(name, Answer(node, said))

    def run(self, name: str) -> None:
        """One key, as the worker has it."""
        answers: dict[str, Any] = {}
        self.reconciler.fetch([name], answers.__setitem__)
        self.moment()
        for _ in range(20):
            try:
                self.reconciler.reconcile(name, answers[name])
            except AskAgain:
                self.reconciler.fetch([name], answers.__setitem__)
            else:
                return
        raise AssertionError("it asks for ever")


def begun(server: Server) -> Chooser:
    chooser = Chooser(server)
    chooser.leader.sync()
    chooser.run(START)
    return chooser


@pytest.mark.row("M9")
@given(at=st.lists(st.integers(0, 6), max_size=3, unique=True), writes=st.lists(st.integers(0, 3), max_size=2))
def test_a_node_recreated_at_any_moment_gets_its_own_machines_range(at: list[int], writes: list[int]) -> None:
    server = Server()
    chooser = begun(server)
    number = 0
    moments, patches = iter(range(1000)), iter(range(1000))

    def again() -> None:
        nonlocal number
        number += 1
        server.nodes.pop("a", None)
        server.create("a")
        chooser.chosen["a"] = f"10.8.{number}.0/24"

    def moment() -> None:
        assert server.ranges()["a"] in ([], [f"10.8.{number}.0/24"])
        if next(moments) in at:
            again()
            chooser.leader.sync()  # the event comes before the answer

    def before(_name: str, body: Any) -> None:
        assert body["metadata"].keys() >= {"uid", "resourceVersion"}
        if next(patches) in writes:
            again()  # between look and patch; the cache does not know yet

    again()
    chooser.moment, server.before = moment, before
    for last in (False, False, False, True):
        if last:
            chooser.moment, server.before = lambda: None, lambda _name, _body: None
        chooser.leader.sync()
        chooser.run("a")
    assert server.ranges()["a"] == [f"10.8.{number}.0/24"]


@pytest.mark.row("M10")
def test_what_a_node_was_created_with_keeps_nothing_from_nodes_for_which_the_cloud_chose() -> None:
    server = Server()
    chooser = begun(server)
    server.create("evil", "0.0.0.0/0", by="kubelet")
    server.create("a")
    chooser.leader.sync()
    chooser.chosen["a"] = "10.8.1.0/24"
    chooser.run("evil")
    chooser.run("a")
    assert server.ranges()["a"] == ["10.8.1.0/24"]


def test_what_the_cloud_has_not_chosen_yet_is_asked_for_later_and_told() -> None:
    server = Server()
    server.create("a")
    chooser = begun(server)
    with pytest.raises(NotChosenYet) as error:
        chooser.run("a")
    chooser.reconciler.failed("a", error.value)
    assert [one[::2] for one in chooser.leader.events.events] == [("a", "CIDRNotAvailable")]
    assert server.patches == []


@pytest.mark.row("M9")
@pytest.mark.parametrize(
    ("chosen", "taken", "is_free"),
    [
        ("10.8.1.0/24", "10.8.1.0/24", False),
        ("10.8.0.0/16", "10.8.1.0/24", False),
        ("10.8.1.128/25", "10.8.1.0/24", False),
        ("10.8.2.0/24", "10.8.1.0/24", True),
        ("fd00:8::/64", "10.8.1.0/24", True),
    ],
    ids=["the same", "around it", "inside", "beside", "of the other family"],
)
def test_what_overlaps_with_another_node_is_not_written_whatever_the_cloud_chose(
    chosen: str, taken: str, is_free: bool
) -> None:
    server = Server()
    chooser = begun(server)
    server.create("a")
    server.create("b")
    chooser.leader.sync()
    chooser.chosen = {"a": taken, "b": chosen}
    chooser.run("a")
    if is_free:
        chooser.run("b")
        assert server.ranges()["b"] == [chosen]
        return
    with pytest.raises(RangesOverlap, match=f"the cloud chose {chosen}, which overlaps .* of a$") as error:
        chooser.run("b")
    assert server.ranges() == {"a": [taken], "b": []}
    chooser.reconciler.failed("b", error.value)
    [(name, _, reason, message)] = chooser.leader.events.events
    assert (name, reason) == ("b", "PodCIDRConflict")
    assert message.endswith("of a. It is tried again")
    server.nodes.pop("a")
    chooser.leader.sync()
    chooser.run("a")
    chooser.run("b")
    assert server.ranges() == {"b": [chosen]}, "free again"
