"""The system clock, the event over a clock, and the fake clock that every other unit test trusts."""

import ast
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import controllers
from controllers.runtime.clock import SYSTEM_CLOCK, Clock, ClockEvent, wait_for
from tests.support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_system_clock_reads_the_machine() -> None:
    before = time.monotonic()
    assert before <= SYSTEM_CLOCK.monotonic() <= time.monotonic()
    assert abs(SYSTEM_CLOCK.time() - time.time()) < 5


def test_system_clock_wait_times_out_with_the_lock_held_again() -> None:
    condition = threading.Condition(threading.Lock())
    with condition:
        assert SYSTEM_CLOCK.wait(condition, 0.001) is False
        assert not condition.acquire(blocking=False)


def test_fake_time_moves_only_by_hand(clock: FakeClock) -> None:
    start, unix = clock.monotonic(), clock.time()
    assert clock.monotonic() == start
    clock.advance(2.5)
    assert clock.monotonic() == start + 2.5
    assert clock.time() == unix + 2.5
    clock.step_wall_clock(-3600)
    assert clock.monotonic() == start + 2.5
    assert clock.time() == unix + 2.5 - 3600
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


def test_advance_wakes_those_whose_time_is_up_and_no_one_else(clock: FakeClock) -> None:
    early, late = threading.Condition(threading.Lock()), threading.Condition(threading.Lock())

    def wait(condition: threading.Condition, timeout: float) -> bool:
        with condition:
            return clock.wait(condition, timeout)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(wait, early, 1.0), pool.submit(wait, late, 5.0)
        clock.wait_for_waiters(2, timed=True)
        assert clock.next_deadline() == 1.0
        clock.advance(1.0)
        assert first.result(5) is False
        assert not second.done()
        clock.wait_for_timeout(4.0)
        clock.advance(4.0)
        assert second.result(5) is False
    assert clock.next_deadline() is None


def test_notify_before_the_time_is_up(clock: FakeClock) -> None:
    condition = threading.Condition(threading.Lock())

    def wait() -> bool:
        with condition:
            return clock.wait(condition, 5.0)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        clock.wait_for_waiters(1)
        with condition:
            condition.notify()
        assert waiting.result(5) is True


def test_wait_without_time_left_gives_the_lock_up_and_returns(clock: FakeClock) -> None:
    condition = threading.Condition(threading.Lock())
    with condition:
        assert clock.wait(condition, 0) is False


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


def test_who_reads_the_machines_clock_past_the_clock() -> None:
    """The docstring of `controllers/runtime/clock.py` names them, and why."""
    root = Path(controllers.__file__).parent
    readers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
        if node.attr in ("monotonic", "time", "sleep", "monotonic_ns", "time_ns", "perf_counter")
    }
    assert readers == {
        "runtime/clock.py",
        "runtime/cache/factory.py",
        "runtime/cache/informer.py",
        "app/process.py",
        "app/serving/server.py",
    }
