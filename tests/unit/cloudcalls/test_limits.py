"""The arithmetic of the cloud's limits, by numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.cloudcalls import call
from controllers.cloudcalls.call import PRIORITY_DELETE, PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP, Limiter


def start(limiter: Limiter, now: float) -> float:
    """Start a call if it may; the seconds after which to ask again."""
    wait = limiter.delay(now)
    if not wait:
        limiter.take(now)
    return wait


def started(limiter: Limiter, now: float, tries: int) -> int:
    return sum(start(limiter, now) == 0 for _ in range(tries))


def test_deletions_come_first_then_new_objects() -> None:
    assert PRIORITY_DELETE > PRIORITY_NEW > PRIORITY_NORMAL > PRIORITY_SWEEP


@pytest.mark.row("R4")
def test_bucket_lets_the_burst_through_and_then_the_rate() -> None:
    limiter = Limiter(10, 5)
    assert started(limiter, 100.0, 200) == 5
    assert start(limiter, 100.0) == pytest.approx(0.1)
    assert started(limiter, 100.1, 200) == 1
    assert started(limiter, 100.6, 200) == 5
    assert started(limiter, 500.0, 200) == 5, "a quiet time saves up no more than the burst"


def test_burst_defaults_to_one_second() -> None:
    assert started(Limiter(3), 0.0, 50) == 3
    assert started(Limiter(0.5), 0.0, 50) == 1


@pytest.mark.row("R4")
@given(
    qps=st.floats(0.5, 100),
    burst=st.integers(1, 20),
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=150),
)
def test_no_window_ever_holds_more_than_burst_and_rate(qps: float, burst: int, gaps: list[float]) -> None:
    limiter, now, starts = Limiter(qps, burst), 0.0, []
    for gap in gaps:
        now += gap
        wait = start(limiter, now)
        if wait == 0:
            starts.append(now)
        else:
            assert 0 < wait <= 1 / qps + 1e-6
    for i, first in enumerate(starts):
        for j in range(i, len(starts)):
            assert j - i + 1 <= burst + (starts[j] - first) * qps + 1e-6


def test_waiting_as_told_suffices() -> None:
    limiter = Limiter(7, 1)
    now = 0.0
    for _ in range(50):
        wait = start(limiter, now)
        if wait:
            now += wait
            assert start(limiter, now) == 0


def test_throttling_halves_the_observed_rate_and_it_recovers() -> None:
    limiter = Limiter()
    started(limiter, 0.0, 64)
    limiter.throttled(1.0, started=0.0, retry_after=None)
    assert limiter.rate(1.0) == pytest.approx(32)
    assert started(limiter, 1.0, 100) <= 4, "spread over the second, not all at once"
    assert limiter.rate(6.0) == pytest.approx(64)
    assert limiter.rate(10.9) < math.inf
    assert limiter.rate(11.0) == math.inf, "lifted at twice the rate that was too much"
    assert started(limiter, 11.0, 500) == 500


def test_a_burst_out_of_the_quiet_is_not_taken_for_a_slow_rate() -> None:
    limiter = Limiter()
    started(limiter, 100.0, 8)
    limiter.throttled(100.0, started=100.0, retry_after=None)
    assert limiter.rate(100.0) == pytest.approx(40), "half of 8 in a tenth of a second, not 4 a second"


def test_the_limit_really_holds_calls_back_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "_RECOVERY", 1e9)
    limiter = Limiter()
    started(limiter, 0.0, 40)
    limiter.throttled(1.0, started=0.0, retry_after=None)
    now, begun = 1.0, 0
    while now < 11:
        wait = start(limiter, now)
        begun += wait == 0
        now += wait
    assert begun == pytest.approx(200, abs=5)


def test_answers_of_calls_sent_before_the_halving_do_not_halve_again() -> None:
    limiter = Limiter()
    started(limiter, 0.0, 64)
    for now, began in ((1.0, 0.0), (1.0, 0.0), (1.2, 0.9)):
        limiter.throttled(now, started=began, retry_after=None)
    assert limiter.rate(1.2) == pytest.approx(32, rel=0.05)
    assert start(limiter, 1.2) == 0
    limiter.throttled(1.3, started=1.2, retry_after=None)
    assert limiter.rate(1.3) <= 16


def test_old_news_still_holds_up_the_recovery() -> None:
    limiter = Limiter()
    started(limiter, 0.0, 8)
    limiter.throttled(1.0, started=0.4, retry_after=None)
    limiter.throttled(1.5, started=0.3, retry_after=10.0)
    assert limiter.rate(11.0) == pytest.approx(4 * 2**0.1)


def test_rate_never_falls_below_the_floor() -> None:
    limiter = Limiter()
    now = 0.0
    for _ in range(50):
        start(limiter, now)
        limiter.throttled(now + 0.1, started=now + 0.05, retry_after=None)
        now += 0.2
    assert limiter.rate(now) >= 1.0
    assert start(limiter, now + 1.0) == 0


def test_a_configured_rate_is_the_ceiling_after_recovery() -> None:
    limiter = Limiter(20, 20)
    started(limiter, 0.0, 20)
    limiter.throttled(0.0, started=-1, retry_after=None)
    assert limiter.rate(0.0) == pytest.approx(10)
    assert limiter.rate(1000.0) == 20


def test_retry_after_pauses_everything() -> None:
    limiter = Limiter()
    start(limiter, 0.0)
    limiter.throttled(1.0, started=0.0, retry_after=30.0)
    assert limiter.pause(1.0) == 30
    assert start(limiter, 1.0) == 30
    assert start(limiter, 30.9) == pytest.approx(0.1)
    assert start(limiter, 31.0) == 0
    assert limiter.pause(31.0) == 0


def test_a_later_shorter_pause_does_not_end_a_longer_one_and_none_is_endless() -> None:
    limiter = Limiter()
    limiter.throttled(0.0, started=-1, retry_after=20.0)
    limiter.throttled(1.0, started=0.5, retry_after=2.0)
    assert limiter.pause(1.0) == 19
    limiter.throttled(2.0, started=1.5, retry_after=1e9)
    assert limiter.pause(2.0) == 300


def test_recovery_begins_after_the_pause() -> None:
    limiter = Limiter()
    started(limiter, 0.0, 32)
    limiter.throttled(1.0, started=-1, retry_after=60.0)
    assert limiter.rate(61.0) == pytest.approx(16)
    assert started(limiter, 61.0, 100) <= 2


def test_an_idle_year_overflows_nothing() -> None:
    limiter = Limiter(5, 1)
    start(limiter, 0.0)
    limiter.throttled(0.0, started=-1, retry_after=None)
    assert limiter.rate(3e7) == 5
