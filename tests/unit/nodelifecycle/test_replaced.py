"""Machines that were replaced under their node's name, with a kubelet that goes on with the old
Node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from cloudprovider import InstanceMetadata, InstanceNotFound, InstanceState, Throttled
from controllers.cloudcalls import CallFailed
from controllers.nodelifecycle.replaced import SETTLED, Machines, machine_of, registration
from controllers.runtime.api import (
    AlreadyExists,
    ApiError,
    Forbidden,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from controllers.runtime.base import ControllerBase
from tests.support.controllers import nothing, parsed_node, refuse
from tests.unit.nodelifecycle.support import OTHER, PERIOD, SHUTDOWN, UNINITIALIZED, Bench, node, raw_node

GONE = InstanceState.GONE
OLD, NEW = "fake://n0", "fake://i-new"


def _bench(*, moves: bool = True, ready: str = "True", **fields: Any) -> Bench:
    """A Ready node that the cloud has called existing; then its machine is replaced under its name,
    and the new kubelet goes on with the Node."""
    bench = Bench(**fields)
    bench.put("n0", provider_id=OLD, ready="True", machine="first")
    bench.tick()
    assert "n0" in bench.cloud.asked
    bench.cloud.says["n0"] = GONE
    bench.cloud.by_name["n0"] = InstanceMetadata(provider_id=NEW)
    if moves:
        before = bench.lister.objects["n0"]
        after = bench.put("n0", provider_id=OLD, ready=ready, machine="second", version="8")
        bench.triggers.on_update(before, after)
    return bench


def _asked(bench: Bench, seconds: float = PERIOD) -> None:
    """A period passes: the node is asked about, by its ID and by its name."""
    bench.clock.advance(seconds)
    bench.run("n0")
    for name in bench.take_successors():
        bench.events.fetch_successors([name], bench.events.report_successor)


@pytest.mark.row("N16")
@pytest.mark.parametrize("ready", ["True", "False"])
def test_the_node_is_created_anew_after_two_answers(ready: str) -> None:
    bench = _bench(ready=ready)
    assert "n0" in bench.sweep(), "a kubelet that reports another machine is asked about at once"
    _asked(bench, 0.0)
    assert not bench.server.created
    _asked(bench)
    assert bench.server.created == [("n0", True), ("n0", False)], "the dry run comes first"
    assert bench.server.deleted == ["n0"]
    assert bench.server.nodes["n0"]["spec"] == {"taints": [UNINITIALIZED]}
    assert bench.recorder.reasons() == ["InstanceRecreated", "NodeCreatedAnew"]
    assert "restart the kubelet" in bench.recorder.messages()[-1], "its CSINode goes with the former Node"


@pytest.mark.row("N16", "N1")
def test_a_ready_node_whose_kubelet_reports_the_same_machine_stays() -> None:
    bench = _bench(moves=False)
    for _ in range(50):
        bench.tick()
    assert not bench.server.created
    assert not bench.server.deletes


@pytest.mark.row("N16", "N1")
@pytest.mark.parametrize(
    "named", [InstanceNotFound("no such name"), InstanceMetadata(provider_id=OLD)], ids=["none", "the same"]
)
def test_without_another_instance_of_its_name_a_ready_node_stays(named: InstanceMetadata | Exception) -> None:
    bench = _bench()
    bench.cloud.by_name["n0"] = named
    for _ in range(20):
        _asked(bench)
        bench.survey()
    assert not bench.server.created
    assert not bench.server.deletes
    assert "no other instance of its name" in bench.gate.why(bench.votes.gone()[0][1])
    assert bench.recorder.reasons().count("DeletingNodeHeldBack") == 1


def test_until_the_cloud_has_said_who_has_the_name_nothing_is_done() -> None:
    bench = _bench()
    for _ in range(4):
        bench.clock.advance(PERIOD)
        bench.run("n0")
    assert not bench.server.created
    assert not bench.server.deletes
    _asked(bench)
    _asked(bench)
    assert ("n0", False) in bench.server.created


@pytest.mark.row("N16")
def test_what_the_cloud_calls_existing_is_the_same_instance_reinstalled() -> None:
    bench = _bench()
    bench.cloud.says["n0"] = InstanceState.RUNNING
    _asked(bench)
    assert "n0" in bench.sweep(), "the cloud may know a terminated instance for a while"
    _asked(bench, SETTLED)
    assert "n0" not in bench.sweep()
    bench.cloud.says["n0"] = GONE
    for _ in range(4):
        _asked(bench)
    assert not bench.server.deletes


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_provider_without_provider_ids_has_said_with_gone_that_there_is_no_successor(ready: str) -> None:
    bench = Bench(prefixes=())
    for name in ("n0", "witness"):
        bench.put(name, provider_id=None, ready="True", machine=name)
    bench.tick()
    before = bench.lister.objects["n0"]
    bench.triggers.on_update(before, bench.put("n0", provider_id=None, ready=ready, machine="second", version="8"))
    bench.cloud.says["n0"] = GONE
    for _ in range(20):
        bench.tick()
    assert bench.server.deleted == ([] if ready == "True" else ["n0"]), "a Ready node is never deleted"
    if ready == "True":
        assert "no other instance of its name" in bench.gate.why(bench.votes.gone()[0][1])


@pytest.mark.parametrize("ready", ["True", "False"])
def test_where_the_api_server_would_refuse_the_new_node_nothing_is_deleted_while_ready(ready: str) -> None:
    bench = _bench(ready=ready)
    bench.put("witness", provider_id="fake://witness", ready="True")
    bench.server.before = _refuses_creation
    for _ in range(4):
        _asked(bench)
        bench.sweep()
        bench.run("witness")
    assert all(dry for _, dry in bench.server.created)
    if ready == "True":
        assert not bench.server.deletes
        assert "missing permission: create on nodes" in bench.gate.why(bench.votes.gone()[0][1])
    else:
        assert bench.server.deleted == ["n0"], "as without the permission: its kubelet must be restarted"


def test_a_successor_is_told_once_however_long_its_node_cannot_be_created_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = _bench()
    bench.server.before = _refuses_creation
    for _ in range(20):
        _asked(bench)
    assert [one.message for one in caplog.records if "now has its name" in one.message] == [
        f"node n0: instance {OLD} is gone and instance {NEW} now has its name"
    ]
    assert bench.recorder.reasons().count("InstanceRecreated") == 1


@pytest.mark.row("N15")
def test_what_the_api_server_refuses_is_tried_at_most_once_a_minute_and_carried_out_when_it_is_not() -> None:
    bench = _bench()
    bench.server.before = _refuses_creation
    for _ in range(120):  # ten minutes
        _asked(bench)
    assert 8 <= len(bench.server.created) <= 16
    assert "missing permission: create on nodes" in bench.gate.why(bench.votes.gone()[0][1])
    bench.server.before = lambda *_: None
    for _ in range(12):
        _asked(bench)
    assert bench.server.deleted == ["n0"]
    assert bench.recorder.reasons()[-1] == "NodeCreatedAnew"


def _refuses_creation(name: str, body: dict[str, Any]) -> None:
    if "spec" in body:
        raise Forbidden("nodes is forbidden", method="POST", path="/api/v1/nodes", status=403)


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_a_node_that_was_deleted_is_created_when_the_server_answers_again(lost: bool) -> None:
    bench = _bench()
    _asked(bench)
    fail = refuse(ServerError("out of order", status=500))

    def broken(name: str, body: dict[str, Any]) -> None:
        if "spec" in body and ("n0", False) in bench.server.created:
            fail(name, body)

    if lost:
        bench.server.after = broken
    else:
        bench.server.before = broken
    bench.clock.advance(PERIOD)
    [result] = bench.run("n0").values()
    assert isinstance(result, ServerError)
    bench.server.before = bench.server.after = nothing
    bench.lister.objects.pop("n0", None)
    assert "n0" in bench.sweep()
    bench.run("n0")
    assert bench.server.nodes["n0"]["spec"] == {"taints": [UNINITIALIZED]}
    assert "n0" not in bench.sweep()
    assert ("NodeCreatedAnew" in bench.recorder.reasons()) is not lost


@pytest.mark.row("N16")
def test_a_sweep_that_sees_the_new_node_before_its_creation_returns_takes_nothing_from_the_event() -> None:
    bench = _bench()
    _asked(bench, 0.0)

    def seen(name: str, body: dict[str, Any]) -> None:
        bench.lister.objects[name] = parsed_node(bench.server.nodes[name])
        bench.sweep()

    bench.server.after = seen
    _asked(bench)
    assert bench.recorder.reasons() == ["InstanceRecreated", "NodeCreatedAnew"]


def test_a_node_that_was_not_deleted_after_all_and_then_by_somebody_else_stays_deleted() -> None:
    bench = _bench()
    _asked(bench)
    bench.server.before = _out_of_order_for_deletions
    bench.clock.advance(PERIOD)
    [result] = bench.run("n0").values()
    assert isinstance(result, ServerError)
    assert "n0" in bench.writer.unfinished(), "nobody knows yet whether it was deleted"
    bench.server.before = nothing
    bench.put("n0", provider_id=OLD, ready="True", machine="first", version="9")  # the deletion was of version 8
    bench.sweep()
    bench.lister.objects.pop("n0")
    bench.server.nodes.pop("n0")
    assert "n0" not in bench.sweep()
    bench.run("n0")
    assert "n0" not in bench.server.nodes


def _out_of_order_for_deletions(name: str, body: dict[str, Any]) -> None:
    if "preconditions" in body:
        raise ServerError("out of order", status=500)


def test_a_node_that_cannot_be_created_for_minutes_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    bench = _bench()
    _asked(bench)
    bench.clock.advance(PERIOD)

    def broken(name: str, body: dict[str, Any]) -> None:
        if "spec" in body and ("n0", False) in bench.server.created:
            raise ServerError("out of order", status=500)

    bench.server.before = broken
    bench.run("n0")
    bench.lister.objects.pop("n0", None)
    assert "n0" in bench.sweep()
    bench.clock.advance(900)
    assert "n0" in bench.sweep()
    bench.clock.advance(901)
    assert "n0" not in bench.sweep()
    assert "restart its kubelet" in caplog.text


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_that_waits_to_be_created_when_the_manager_stops_is_tried_once_more(
    answers: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = _bench()
    _asked(bench)

    def broken(name: str, body: dict[str, Any]) -> None:
        if "spec" in body and ("n0", False) in bench.server.created:
            raise TooManyRequests("busy", status=429)

    bench.server.before = broken
    _asked(bench)
    bench.lister.objects.pop("n0", None)
    if answers:
        bench.server.before = nothing
    monkeypatch.setattr(ControllerBase, "run", nothing)  # its drain drops what waits for its next try
    bench.run_until(threading.Event())
    assert ("n0" in bench.server.nodes) is answers
    assert ("restart its kubelet: 429" in caplog.text) is not answers


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw["metadata"].update(uid="another"),
        lambda raw: raw["status"]["nodeInfo"].update(machineID="first", systemUUID="uuid-first"),
        lambda raw: raw["metadata"].update(deletionTimestamp="2026-01-02T03:04:05Z", finalizers=["x/y"]),
    ],
    ids=["recreated", "the old machine", "being deleted"],
)
def test_what_changed_since_the_cloud_was_asked_is_left_alone(change: Callable[[dict[str, Any]], object]) -> None:
    bench = _bench()
    _asked(bench)
    change(bench.server.nodes["n0"])
    _asked(bench)
    assert not bench.server.deletes
    assert not bench.server.created


@pytest.mark.row("N16")
@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_whose_new_machine_reports_while_it_is_deleted_is_created_anew(ready: str) -> None:
    bench = _bench(moves=False)
    bench.put("witness", provider_id="fake://witness", ready="True")
    bench.put("n0", provider_id=OLD, ready="False", machine="first", version="8")
    _asked(bench)
    bench.sweep()
    reported = raw_node("n0", provider_id=OLD, ready=ready, machine="second", version="9")
    bench.server.before = lambda *_: bench.server.nodes.update(n0=reported)  # the cache does not show it yet
    _asked(bench)
    assert len(bench.server.deletes) == 1
    assert not bench.server.deleted, "its kubelet goes on with this Node, and would not register again"
    bench.server.before = nothing
    before = bench.lister.objects["n0"]
    bench.triggers.on_update(before, bench.put("n0", provider_id=OLD, ready=ready, machine="second", version="9"))
    _asked(bench)
    _asked(bench)
    assert bench.server.created == [("n0", True), ("n0", False)]


@pytest.mark.row("N16")
@pytest.mark.parametrize(
    "trouble", ["before it moved", "comparison", CallFailed("the cloud is on fire"), Throttled("slower")], ids=str
)
def test_a_node_is_not_deleted_before_the_cloud_has_said_who_has_the_name_now(trouble: str | Exception) -> None:
    bench = _bench(moves=False)
    bench.put("witness", provider_id="fake://witness", ready="True")
    before = bench.put("n0", provider_id=OLD, ready="False", machine="first", version="8")
    compares = bench.cloud.same_provider_id
    if trouble == "before it moved":  # the new machine was not there yet
        bench.cloud.by_name["n0"] = InstanceNotFound("no such name")
        _asked(bench)
        bench.cloud.by_name["n0"] = InstanceMetadata(provider_id=NEW)
    moved = bench.put("n0", provider_id=OLD, ready="False", machine="second", version="9")
    bench.triggers.on_update(before, moved)
    if isinstance(trouble, Exception):
        bench.cloud.by_name["n0"] = trouble
    elif trouble == "comparison":
        bench.cloud.same_provider_id = _fails  # type: ignore[method-assign]
    for _ in range(20):
        bench.clock.advance(PERIOD)
        bench.sweep()
        bench.run("n0")
        if trouble != "before it moved":
            for name in bench.take_successors():
                with suppress(CallFailed):
                    bench.events.fetch_successors([name], bench.events.report_successor)
    assert not bench.server.deletes
    assert [m for m in bench.recorder.messages() if "has not said which instance has its name" in m]
    bench.cloud.by_name["n0"] = InstanceMetadata(provider_id=NEW)
    bench.cloud.same_provider_id = compares  # type: ignore[method-assign]
    _asked(bench)
    _asked(bench)
    assert bench.server.created == [("n0", True), ("n0", False)]


def _fails(one: str, other: str) -> bool:
    raise CallFailed("the provider's same_provider_id failed")


@pytest.mark.row("N16")
@pytest.mark.parametrize("busy", [TooManyRequests("busy", status=429), Unauthorized("token expired", status=401)])
def test_a_server_that_takes_no_request_for_a_moment_does_not_cost_the_node(busy: ApiError) -> None:
    bench = _bench()
    _asked(bench)

    def broken(name: str, body: dict[str, Any]) -> None:
        if "spec" in body and ("n0", False) in bench.server.created:
            raise busy

    bench.server.before = broken
    bench.clock.advance(PERIOD)
    [result] = bench.run("n0").values()
    assert result is busy
    bench.server.before = nothing
    assert "n0" in bench.sweep()
    bench.run("n0")
    assert bench.server.nodes["n0"]["spec"] == {"taints": [UNINITIALIZED]}


@pytest.mark.row("N16")
@pytest.mark.parametrize("busy", [TooManyRequests("busy", status=429), NotFound("a proxy's page", status=404)])
def test_a_dry_run_that_a_busy_server_does_not_take_says_nothing_of_the_new_node(busy: ApiError) -> None:
    bench = _bench(ready="False")
    bench.put("witness", provider_id="fake://witness", ready="True")
    _asked(bench)
    bench.sweep()

    def broken(name: str, body: dict[str, Any]) -> None:
        if "spec" in body:
            raise busy

    bench.server.before = broken
    bench.clock.advance(PERIOD)
    [result] = bench.run("n0").values()
    assert result is busy
    assert not bench.server.deletes


def test_a_node_with_finalizers_is_not_deleted() -> None:
    bench = _bench()
    _asked(bench)
    bench.server.nodes["n0"]["metadata"]["finalizers"] = ["example.com/keep"]
    _asked(bench)
    assert not bench.server.deletes
    assert "finalizers" in bench.gate.why(bench.votes.gone()[0][1])


def test_the_new_node_has_what_is_not_of_the_old_machine() -> None:
    raw = raw_node(
        "n0", provider_id=OLD, ready="True", machine="second", taints=[OTHER, SHUTDOWN], labels={"a": "b"},
        annotations={"c": "d"},
    )  # fmt: skip
    raw["metadata"] |= {"managedFields": [{"manager": "kubelet"}], "generation": 3}
    raw["spec"] |= {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "unschedulable": True, "future": 1}
    raw["status"] |= {"addresses": [{"type": "Hostname", "address": "n0"}], "volumesAttached": [{"name": "v"}]}
    raw["status"]["conditions"].append({"type": "NetworkUnavailable", "status": "False"})
    new = registration(raw, keep_pod_cidrs=True)
    assert new["metadata"] == {"name": "n0", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    assert new["spec"] == {
        "taints": [OTHER, UNINITIALIZED],
        "podCIDR": "10.1.0.0/24",
        "podCIDRs": ["10.1.0.0/24"],
        "unschedulable": True,
        "future": 1,
    }
    assert new["status"].keys() == {"conditions", "nodeInfo"}
    assert new["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
    assert raw["spec"]["providerID"] == OLD, "the argument is left alone"
    assert "podCIDR" not in registration(raw, keep_pod_cidrs=False)["spec"]


@pytest.mark.parametrize(("allocator", "kept"), [("RangeAllocator", "10.1.0.0/24"), ("CloudAllocator", None)])
def test_pod_cidrs_are_kept_unless_the_cloud_chooses_them(allocator: str, kept: str | None) -> None:
    bench = _bench(allocator=allocator)
    bench.server.nodes["n0"]["spec"]["podCIDR"] = "10.1.0.0/24"
    _asked(bench, 0.0)
    _asked(bench)
    assert bench.server.deleted == ["n0"]
    assert bench.server.nodes["n0"]["spec"].get("podCIDR") == kept


@pytest.mark.parametrize(
    ("theirs", "kept"),
    [
        ("10.1.0.0/24", None),
        ("10.1.0.128/25", None),
        ("10.2.0.0/24", "10.1.0.0/24"),
        ("10.0.0.0/8", "10.1.0.0/24"),  # no allocator's
    ],
)
def test_pod_cidrs_that_another_node_has_got_between_deletion_and_creation_are_not_kept(
    theirs: str, kept: str | None
) -> None:
    bench = _bench()
    bench.server.nodes["n0"]["spec"] |= {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"]}
    _asked(bench, 0.0)

    def broken(name: str, body: dict[str, Any]) -> None:
        if "spec" in body and ("n0", False) in bench.server.created:
            raise TooManyRequests("busy", status=429)

    bench.server.before = broken
    _asked(bench)
    bench.server.before = nothing
    other = raw_node("late", provider_id="fake://late", ready="True")
    other["spec"] |= {"podCIDR": theirs, "podCIDRs": [theirs, "fd00:0:0:1::/64"]}
    bench.lister.objects["late"] = parsed_node(other)
    bench.sweep()
    bench.run("n0")
    spec = bench.server.nodes["n0"]["spec"]
    assert (spec.get("podCIDR"), "podCIDRs" in spec) == (kept, kept is not None)


def test_a_kubelet_that_does_not_say_where_it_runs_has_not_moved() -> None:
    machines = Machines()
    machines.exists(node("n0"), 0.0)
    assert not machines.moved(node("n0", machine="second"))
    machines.exists(node("n0", machine="first"), 0.0)
    assert not machines.moved(node("n0"))
    assert machines.moved(node("n0", machine="second"))
    assert not machines.moved(node("n0", machine="second", uid="another"))
    assert not machines.moved(node("n0", machine="second", provider_id="fake://another"))
    machines.keep(())
    assert not machines.moved(node("n0", machine="second"))


def test_a_sweep_reads_the_machines_of_nodes_that_have_changed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for name in ("n0", "n1", "n2"):
        bench.put(name, provider_id=f"fake://{name}", ready="True", machine="first")
    bench.tick()
    read: list[str] = []

    def machine(of: Any) -> tuple[str, str]:
        read.append(of.metadata.name)
        return machine_of(of)

    monkeypatch.setattr("controllers.nodelifecycle.triggers.machine_of", machine)
    monkeypatch.setattr("controllers.nodelifecycle.replaced.machine_of", machine)
    assert not bench.triggers.survey().not_ready
    assert not read
    bench.put("n1", provider_id="fake://n1", ready="True", machine="second")
    read.clear()
    assert bench.triggers.survey().not_ready == {"n1"}
    assert set(read) == {"n1"}


def test_unused_errors_of_creation_are_no_obstacle() -> None:
    bench = _bench()
    _asked(bench)

    def faster(name: str, body: dict[str, Any]) -> None:
        if "spec" in body and ("n0", False) in bench.server.created:
            raise AlreadyExists("there", status=409)

    bench.server.before = faster
    _asked(bench)
    assert not bench.writer.unfinished()
