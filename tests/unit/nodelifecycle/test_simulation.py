"""Rows N21, N26, N28: deletions and their delays in simulated clusters, beside Go's rule."""

from __future__ import annotations

import random

import pytest

from cloudprovider import InstanceState
from controllers.nodelifecycle.deletion_gate import REPORT_AFTER
from controllers.nodelifecycle.options import BreakerOptions
from tests.support.there import there
from tests.unit.nodelifecycle.simulation import CENSUS, SCENARIOS, Simulation, names, outcome
from tests.unit.nodelifecycle.support import PERIOD

ROLLING = [name for name in SCENARIOS if name.startswith(("rolling", "the same"))]
LIES = [name for name in SCENARIOS if name.startswith(("lie", "wrong account"))]


@pytest.mark.row("N26")
@pytest.mark.parametrize("max_batch", [1, 100])
@pytest.mark.parametrize("name", ROLLING)
def test_a_rolling_replacement_goes_on(name: str, max_batch: int) -> None:
    found = outcome(name, max_batch=max_batch)
    assert (found.deleted, found.wrongly) == (found.ended, 0)
    assert found.median < 15.0
    assert found.longest < 60.0
    assert found.sim is not None
    assert set(found.sim.recorder.reasons()) == {"DeletingNode"}


@pytest.mark.row("N21", "N26")
def test_many_at_once_are_deleted_soon() -> None:
    found = outcome("spot: a tenth of the zone reclaimed each minute")
    assert (found.deleted, found.wrongly) == (found.ended, 0)
    assert found.longest < 30.0


@pytest.mark.row("N21")
@pytest.mark.parametrize("name", LIES)
def test_no_running_machine_loses_its_node_by_a_lie(name: str) -> None:
    assert outcome(name).wrongly == 0
    if "all Ready" not in name:
        assert outcome(name, go=True).wrongly > 0, "or the lie would prove nothing"


@pytest.mark.row("N28")
def test_one_wrong_answer_about_a_ready_node_among_many_right_ones_holds_nobody() -> None:
    """The price of row N28, told in the docs: nothing distinguishes this from a kubelet that plays
    Ready."""
    assert outcome("wrong about 2 of 100; 1 of these turns NotReady").wrongly == 1


@pytest.mark.row("N21")
def test_beside_a_lying_zone_another_one_scales_in() -> None:
    found = outcome("lie about zone a, 3 NotReady; zone b scales in by 40")
    assert found.deleted == found.ended == 40
    assert found.longest < 30.0


@pytest.mark.row("N1")
def test_a_zone_without_a_ready_node_has_the_limit() -> None:
    found = outcome("all 40 nodes of a zone, of 60 in all")
    assert 30 <= found.deleted <= 35, "half of the 60, and then one a minute"
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
    for node_name, answers in sim.answers.items():
        if not answers or sim.votes.get(node_name) is None:
            continue  # a witness, or deleted
        votes = there(sim.votes.get(node_name))
        assert votes.gone_since is not None
        if sim.now - votes.gone_since > REPORT_AFTER + 2 * PERIOD:
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
    sim.run_for(REPORT_AFTER - 2 * PERIOD)
    assert sim.recorder.reasons() == []
    sim.run_for(4 * PERIOD)
    assert sorted(sim.recorder.reasons()) == ["DeletingNodeHeldBack"] * 2
    told = {name: text for name, _, _, text in sim.recorder.events}
    assert "waits for answer 2 of 2" in told["mute"]
    assert "no rights" in told["failing"]
    sim.run_for(120)
    assert len(sim.recorder.events) == 2, "once"


# ---- what the evidence costs, and what it holds


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


