"""Range allocation over an API server in memory: lost answers, stale caches, take-overs, recreated
nodes, others."""

from __future__ import annotations

import random
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.nodeipam.assigner import REST
from controllers.nodeipam.guards import SEAL
from controllers.nodeipam.reconcile import START, NoRangeLeft
from controllers.runtime.api import Conflict, Forbidden, Unreachable
from tests.unit.nodeipam.objects import FULL, PREFIX, Leader, Server, leads, lost, started


def seals(server: Server) -> list[str]:
    return [name for name, body in server.patches if "spec" not in body]


def writes(server: Server) -> list[str]:
    return [name for name, body in server.patches if "spec" in body]


def test_a_node_that_comes_later_costs_one_write() -> None:
    server, leader = started(old="10.0.0.0/26")
    leader.join("new")
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
    assert leader.see("a") == []
    assert server.patches == []

    def refuse(name: str, body: Any) -> None:
        if name == "b":
            raise lost()

    server.before = refuse
    leader.start()
    assert server.ranges() == {"a": [], "b": []}, "a write of the last leader to b may be under way"
    server.calm()
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
    server.calm()
    server.apply(PREFIX + "c", sent["c"])  # it arrives before the next leader begins
    second = Leader(server)
    server.after = lambda _name, body: None if "spec" in body else late()

    def late() -> None:  # it arrives while nodes are sealed: a's after its seal, and too late
        server.after = lambda _name, _body: None
        with pytest.raises(Exception, match="Conflict"):
            server.apply(PREFIX + "a", sent["a"])

    second.start()
    with pytest.raises(Exception, match=r"Conflict|Invalid"):
        server.apply(PREFIX + "b", sent["b"])
    assert all(server.ranges().values())
    server.judge()
    assert second.detector.verdict == ""


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
    server.calm()
    refused: list[str] = []

    def arrive(name: str, body: Any) -> None:
        if name == "a" and "spec" in body:
            assert body["spec"] == sent[0]["spec"], "the range that is on its way to b"
            try:
                server.apply(PREFIX + "b", sent[0])
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
    assert leader.detector.verdict == ""


@pytest.mark.parametrize("arrives", [True, False])
def test_after_a_lost_answer_the_range_stays_the_nodes(arrives: bool) -> None:
    server, leader = started()
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
    server.calm()
    leader.run("b")
    assert server.ranges()["b"] == ["10.0.0.64/26"]
    assert leader.run("a") == []
    assert server.ranges()["a"] == ["10.0.0.0/26"]
    leader.see("a")
    assert leader.metrics.value("node_ipam_controller_conflicts_total", kind="other_writer") == 0, "it is our own write"
    server.judge()


def test_a_range_returns_only_when_a_quorum_read_says_that_the_node_is_gone() -> None:
    server, leader = started(**FULL)
    leader.cache.pop("n1")  # a wrongly empty list
    server.create("late")
    leader.sync()
    leader.cache.pop("n1")
    leader.run("n1", "late")
    leader.clock.advance(REST)
    leader.run("n1")
    assert server.ranges()["late"] == []
    assert "CIDRNotAvailable" in leader.events.reasons("late")
    leader.gone("n1")
    assert server.ranges()["late"] == ["10.0.0.64/26"], "who waits gets it at once"
    assert leader.metrics.value("node_ipam_controller_cidrset_usage_cidrs", clusterCIDR="10.0.0.0/24") == 1.0


