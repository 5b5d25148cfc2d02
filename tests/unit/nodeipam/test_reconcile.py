"""Range allocation over an API server in memory: lost answers, stale caches, take-overs, recreated nodes, rivals."""

from __future__ import annotations

import random
from typing import Any

import pytest

from controllers.nodeipam.changes import SEAL
from controllers.runtime.api import Conflict, Unreachable
from tests.unit.nodeipam.objects import Leader, Server, lost


def seals(server: Server) -> list[str]:
    return [name for name, body in server.patches if "spec" not in body]


def writes(server: Server) -> list[str]:
    return [name for name, body in server.patches if "spec" in body]


def test_a_node_that_comes_later_costs_one_write() -> None:
    server = Server()
    server.create("old", "10.0.0.0/26")
    leader = Leader(server)
    leader.start()
    server.create("new")
    leader.sync()
    leader.run("new")
    assert server.ranges()["new"] == ["10.0.0.64/26"]
    [(name, body)] = server.patches
    assert name == "new"
    assert body["spec"] == {"podCIDR": "10.0.0.64/26", "podCIDRs": ["10.0.0.64/26"]}
    assert body["metadata"].keys() == {"uid", "resourceVersion"}
    leader.run("new", "old")  # the cache is behind: it shows no range yet
    assert len(server.patches) == 1


def test_nothing_is_given_before_all_nodes_are_listed_and_those_that_wait_are_sealed() -> None:
    server = Server()
    for name in ("a", "b"):
        server.create(name)
    leader = Leader(server)
    leader.sync()
    assert leader.run("a") == []
    assert server.patches == []

    def refuse(name: str, body: Any) -> None:
        if name == "b":
            raise lost()

    server.before = refuse
    leader.start()
    assert server.ranges() == {"a": [], "b": []}, "a write of the last leader to b may be under way"
    server.before = lambda _name, _body: None
    leader.run("b")
    assert sorted(server.ranges().values()) == [["10.0.0.0/26"], ["10.0.0.64/26"]]
    assert all(SEAL not in node["metadata"].get("annotations", {}) for node in server.nodes.values())


def test_a_write_of_the_last_leader_that_arrives_late_is_refused_or_seen() -> None:
    server = Server()
    for name in ("a", "b", "c"):
        server.create(name)
    sent: dict[str, Any] = {}

    def hold(name: str, body: Any) -> None:
        if "spec" in body:
            sent[name] = body  # on its way, for minutes
            raise lost()

    first = Leader(server)
    server.before = hold
    first.start()
    assert sent.keys() == {"a", "b", "c"}
    server.before = lambda _name, _body: None
    server.apply("c", sent["c"])  # it arrives before the next leader begins
    second = Leader(server)
    server.after = lambda _name, body: None if "spec" in body else late()

    def late() -> None:  # it arrives while nodes are sealed: a's after its seal, and too late
        server.after = lambda _name, _body: None
        with pytest.raises(Exception, match="Conflict"):
            server.apply("a", sent["a"])

    second.start()
    with pytest.raises(Exception, match=r"Conflict|Invalid"):
        server.apply("b", sent["b"])
    assert all(server.ranges().values())
    server.judge()
    assert second.rival.verdict == ""


def test_a_late_write_cannot_take_what_another_node_was_given_meanwhile() -> None:
    server = Server()
    server.create("b")
    first = Leader(server)
    sent: list[Any] = []

    def hold(name: str, body: Any) -> None:
        if "spec" in body:
            sent.append(body)
            raise lost()

    server.before = hold
    first.start()
    server.create("a")  # the last one that is sealed is served first
    server.before = lambda _name, _body: None
    refused: list[str] = []

    def arrive(name: str, body: Any) -> None:
        if name == "a" and "spec" in body:
            assert body["spec"] == sent[0]["spec"], "the range that is on its way to b"
            try:
                server.apply("b", sent[0])
            except Conflict as error:
                refused.append(error.reason)

    server.after = arrive
    Leader(server).start()
    assert refused == ["Conflict"]
    assert server.ranges() == {"b": ["10.0.0.64/26"], "a": ["10.0.0.0/26"]}
    server.judge()


