"""Exponential back-off: its delays, its jitter, and when it starts over."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.internal.backoff import NO_ATTEMPTS, Backoff

SECONDS = st.floats(min_value=0.001, max_value=10_000.0)
BACKOFFS = st.builds(
    Backoff,
    base=SECONDS,
    cap=SECONDS,
    jitter=st.floats(0.0, 1.0),
    factor=st.floats(1.0, 10.0),
    at_once=st.integers(0, 5),
    quiet=SECONDS,
    quiet_delays=st.floats(1.0, 5.0),
)


@given(BACKOFFS, st.integers(0, 100_000), st.floats(0.0, 1.0))
def test_no_delay_is_above_the_cap_or_below_its_share(backoff: Backoff, attempts: int, chance: float) -> None:
    whole, delay = backoff.delay(attempts), backoff.delay(attempts, chance)
    assert 0.0 <= whole * (1.0 - backoff.jitter) * 0.999 <= delay <= whole <= backoff.cap


@given(BACKOFFS, st.integers(0, 1_000))
def test_delays_never_shrink(backoff: Backoff, attempts: int) -> None:
    assert backoff.delay(attempts) <= backoff.delay(attempts + 1)


@given(BACKOFFS, st.lists(st.floats(0.0, 100_000.0), min_size=1, max_size=30))
def test_attempts_wait_ever_longer_until_it_was_quiet(backoff: Backoff, pauses: list[float]) -> None:
    now, attempts = 0.0, NO_ATTEMPTS
    for pause in pauses:
        now += pause
        over = backoff.is_over(attempts, now)
        after = backoff.next(attempts, now)
        assert after.count == (1 if over else attempts.count + 1)
        assert after.left(now) == pytest.approx(after.delay)
        assert over or after.delay >= attempts.delay
        attempts = after


def test_doubles_up_to_the_cap_and_the_first_ones_may_be_at_once() -> None:
    doubling, patient = Backoff(base=1.0, cap=30.0), Backoff(base=300.0, cap=3600.0, at_once=1)
    assert [doubling.delay(n) for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert [patient.delay(n) for n in range(6)] == [0, 300, 600, 1200, 2400, 3600]


def test_what_was_never_done_may_be_done_now_and_attempts_without_a_delay_are_not_forgotten_at_once() -> None:
    assert NO_ATTEMPTS.left(0.0) == 0.0
    assert Backoff().is_over(NO_ATTEMPTS, -1e9)
    backoff = Backoff(base=10.0, cap=60.0, at_once=1, quiet_delays=2.0)
    assert backoff.next(backoff.next(NO_ATTEMPTS, 0.0), 5.0).delay == 10.0


@pytest.mark.parametrize(
    ("quiet", "over_after"),
    [
        ({"quiet": 100.0}, 100.0),
        ({"quiet_delays": 2.0}, 20.0),
        ({"quiet": 15.0, "quiet_delays": 2.0}, 15.0),
        ({}, None),
    ],
)
def test_starts_over_after_a_quiet_time(quiet: dict[str, Any], over_after: float | None) -> None:
    backoff = Backoff(base=10.0, cap=60.0, **quiet)
    first = backoff.next(NO_ATTEMPTS, 1_000.0)
    assert [first.left(1_000.0 + passed) for passed in (0.0, 4.0, 10.0, 99.0)] == [10.0, 6.0, 0.0, 0.0]
    just_before = 1_000.0 + (over_after or 1e9) - 0.001
    assert backoff.next(first, just_before).count == 2
    assert over_after is None or backoff.next(first, 1_000.0 + over_after).count == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"base": 0.0}, {"cap": -1.0}, {"jitter": 1.5}, {"jitter": -0.1}, {"base": math.nan}, {"factor": 0.5},
        {"at_once": -1}, {"quiet": 0.0}, {"quiet_delays": 0.5},
    ],
)  # fmt: skip
def test_senseless_backoffs_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Backoff(**fields)
