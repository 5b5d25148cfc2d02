"""A second writer undoes each of our writes: ours are bounded by a constant, over ten minutes of a
moved clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cloudprovider import InstanceState
from tests.unit.nodelifecycle.support import ADMINS, OTHER, OUT_OF_SERVICE, SHUTDOWN, Bench

Taints = list[dict[str, Any]]
AT_MOST = 4  # at once, and after 1, 3 and 7 minutes


def _fight(bench: Bench, ready: str, start: Sequence[dict[str, Any]], undo: Callable[[Taints], Taints]) -> list[Taints]:
    """Ten minutes with a writer who answers each of our writes at once; returns what we wrote."""
    bench.put("n0", ready=ready, taints=start)
    written: list[Taints] = []
    version = 7
    for _ in range(120):
        bench.tick()
        bench.run("n0")
        for _, patch in bench.server.applied:
            version += 1
            written.append(patch["spec"]["taints"] or [])
            before = bench.lister.objects["n0"]
            after = bench.put("n0", ready=ready, taints=undo(written[-1]), version=str(version))
            bench.triggers.on_update(before, after)
        bench.server.applied.clear()
    return written


def _without(*unwanted: dict[str, Any]) -> Callable[[Taints], Taints]:
    keys = {taint["key"] for taint in unwanted}
    return lambda taints: [taint for taint in taints if taint["key"] not in keys]


def test_the_shutdown_taint_that_somebody_removes_each_time() -> None:
    bench = Bench()
    bench.cloud.says["n0"] = InstanceState.SHUTDOWN
    written = _fight(bench, "False", [OTHER], _without(SHUTDOWN))
    assert 1 < len(written) <= AT_MOST, "restored, with longer and longer pauses"


@pytest.mark.parametrize("ready", ["True", "False"])
def test_the_shutdown_taint_that_somebody_adds_back_each_time(ready: str) -> None:
    bench = Bench()
    written = _fight(bench, ready, [OTHER, SHUTDOWN], lambda taints: [*taints, SHUTDOWN])
    assert 1 < len(written) <= AT_MOST
    assert all(taints == [OTHER] for taints in written)


def test_the_out_of_service_taint_that_somebody_removes_is_not_set_again() -> None:
    bench = Bench(out_of_service=True)
    bench.cloud.says["n0"] = InstanceState.SHUTDOWN
    written = _fight(bench, "False", [], _without(OUT_OF_SERVICE))
    assert written == [[SHUTDOWN], [SHUTDOWN, OUT_OF_SERVICE]]


def test_the_out_of_service_taint_that_somebody_makes_their_own_stays() -> None:
    bench = Bench(out_of_service=True)
    bench.cloud.says["n0"] = InstanceState.SHUTDOWN
    written = _fight(bench, "False", [], lambda taints: [SHUTDOWN, ADMINS] if OUT_OF_SERVICE in taints else taints)
    assert len(written) == 2
    bench.cloud.says["n0"] = InstanceState.RUNNING
    bench.run("n0")
    assert [patch["spec"]["taints"] for _, patch in bench.server.applied] == [[ADMINS]]


def test_somebody_who_removes_both_taints() -> None:
    bench = Bench(out_of_service=True)
    bench.cloud.says["n0"] = InstanceState.SHUTDOWN
    assert len(_fight(bench, "False", [], _without(SHUTDOWN, OUT_OF_SERVICE))) <= AT_MOST + 1


def _flap(bench: Bench, polls: int) -> int:
    """Answers that alternate; each write is applied. Returns how many writes there were."""
    writes = 0
    for poll in range(polls):
        bench.cloud.says["n0"] = InstanceState.RUNNING if poll % 2 else InstanceState.SHUTDOWN
        bench.tick()
        for _, patch in bench.server.applied:
            writes += 1
            bench.put("n0", ready="Unknown", taints=patch["spec"]["taints"] or [], version=str(7 + writes))
        bench.server.applied.clear()
    return writes


@pytest.mark.row("N29")
def test_a_changed_answer_of_the_cloud_is_written_at_once_and_a_flapping_one_is_not() -> None:
    bench = Bench()
    bench.put("n0", ready="Unknown")
    assert _flap(bench, 3) == 3, "shut down, started, shut down again"
    assert _flap(bench, 117) <= 2, "ten minutes of it"


@pytest.mark.row("N29")
@pytest.mark.parametrize("last", [InstanceState.SHUTDOWN, InstanceState.RUNNING])
def test_after_a_time_of_flapping_the_last_answer_is_written(last: InstanceState) -> None:
    bench = Bench()
    bench.put("n0", ready="Unknown")
    _flap(bench, 120)
    bench.cloud.says["n0"] = last
    for _ in range(240):
        bench.tick()
        for _, patch in bench.server.applied:
            bench.put("n0", ready="Unknown", taints=patch["spec"]["taints"] or [], version="99")
        bench.server.applied.clear()
    taints = bench.server.nodes["n0"]["spec"]["taints"]
    assert taints == ([SHUTDOWN] if last is InstanceState.SHUTDOWN else [])


@pytest.mark.row("N29")
def test_a_node_that_turns_ready_after_flapping_loses_its_taint_at_once() -> None:
    bench = Bench()
    bench.put("n0", ready="Unknown")
    _flap(bench, 119)
    bench.put("n0", ready="True", taints=[SHUTDOWN], version="99")
    bench.run("n0")
    assert [patch["spec"]["taints"] for _, patch in bench.server.applied] == [None]


def test_a_taint_removed_long_after_it_was_written_is_restored_at_once() -> None:
    bench = Bench()
    bench.cloud.says["n0"] = InstanceState.SHUTDOWN
    bench.put("n0")
    bench.run("n0")
    bench.put("n0", taints=[SHUTDOWN], version="8")
    bench.clock.advance(600)
    bench.put("n0", version="9")
    bench.run("n0")
    assert len(bench.server.applied) == 2
    bench.clock.advance(600)
    bench.survey()
    assert not bench.controller._writer._written, "what has held is forgotten"
