"""The rows of the table in deletion_policy.py, at their boundaries (rows N21, N26, N28)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import InstanceState
from controllers.nodelifecycle.deletion_policy import Verdict, judge
from controllers.nodelifecycle.witnesses import Tally
from tests.unit.nodelifecycle.support import Bench

DELETE, WAIT, HOLD, COUNT = Verdict.DELETE, Verdict.WAIT, Verdict.HOLD, Verdict.COUNT


def _tally(right: int, *, open: int = 0, wrong: int = 0, unproven: int = 0, silent: int = 0, **more: int) -> Tally:
    gone = more.pop("gone", open + wrong + unproven)
    return Tally(right + gone + silent, right=right, open=open, gone=gone, wrong=wrong, unproven=unproven, **more)


@pytest.mark.row("N21", "N26", "N28")
@pytest.mark.parametrize(
    ("tally", "expected"),
    [
        (Tally(), COUNT),
        (_tally(1), DELETE),
        (_tally(100, missing=1), WAIT),
        (_tally(0, unproven=9, missing=1), WAIT),
        # one wrong answer among many right ones is a fact about that node
        (_tally(10, wrong=1), DELETE),
        (_tally(9, wrong=1), HOLD),
        (_tally(1000, wrong=2), HOLD),
        (_tally(1000, wrong=2, confirmed=4), DELETE),
        (_tally(1000, wrong=2, confirmed=3), HOLD),
        (_tally(9, wrong=1, confirmed=4), DELETE),
        # those never called existing hold as a majority only
        (_tally(4, unproven=4), DELETE),
        (_tally(4, unproven=5), HOLD),
        (_tally(10, unproven=10, wrong=1), HOLD),
        (_tally(10, unproven=9, wrong=1), DELETE),
        (_tally(0, unproven=1), HOLD),
        (_tally(0, unproven=1, confirmed=100), HOLD),
        # open ones are waited for, beyond what the record covers
        (_tally(10, open=1), DELETE),
        (_tally(9, open=1), WAIT),
        (_tally(9, open=1, confirmed=1), DELETE),
        (_tally(100, open=2), WAIT),
        (_tally(100, open=2, confirmed=1), DELETE),
        (_tally(100, open=5, wrong=1, confirmed=4), WAIT),
        (_tally(100, open=5, wrong=1, confirmed=5), DELETE),
        (_tally(100, open=100, confirmed=99), DELETE),
        (_tally(100, open=101, confirmed=999), WAIT),
        (_tally(100, gone=100), DELETE),
        (_tally(100, gone=101), WAIT),
        # a cloud that cannot answer
        (_tally(10, silent=10), DELETE),
        (_tally(10, silent=11), COUNT),
        (_tally(0, silent=1), COUNT),
    ],
    ids=str,
)
def test_the_table(tally: Tally, expected: Verdict) -> None:
    assert judge(tally) is expected


@pytest.mark.row("N21")
@given(right=st.integers(0, 1000), wrong=st.integers(0, 1000), open=st.integers(0, 1000), more=st.integers(0, 9))
def test_more_right_answers_never_hold_and_more_wrong_ones_never_let_go(
    right: int, wrong: int, open: int, more: int
) -> None:
    order = [HOLD, WAIT, COUNT, DELETE]
    verdict = judge(_tally(right, open=open, wrong=wrong))
    if right + open + wrong:
        assert order.index(judge(_tally(right + more, open=open, wrong=wrong))) >= order.index(verdict)
        assert order.index(judge(_tally(right, open=open, wrong=wrong + more))) <= order.index(verdict)
    if wrong + open > right:
        assert verdict is not DELETE, "a cloud that calls most Ready nodes gone"


def _lied_to() -> Bench:
    """One Ready node that the cloud once called existing; now it calls that one gone, and one that
    is not Ready."""
    bench = Bench()
    bench.put("ready", ready="True", provider_id="fake://ready")
    bench.put("n0", provider_id="fake://n0")
    bench.tick()
    assert bench.cloud.asked.count("ready") == 1
    bench.cloud.says = dict.fromkeys(["ready", "n0"], InstanceState.GONE)
    return bench


def _why(bench: Bench) -> str:
    votes = bench.votes.get("n0")
    assert votes is not None
    return bench.gate.why(votes)


@pytest.mark.row("N21", "N26")
def test_it_is_reported_at_each_stage_why_a_node_is_not_deleted() -> None:
    bench = _lied_to()
    bench.settle(["n0"])
    assert _why(bench) == "waits for answer 2 of 2 that its instance is gone"
    bench.settle(["n0"])
    assert _why(bench) == "the cloud calls 1 Ready nodes of zone '' gone too; within a minute that shows"
    assert bench.votes.held() == 0
    for _ in range(9):
        bench.settle(["n0"])
    assert bench.recorder.events == [], "not a minute yet"
    assert bench.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 0
    for _ in range(4):
        bench.settle(["n0"])
    assert bench.server.deletes == []
    assert bench.votes.held() == 1
    assert bench.metrics.value("node_lifecycle_contradicting_nodes") == 1
    assert bench.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 1
    assert _why(bench).startswith(
        "the cloud calls Ready nodes of zone '' gone too (ready), so it is not believed there."
    )
    assert sorted(bench.recorder.reasons()) == ["DeletingNodeHeldBack", "ReadyNodeSaidToBeGone"]
    [told] = [message for _, _, reason, message in bench.recorder.events if reason == "ReadyNodeSaidToBeGone"]
    assert "restart the kubelet" in told, "one that went on with the Node does not register again by itself"
    for _ in range(30):
        bench.settle(["n0"])
    assert len(bench.recorder.events) == 2, "each is told once"
    assert bench.metrics.value("node_lifecycle_deletion_breaker_trips_total") == 1
    assert bench.gate.release() == 1
    bench.settle(["n0"])
    assert bench.server.deleted == ["n0"]


@pytest.mark.row("N21")
def test_an_alarm_ends_once_and_a_second_lie_is_another_alarm(caplog: pytest.LogCaptureFixture) -> None:
    bench = _lied_to()
    ended = "the cloud no longer says that a Ready node is gone"
    for alarms in (1, 2):
        bench.cloud.says = dict.fromkeys(["ready", "n0"], InstanceState.GONE)
        for _ in range(20):
            bench.settle(["n0"])
        assert bench.metrics.value("node_lifecycle_deletion_breaker_trips_total") == alarms
        bench.cloud.says = {}
        for _ in range(20):
            bench.settle(["n0"])
        assert caplog.text.count(ended) == alarms
    assert bench.server.deletes == []


def test_an_answer_that_does_not_come_is_told() -> None:
    bench = _lied_to()
    bench.cloud.says = {"n0": InstanceState.GONE}
    bench.cloud.silent.add("ready")
    for _ in range(3):
        bench.settle(["n0"])
    assert _why(bench) == "the cloud has not answered yet about 1 Ready nodes of zone ''"
    assert bench.server.deletes == []
