"""The system clock, the event over a clock, and the fake clock that every other unit test
trusts."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from controllers.runtime.clock import SYSTEM_CLOCK, Clock, ClockEvent, wait_for
from tests.support.clock import FakeClock


def test_system_clock_reads_the_machine() -> None:
    before = time.monotonic()
    assert before <= SYSTEM_CLOCK.monotonic() <= time.monotonic()
    assert abs(SYSTEM_CLOCK.time() - time.time()) < 5


def test_system_clock_wait_times_out_with_the_lock_held_again() -> None:
    condition = threading.Condition(threading.Lock())
    with condition:
        assert SYSTEM_CLOCK.wait(condition, 0.001) is False
        assert not condition.acquire(blocking=False)


@pytest.mark.parametrize("real", [False, True])
def test_wait_for(real: bool) -> None:
    clock: Clock = SYSTEM_CLOCK if real else FakeClock()
    condition = threading.Condition(threading.Lock())
    with condition:
        assert wait_for(clock, condition, lambda: True, 0)
        assert not wait_for(clock, condition, lambda: False, 0)


def test_wait_for_survives_wakeups_without_a_cause(clock: FakeClock) -> None:
    condition = threading.Condition(threading.Lock())
    ready = False

    def wait() -> bool:
        with condition:
            return wait_for(clock, condition, lambda: ready, 10.0)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        clock.wait_for_timeout(10.0)
        clock.advance(4)
        with condition:
            condition.notify_all()
        clock.wait_for_timeout(6.0)
        assert not waiting.done()
        with condition:
            ready = True
            condition.notify_all()
        assert waiting.result(5) is True


def test_event_wait_ends_by_time_or_by_set(clock: FakeClock) -> None:
    stop = ClockEvent(clock)
    with ThreadPoolExecutor(2) as pool:
        timed, endless = pool.submit(stop.wait, 3.0), pool.submit(stop.wait)
        clock.wait_for_waiters(2)
        clock.advance(3.0)
        assert timed.result(5) is False
        assert not stop.is_set()
        assert not endless.done()
        stop.set()
        stop.set()
        assert endless.result(5) is True
    assert stop.is_set()
    assert stop.wait(0) is True
