"""Machines that were replaced under their node's name, with a kubelet that goes on with the old
Node: rows N16, N41; and Nodes that a finalizer holds: row N39."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cloudprovider import InstanceMetadata, InstanceState
from cloudprovider.wellknown import LABEL_HANDS_OFF
from controllers.nodelifecycle.memory import SETTLED
from controllers.nodelifecycle.registration import ENTRY
from tests.unit.nodelifecycle.support import PERIOD, Bench

GONE = InstanceState.GONE
OLD, NEW = "fake://n0", "fake://i-new"


def _bench(*, ready: str = "True", machine: str = "second") -> Bench:
    """Nodes whose machines run; then that of n0 is replaced under its name, and the new kubelet
    goes on with the Node."""
    bench = Bench()
    for number in range(3):
        bench.put(f"r{number}", provider_id=f"fake://r{number}", ready="True", machine=f"r{number}")
    bench.put("n0", provider_id=OLD, ready="True", machine="first")
    bench.tick()
    assert not bench.cloud.asked
    bench.cloud.says["n0"] = GONE
    bench.cloud.by_name["n0"] = InstanceMetadata(provider_id=NEW)
    before = bench.lister.objects["n0"]
    bench.triggers.on_update(before, bench.put("n0", provider_id=OLD, ready=ready, machine=machine, version="8"))
    return bench


def _pass(bench: Bench, seconds: float) -> None:
    for _ in range(int(seconds / PERIOD)):
        bench.tick()


@pytest.mark.row("N16", "N41")
@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_whose_kubelet_reports_another_machine_is_told_about_and_not_deleted(ready: str) -> None:
    bench = _bench(ready=ready)
    assert len(bench.queue) == 1, "it is asked about at once"
    _pass(bench, 600)
    assert not bench.server.deletes
    assert sorted(bench.recorder.reasons("n0")) == ["DeletingNodeHeldBack", "InstanceRecreated"], "each once"
    told = dict(zip(bench.recorder.reasons("n0"), bench.recorder.messages(), strict=True))
    assert NEW in told["InstanceRecreated"]
    assert "restart that kubelet" in told["InstanceRecreated"]
    assert "its kubelet runs on another machine" in told["DeletingNodeHeldBack"]
    assert bench.cloud.asked.count("n0") <= 13, "once a minute"


@pytest.mark.row("N41")
def test_such_a_node_says_nothing_for_or_against_the_cloud() -> None:
    bench = _bench()
    sampled = bench.controller._shared.sampled
    assert (sampled("", "n0"), sampled("", "r0")) == (None, bench.lister.objects["r0"])
    assert sampled("the zone that it had", "r0") is None
    bench.put("n1", provider_id="fake://n1")
    bench.cloud.says["n1"] = GONE
    _pass(bench, 5 * PERIOD)
    assert bench.server.deleted == ["n1"]


def test_nothing_of_a_deleted_node_is_kept() -> None:
    bench = _bench()
    bench.tick()
    shared = bench.controller._shared
    assert "n0" in shared.moves
    assert "n0" in shared.stages
    assert shared.candidates.get("n0")
    bench.drop("n0")
    assert "n0" not in {*shared.moves, *shared.stages}
    assert shared.candidates.get("n0") is None


@pytest.mark.row("N41")
def test_a_node_that_is_not_ready_on_the_same_machine_is_deleted_by_the_usual_proof() -> None:
    bench = _bench(ready="False", machine="first")
    _pass(bench, 3 * PERIOD)
    assert bench.server.deleted == ["n0"]


@pytest.mark.row("N41")
def test_a_kubelet_that_moves_while_its_node_is_deleted_keeps_the_node() -> None:
    bench = _bench(ready="False", machine="first")
    _pass(bench, PERIOD)

    def moves(*_: Any) -> None:
        raw = bench.server.nodes["n0"]
        raw["metadata"]["resourceVersion"] = "9"
        raw["status"]["nodeInfo"]["machineID"] = "second"

    bench.server.before = moves
    _pass(bench, 3 * PERIOD)
    assert len(bench.server.deletes) == 1
    assert not bench.server.deleted


def test_what_the_cloud_calls_existing_for_long_is_the_same_instance_reinstalled() -> None:
    bench = _bench()
    bench.cloud.says.clear()
    _pass(bench, SETTLED + 2 * PERIOD)
    asked = len(bench.cloud.asked)
    _pass(bench, 600)
    assert len(bench.cloud.asked) == asked, "a Ready node like any other"
    bench.cloud.says["n0"] = GONE
    before = bench.lister.objects["n0"]
    bench.triggers.on_update(before, bench.put("n0", provider_id=OLD, ready="False", machine="second", version="9"))
    _pass(bench, 3 * PERIOD)
    assert bench.server.deleted == ["n0"]


@pytest.mark.row("N41")
@pytest.mark.parametrize(
    "fields", [{"provider_id": "other://n0"}, {"labels": {LABEL_HANDS_OFF: ""}}, {"deleted": True}], ids=str
)
def test_a_node_that_is_not_to_be_judged_is_not_asked_about_on_any_machine(fields: dict[str, Any]) -> None:
    bench = Bench()
    bench.cloud.says["n0"] = GONE
    before = bench.put("n0", **{"provider_id": OLD, "ready": "True", "machine": "first", **fields})
    after = bench.put("n0", **{"provider_id": OLD, "ready": "True", "machine": "second", "version": "8", **fields})
    bench.triggers.on_update(before, after)
    assert not len(bench.queue)
    bench.run("n0")
    assert not bench.cloud.asked


def test_a_kubelet_that_does_not_say_where_it_runs_has_not_moved() -> None:
    bench = _bench(ready="False", machine="")
    _pass(bench, 3 * PERIOD)
    assert bench.server.deleted == ["n0"]


@pytest.mark.row("N41")
def test_the_manager_may_create_no_nodes() -> None:
    assert {verb for rule in ENTRY.rules if rule.resource == "nodes" for verb in rule.verbs} == {
        "get",
        "list",
        "watch",
        "patch",
        "delete",
    }


@pytest.mark.row("N39")
def test_a_node_that_a_finalizer_holds_is_deleted_when_it_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = _bench(ready="False", machine="first")
    bench.server.nodes["n0"]["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    _pass(bench, 3 * PERIOD)
    [body] = bench.server.deletes
    assert body["preconditions"]["uid"] == "uid-n0"
    assert bench.metrics.value("node_lifecycle_deleted_nodes_total") == 0
    [told] = [one.message for one in bench.recorder.events if one.reason == "DeletingNode"]
    assert told.endswith(
        "requested because it does not exist in the cloud provider; held by finalizer karpenter.sh/termination"
    )
    assert "deleted node n0" not in caplog.text
    assert "node n0: deletion requested, as its instance is gone; held by finalizer karpenter.sh" in caplog.text
    bench.put("n0", provider_id=OLD, machine="first", deleted=True, version="9")
    asked = len(bench.cloud.asked)
    _pass(bench, 60)
    assert len(bench.cloud.asked) == asked, "nothing more is asked or done"
    bench.drop("n0")
    assert "deleted node n0: its instance fake://n0 is gone" in caplog.text
    assert bench.metrics.value("node_lifecycle_deleted_nodes_total") == 1
