"""Rows N21, N26, N28, N43: deletions and their delays in simulated clusters, beside Go's rule."""

from __future__ import annotations

import pytest

from cloudprovider import InstanceState
from controllers.nodelifecycle.deletion import ALARM_AFTER
from tests.support.there import there
from tests.unit.nodelifecycle.simulation import READY_FOR, SCENARIOS, Simulation, names, outcome, wrongly
from tests.unit.nodelifecycle.support import PERIOD

ROLLING = [name for name in SCENARIOS if name.startswith(("rolling", "the same"))]
ALWAYS_SEEN = [
    "lie about 50 of 100; 25 turn NotReady",
    "50 replaced, one in 10 s, then a lie about 50; 10 turn NotReady",
    "wrong account, all Ready",
    "wrong account, 10 turn NotReady",
    "wrong account from the start, 10 turn NotReady",
    "lie about zone a, 3 NotReady; zone b scales in by 40",
]
A_FIFTH = [
    "lie about 20 of 100; 10 turn NotReady",
    "20 machines replaced in 10 minutes, then a lie about 20; 10 turn NotReady",
]


@pytest.mark.row("N26")
@pytest.mark.parametrize("max_batch", [1, 100])
@pytest.mark.parametrize("name", ROLLING)
def test_a_rolling_replacement_goes_on(name: str, max_batch: int) -> None:
    found = outcome(name, max_batch=max_batch)
    assert (found.deleted, found.wrongly) == (found.ended, 0)
    assert READY_FOR + found.median < 93.0, "since the machine ended"
    assert READY_FOR + found.longest <= 110.0
    assert found.sim is not None
    assert set(found.sim.recorder.reasons()) == {"DeletingNode"}, "no alarm"


@pytest.mark.row("N21", "N26")
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name.startswith(("spot", "scale-in"))])
def test_many_at_once_are_deleted_soon(name: str) -> None:
    found = outcome(name)
    assert (found.deleted, found.wrongly) == (found.ended, 0)
    assert found.longest <= 15.0
    assert set(there(found.sim).recorder.reasons()) == {"DeletingNode"}


@pytest.mark.row("N21", "N43")
@pytest.mark.parametrize("name", ALWAYS_SEEN)
def test_no_running_machine_loses_its_node_by_a_lie_about_many(name: str) -> None:
    assert set(wrongly(name)) == {0}
    if "all Ready" not in name:
        assert outcome(name, go=True).wrongly > 0, "or the lie would prove nothing"


@pytest.mark.row("N21", "N43")
@pytest.mark.parametrize("name", A_FIFTH)
def test_a_lie_about_a_fifth_is_seen_nearly_always_and_a_rollout_before_it_changes_nothing(name: str) -> None:
    assert wrongly(name).count(0) >= 8, "of ten runs"


@pytest.mark.row("N28")
def test_a_lie_about_very_few_is_believed() -> None:
    """The price of a sample, and of row N28, told in the docs: nothing distinguishes it from
    kubelets that play Ready."""
    assert outcome("wrong about 2 of 100; 1 of these turns NotReady").wrongly == 1
    assert outcome("lie about 5 of 100; 2 turn NotReady").wrongly <= 2


@pytest.mark.row("N21")
def test_beside_a_lying_zone_another_one_scales_in() -> None:
    found = outcome("lie about zone a, 3 NotReady; zone b scales in by 40")
    assert found.deleted == found.ended == 40
    assert found.longest <= 15.0


@pytest.mark.row("N1")
def test_a_zone_without_a_ready_node_has_the_limit() -> None:
    found = outcome("all 40 nodes of a zone, of 60 in all")
    assert found.longest > 60, "half of the 60, and then one a minute"
    single = outcome("a single node")
    assert (single.deleted, single.wrongly) == (1, 0)


@pytest.mark.row("N28")
def test_one_node_that_stays_ready_without_a_machine_keeps_no_other_one() -> None:
    found = outcome("a stolen kubelet credential keeps one Node Ready")
    assert (found.deleted, found.wrongly) == (3, 0)
    assert found.longest < 15.0
    assert found.sim is not None
    assert "n0" not in found.sim.server.deleted, "it is Ready"


@pytest.mark.row("N26")
@pytest.mark.parametrize("name", SCENARIOS)
def test_whoever_waits_for_more_than_a_minute_has_an_event_that_says_why(name: str) -> None:
    sim = there(outcome(name).sim)
    for node_name, one in sim.candidates.all():
        if one.gone_since is not None and sim.now - one.gone_since > ALARM_AFTER + 2 * PERIOD:
            told = [text for who, _, _, text in sim.recorder.events if who == node_name]
            assert any("is not deleted now: " in text for text in told), node_name


@pytest.mark.row("N26")
def test_each_reason_for_waiting_has_its_event() -> None:
    """Also those that no verdict is behind: a cloud that falls silent, and a second answer that
    does not come."""
    sim = Simulation()
    sim.join(["ready", "mute", "failing"])
    sim.run_for(20)
    for name in ("mute", "failing"):
        sim.say_gone(name)
        sim.fall_silent(name)
    sim.work()
    sim.cloud.silent.add("mute")
    sim.cloud.says["failing"] = RuntimeError("no rights")
    sim.run_for(ALARM_AFTER - 2 * PERIOD)
    assert sim.recorder.reasons() == []
    sim.run_for(4 * PERIOD)
    assert sorted(sim.recorder.reasons()) == ["DeletingNodeHeldBack"] * 2
    told = {name: text for name, _, _, text in sim.recorder.events}
    assert "waits for answer 2 of 2" in told["mute"]
    assert "no rights" in told["failing"]
    sim.run_for(120)
    assert len(sim.recorder.events) == 2, "once"


@pytest.mark.row("N21")
@pytest.mark.parametrize("max_batch", [1, 100])
@pytest.mark.parametrize("announced", [False, True], ids=["unannounced", "announced"])
def test_a_planned_scale_in_from_a_thousand_nodes_to_a_hundred_is_over_soon(announced: bool, max_batch: int) -> None:
    sim = Simulation(max_batch=max_batch)
    kept, gone = names(0, 100), names(100, 1000)
    sim.join(kept)
    sim.join(gone, announced=announced)
    sim.run_for(20)
    sim.terminate(gone)
    sim.run_until_gone(gone)
    assert set(sim.server.deleted) == set(gone)
    assert sim.now - sim.last_confirmation(gone) <= 2 * PERIOD + 1.0, "two monitor periods, and the step of the clock"
    assert "ReadyNodeSaidToBeGone" not in sim.recorder.reasons(), "instances that have just ended are no lie"
    assert sim.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 0


@pytest.mark.row("N21")
@pytest.mark.parametrize("total", [5, 12, 40])
def test_a_restart_every_minute_does_not_help_a_liar(total: int) -> None:
    left = set(names(0, total))
    for _ in range(20):
        sim = Simulation()
        sim.join(left, ready=False)
        sim.cloud.says = dict.fromkeys(left, InstanceState.GONE)
        sim.run_for(60)
        left -= set(sim.server.deleted)
    assert len(left) == total


@pytest.mark.row("N21")
def test_a_zone_that_ended_with_the_leader_in_it_keeps_its_nodes_for_a_window_and_not_for_an_hour() -> None:
    sim = Simulation()
    sim.join(names(0, 60), zone="b")
    sim.join(gone := names(60, 90), ready=False)
    sim.cloud.says = dict.fromkeys(gone, InstanceState.GONE)
    sim.run_for(590)
    assert len(sim.server.deleted) <= 10, "one a minute"
    sim.run_for(60)
    assert set(sim.server.deleted) == set(gone)
