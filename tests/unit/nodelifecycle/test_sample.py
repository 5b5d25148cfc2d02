"""What the cloud says of Ready nodes decides about those that it calls gone: rows N21, N26, N28,
N42, N43, N45."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudprovider import InstanceState
from controllers.nodelifecycle.deletion import Sample, StateAnswer, Verdict, judge
from controllers.nodelifecycle.memory import Candidates, Samples
from controllers.runtime.queue import Result
from tests.support.there import there
from tests.unit.nodelifecycle.simulation import Simulation, names
from tests.unit.nodelifecycle.support import PERIOD, Bench, node

GONE, RUNNING = InstanceState.GONE, InstanceState.RUNNING
ANNOUNCED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


def _sim(ready: int = 3, *, lied: int = 0, gone: int = 1, **fields: Any) -> Simulation:
    """So many Ready nodes, of which the cloud calls `lied` gone, and so many nodes that are not
    Ready and called gone."""
    sim = Simulation(**fields)
    sim.join(names(0, ready, "r"), "")
    sim.join(names(0, gone), "", ready=False)
    sim.cloud.says.update(dict.fromkeys([*names(0, gone), *names(0, lied, "r")], GONE))
    return sim


def _turn(sim: Bench, name: str, ready: str) -> None:
    before = sim.lister.objects[name]
    sim.triggers.on_update(before, sim.put(name, provider_id=f"fake://{name}", ready=ready, version="9"))


def _why(sim: Bench) -> str:
    return sim.reports.why(there(sim.candidates.get("n0")))


@pytest.mark.row("N21")
def test_with_the_second_answer_up_to_thirty_ready_nodes_are_asked_about_in_the_same_batch() -> None:
    sim = _sim(100)
    sim.run_for(PERIOD)
    assert sim.cloud.asked == ["n0"], "nobody else with the first one"
    sim.run_for(PERIOD)
    assert sim.server.deleted == ["n0"]
    assert len(sim.cloud.asked) == 2 + 30
    sim.run_for(60)
    assert len(sim.cloud.asked) == 32, "nobody is asked about when nobody is gone"


@pytest.mark.row("N21")
def test_nodes_of_a_zone_share_a_sample_and_each_zone_has_its_own() -> None:
    sim = _sim(50, gone=20)
    for number in range(5):
        sim.put(
            f"b{number}", provider_id=f"fake://b{number}", ready="True", labels={"topology.kubernetes.io/zone": "b"}
        )
    sim.run_for(2 * PERIOD)
    assert len(sim.server.deleted) == 20
    assert len(sim.cloud.asked) == 2 * 20 + 30
    assert not [name for name in sim.cloud.asked if name.startswith("b")]


@pytest.mark.row("N21")
def test_one_thread_asks_for_a_sample_and_others_wait_for_it() -> None:
    sim = _sim(5, gone=2)
    sim.run_for(PERIOD)
    sim.clock.advance(PERIOD)
    sim.sweep()
    fetch, others = sim.cloud.fetch_state, [("n1",)]
    results: list[Any] = []

    def while_it_is_asked(nodes: Any, deliver: Any, **_: Any) -> None:
        results.extend(sim.run(*others.pop()) for _ in list(others))
        fetch(nodes, deliver)

    sim.cloud.fetch_state = while_it_is_asked  # type: ignore[method-assign]
    sim.run("n0")
    assert results == [{"n1": Result(requeue_after=PERIOD / 2)}]
    assert sim.server.deleted == ["n0"]
    sim.clock.advance(PERIOD / 2)
    asked = len(sim.cloud.asked)
    sim.run("n1")
    assert sim.server.deleted == ["n0", "n1"]
    assert sim.cloud.asked[asked:] == ["n1"], "the sample is fresh enough"


@pytest.mark.row("N21")
def test_a_question_that_fails_leaves_no_sample_under_way() -> None:
    sim = _sim()
    sim.run_for(PERIOD)
    sim.clock.advance(PERIOD)
    sim.sweep()
    fetch = sim.cloud.fetch_state

    def fails(nodes: Any, deliver: Any, **_: Any) -> None:
        raise RuntimeError("the gateway is closed")

    sim.cloud.fetch_state = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="closed"):
        sim.run("n0")
    sim.cloud.fetch_state = fetch  # type: ignore[method-assign]
    sim.run_for(2 * PERIOD)
    assert sim.server.deleted == ["n0"]


@pytest.mark.row("N21", "N26")
def test_it_is_told_at_each_stage_why_a_node_is_not_deleted(caplog: pytest.LogCaptureFixture) -> None:
    sim = _sim(3, lied=1)
    sim.run_for(PERIOD)
    assert _why(sim) == "waits for answer 2 of 2 that its instance is gone"
    sim.run_for(PERIOD)
    assert _why(sim) == "the cloud calls 1 Ready nodes of zone '' gone too (r0), which shows within a minute"
    sim.run_for(50)
    assert sim.recorder.events == [], "not a minute yet"
    assert sim.candidates.held == 0
    sim.run_for(20)
    assert sim.metrics.value("node_lifecycle_held_nodes") == 1
    assert sim.metrics.value("node_lifecycle_contradicting_nodes") == 1
    assert sim.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 1
    assert "so it is not believed. Check the provider's credentials" in _why(sim)
    assert sorted(sim.recorder.reasons()) == ["DeletingNodeHeldBack", "ReadyNodeSaidToBeGone"]
    assert caplog.text.count("ALARM: zone ''") == 1
    sim.run_for(600)
    assert len(sim.recorder.events) == 2, "each is told once"
    assert not sim.server.deletes
    assert sim.controller.release_breaker() == 1
    sim.run_for(3 * PERIOD)
    assert sim.server.deleted == ["n0"]


@pytest.mark.row("N21")
def test_an_alarm_ends_once_and_a_second_lie_is_another_alarm(caplog: pytest.LogCaptureFixture) -> None:
    sim = _sim(3)
    for alarms in (1, 2):
        sim.cloud.says = dict.fromkeys(["r0", "n0"], GONE)
        sim.run_for(100)
        assert sim.metrics.value("node_lifecycle_deletion_breaker_trips_total") == alarms
        sim.cloud.says = {}
        sim.run_for(100)
        assert caplog.text.count("the cloud is believed again") == alarms
        assert sim.metrics.value("node_lifecycle_contradicting_nodes") == 0
    assert sim.server.deletes == []


@pytest.mark.row("N26")
@pytest.mark.parametrize("end", ["not ready", "deleted", "recreated", "on another machine", "called existing"])
def test_one_of_the_list_counts_until_its_own_fate_shows(end: str) -> None:
    sim = _sim(3, lied=1)
    sim.run_for(3 * PERIOD)
    assert not sim.server.deletes
    if end == "not ready":
        _turn(sim, "r0", "Unknown")
    elif end == "deleted":
        sim.drop("r0")
    elif end == "recreated":
        sim.put("r0", provider_id="fake://r0", ready="True", uid="another")
    elif end == "on another machine":
        for machine in ("first", "second"):
            before = sim.lister.objects["r0"]
            sim.triggers.on_update(before, sim.put("r0", provider_id="fake://r0", ready="True", machine=machine))
    else:
        del sim.cloud.says["r0"]
    sim.run_for(2 * PERIOD)
    assert "n0" in sim.server.deleted


@pytest.mark.row("N21", "N28")
@pytest.mark.parametrize(("ready", "lied", "deleted"), [(11, 1, True), (10, 1, False), (30, 2, False)])
def test_one_contradiction_among_ten_right_answers_holds_nobody(ready: int, lied: int, deleted: bool) -> None:
    sim = _sim(ready, lied=lied)
    sim.run_for(300)
    assert sim.server.deleted == (["n0"] if deleted else [])


@pytest.mark.row("N21", "N43")
def test_a_node_goes_on_waiting_for_the_same_ones_and_asks_about_them_in_each_round() -> None:
    sim = _sim(200, lied=60)
    sim.run_for(2 * PERIOD)
    listed = there(there(sim.candidates.get("n0")).sample).gone
    assert len(listed) > 1
    sim.cloud.asked.clear()
    sim.run_for(20 * PERIOD)
    assert there(there(sim.candidates.get("n0")).sample).gone == listed
    ready = [name for name in sim.cloud.asked if name != "n0"]
    assert sorted(set(ready)) == sorted(name for name, _, _ in listed)
    assert len(ready) == 20 * len(listed)
    assert not sim.server.deletes


@pytest.mark.row("N43")
def test_whom_one_node_waits_for_the_next_one_is_asked_about_too() -> None:
    """However lucky its own draw is: here every Ready node but one is said to exist."""
    sim = _sim(3, lied=1)
    sim.run_for(2 * PERIOD)
    for number in range(3, 300):
        sim.put(f"r{number}", provider_id=f"fake://r{number}", ready="True")
    sim.put("n1", provider_id="fake://n1")
    sim.cloud.says["n1"] = GONE
    sim.run_for(3 * PERIOD)
    identities = [identity[0] for identity in there(sim.samples.latest("", 0.0)).gone]
    assert identities == ["r0"]


@pytest.mark.row("N21")
def test_what_the_cloud_does_not_answer_delays_and_does_not_prevent() -> None:
    sim = _sim(4)
    sim.cloud.silent.add("r0")
    sim.cloud.says["r1"] = RuntimeError("no rights")
    sim.run_for(2 * PERIOD)
    assert sim.server.deleted == ["n0"], "half of the sample is enough"


@pytest.mark.row("N21")
@pytest.mark.parametrize("says", [RuntimeError("no rights"), GONE], ids=["cannot say", "calls all gone"])
def test_where_the_sample_shows_nothing_the_limit_holds(says: Any) -> None:
    sim = _sim(40, gone=50)
    for number in range(40):
        sim.cloud.says[f"r{number}"] = says
    sim.run_for(20)
    if says is GONE:
        assert not sim.server.deletes
        for number in range(40):
            _turn(sim, f"r{number}", "Unknown")
    sim.run_for(30)
    assert len(sim.server.deleted) <= 1, "a trickle, in a new process"
    assert there(sim.metrics.value("node_lifecycle_held_nodes")) >= 40


@pytest.mark.row("N21")
def test_a_zone_that_has_a_ready_node_again_needs_no_limit() -> None:
    sim = _sim(0, gone=30)
    sim.run_for(30)
    assert not sim.server.deletes
    sim.put("r0", provider_id="fake://r0", ready="True")
    sim.run_for(3 * PERIOD)
    assert len(sim.server.deleted) == 30


@pytest.mark.row("N21")
@pytest.mark.parametrize("lied", [True, False])
def test_a_node_that_gets_another_zone_is_judged_by_the_nodes_of_that_one(lied: bool) -> None:
    sim = _sim(0, limit=0)
    zone = {"topology.kubernetes.io/zone": "b"}
    for name in ("b0", "b1"):
        sim.put(name, provider_id=f"fake://{name}", ready="True", labels=zone)
        sim.cloud.says[name] = GONE if lied else RUNNING
    sim.run_for(2 * PERIOD)
    assert sim.server.deleted == [], "its own zone has no Ready node, and the limit is 0"
    before = sim.lister.objects["n0"]
    sim.triggers.on_update(before, sim.put("n0", provider_id="fake://n0", labels=zone, version="9"))
    sim.run_for(4 * PERIOD)
    assert sim.server.deleted == ([] if lied else ["n0"])
    assert sim.candidates.held == 0, "neither the limit holds it, nor the list yet"


@pytest.mark.row("N21")
@pytest.mark.parametrize("ready", [0, 3])
def test_a_node_that_the_autoscaler_has_marked_needs_neither(ready: int) -> None:
    sim = _sim(ready, lied=ready, gone=0, young_grace=60)
    sim.run_for(60)  # so that the Ready ones could be asked about
    for number in range(50):
        sim.put(f"n{number}", provider_id=f"fake://n{number}", taints=[ANNOUNCED])
        sim.cloud.says[f"n{number}"] = GONE
    sim.run_for(2 * PERIOD)
    assert len(sim.server.deleted) == 50
    assert not [name for name in sim.cloud.asked if name.startswith("r")]


@pytest.mark.row("N21")
def test_an_unknown_ends_the_wait_and_the_sample_is_drawn_again() -> None:
    sim = _sim(3, lied=1)
    sim.run_for(3 * PERIOD)
    sim.cloud.says["n0"] = RuntimeError("a timeout")
    sim.run_for(PERIOD)
    assert there(sim.candidates.get("n0")).sample is None
    sim.cloud.says["n0"] = GONE
    sim.run_for(600)
    assert not sim.server.deletes


# ---- counters and lines


@pytest.mark.row("N42")
def test_a_round_of_answers_never_looks_at_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = _sim(0, gone=50)
    sim.run_for(3 * PERIOD)
    sim.clock.advance(PERIOD)
    sim.survey()
    with monkeypatch.context() as patch:
        patch.setattr(Candidates, "all", lambda self: pytest.fail("it looked at all"))
        sim.run(*(f"n{number}" for number in range(50)))
    assert sim.metrics.value("node_lifecycle_held_nodes") == 50


@pytest.mark.row("N42")
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["add", "hold", "forget", "keep", "release"])), max_size=60
    )
)
def test_the_number_of_held_nodes_is_kept_with_each_change(steps: list[tuple[str, str]]) -> None:
    candidates = Candidates()
    for name, step in steps:
        old = candidates.get(name)
        if step == "add":
            candidates.add(name, StateAnswer(node(name), 0.0, 0.0, GONE), PERIOD)
        elif step == "hold" and old is not None:
            candidates.note(name, old, held=not old.held)
        elif step == "forget":
            candidates.forget(name)
        elif step == "keep":
            candidates.keep({name})
        elif step == "release":
            held = candidates.held
            assert candidates.release_held() == held
        assert candidates.held == sum(one.held for _, one in candidates.all())


@pytest.mark.row("N45")
def test_a_zone_has_one_line_a_minute_however_many_nodes_and_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sim = _sim(0, gone=200)
    names = [f"n{number}" for number in range(200)]
    for poll in range(120):
        sim.cloud.says = dict.fromkeys(names, GONE if poll % 2 else RUNNING)
        sim.run_for(PERIOD)
    lines = [record.getMessage() for record in caplog.records]
    said = [line for line in lines if "(answer 1 of 2)" in line]
    assert 9 <= len(said) <= 11, "ten minutes"
    assert len(lines) == len(said)
    assert (
        said[0] == "zone '': the cloud says that the instances of 200 nodes are gone (answer 1 of 2): n0, n1, n10, ..."
    )


@pytest.mark.row("N45")
def test_who_is_gone_is_said_once_for_those_that_are_held_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sim = _sim(20, lied=20, gone=2)
    sim.run_for(300)
    assert sim.candidates.held == 2
    assert sum("(answer 1 of 2)" in record.getMessage() for record in caplog.records) == 1
    sim.join(["late"], "", ready=False)
    sim.say_gone("late")
    sim.run_for(2 * PERIOD)
    assert "instances of 1 nodes are gone (answer 1 of 2): late" in caplog.text


@pytest.mark.row("N45")
def test_an_answer_that_waited_for_a_thread_until_after_the_line_is_in_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    sim = _sim(0, gone=2)
    answers: dict[str, Any] = {}
    sim.reconciler.fetch(["n0", "n1"], answers.__setitem__)
    for name in ("n0", "n1"):
        sim.reconciler.reconcile(name, answers[name])
        sim.clock.advance(1.0)
        sim.survey()
    sim.clock.advance(60.0)
    sim.survey()
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["n0", "n1"]


def test_a_node_that_turns_ready_while_its_batch_is_made_gets_its_answer_as_a_candidate() -> None:
    sim = _sim(3)
    sim.run_for(PERIOD)
    _turn(sim, "r0", "Unknown")
    draw = sim.samples.draw

    def late(zone: str, usable: Any, now: float) -> Any:
        _turn(sim, "r0", "True")
        return draw(zone, usable, now)

    sim.samples.draw = late  # type: ignore[method-assign]
    sim.clock.advance(PERIOD)
    assert sim.run("n0", "r0").keys() == {"n0", "r0"}
    assert sim.server.deleted == ["n0"]


# ---- whatever happens


class _Model(Bench):
    """A bench that checks each deletion when it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, list[tuple[float, InstanceState]]] = {}
        self.limited = 0
        self.server.before = self._before

    def _before(self, name: str, body: Any) -> None:
        if "preconditions" not in body:
            return
        one = there(self.candidates.get(name))
        gone = self.answers[name][-2:]
        assert [state for _, state in gone] == [GONE, GONE]
        assert gone[1][0] - gone[0][0] >= PERIOD - 0.01
        assert there(there(self.lister.objects[name].status).conditions)[0].status != "True"
        sample = one.sample or there(self.samples.latest("", one.since))
        still = [
            other
            for other, uid, _ in sample.gone
            if other in self.lister.objects
            and there(self.lister.objects[other].metadata).uid == uid
            and there(there(self.lister.objects[other].status).conditions)[0].status == "True"
            and self.cloud.says.get(other) is GONE
        ]
        verdict = judge(sample, len(still))
        assert verdict is not Verdict.WAIT
        self.limited += verdict is Verdict.LIMIT

    def step(self) -> None:
        self.clock.advance(PERIOD)
        names = sorted(self.sweep())
        for name in names:
            state = self.cloud.says.get(name, RUNNING)
            if name in self.lister.objects and isinstance(state, InstanceState):
                self.answers.setdefault(name, []).append((self.clock.monotonic(), state))
            elif name in self.answers:
                self.answers[name].clear()
        self.run(*names)


@pytest.mark.row("N1", "N21", "N43")
@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), lied=st.integers(0, 20), mood=st.floats(0.0, 0.3))
def test_no_node_is_deleted_while_two_of_its_list_are_ready_and_called_gone(seed: int, lied: int, mood: float) -> None:
    rng = random.Random(seed)
    bench = _Model()
    names = [f"r{number}" for number in range(20)]
    for name in names:
        bench.put(name, provider_id=f"fake://{name}", ready="True")
    for name in rng.sample(names, lied):
        bench.cloud.says[name] = GONE
    for _ in range(30):
        for name in [name for name in names if name in bench.lister.objects and rng.random() < mood]:
            _turn(bench, name, rng.choice(["True", "Unknown"]))
            bench.answers.pop(name, None)
        for name in rng.sample(names, 1):
            bench.cloud.says[name] = rng.choice([GONE, RUNNING, RuntimeError("a timeout")])
        bench.step()
    assert bench.limited <= 10


def test_a_sample_without_names_is_empty() -> None:
    samples = Samples(PERIOD)
    assert there(samples.latest("nowhere", 7.0)).size == 0
    assert samples.draw("nowhere", lambda name: None, 0.0) is None
    assert samples.called_gone(Sample(0.0)) == []