@pytest.mark.parametrize(
    "answer", [{}, [], "maintenance", {"kind": "Status", "metadata": {}}, {"metadata": {"name": "n2", "uid": "u"}}]
)
def test_nor_when_the_answer_is_no_node_of_that_name(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway before the API server may answer 200 to everything while it is being repaired."""
    server, leader = started(**FULL)
    server.create("late")
    leader.sync()
    leader.run("late")
    leader.cache.pop("n1")
    leader.run("n1")
    leader.clock.advance(REST)
    with monkeypatch.context() as patch:
        patch.setattr(server, "get", lambda path, **_: answer)
        leader.run("n1")
    assert server.ranges()["late"] == []
    server.delete("n1")
    leader.run("n1")
    assert server.ranges()["late"] == ["10.0.0.64/26"]


@pytest.mark.row("M13")
@pytest.mark.parametrize("again", ["", "n1"], ids=["deleted", "recreated under its name"])
def test_a_deleted_nodes_ranges_rest_whatever_brings_its_name(again: str) -> None:
    server, leader = started(**FULL)
    leader.join("late")
    server.delete("n1")
    if again:
        server.create("n1")
    leader.see("n1", "late")
    assert leader.keys.next_run("n1") == REST, "then its name comes by itself"
    for _ in range(9):
        leader.clock.advance(REST / 10)
        leader.sweep()
        leader.see("n1", "late")
        assert server.ranges()["late"] == []
    leader.clock.advance(REST / 10)
    leader.run("n1")
    assert sum(ranges == ["10.0.0.64/26"] for ranges in server.ranges().values()) == 1
    server.judge()


@pytest.mark.row("M13")
def test_a_rest_begins_again_where_the_cache_was_only_behind() -> None:
    server, leader = started(**FULL)
    leader.join("late")
    leader.cache.pop("n1")
    leader.run("n1")
    leader.clock.advance(REST / 2)
    leader.see("n1")
    server.delete("n1")
    leader.see("n1")
    leader.clock.advance(REST * 0.9)
    leader.see("n1")
    assert server.ranges()["late"] == []


def test_a_node_recreated_under_its_name_is_another_one() -> None:
    server, leader = started(a="")
    assert server.ranges() == {"a": ["10.0.0.0/26"]}
    server.delete("a")
    server.create("a")
    leader.run("a")  # by a cache that shows the former one
    assert server.ranges() == {"a": []}
    leader.see("a")
    assert server.ranges() == {"a": ["10.0.0.64/26"]}
    leader.clock.advance(REST)
    leader.run("a")
    assert leader.allocations.pools[0].used == 1


@pytest.mark.parametrize("cached", [False, True], ids=["the cache lacks it yet", "the cache has it"])
def test_a_node_created_anew_with_its_range_keeps_it_from_those_that_wait(cached: bool) -> None:
    server, leader = started(**FULL)
    leader.join("late")
    server.delete("n1")
    server.create("n1", "10.0.0.64/26")
    leader.sync()
    if not cached:
        leader.cache.pop("n1")

    def add(name: str, priority: int) -> None:
        with suppress(NoRangeLeft):
            leader.reconciler.reconcile(name)

    leader.assigner.pending._queue = cast(Any, SimpleNamespace(add=add))  # another worker is free
    assert leader.run("n1") == []
    leader.clock.advance(REST)
    assert leader.run("n1") == []
    assert server.ranges()["late"] == []
    assert "PodCIDRConflict" not in leader.events.reasons()
    leader.see("n1")
    server.judge()
    leader.gone("n1")
    assert server.ranges()["late"] == ["10.0.0.64/26"]


def test_a_node_that_goes_while_it_is_written_gives_its_range_back() -> None:
    server, leader = started()
    server.create("a")
    leader.sync()

    def vanish(name: str, _body: Any) -> None:
        server.nodes.pop(name, None)

    server.before = vanish
    leader.run("a")
    assert leader.allocations.pools[0].used == 0


def test_a_restored_server_has_its_nodes_written_again() -> None:
    """K2: the node is back without its range; `Allocations` believed the write."""
    server, leader = started()
    leader.join("a")
    server.nodes["a"]["spec"] = {}
    server.history.clear()
    leader.see("a")
    assert server.ranges()["a"] == [], "as a cache behind its own writes"
    leader.sweep()
    assert server.ranges()["a"] == ["10.0.0.0/26"]


def test_the_sweep_finds_what_no_event_told() -> None:
    server, leader = started(a="10.0.0.0/26")
    server.delete("a")
    leader.sync()
    leader.sweep()
    leader.clock.advance(REST)
    leader.sweep()
    assert leader.allocations.pools[0].used == 0


@pytest.mark.row("M14")
def test_nodes_with_one_family_in_a_cluster_of_two_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The cluster got its second family when they were there already."""
    server, leader = started("10.0.0.0/24,fd00:0:0:100::/56", old="10.0.0.0/26")
    assert "1 nodes have pod CIDRs of one family only" in caplog.text
    leader.join("new")
    leader.join("older", "10.0.0.128/26")  # its creation is seen late
    for _ in range(3):
        leader.see("old", "new", "older")
        leader.sweep()
    told = [one for one in leader.events.events if one.reason == "PodCIDRFamilyMissing"]
    assert [one.name for one in told] == ["old", "older"]
    assert "no pod CIDR of IPv6" in told[0].message
    assert leader.metrics.value("node_ipam_controller_nodes_without_family") == 2
    assert len(server.ranges()["new"]) == 2
    leader.gone("old")
    assert leader.metrics.value("node_ipam_controller_nodes_without_family") == 1
    single = leads(server, "10.0.0.0/24")
    assert single.metrics.value("node_ipam_controller_nodes_without_family") == 0


@pytest.mark.parametrize(
    ("writer", "nodes"), [("kube-controller-manager", 2), ("kubectl-patch", 3), ("cloud-controller-manager", 3)]
)
def test_with_proof_of_another_allocator_nothing_is_given_any_more(writer: str, nodes: int) -> None:
    server, leader = started("10.0.0.0/26")
    leader.join("ours")
    for number in range(nodes):
        assert leader.detector.verdict == ""
        server.create(f"n{number}")
        leader.see(f"n{number}")  # waits: the only range is taken
        server.write(f"n{number}", f"10.9.{number}.0/24", by=writer)
        leader.see(f"n{number}")
    assert writer in leader.detector.verdict
    assert "--allocate-node-cidrs=false" in leader.detector.verdict
    assert "CIDRAllocationStopped" in leader.events.reasons(f"n{nodes - 1}")
    server.create("late")
    server.delete("ours")
    leader.see("ours", "late")
    assert server.ranges()["late"] == []


KUBE = "kube-controller-manager"


def test_kube_controller_managers_write_is_found_on_a_conflict_too() -> None:
    server, leader = started()
    for name in ("a", "b"):
        server.create(name)
    leader.sync()
    server.before = lambda name, _body: server.write(name, f"10.9.{ord(name)}.0/24", by=KUBE)
    assert leader.run("a") == []
    assert leader.detector.verdict == ""
    assert leader.run("b") == []
    assert "nodes so far: a, b" in leader.detector.verdict
    assert server.ranges()["b"] == ["10.9.98.0/24"]
    assert leader.allocations.pools[0].used == 0


@pytest.mark.row("M10")
@pytest.mark.parametrize("later", [False, True])
def test_one_kubelet_cannot_stop_the_allocation_whoever_it_says_it_is(later: bool) -> None:
    """It creates its Node with a range, or writes one onto it, again and again: it is one node all
    the same."""
    server, leader = started()
    for number in range(5):
        server.nodes.pop("evil", None)
        if later:
            server.create("evil")
            leader.sync()
            server.write("evil", f"10.9.{number}.0/24", by=KUBE)
        else:
            server.create("evil", f"10.9.{number}.0/24", by=KUBE)
        leader.see("evil")
        assert leader.detector.verdict == ""
    leader.join("honest")
    assert server.ranges()["honest"] == ["10.0.0.0/26"]
    told = leader.metrics.value("node_ipam_controller_conflicts_total", kind="other_writer")
    assert told == (5 if later else 0)


@pytest.mark.row("M10")
def test_nodes_that_came_with_ranges_are_no_allocators_work_however_many() -> None:
    _, leader = started("10.0.0.0/22")
    for number in range(5):
        leader.join(f"n{number}", f"10.0.1.{number * 32}/27", by=KUBE)
    assert leader.detector.verdict == ""
    assert leader.allocations.pools[0].used == 3, "they are kept from others: none is more than a node gets"


@pytest.mark.row("M10")
def test_a_range_wider_than_a_block_that_a_node_came_with_is_told_and_takes_nothing() -> None:
    server, leader = started()
    leader.join("evil", "10.0.0.0/24", by="kubelet")
    assert "PodCIDRTooWide" in leader.events.reasons("evil")
    assert leader.metrics.value("node_ipam_controller_conflicts_total", kind="too_wide") == 1
    for name in ("a", "b", "c", "d"):
        assert leader.join(name) == []
    assert sorted(server.ranges()[name] for name in "abcd") == [[f"10.0.0.{place}/26"] for place in (0, 128, 192, 64)]
    assert "PodCIDRConflict" not in leader.events.reasons()
    leader.run("evil", "evil")
    assert leader.events.reasons("evil").count("PodCIDRTooWide") == 1
    server.nodes["evil"]["spec"] = {}  # the server was restored from a backup: it is not written back
    server.history.clear()
    leader.sync()
    [error] = leader.sweep()
    assert "no pod CIDR is free in 10.0.0.0/24. Fix" in str(error)
    assert server.ranges()["evil"] == []
    server.delete("evil")
    leader.see("evil")
    assert leader.allocations.pools[0].used == 4


@pytest.mark.row("M10")
def test_ranges_wider_than_a_block_that_stood_there_at_the_start_are_kept_and_named_when_none_is_left() -> None:
    """The mask size may have grown: such nodes have pods."""
    _, leader = started(old="10.0.0.0/25", older="10.0.0.128/25", out="192.168.0.0/16")
    [error] = leader.join("late")
    wide = "10.0.0.0/25 of node old takes 2 blocks, 10.0.0.128/25 of node older takes 2 blocks"
    assert str(error).startswith(f"no pod CIDR is free in 10.0.0.0/24 ({wide}).")


@pytest.mark.parametrize("cached", [False, True], ids=["the cache lacks it yet", "the cache has it"])
def test_a_node_created_anew_keeps_its_range_that_is_wider_than_a_block(cached: bool) -> None:
    """As for a machine that was replaced under its name, once the mask size has grown."""
    server, leader = started(old="10.0.0.0/25")
    server.delete("old")
    server.create("old", "10.0.0.0/25")
    leader.sync()
    if not cached:
        leader.cache.pop("old")
    assert leader.run("old") == []
    assert leader.see("old") == []
    for name in ("a", "b", "none"):
        leader.join(name)
    assert server.ranges()["none"] == []
    assert leader.events.reasons("old") == []
    server.judge()


@pytest.mark.row("M10")
@pytest.mark.parametrize("inside", [1, 2])
def test_a_range_in_which_two_other_nodes_have_theirs_takes_nothing_at_the_start_either(inside: int) -> None:
    server = Server()
    server.create("evil", "10.0.0.0/24")
    for number in range(inside):
        server.create(f"n{number}", f"10.0.0.{number * 64}/26")
    leader = leads(server)
    leader.join("late")
    if inside == 1:  # two that overlap: both keep theirs, and nobody else gets any of it
        assert server.ranges()["late"] == []
        assert "PodCIDRTooWide" not in leader.events.reasons("evil")
        assert "PodCIDRConflict" in leader.events.reasons("n0")
    else:
        assert server.ranges()["late"] == ["10.0.0.128/26"]
        assert [one[::2] for one in leader.events.events] == [("evil", "PodCIDRTooWide")]


@pytest.mark.row("M10")
def test_such_a_range_that_a_kubelet_writes_later_takes_nothing_either() -> None:
    server, leader = started()
    for name in ("a", "b"):
        leader.join(name)
    server.create("evil")
    leader.sync()
    server.write("evil", "10.0.0.0/24", by="kubelet")
    server.create("late")
    leader.see("evil", "late")
    assert server.ranges()["late"] == ["10.0.0.128/26"]
    assert "PodCIDRTooWide" in leader.events.reasons("evil")


FOREVER = 180.0


@pytest.mark.row("M11")
def test_one_node_that_cannot_be_changed_holds_the_others_up_for_minutes_and_not_for_ever() -> None:
    server = Server()
    server.create("frozen")
    server.create("a")

    def refuse(name: str, _body: Any) -> None:
        if name == "frozen":
            raise Forbidden("this Node is protected", status=403)

    server.before = refuse
    leader = Leader(server)
    leader.sync()
    wait = leader.reconciler.reconcile(START).requeue_after
    assert wait == FOREVER
    server.create("late")
    errors = leader.see("a", "late")
    assert {type(error) for error in errors} == {Forbidden}
    leader.clock.advance(FOREVER - 1)
    again = leader.reconciler.reconcile(START)
    assert (again.requeue_after, again.routine) == (1, True)
    leader.run()
    assert server.ranges() == {"frozen": [], "a": [], "late": []}, "a former leader's write may still arrive"
    leader.clock.advance(1)
    assert leader.reconciler.reconcile(START).requeue_after is None
    assert [str(error) for error in leader.run("frozen")] == ["403: this Node is protected"]
    assert sorted(server.ranges().items()) == [("a", ["10.0.0.0/26"]), ("frozen", []), ("late", ["10.0.0.64/26"])]
    held = leader.allocations.named("frozen")[0]
    assert (str(held.ranges[0]), held.written) == ("10.0.0.128/26", False), "kept for it: its write may be under way"
    server.create("last")
    server.create("none")
    leader.see("last", "none")
    assert (server.ranges()["last"], server.ranges()["none"]) == (["10.0.0.192/26"], [])
    server.calm()
    assert leader.run("frozen") == []
    assert server.ranges()["frozen"] == ["10.0.0.128/26"]


@pytest.mark.row("M11")
def test_a_takeover_that_is_over_needs_no_timer() -> None:
    server = Server()
    server.create("has", "10.0.0.0/26")
    leader = Leader(server)
    leader.sync()
    assert leader.reconciler.reconcile(START).requeue_after is None


def test_writes_of_the_last_leader_that_arrive_during_the_takeover_are_no_proof_and_others_are() -> None:
    server = Server()
    leader = Leader(server)

    def wrote(name: str, by: str, **how: bool) -> str:
        leader.detector.wrote(server.create(name, "10.9.0.0/24", by=by), **how)
        return leader.detector.verdict

    own = "cloud-controller-manager"
    for number in range(3):
        assert wrote(f"late-{number}", own, before_us=True) == ""
    assert leader.metrics.value("node_ipam_controller_conflicts_total", kind="other_writer") == 0
    assert wrote("a", own) == "", "its namesake in another process, say"
    assert wrote("b", "kubectl", before_us=True) == ""
    assert leader.metrics.value("node_ipam_controller_stopped") == 0
    assert "kubectl gave node c its pod CIDRs (nodes so far: a, b, c)" in wrote("c", "kubectl", before_us=True)
    assert leader.metrics.value("node_ipam_controller_stopped") == 1
    assert wrote("d", KUBE).startswith("another allocator is at work: kubectl gave node c"), "the first one stays"
    assert [one[::2] for one in leader.events.events] == [("c", "CIDRAllocationStopped")]


def test_what_stood_there_before_is_no_proof() -> None:
    server = Server()
    for number in range(3):
        server.create(f"n{number}", f"10.0.0.{number * 64}/26", by="kube-controller-manager")
    leader = leads(server)
    assert leader.detector.verdict == ""


def test_overlaps_and_ranges_that_cannot_be_read_are_told_and_left_alone() -> None:
    server, leader = started(a="10.0.0.0/25", b="10.0.0.64/26", c="")
    assert "PodCIDRConflict" in leader.events.reasons("b")
    assert server.ranges()["c"] == ["10.0.0.128/26"]
    assert writes(server) == ["c"]
    assert seals(server) == ["c"]


def test_ranges_that_are_added_left_out_or_put_in_another_order_change_no_node() -> None:
    server, leader = started("10.0.0.0/25,fd00::/60")
    for name in ("a", "b"):
        assert leader.join(name) == []
    [error] = leader.join("c")
    assert str(error).startswith("no pod CIDR is free in 10.0.0.0/25. Fix: add a range to --cluster-cidr")

    leader = leads(server, "10.0.0.0/25,fd00::/60,10.8.0.0/24")
    assert server.ranges()["c"] == ["10.8.0.0/26", "fd00:0:0:2::/64"], "it waited"
    usage = "node_ipam_controller_cidrset_usage_cidrs"
    assert leader.metrics.value(usage, clusterCIDR="10.0.0.0/25") == 1.0
    assert leader.metrics.value(usage, clusterCIDR="10.8.0.0/24") == 0.25

    leader = leads(server, "fd00::/60,10.8.0.0/24,10.0.0.0/25")
    assert leader.join("d") == []
    assert server.ranges()["d"] == ["fd00:0:0:3::/64", "10.8.0.64/26"], "the first range's family comes first"

    leader = leads(server, "10.8.0.0/24,10.9.0.0/25")  # the first two are left out
    for name in ("e", "f", "g"):
        assert leader.join(name) == []
    assert [server.ranges()[name] for name in "efg"] == [["10.8.0.128/26"], ["10.8.0.192/26"], ["10.9.0.0/26"]]
    assert [server.ranges()[name] for name in "abc"] == [
        ["10.0.0.0/26", "fd00::/64"],
        ["10.0.0.64/26", "fd00:0:0:1::/64"],
        ["10.8.0.0/26", "fd00:0:0:2::/64"],
    ]
    assert leader.events.reasons("a") == []
    leader = leads(server, "10.0.0.0/25")  # and back: what its nodes kept is not free
    [error] = leader.join("h")
    assert "no pod CIDR is free in 10.0.0.0/25" in str(error)
    server.judge()


@pytest.mark.parametrize("seed", range(6))
def test_chaos_of_leaders_lost_answers_and_late_writes(seed: int) -> None:
    """Leaders are killed at random; their writes arrive late, never, or without an answer. The next
    one may have other ranges. The judge is the history."""
    draw = random.Random(seed)
    clusters = ["10.0.0.0/20", "10.8.0.0/22,10.0.0.0/20", "10.0.0.0/22,10.8.0.0/20"]
    server = Server()
    under_way: list[tuple[str, Any]] = []

    def before(name: str, body: Any) -> None:
        for place in range(len(under_way) - 1, -1, -1):
            if draw.random() < 0.2:
                late, late_body = under_way.pop(place)
                try:
                    server.apply(PREFIX + late, late_body)
                except Exception:  # noqa: BLE001 - refused, as it should be
                    continue
        if "spec" in body and draw.random() < 0.3:
            under_way.append((name, body))
            raise lost()

    def after(name: str, body: Any) -> None:
        if draw.random() < 0.1:
            raise lost()

    server.before, server.after = before, after
    leader = leads(server, draw.choice(clusters))
    names = 0
    for _ in range(120):
        step = draw.random()
        if step < 0.1:
            leader = leads(server, draw.choice(clusters))  # the last one is killed
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
    server.calm()
    for _ in range(3):
        leader.sync()
        leader.run(*leader.cache)
    assert all(server.ranges().values())
    server.judge()
    assert leader.detector.verdict == ""