def test_a_write_that_arrives_during_the_takeover_is_taken_over() -> None:
    server = Server()
    server.create("a")
    server.create("b")
    leader = Leader(server)

    def arrive(name: str, body: Any) -> None:
        if name == "a" and "spec" not in body and not server.ranges()["a"]:
            server.write("a", "10.0.0.0/26", by="cloud-controller-manager")

    server.before = arrive
    leader.start()
    assert server.ranges() == {"a": ["10.0.0.0/26"], "b": ["10.0.0.64/26"]}
    assert SEAL not in server.nodes["a"]["metadata"].get("annotations", {})
    assert leader.rival.verdict == ""


@pytest.mark.parametrize("arrives", [True, False])
def test_after_a_lost_answer_the_range_stays_the_nodes(arrives: bool) -> None:
    server = Server()
    leader = Leader(server)
    leader.start()
    server.create("a")
    server.create("b")
    leader.sync()

    def lose(name: str, body: Any) -> None:
        raise lost()

    if arrives:
        server.after = lose
    else:
        server.before = lose
    [error] = leader.run("a")
    assert isinstance(error, Unreachable)
    server.before = server.after = lambda _name, _body: None
    leader.run("b")
    assert server.ranges()["b"] == ["10.0.0.64/26"]
    assert leader.run("a") == []
    assert server.ranges()["a"] == ["10.0.0.0/26"]
    assert leader.rival.verdict == ""
    server.judge()


def test_a_range_returns_only_when_a_quorum_read_says_that_the_node_is_gone() -> None:
    server = Server()
    for number in range(4):
        server.create(f"n{number}", f"10.0.0.{number * 64}/26")
    leader = Leader(server)
    leader.start()
    leader.cache.pop("n1")  # a wrongly empty list
    server.create("late")
    leader.sync()
    leader.cache.pop("n1")
    leader.run("n1", "late")
    assert server.ranges()["late"] == []
    assert ("late", "CIDRNotAvailable") in leader.events.told
    server.delete("n1")
    leader.run("n1")
    assert server.ranges()["late"] == ["10.0.0.64/26"], "who waits gets it at once"
    assert leader.metrics.value("node_ipam_controller_cidrset_usage_cidrs", clusterCIDR="10.0.0.0/24") == 1.0


def test_a_node_recreated_under_its_name_is_another_one() -> None:
    server = Server()
    server.create("a")
    leader = Leader(server)
    leader.start()
    assert server.ranges() == {"a": ["10.0.0.0/26"]}
    server.delete("a")
    server.create("a")
    leader.run("a")  # by a cache that shows the former one
    assert server.ranges() == {"a": []}
    leader.sync()
    leader.run("a")
    assert server.ranges() == {"a": ["10.0.0.64/26"]}
    assert leader.ledger.pools[0].used == 1


def test_a_node_that_goes_while_it_is_written_gives_its_range_back() -> None:
    server = Server()
    leader = Leader(server)
    leader.start()
    server.create("a")
    leader.sync()

    def vanish(name: str, _body: Any) -> None:
        server.nodes.pop(name, None)

    server.before = vanish
    leader.run("a")
    assert leader.ledger.pools[0].used == 0


def test_a_restored_server_has_its_nodes_written_again() -> None:
    """K2: the node is back without its range; the ledger believed the write."""
    server = Server()
    leader = Leader(server)
    leader.start()
    server.create("a")
    leader.sync()
    leader.run("a")
    server.nodes["a"]["spec"] = {}
    server.history.clear()
    leader.sync()
    leader.run("a")
    assert server.ranges()["a"] == [], "as a cache behind its own writes"
    leader.assigner.sweep(Queue(leader))  # type: ignore[arg-type]
    leader.run()
    assert server.ranges()["a"] == ["10.0.0.0/26"]


class Queue:
    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def add(self, name: str, priority: int = 0) -> None:
        self._leader.queue.append(name)


def test_the_sweep_finds_what_no_event_told() -> None:
    server = Server()
    server.create("a", "10.0.0.0/26")
    leader = Leader(server)
    leader.start()
    server.delete("a")
    leader.sync()
    leader.assigner.sweep(Queue(leader))  # type: ignore[arg-type]
    leader.run()
    assert leader.ledger.pools[0].used == 0


