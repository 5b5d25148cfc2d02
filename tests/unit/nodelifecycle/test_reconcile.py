"""What becomes of nodes that are not ready, by what the cloud says of them: rows N1-N4, N6, N16."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from cloudprovider import InstanceMetadata, InstanceNotFound, InstanceState, NotImplementedByProvider, Throttled
from controllers.cloudcalls import AnswerMissing, CallFailed, CallOverdue, Contradiction, InvalidAnswer
from controllers.nodelifecycle.controller import NodeLifecycleController
from controllers.runtime.api import ApiError, Conflict, Forbidden, NotFound, ServerError
from controllers.runtime.cache import key_of
from controllers.runtime.queue import Result
from tests.support.controllers import nothing, refuse
from tests.support.there import there
from tests.unit.nodelifecycle.simulation import ANNOUNCED
from tests.unit.nodelifecycle.support import (
    OTHER,
    OUT_OF_SERVICE,
    PERIOD,
    SHUTDOWN,
    Bench,
    raw_node,
)

GONE, RUNNING, OFF = InstanceState.GONE, InstanceState.RUNNING, InstanceState.SHUTDOWN
UNKNOWN = CallFailed("the cloud is on fire")


def _gone(count: int = 1, *, witness: bool = True, **fields: Any) -> tuple[Bench, list[str]]:
    """So many nodes whose instances are gone, beside one that is Ready, or in a process that has
    been calm for long."""
    bench = Bench(**fields)
    if witness:
        bench.put("ready", ready="True", provider_id="fake://ready")
    else:
        bench.clock.advance(600)
        bench.reconciler.observe(0, calm=True)
    names = [f"n{number}" for number in range(count)]
    for name in names:
        bench.put(name, provider_id=f"fake://{name}")
        bench.cloud.says[name] = GONE
    bench.sweep()
    return bench, names


def test_a_provider_without_instances_is_refused() -> None:
    cloud = type("Cloud", (), {"has_instances": False, "provider_name": "bare"})()
    with pytest.raises(ValueError, match="bare"):
        NodeLifecycleController(cast(Any, None), cast(Any, None), cast(Any, cloud))


# ---- N1: confirmation


@pytest.mark.row("N1")
def test_a_node_is_deleted_after_two_answers_a_period_apart() -> None:
    bench, names = _gone()
    assert bench.run(*names)["n0"] == Result(requeue_after=PERIOD)
    for _ in range(4):
        bench.clock.advance(1.0)
        bench.run(*names)  # closer than a period: the same answer
    bench.clock.advance(PERIOD - 4.0)
    assert "n0" not in bench.sweep(), "its timer brings it up"
    assert not bench.server.deletes
    bench.run(*names)
    assert bench.server.deleted == ["n0"]


def _was_ready(bench: Bench) -> None:
    before = bench.lister.objects["n0"]
    ready = bench.put("n0", provider_id="fake://n0", ready="True", version="8")
    bench.triggers.on_update(before, ready)
    bench.triggers.on_update(ready, bench.put("n0", provider_id="fake://n0", version="9"))


def _was_recreated(bench: Bench) -> None:
    bench.put("n0", provider_id="fake://n0", uid="another")


def _answered(state: InstanceState | Exception) -> Callable[[Bench], None]:
    def answer(bench: Bench) -> None:
        bench.cloud.says["n0"] = state
        bench.settle(["n0"])
        bench.cloud.says["n0"] = GONE

    return answer


@pytest.mark.row("N1", "N2")
@pytest.mark.parametrize(
    "between",
    [_was_ready, _was_recreated, _answered(RUNNING), _answered(OFF), _answered(UNKNOWN)],
    ids=["ready", "recreated", "running", "off", "unknown"],
)
def test_what_comes_between_two_answers_begins_the_row_anew(between: Callable[[Bench], None]) -> None:
    bench, names = _gone()
    bench.settle(names)
    between(bench)
    bench.settle(names)
    assert not bench.server.deletes
    bench.settle(names)
    assert bench.server.deleted == ["n0"]


# ---- N1, N21: the count, in zones without a Ready node


@pytest.mark.row("N1")
def test_of_a_hundred_nodes_said_to_be_gone_half_go_and_an_alarm_is_raised() -> None:
    bench, names = _gone(100, witness=False)
    bench.settle(names)
    bench.settle(names)
    assert len(bench.server.deleted) == 50
    assert bench.recorder.reasons().count("DeletionBreakerOpened") == 1
    assert bench.recorder.reasons().count("DeletingNodeHeldBack") == 0
    assert bench.metrics.value("node_lifecycle_deletion_breaker_open") == 1
    assert bench.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 1
    assert bench.metrics.value("node_lifecycle_held_nodes") == 50
    for _ in range(11):
        bench.tick()
    assert len(bench.server.deleted) == 50
    bench.tick()
    assert len(bench.server.deleted) == 51, "one a minute"
    assert bench.recorder.reasons().count("DeletingNodeHeldBack") == 49, "each is told once, after a minute"


@pytest.mark.row("N1", "N4")
@pytest.mark.parametrize("silent", [False, True])
def test_nodes_held_back_that_turn_out_to_run_are_kept_and_the_breaker_closes(silent: bool) -> None:
    bench, names = _gone(100, witness=False)
    bench.settle(names)
    bench.settle(names)
    if silent:
        bench.cloud.says = dict.fromkeys(names, UNKNOWN)
        for _ in range(300):
            bench.tick()
        assert bench.limit.alarming, "a silent cloud does not close it"
    bench.cloud.says.clear()
    for _ in range(121):
        bench.tick()
    assert len(bench.server.deleted) == 50
    assert not bench.limit.alarming
    assert bench.metrics.value("node_lifecycle_held_nodes") == 0


@pytest.mark.row("N21")
def test_an_operator_lets_go_what_is_held_back_and_nothing_else() -> None:
    bench, names = _gone(100, witness=False)
    bench.settle(names)
    bench.settle(names)
    bench.cloud.says["n98"] = RUNNING
    bench.put("late", provider_id="fake://late")
    bench.cloud.says["late"] = GONE
    bench.tick()
    assert len(bench.server.deleted) == 50
    assert bench.controller.release_breaker() == 49
    bench.cloud.says["n99"] = RUNNING
    bench.tick()
    bench.cloud.says["n98"] = bench.cloud.says["n99"] = GONE
    for _ in range(5):
        bench.tick()
    assert set(bench.server.nodes) == {"n98", "n99", "late"}, "another answer undoes it"


@pytest.mark.row("N1")
def test_turned_off_it_lets_everything_through() -> None:
    bench, names = _gone(100, witness=False, breaker=False)
    bench.settle(names)
    bench.settle(names)
    assert len(bench.server.deleted) == 100
    assert bench.limit.alarming is False


# ---- N2: the very object that was judged


@pytest.mark.row("N2")
def test_the_delete_names_uid_and_version() -> None:
    bench, names = _gone()
    bench.settle(names)
    bench.settle(names)
    (body,) = bench.server.deletes
    assert body["preconditions"] == {"uid": "uid-n0", "resourceVersion": "7"}
    assert bench.recorder.events == [
        ("n0", "Normal", "DeletingNode", "Deleting node n0 because it does not exist in the cloud provider")
    ]
    assert bench.metrics.value("node_lifecycle_deleted_nodes_total") == 1


@pytest.mark.row("N2")
@pytest.mark.parametrize(
    "now",
    [{"ready": "True"}, {"uid": "another"}, {"provider_id": "fake://another"}, {"deleted": True}],
    ids=lambda now: next(iter(now)),
)
def test_a_node_that_has_changed_in_what_matters_is_not_deleted(now: dict[str, Any]) -> None:
    bench, names = _gone(witness=False, limit=1)
    bench.settle(names)
    fields = {"provider_id": "fake://n0", "version": "8", **now}
    bench.server.before = lambda *_: bench.server.nodes.update(n0=_raw(**fields))
    bench.settle(names)
    assert len(bench.server.deletes) == 1
    assert not bench.server.deleted
    assert not bench.recorder.events
    assert bench.candidates.get("n0") is None
    assert bench.limit.deletions(bench.clock.monotonic()) == 0, "the leave was given back"


@pytest.mark.row("N21")
@pytest.mark.parametrize("still", [False, True])
def test_a_node_whose_announcement_was_taken_back_meanwhile_is_not_deleted_without_evidence(still: bool) -> None:
    bench, names = _gone(witness=False, limit=0)
    taints = [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}]
    bench.put("n0", provider_id="fake://n0", taints=taints)
    bench.settle(names)
    after = _raw(provider_id="fake://n0", version="8", taints=taints if still else [])
    bench.server.before = lambda *_: bench.server.nodes.update(n0=after)
    bench.settle(names)
    assert len(bench.server.deletes) == (2 if still else 1)
    assert bench.server.deleted == (["n0"] if still else [])


def _raw(**fields: Any) -> dict[str, Any]:
    return raw_node("n0", **fields)


@pytest.mark.row("N2")
def test_a_node_with_another_version_and_nothing_else_is_looked_at_and_deleted() -> None:
    bench, names = _gone()
    bench.settle(names)
    bench.server.nodes["n0"]["metadata"]["resourceVersion"] = "8"
    bench.settle(names)
    assert [body["preconditions"]["resourceVersion"] for body in bench.server.deletes] == ["7", "8"]
    assert bench.server.deleted == ["n0"]


@pytest.mark.row("N2")
@pytest.mark.parametrize(
    ("error", "tries", "counted"),
    [
        (Conflict("no", method="DELETE", path="/", status=409, reason="Conflict"), 3, 0),
        (Forbidden("no right", method="DELETE", path="/", status=403, reason="Forbidden"), 1, 0),
        (ServerError("oops", method="DELETE", path="/", status=500, reason="InternalError"), 1, 1),
    ],
    ids=["conflicts without end", "refused", "may have been applied"],
)
def test_a_delete_that_fails_is_reported_and_tried_again(error: ApiError, tries: int, counted: int) -> None:
    bench, names = _gone(witness=False)
    bench.settle(names)
    bench.server.before = refuse(error)
    bench.clock.advance(PERIOD)
    assert isinstance(bench.run(*names)["n0"], type(error))
    assert len(bench.server.deletes) == tries
    assert bench.recorder.reasons() == ["DeletingNodeFailed"]
    assert bench.limit.deletions(bench.clock.monotonic()) == counted
    bench.server.before = nothing
    bench.run(*names)
    assert bench.server.deleted == ["n0"]


def test_a_node_that_somebody_else_deleted_is_no_failure() -> None:
    bench, names = _gone()
    bench.settle(names)
    bench.server.nodes.clear()
    bench.settle(names)
    assert not bench.recorder.events


# ---- N3


@pytest.mark.row("N3")
def test_a_provider_without_ids_finds_its_nodes_by_name() -> None:
    bench = Bench(prefixes=())
    bench.put("n0", provider_id=None)
    bench.put("ready", provider_id=None, ready="True")
    bench.cloud.says["n0"] = GONE
    bench.tick()
    bench.settle(["n0"])
    assert bench.server.deleted == ["n0"]
    assert not bench.cloud.named, "there is no ID that another instance could differ in"


# ---- N4: unknown


@pytest.mark.row("N4")
@pytest.mark.parametrize("error", [UNKNOWN, InstanceNotFound("by error"), AnswerMissing("left out")])
def test_an_unknown_is_raised_and_changes_nothing(error: Exception) -> None:
    bench = Bench()
    bench.put("n0", taints=[SHUTDOWN])
    bench.cloud.says["n0"] = error
    for _ in range(5):
        bench.clock.advance(PERIOD)
        assert bench.run("n0")["n0"] is error
    assert not bench.server.deletes
    assert not bench.server.applied


@pytest.mark.row("N4")
def test_a_lasting_unknown_is_told_and_again_as_long_as_it_lasts() -> None:
    bench = Bench(unknown_after=300)
    bench.put("n0")
    bench.cloud.says["n0"] = UNKNOWN
    bench.run("n0")
    bench.clock.advance(299)
    bench.sweep()
    assert not bench.recorder.events
    bench.clock.advance(1)
    bench.sweep()
    ((_, kind, reason, message),) = bench.recorder.events
    assert (kind, reason) == ("Warning", "InstanceStateUnknown")
    assert "on fire" in message
    assert bench.metrics.value("node_lifecycle_unknown_nodes") == 1
    bench.clock.advance(299)
    bench.run("n0")
    bench.sweep()
    assert len(bench.recorder.events) == 1
    bench.clock.advance(1)
    bench.sweep()
    assert len(bench.recorder.events) == 2
    bench.cloud.says["n0"] = RUNNING
    bench.run("n0")
    bench.clock.advance(600)
    bench.sweep()
    assert len(bench.recorder.events) == 2
    assert bench.metrics.value("node_lifecycle_unknown_nodes") == 0


def test_a_cloud_that_names_a_time_is_not_asked_before_by_the_sweep() -> None:
    bench = Bench()
    bench.put("n0")
    bench.cloud.says["n0"] = Throttled("slow down", 60)
    bench.run("n0")
    bench.clock.advance(59)
    assert not bench.sweep()
    bench.clock.advance(1)
    assert bench.sweep() == {"n0"}


# ---- N16


@pytest.mark.row("N16")
def test_an_instance_that_was_recreated_is_told() -> None:
    bench, names = _gone()
    bench.cloud.by_name["n0"] = InstanceMetadata("fake://i-2")
    bench.run(*names)
    ((_, kind, reason, message),) = bench.recorder.events
    assert (kind, reason) == ("Warning", "InstanceRecreated")
    assert "fake://i-2" in message
    assert "fake://n0" in message
    assert "restart that kubelet" in message, "a kubelet that runs does not register again by itself"
    (asked,) = bench.cloud.named
    assert asked.spec is not None
    assert asked.spec.provider_id is None
    bench.settle(names)
    assert bench.server.deleted == ["n0"]
    assert len(bench.cloud.named) == 1, "asked once"


@pytest.mark.row("N16")
@pytest.mark.parametrize("found", [InstanceNotFound("no"), UNKNOWN, InstanceMetadata("fake://n0"), InstanceMetadata()])
def test_no_other_instance_is_no_event(found: InstanceMetadata | Exception) -> None:
    bench, names = _gone()
    bench.cloud.by_name["n0"] = found
    bench.run(*names)
    assert not bench.recorder.events


# ---- taints


@pytest.mark.row("N5")
def test_a_question_for_a_successor_that_hangs_holds_up_one_fetcher_alone() -> None:
    bench, names = _gone(3)
    ask = bench.cloud.fetch_metadata
    under_way: list[int] = []

    def slow(nodes: Any, deliver: Any, **how: Any) -> None:
        assert not under_way, "another fetcher waits for the same method"
        under_way.append(1)
        if not bench.cloud.named:
            for name in names[1:]:  # by other fetchers
                bench.reconciler.fetch([name], nothing)
        under_way.pop()
        ask(nodes, deliver, **how)

    bench.cloud.fetch_metadata = slow  # type: ignore[method-assign]
    bench.reconciler.fetch(names[:1], nothing)
    assert [key_of(node) for node in bench.cloud.named] == names, "and what others brought is asked about too"


def test_shut_down_and_back() -> None:
    bench = Bench()
    bench.put("n0", taints=[OTHER])
    bench.cloud.says["n0"] = OFF
    bench.run("n0")
    ((_, patch),) = bench.server.applied
    assert patch == {
        "spec": {"taints": [OTHER, SHUTDOWN]},
        "metadata": {"uid": "uid-n0", "resourceVersion": "7"},
    }
    bench.put("n0", taints=[OTHER, SHUTDOWN])
    bench.run("n0")
    assert len(bench.server.applied) == 1, "nothing to write"
    bench.cloud.says["n0"] = RUNNING
    bench.run("n0")
    assert bench.server.applied[1][1]["spec"]["taints"] == [OTHER]


def test_nothing_is_written_and_nobody_asked_when_all_is_well() -> None:
    bench = Bench()
    bench.put("n0", ready="True")
    bench.put("n1", ready="False", taints=[OTHER])
    for _ in range(5):
        bench.tick()
    assert not bench.server.applied
    assert set(bench.cloud.asked) == {"n1"}, "a Ready node is asked about only when another one is gone"


def test_out_of_service_is_off_by_default_and_takes_confirmation() -> None:
    plain, bench = Bench(), Bench(out_of_service=True)
    for one in (plain, bench):
        one.put("n0", taints=[SHUTDOWN])
        one.cloud.says["n0"] = OFF
        one.run("n0")
        assert not one.server.applied
    assert bench.candidates.get("n0")
    for one in (plain, bench):
        one.settle(["n0"])
    assert not plain.server.applied
    ((_, patch),) = bench.server.applied
    assert patch["spec"]["taints"] == [SHUTDOWN, OUT_OF_SERVICE]


def test_a_404_that_is_not_about_the_node_does_not_keep_the_out_of_service_taint_away() -> None:
    bench = Bench(out_of_service=True)
    bench.put("n0", taints=[SHUTDOWN])
    bench.cloud.says["n0"] = OFF
    bench.run("n0")
    bench.server.before = refuse(NotFound("404 page not found", status=404), times=1)
    for _ in range(3):
        bench.settle(["n0"])
    assert bench.server.nodes["n0"]["spec"]["taints"] == [SHUTDOWN, OUT_OF_SERVICE]


@pytest.mark.parametrize(
    ("cached", "then", "written"),
    [
        ({}, {"ready": "True"}, None),  # NoExecute would evict its pods
        ({}, {"taints": [OTHER]}, [OTHER, SHUTDOWN]),
        ({"ready": "True", "taints": [SHUTDOWN]}, {"taints": [SHUTDOWN]}, None),  # the cloud is asked first
    ],
    ids=["returned", "still off", "silent again"],
)
@pytest.mark.parametrize("out_of_service", [False, True])
def test_after_a_conflict_the_node_is_judged_as_it_is_now(
    cached: Any, then: Any, written: Any, out_of_service: bool
) -> None:
    bench = Bench(out_of_service=out_of_service)
    bench.put("n0", **cached)
    bench.cloud.says["n0"] = OFF
    bench.server.before = lambda *_: bench.server.nodes.update(n0=_raw(**then, version="8"))
    bench.run("n0")
    assert [patch["spec"]["taints"] for _, patch in bench.server.applied] == ([written] if written else [])


def test_a_node_that_was_ready_for_a_moment_gets_the_out_of_service_taint_all_the_same() -> None:
    bench = Bench(out_of_service=True)
    bench.put("n0", taints=[SHUTDOWN])
    bench.cloud.says["n0"] = OFF
    bench.run("n0")
    bench.server.nodes["n0"] = _raw(ready="True", taints=[SHUTDOWN], version="8")  # the cache is behind
    bench.settle(["n0"])
    assert not bench.server.applied
    bench.put("n0", taints=[SHUTDOWN], version="9")
    bench.settle(["n0"])
    assert bench.server.nodes["n0"]["spec"]["taints"] == [SHUTDOWN, OUT_OF_SERVICE]


# ---- triggers


@pytest.mark.parametrize(
    ("before", "after"),
    [({"ready": "True"}, {"ready": "Unknown"}), ({"taints": [SHUTDOWN]}, {"taints": [SHUTDOWN], "ready": "True"})],
    ids=["turns not ready", "turns ready"],
)
def test_a_node_that_turns_is_worked_on_at_once(before: Any, after: Any) -> None:
    bench = Bench()
    bench.triggers.on_update(bench.put("n0", **before), bench.put("n0", **after, version="8"))
    assert bench.queue.get(timeout=0) == "n0"
    bench.queue.done("n0")
    assert bench.sweep() == {"n0"}, "nor does it need an event"
    bench.run("n0")
    if "taints" in before:
        assert [patch["spec"]["taints"] for _, patch in bench.server.applied] == [None]
        assert not bench.cloud.asked, "a Ready node loses the taint without an answer of the cloud"


def test_heartbeats_of_a_node_that_is_not_ready_do_not_bypass_its_backoff() -> None:
    bench = Bench()
    old, new = bench.put("n0"), bench.put("n0", version="8")
    bench.triggers.on_update(old, new)
    bench.queue.add_rate_limited("n0")
    assert not bench.sweep()
    assert not len(bench.queue)


# ---- metrics of the Go controller


def test_the_metrics_of_the_go_controller_count_answers_by_operation_and_result() -> None:
    bench = Bench()
    says: dict[str, InstanceState | Exception] = {
        "n0": GONE,
        "n1": OFF,
        "n2": RUNNING,
        "n3": UNKNOWN,
        "n4": NotImplementedByProvider(),
        "n5": _no_power(),
    }
    for name, state in says.items():
        bench.put(name, provider_id=f"fake://{name}")
        bench.cloud.says[name] = state
    bench.cloud.by_name["n0"] = InstanceNotFound("no")
    bench.run(*says)
    calls = "cloud_node_lifecycle_controller_cloud_provider_calls_total"
    counted = {
        (operation, result): bench.metrics.value(calls, operation=operation, result=result) or 0
        for operation in ("instance_exists", "instance_shutdown", "instance_metadata")
        for result in ("success", "error", "instance_not_found", "not_implemented", "canceled")
    }
    assert {key: value for key, value in counted.items() if value} == {
        ("instance_exists", "success"): 2,
        ("instance_exists", "instance_not_found"): 1,
        ("instance_exists", "error"): 1,
        ("instance_exists", "not_implemented"): 1,
        ("instance_shutdown", "success"): 2,
        ("instance_shutdown", "error"): 1,
        ("instance_metadata", "instance_not_found"): 1,
    }


def _no_power() -> Exception:
    return InvalidAnswer("instance_shutdown", ["it is no bool"])


def test_a_sweep_is_measured_once_from_its_beginning_to_its_last_node() -> None:
    bench = Bench()
    name = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds"
    bench.sweep()
    assert bench.metrics.value(f"{name}_count") == 1, "a sweep without work is one too"
    bench.put("n0")
    bench.put("n1")
    bench.sweep()
    bench.clock.advance(3)
    bench.run("n0")
    bench.sweep()
    assert bench.metrics.value(f"{name}_count") == 1
    bench.clock.advance(1)
    bench.run("n0", "n1")
    assert bench.metrics.value(f"{name}_count") == 2
    assert bench.metrics.value(f"{name}_sum") == 4
    buckets = re.findall(rf'{name}_bucket{{le="([^"]+)"}}', bench.metrics.text().decode())
    assert [float(bound) for bound in buckets[:-1]] == [0.001 * 2**step for step in range(15)]


@pytest.mark.row("N5")
@pytest.mark.row("N15")
def test_a_node_whose_call_hangs_is_no_work_of_a_sweep_until_it_comes_back_by_its_own_back_off() -> None:
    bench, name = Bench(), "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"
    bench.put("n1")
    bench.put("n2", provider_id="fake://i-2")
    bench.cloud.says["n1"] = CallOverdue("instance_exists", "node/n1", 60, Future())
    bench.survey()
    bench.run(*[there(bench.queue.get(0)) for _ in range(2)])
    bench.queue.park("n1")
    bench.queue.done("n2")
    for sweeps in (2, 3):
        bench.clock.advance(PERIOD)
        assert bench.sweep() == {"n2"}
        bench.run("n2")
        assert bench.metrics.value(name) == sweeps
    delay = bench.queue.add_rate_limited("n1")
    bench.queue.done("n1")
    assert bench.queue.next_run("n1") == pytest.approx(delay)


# ---- all_votes


def test_a_case_that_another_thread_has_changed_is_not_overwritten() -> None:
    """Between reading and noting, an answer is filed or an operator's release: that one
    stays."""
    bench, names = _gone(witness=False)
    bench.run(*names)
    old = there(bench.candidates.get("n0"))
    bench.candidates.note("n0", old, held=True)
    held = there(bench.candidates.get("n0"))
    assert bench.candidates.release_held() == 1
    bench.candidates.note("n0", held, told=True)
    now = there(bench.candidates.get("n0"))
    assert (now.released, now.held, now.told) == (True, False, False)
    bench.candidates.forget("n0")
    bench.candidates.note("n0", now, held=True)
    assert bench.candidates.get("n0") is None, "a candidate that was forgotten stays so"


# ---- P6: gone by every method


@pytest.mark.row("P6")
@pytest.mark.parametrize("announced", [False, True])
def test_every_method_is_asked_once_before_a_deletion(announced: bool) -> None:
    bench, names = _gone(3, breaker=announced)
    if announced:
        for name in names:
            bench.put(name, provider_id=f"fake://{name}", taints=[ANNOUNCED])
    bench.run(*names)
    assert bench.cloud.confirmed == []
    bench.clock.advance(PERIOD)
    bench.run(*names)
    assert bench.cloud.confirmed == names
    assert bench.server.deleted == names


@pytest.mark.row("P6")
def test_a_node_that_waits_is_not_asked_about_by_every_method_again() -> None:
    bench, names = _gone(1)
    bench.cloud.says["ready"] = GONE
    for _ in range(6):
        bench.run(*names)
        bench.clock.advance(PERIOD)
    assert bench.cloud.confirmed == names
    assert bench.server.deleted == []


@pytest.mark.row("P6")
def test_a_young_node_is_asked_about_by_every_method_when_it_is_not_young_any_more() -> None:
    bench, names = _gone(1, young_grace=60.0)
    for _ in range(20):
        bench.tick()
        assert not (bench.clock.monotonic() < 60 and bench.cloud.confirmed)
    assert bench.cloud.confirmed == names
    assert bench.server.deleted == names


@pytest.mark.row("P6")
def test_where_two_methods_contradict_the_node_stays_and_people_are_told_once() -> None:
    bench, names = _gone(2)
    for _ in range(3):
        for name in names:
            bench.cloud.says[name] = GONE
        bench.run(*names)
        bench.clock.advance(PERIOD)
        for name in names:
            bench.cloud.says[name] = Contradiction("instances_state", "instance_exists")
        bench.run(*names)
        bench.clock.advance(PERIOD)
    assert bench.server.deleted == []
    for name in names:
        assert bench.recorder.reasons(name).count("InstanceAnswersContradict") == 1
    told = bench.recorder.messages("Warning")[0]
    assert "instances_state" in told
    assert "instance_exists" in told
    assert bench.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 1