def test_what_the_evidence_for_a_scale_in_costs() -> None:
    """Each Ready node is asked about once or twice; without batches at most 300 of a zone in one
    go."""
    for max_batch, most in ((100, 3000), (1, 1000)):
        sim = Simulation(max_batch=max_batch)
        sim.join(names(0, 1000))
        sim.run_for(CENSUS)
        assert sorted(sim.cloud.asked) == sorted(names(0, 1000)), "each once, so that it is known"
        sim.cloud.asked.clear()
        sim.terminate(["n0"])
        sim.run_until_gone(["n0"])
        assert sim.server.deleted == ["n0"]
        assert len(sim.cloud.asked) <= most
        before = len(sim.cloud.asked)
        sim.run_for(60)
        assert len(sim.cloud.asked) == before, "nobody is asked about when nobody is gone"


@pytest.mark.row("N21")
@pytest.mark.parametrize("max_batch", [1, 100])
@pytest.mark.parametrize(("total", "share"), [(100, 0.05), (100, 0.5), (1000, 0.05)])
def test_a_cloud_that_leaves_instances_out_deletes_none_that_exists(max_batch: int, total: int, share: float) -> None:
    sim = Simulation(max_batch=max_batch)
    everyone = names(0, total)
    sim.join(everyone)
    sim.run_for(CENSUS)
    left_out = random.Random(total).sample(everyone, int(share * total))
    for name in left_out:
        sim.cloud.says[name] = InstanceState.GONE
    for name in left_out[: len(left_out) // 2]:
        sim.silent_at[name] = sim.now + 20  # their instances run, but their kubelets have died
    sim.run_for(90)
    assert not sim.server.deletes
    assert sim.metrics.value("node_lifecycle_held_nodes") == len(left_out) // 2
    assert sim.recorder.reasons().count("ReadyNodeSaidToBeGone") == min(3, len(left_out) - len(left_out) // 2)
    assert sim.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 1
    assert sim.recorder.reasons().count("DeletingNodeHeldBack") == len(left_out) // 2, "each is told once"
    sim.cloud.says.clear()
    sim.run_for(30)
    assert not sim.server.deletes
    assert sim.metrics.value("node_lifecycle_held_nodes") == 0
    sim.terminate(everyone[:20])
    sim.run_for(70)
    assert set(sim.server.deleted) == set(everyone[:20]), "it is believed again"


@pytest.mark.row("N21")
def test_one_ready_node_that_is_left_out_is_enough() -> None:
    sim = Simulation()
    sim.join(names(0, 20), ready=False)
    sim.join(["alone"])
    sim.cloud.says = dict.fromkeys([*names(0, 20), "alone"], InstanceState.GONE)
    sim.run_for(300)
    assert not sim.server.deletes
    sim.fall_silent("alone")
    sim.run_for(60)
    assert sim.metrics.value("node_lifecycle_contradicting_nodes") == 0, "over as soon as it is not Ready"


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


@pytest.mark.row("N21")
def test_a_ready_node_about_which_the_cloud_never_answers_delays_and_does_not_prevent() -> None:
    sim = Simulation()
    sim.join(names(0, 50))
    sim.cloud.silent.add("n49")
    sim.run_for(10)
    sim.terminate(["n0"])
    sim.run_for(60)
    assert not sim.server.deleted
    sim.run_for(60)
    assert sim.server.deleted == ["n0"]


@pytest.mark.row("N21")
def test_a_cloud_that_cannot_say_anything_of_ready_nodes_is_no_witness() -> None:
    sim = Simulation()
    sim.join(names(0, 50))
    sim.run_for(10)
    sim.cloud.says = {name: RuntimeError("no rights") for name in names(10, 50)}
    sim.terminate(names(0, 10), spread=0)
    sim.run_for(100)
    assert len(sim.server.deleted) <= 1, "the count holds, in a new process a trickle"


def test_other_ones_are_asked_about_before_the_same_ones_again() -> None:
    sim = Simulation(max_batch=1, breaker=BreakerOptions(witnesses=20))
    sim.join(names(0, 105))
    sim.run_for(10)
    for number in range(5):
        sim.terminate([f"n{number}"], spread=0)
        sim.run_for(60)
        assert f"n{number}" in sim.server.deleted
    witnesses = [name for name in sim.cloud.asked if name not in names(0, 5)]
    first = witnesses[:100]
    assert len(set(first)) == 100