@pytest.mark.parametrize(
    ("writer", "nodes"), [("kube-controller-manager", 1), ("kubectl-patch", 3), ("cloud-controller-manager", 3)]
)
def test_with_proof_of_another_allocator_nothing_is_given_any_more(writer: str, nodes: int) -> None:
    server = Server()
    leader = Leader(server, "10.0.0.0/26")
    leader.start()
    server.create("ours")
    leader.sync()
    leader.run("ours")
    for number in range(nodes):
        assert leader.rival.verdict == ""
        server.create(f"n{number}")
        leader.sync()
        leader.run(f"n{number}")  # waits: the only range is taken
        server.write(f"n{number}", f"10.9.{number}.0/24", by=writer)
        leader.sync()
        leader.run(f"n{number}")
    assert writer in leader.rival.verdict
    assert "--allocate-node-cidrs=false" in leader.rival.verdict
    assert (f"n{nodes - 1}", "CIDRAllocationStopped") in leader.events.told
    server.create("late")
    server.delete("ours")
    leader.sync()
    leader.run("ours", "late")
    assert server.ranges()["late"] == []


def test_kube_controller_managers_write_is_proof_also_on_a_node_that_came_with_it_and_on_a_conflict() -> None:
    server = Server()
    leader = Leader(server)
    leader.start()
    server.create("a", "10.9.0.0/24", by="kubeadm")  # created with a range: that proves nothing
    server.create("b")
    leader.sync()
    server.before = lambda name, _body: server.write(name, "10.9.1.0/24", by="kube-controller-manager")
    assert leader.run("a") == []
    assert leader.rival.verdict == ""
    assert leader.run("b") == []
    assert "kube-controller-manager" in leader.rival.verdict
    assert server.ranges()["b"] == ["10.9.1.0/24"]
    assert leader.ledger.pools[0].used == 0


def test_what_stood_there_before_is_no_proof() -> None:
    server = Server()
    for number in range(3):
        server.create(f"n{number}", f"10.0.0.{number * 64}/26", by="kube-controller-manager")
    leader = Leader(server)
    leader.start()
    assert leader.rival.verdict == ""


def test_overlaps_and_ranges_that_cannot_be_read_are_told_and_left_alone() -> None:
    server = Server()
    server.create("a", "10.0.0.0/25")
    server.create("b", "10.0.0.64/26")
    server.create("c")
    leader = Leader(server)
    leader.start()
    assert ("b", "PodCIDRConflict") in leader.events.told
    assert server.ranges()["c"] == ["10.0.0.128/26"]
    assert writes(server) == ["c"]
    assert seals(server) == ["c"]


@pytest.mark.parametrize("seed", range(6))
def test_chaos_of_leaders_lost_answers_and_late_writes(seed: int) -> None:
    """Leaders are killed at random; their writes arrive late, never, or without an answer. The judge is the history."""
    draw = random.Random(seed)
    server = Server()
    under_way: list[tuple[str, Any]] = []

    def before(name: str, body: Any) -> None:
        for place in range(len(under_way) - 1, -1, -1):
            if draw.random() < 0.2:
                late, late_body = under_way.pop(place)
                try:
                    server.apply(late, late_body)
                except Exception:  # noqa: BLE001 - refused, as it should be
                    continue
        if "spec" in body and draw.random() < 0.3:
            under_way.append((name, body))
            raise lost()

    def after(name: str, body: Any) -> None:
        if draw.random() < 0.1:
            raise lost()

    server.before, server.after = before, after
    leader = Leader(server, "10.0.0.0/20", 26)
    leader.start()
    names = 0
    for _ in range(120):
        step = draw.random()
        if step < 0.1:
            leader = Leader(server, "10.0.0.0/20", 26)  # the last one is killed
            leader.start()
        elif step < 0.5:
            names += 1
            server.create(f"n{names}")
        elif step < 0.6 and server.nodes:
            gone = draw.choice(sorted(server.nodes))
            server.delete(gone)
            leader.queue.append(gone)
        if draw.random() < 0.7:
            leader.sync()
        leader.run(*draw.sample(sorted(leader.cache), min(3, len(leader.cache))))
        server.judge()
    server.before = server.after = lambda _name, _body: None
    for _ in range(3):
        leader.sync()
        leader.run(*leader.cache)
    assert all(server.ranges().values())
    server.judge()
    assert leader.rival.verdict == ""
