"""When a node is deleted, as pure functions: rows N1, N21, N26, N28, N43."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.nodelifecycle.deletion import TRICKLE, Admission, Limit, Sample, Verdict, judge

DELETE, WAIT, LIMIT = Verdict.DELETE, Verdict.WAIT, Verdict.LIMIT
ALLOWED, HELD, ALARM = Admission.ALLOWED, Admission.HELD, Admission.ALARM


def _sample(existing: int = 0, gone: int = 0, silent: int = 0) -> Sample:
    identities = tuple((f"n{number}", "uid", "fake://i") for number in range(gone))
    return Sample(0.0, existing + gone + silent, existing, identities)


@pytest.mark.row("N21", "N26", "N28")
@pytest.mark.parametrize(
    ("sample", "still", "expected"),
    [
        (_sample(), 0, LIMIT),
        (_sample(30), 0, DELETE),
        (_sample(1), 0, DELETE),
        # one contradiction among ten right answers is a fact about that one node
        (_sample(10, 1), 1, DELETE),
        (_sample(9, 1), 1, WAIT),
        (_sample(28, 2), 2, WAIT),
        (_sample(28, 2), 1, DELETE),
        # those that have just ended are waited for, however many there are
        (_sample(3, 27), 27, WAIT),
        (_sample(3, 27), 1, WAIT),
        (_sample(3, 27), 0, DELETE),
        # a cloud that calls none existing, or answers about fewer than half, shows nothing
        (_sample(0, 30), 0, LIMIT),
        (_sample(0, 30), 1, WAIT),
        (_sample(15, 0, 15), 0, DELETE),
        (_sample(14, 0, 16), 0, LIMIT),
        (_sample(10, 5, 16), 0, LIMIT),
        (_sample(10, 5, 16), 2, WAIT),
    ],
    ids=str,
)
def test_the_table(sample: Sample, still: int, expected: Verdict) -> None:
    assert judge(sample, still) is expected


counts = st.integers(0, 40)


@pytest.mark.row("N21", "N43")
@given(existing=counts, gone=counts, silent=counts, left=st.floats(0, 1))
def test_nothing_is_deleted_while_two_of_its_list_are_still_called_gone(
    existing: int, gone: int, silent: int, left: float
) -> None:
    still = round(left * gone)
    sample = _sample(existing, gone, silent)
    verdict = judge(sample, still)
    assert (verdict is WAIT) == (still > (1 if existing >= 10 else 0))
    if verdict is DELETE:
        assert existing, "the cloud has shown that it can call something existing"
        assert 2 * (existing + gone) >= sample.size
    order = [WAIT, LIMIT, DELETE]
    if still:
        assert order.index(judge(sample, still - 1)) >= order.index(verdict), "fewer contradictions never hold"
    assert order.index(judge(_sample(existing + 1, gone, silent), still)) >= order.index(verdict)


# ---- the limit


def _limit(at_least: int = 10, window: float = 600.0, *, owned: int = 0, quiet: float = 0.0) -> Limit:
    """A process that has run for a calm window."""
    limit = Limit(at_least, window, now=-window, quiet=quiet)
    limit.observe(0.0, owned)
    return limit


@pytest.mark.row("N1")
@pytest.mark.parametrize(("owned", "allowed"), [(0, 10), (19, 10), (100, 50), (101, 50)])
def test_so_many_go_and_then_a_trickle_with_one_alarm(owned: int, allowed: int) -> None:
    limit = _limit(owned=owned)
    said = [limit.admit(1.0) for _ in range(allowed + 5)]
    assert said == [ALLOWED] * allowed + [ALARM] + [HELD] * 4
    assert limit.alarming
    times = [at for at in range(2, 400) if limit.admit(float(at)) is ALLOWED]
    assert times == [61, 121, 181, 241, 301, 361]


@pytest.mark.row("N1")
def test_deleted_nodes_do_not_lower_the_limit_of_their_window() -> None:
    limit = _limit(owned=100)
    for _ in range(30):
        assert limit.admit(1.0) is ALLOWED
    limit.observe(2.0, 70)
    assert limit.number(2.0) == 50
    assert limit.number(700.0) == 35


def test_it_closes_when_nothing_was_held_back_for_a_window() -> None:
    limit = _limit(0, owned=1)
    assert limit.admit(0.0) is ALARM
    assert not limit.observe(599.0, 50)
    assert limit.observe(600.0, 50)
    assert not limit.alarming
    assert limit.admit(601.0) is ALLOWED


@pytest.mark.row("N1")
def test_silence_of_the_cloud_does_not_close_it() -> None:
    limit = _limit(0, owned=1)
    limit.admit(0.0)
    for at in range(5, 5000, 5):
        assert not limit.observe(float(at), 50, calm=False)
    assert not limit.observe(5000.0, 50), "the window begins when the cloud answers again"


def test_the_quiet_time_is_longer_than_a_long_monitor_period() -> None:
    limit = _limit(0, 10, owned=1, quiet=100)
    assert limit.admit(0.0) is ALARM
    assert not limit.observe(99.0, 1)
    assert limit.observe(100.0, 1)


@pytest.mark.row("N21")
def test_a_new_process_lets_a_trickle_through_and_raises_no_alarm_for_few() -> None:
    limit = Limit(2, 600.0, now=0.0)
    assert [limit.admit(1.0, held) for held in (0, 1)] == [HELD, HELD]
    assert not limit.alarming
    assert [limit.admit(2.0, held) for held in (2, 3)] == [ALARM, HELD], "more than the limit"
    assert [at for at in range(3, 200) if limit.admit(float(at), 3) is ALLOWED] == [60, 120, 180]


@pytest.mark.row("N21")
def test_a_new_process_has_the_limit_after_a_window_though_nodes_were_held_all_the_while() -> None:
    limit = Limit(10, 600.0, now=0.0)
    allowed = []
    for at in range(1, 620):
        limit.observe(float(at), 100)
        allowed += [at] * sum(limit.admit(float(at), 20) is ALLOWED for _ in range(3))
    assert [at for at in allowed if at < 600] == list(range(60, 600, 60))
    assert allowed.count(600) == 3
    assert len(allowed) == 50, "those of the first window count"


@pytest.mark.row("N21")
def test_a_new_process_that_saw_too_many_keeps_to_the_trickle_after_the_window() -> None:
    limit = Limit(10, 600.0, now=0.0)
    limit.observe(1.0, 100)
    assert limit.admit(2.0, 50) is ALARM
    assert [at for at in range(3, 5000) if limit.admit(float(at), 10) is ALLOWED] == list(range(60, 5000, 60))


def test_a_leave_that_was_not_used_is_given_back() -> None:
    limit = _limit(1)
    assert limit.admit(1.0) is ALLOWED
    limit.refund(1.0)
    assert limit.admit(2.0) is ALLOWED
    limit.refund(7.0)  # never given
    assert limit.admit(3.0) is not ALLOWED


@pytest.mark.row("N1", "N21")
@given(
    lives=st.lists(st.lists(st.floats(0, 120), min_size=1, max_size=80), min_size=1, max_size=5),
    owned=st.integers(0, 60),
    waiting=st.integers(0, 60),
    at_least=st.integers(0, 10),
)
def test_processes_one_after_another_delete_no_more_than_one(
    lives: list[list[float]], owned: int, waiting: int, at_least: int
) -> None:
    now, allowed = 0.0, []
    for steps in lives:
        limit = Limit(at_least, 600.0, now=now)
        for step in steps:
            now += step
            limit.observe(now, owned)
            if limit.admit(now, waiting) is ALLOWED:
                allowed.append(now)
    bound = max(at_least, owned // 2) + 600.0 / TRICKLE + 1
    for start in allowed:
        assert sum(start <= at < start + 600.0 for at in allowed) <= bound
