"""The breaker: how many nodes may go, when it opens, what trickles, what closes it (row N1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.nodelifecycle.deletion_policy import Breaker
from controllers.nodelifecycle.options import BreakerOptions


def _breaker(options: BreakerOptions, **more: float) -> Breaker:
    """One that has been calm for long."""
    breaker = Breaker(options, now=-1e9, **more)
    breaker.observe(-1e6, 0)
    breaker.observe(-1e6 + 1, 0)
    return breaker


def _opened(owned: int = 100, **options: float) -> tuple[Breaker, int]:
    """An open breaker at time 0, and how many it let through before."""
    breaker = _breaker(BreakerOptions(**options))  # type: ignore[arg-type]  # numbers only
    breaker.observe(0.0, owned)
    allowed = 0
    while breaker.admit(0.0, -10.0).allowed:
        allowed += 1
    return breaker, allowed


@pytest.mark.row("N1")
@pytest.mark.parametrize(("owned", "expected"), [(0, 10), (5, 10), (20, 10), (21, 10), (22, 11), (100, 50), (101, 50)])
def test_the_default_is_half_of_the_nodes_and_at_least_ten(owned: int, expected: int) -> None:
    breaker, allowed = _opened(owned)
    assert allowed == expected
    assert breaker.is_open


def test_only_the_first_refusal_opens() -> None:
    breaker = _breaker(BreakerOptions(at_least=1, share=0))
    assert breaker.admit(0, 0).allowed
    assert [breaker.admit(0, 0).opened for _ in range(3)] == [True, False, False]


@pytest.mark.row("N1")
def test_the_share_is_of_the_nodes_that_were_there_not_of_those_left() -> None:
    breaker = _breaker(BreakerOptions())
    breaker.observe(0.0, 100)
    assert all(breaker.admit(float(at), 0).allowed for at in range(30))
    breaker.observe(30.0, 70)
    assert breaker.limit(30.0) == 50
    assert [breaker.admit(31.0, 0).allowed for _ in range(21)] == [True] * 20 + [False]


def test_old_numbers_of_nodes_are_forgotten() -> None:
    breaker = _breaker(BreakerOptions())
    breaker.observe(0.0, 100)
    breaker.observe(1.0, 40)
    assert breaker.limit(599.0) == 50
    assert breaker.limit(601.0) == 20
    assert breaker.limit(9999.0) == 20


def test_what_was_deleted_long_ago_no_longer_counts() -> None:
    breaker = _breaker(BreakerOptions(at_least=2, share=0))
    assert breaker.admit(0, 0).allowed
    assert breaker.admit(300, 0).allowed
    assert breaker.admit(600, 0).allowed, "the first one has left the window"
    assert not breaker.admit(601, 0).allowed


@pytest.mark.row("N1")
def test_an_open_breaker_lets_a_trickle_through() -> None:
    breaker, _ = _opened(trickle=60, release_after=0)
    allowed = [at for at in range(0, 301, 5) if breaker.admit(float(at), 0).allowed]
    assert allowed == [60, 120, 180, 240, 300]


def test_a_trickle_of_zero_is_none() -> None:
    breaker, _ = _opened(trickle=0, release_after=0)
    assert not any(breaker.admit(float(at), 0).allowed for at in range(0, 100_000, 50))


@pytest.mark.row("N1")
def test_it_stays_open_when_the_window_has_passed_while_nodes_are_held() -> None:
    breaker, _ = _opened(trickle=0, release_after=0)
    for at in range(5, 5000, 5):
        assert not breaker.admit(float(at), 0).allowed
        assert not breaker.observe(float(at), 50)
    assert breaker.is_open


@pytest.mark.row("N1")
def test_repeated_evidence_lets_the_next_lot_go_and_no_more() -> None:
    breaker, _ = _opened(trickle=0, release_after=3600)
    for at in range(5, 3600, 5):
        breaker.observe(float(at), 50)
        assert not breaker.admit(float(at), -10.0).allowed
    first = breaker.admit(3600.0, -10.0)
    assert first.allowed
    assert "3600" in first.released
    rest = [breaker.admit(3600.0, -10.0) for _ in range(50)]
    assert sum(one.allowed for one in rest) == 24, "half of the 50 that are left, with the first"
    assert breaker.is_open


def test_evidence_counts_from_when_this_node_was_found_gone() -> None:
    breaker, _ = _opened(trickle=0, release_after=3600)
    assert not breaker.admit(4000.0, 3999.0).allowed
    assert breaker.admit(7600.0, 3999.0).allowed


def test_it_closes_when_nothing_was_held_back_for_a_window() -> None:
    breaker, _ = _opened()
    assert not breaker.observe(599.0, 50)
    assert "600" in breaker.observe(600.0, 50)
    assert not breaker.is_open


@pytest.mark.row("N1")
def test_silence_of_the_cloud_does_not_close_it() -> None:
    breaker, _ = _opened()
    for at in range(5, 5000, 5):
        breaker.observe(float(at), 50, calm=False)
    assert breaker.is_open
    breaker.observe(5000.0, 50)
    assert breaker.is_open, "the window begins when the cloud answers again"


def test_the_quiet_time_is_longer_than_a_long_monitor_period() -> None:
    breaker = _breaker(BreakerOptions(at_least=0, share=0, window=10), quiet=100)
    assert breaker.admit(0, 0).opened
    assert not breaker.observe(99.0, 1)
    assert breaker.observe(100.0, 1)


@pytest.mark.row("N21")
def test_a_new_process_lets_a_trickle_through_and_raises_no_alarm_for_few() -> None:
    breaker = Breaker(BreakerOptions(at_least=2, share=0, release_after=0), now=0.0)
    assert [breaker.admit(1.0, 0.0, held).allowed for held in (0, 1)] == [False, False]
    alarming = [breaker.is_alarming]
    assert [breaker.admit(2.0, 0.0, held).opened for held in (2, 3)] == [True, False], "more than the limit"
    assert [*alarming, breaker.is_alarming] == [False, True]
    allowed = [at for at in range(3, 200) if breaker.admit(float(at), 0.0, 3).allowed]
    assert allowed == [60, 120, 180]


@pytest.mark.row("N21")
def test_a_new_process_counts_as_ever_after_a_calm_window() -> None:
    breaker = Breaker(BreakerOptions(), now=0.0)
    assert not breaker.observe(599.0, 100)
    assert breaker.is_open
    assert not breaker.observe(600.0, 100), "there was no alarm to take back"
    assert sum(breaker.admit(601.0, 0.0).allowed for _ in range(100)) == 50


@pytest.mark.row("N21")
def test_a_new_process_has_the_limit_after_a_window_though_nodes_were_held_all_the_while() -> None:
    breaker = Breaker(BreakerOptions(), now=0.0)
    allowed = []
    for at in range(1, 620):
        breaker.observe(float(at), 100)
        allowed += [at] * sum(breaker.admit(float(at), 1.0, held=20).allowed for _ in range(3))
    assert [at for at in allowed if at < 600] == list(range(60, 600, 60))
    assert allowed.count(600) == 3
    assert len(allowed) == 50, "those of the first window count"
    assert breaker.is_alarming


@pytest.mark.row("N21")
def test_a_new_process_that_saw_too_many_keeps_to_the_trickle_after_the_window() -> None:
    breaker = Breaker(BreakerOptions(release_after=0), now=0.0)
    breaker.observe(1.0, 100)
    assert breaker.admit(2.0, 1.0, held=50).opened
    allowed = [at for at in range(3, 5000) if breaker.admit(float(at), 1.0, held=10).allowed]
    assert allowed == list(range(60, 5000, 60))


def test_a_leave_that_was_not_used_is_given_back() -> None:
    breaker = _breaker(BreakerOptions(at_least=1, share=0))
    assert breaker.admit(1.0, 0).allowed
    breaker.refund(1.0)
    assert breaker.admit(2.0, 0).allowed
    breaker.refund(7.0)  # never given
    assert not breaker.admit(3.0, 0).allowed


@pytest.mark.row("N1")
@given(
    steps=st.lists(st.floats(0, 120), min_size=1, max_size=200),
    owned=st.integers(0, 60),
    at_least=st.integers(0, 10),
    trickle=st.floats(1, 300),
)
def test_no_window_sees_more_than_the_limit_and_the_trickle(
    steps: list[float], owned: int, at_least: int, trickle: float
) -> None:
    options = BreakerOptions(at_least=at_least, trickle=trickle, release_after=0)
    breaker = _breaker(options)
    now, allowed = 0.0, []
    for step in steps:
        now += step
        breaker.observe(now, owned)
        if breaker.admit(now, 0).allowed:
            allowed.append(now)
    bound = max(at_least, owned // 2) + options.window / trickle + 1
    for start in allowed:
        assert sum(start <= at < start + options.window for at in allowed) <= bound


@pytest.mark.row("N21")
@given(
    lives=st.lists(st.lists(st.floats(0, 120), min_size=1, max_size=80), min_size=1, max_size=5),
    owned=st.integers(0, 60),
    waiting=st.integers(0, 60),
)
def test_processes_one_after_another_delete_no_more_than_one(
    lives: list[list[float]], owned: int, waiting: int
) -> None:
    options = BreakerOptions(release_after=0)
    now, allowed = 0.0, []
    for steps in lives:
        breaker = Breaker(options, now=now)
        for step in steps:
            now += step
            breaker.observe(now, owned)
            if breaker.admit(now, 0, waiting).allowed:
                allowed.append(now)
    bound = max(options.at_least, owned // 2) + options.window / options.trickle + 1
    for start in allowed:
        assert sum(start <= at < start + options.window for at in allowed) <= bound
