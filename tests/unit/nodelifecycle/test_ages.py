"""How old a node is: rows N30 and N44."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import InstanceState
from tests.unit.nodelifecycle.support import PERIOD, UNINITIALIZED, Bench

GRACE = 120.0
HOUR = 3600.0


def _bench() -> Bench:
    """A manager that has run for an hour, in a zone with Ready nodes that the cloud is right
    about."""
    bench = Bench(grace=600.0, young_grace=GRACE)
    for number in range(4):
        bench.put(f"w{number}", provider_id=f"fake://w{number}", ready="True")
    _ticks(bench, HOUR)
    return bench


def _ticks(bench: Bench, seconds: float) -> None:
    for _ in range(int(seconds / PERIOD)):
        bench.tick()


def _see(bench: Bench, **fields: Any) -> None:
    before = bench.lister.objects.get("n0")
    after = bench.put("n0", provider_id="fake://n0", **fields)
    if before is None:
        bench.triggers.on_add(after, False)
    else:
        bench.triggers.on_update(before, after)


@pytest.mark.row("N30")
@pytest.mark.parametrize("seen_before", [True, False], ids=["initialised", "registered with its ID"])
def test_gone_about_a_young_node_is_not_yet(seen_before: bool) -> None:
    bench = _bench()
    bench.cloud.says["n0"] = InstanceState.GONE  # its listing lags
    if seen_before:
        _see(bench, taints=[UNINITIALIZED])
        _ticks(bench, 300)
    _see(bench, version="8")
    _ticks(bench, GRACE - 2 * PERIOD)
    assert not bench.server.deletes
    assert bench.recorder.reasons() == ["DeletingNodeHeldBack"], "for a minute, so it is told"
    assert "--node-deletion-young-grace" in bench.recorder.messages()[0]
    assert bench.metrics.value("node_lifecycle_held_nodes") == 0, "it only waits"
    bench.cloud.says["n0"] = InstanceState.RUNNING
    _ticks(bench, GRACE)
    assert not bench.server.deletes


def test_every_method_is_asked_about_a_node_only_once_it_is_no_longer_young() -> None:
    bench = _bench()
    bench.cloud.says["n0"] = InstanceState.GONE
    _see(bench, version="8")
    _ticks(bench, GRACE - 2 * PERIOD)
    assert "n0" not in bench.cloud.confirmed, "that may be one call for each node, in each period"
    assert {*bench.cloud.asked} == {"n0"}, "nor is a sample, as nothing is decided yet"
    _ticks(bench, 4 * PERIOD)
    assert "n0" in bench.cloud.confirmed


@pytest.mark.row("N30")
def test_a_machine_that_ends_young_has_its_node_deleted_after_the_grace() -> None:
    bench = _bench()
    bench.cloud.says["n0"] = InstanceState.GONE
    _see(bench)
    _ticks(bench, GRACE + 4 * PERIOD)
    assert bench.server.deleted == ["n0"]


@pytest.mark.row("N30")
def test_a_node_that_was_created_again_is_young_again() -> None:
    bench = _bench()
    _see(bench, ready="True")
    _ticks(bench, HOUR)
    bench.cloud.says["n0"] = InstanceState.GONE
    _see(bench, uid="another", version="8")
    _ticks(bench, GRACE - 2 * PERIOD)
    assert not bench.server.deletes


@pytest.mark.row("N44")
@pytest.mark.parametrize("ahead", [0.0, HOUR, -HOUR])
@pytest.mark.parametrize(("taints", "grace"), [([UNINITIALIZED], 600.0), ([], GRACE)], ids=["joins", "young"])
def test_the_managers_clock_says_nothing_about_a_nodes_age(ahead: float, taints: list[Any], grace: float) -> None:
    bench = _bench()
    bench.cloud.says["n0"] = InstanceState.GONE
    _see(bench, taints=taints, created=bench.clock.time() - ahead)
    _ticks(bench, grace - 2 * PERIOD)
    assert not bench.server.deletes
    _ticks(bench, GRACE)
    assert bench.server.deleted == ["n0"]


@pytest.mark.row("N30")
def test_a_young_ready_node_that_the_cloud_does_not_list_yet_says_nothing_against_it() -> None:
    bench = _bench()
    for name in ("n0", "young"):
        bench.cloud.says[name] = InstanceState.GONE
    _see(bench)
    _ticks(bench, GRACE)
    bench.triggers.on_add(bench.put("young", provider_id="fake://young", ready="True"), False)
    _ticks(bench, 4 * PERIOD)
    assert bench.server.deleted == ["n0"]
    assert "young" not in bench.cloud.asked


@pytest.mark.row("N30")
def test_the_grace_holds_without_the_other_checks_and_nobody_else_is_asked_about_meanwhile() -> None:
    bench = Bench(breaker=False, young_grace=GRACE)
    bench.put("w0", provider_id="fake://w0", ready="True")
    bench.cloud.says["n0"] = InstanceState.GONE
    _see(bench)
    _ticks(bench, GRACE - 2 * PERIOD)
    assert not bench.server.deletes
    assert set(bench.cloud.asked) == {"n0"}
    _ticks(bench, 4 * PERIOD)
    assert bench.server.deleted == ["n0"]
