"""current_call(): what a provider learns about the call under way, by a clock moved by hand."""

from __future__ import annotations

import contextvars
import threading

import pytest

from cloudprovider import Call, CallCancelled, CallDeadlineExceeded, CallInterrupted, call_scope, current_call


class Clock:
    """Time, moved by hand; as a stop signal it lets time pass instead of sleeping."""

    def __init__(self, now: float = 100.0, set_at: float | None = None) -> None:
        self.now = now
        self.set_at = set_at
        self.waits: list[float | None] = []

    def __call__(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self.set_at is not None and self.now >= self.set_at

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        end = self.now + (timeout or 0)
        self.now = end if self.set_at is None else max(self.now, min(end, self.set_at))
        return self.is_set()


def test_outside_of_a_call_there_is_no_deadline() -> None:
    call = current_call()
    assert (call.deadline, call.remaining(), call.is_cancelled()) == (None, None, False)
    call.check()
    call.pause(0)
    assert call.cancelled.wait(0) is False


def test_remaining_counts_down_to_zero() -> None:
    clock = Clock()
    call = Call(deadline=103.0, monotonic=clock)
    assert call.remaining() == 3.0
    clock.now = 102.5
    assert call.remaining() == 0.5
    call.check()
    clock.now = 200.0
    assert call.remaining() == 0.0
    assert not call.is_cancelled()
    with pytest.raises(CallDeadlineExceeded):
        call.check()


def test_a_cancelled_call_says_so_before_its_deadline() -> None:
    stop = threading.Event()
    call = Call(deadline=103.0, cancelled=stop, monotonic=Clock())
    call.check()
    stop.set()
    assert call.is_cancelled()
    with pytest.raises(CallCancelled):
        call.check()
    assert issubclass(CallCancelled, CallInterrupted)
    assert issubclass(CallDeadlineExceeded, CallInterrupted)


def test_pause_sleeps_its_time_when_nothing_happens() -> None:
    clock = Clock()
    Call(deadline=None, cancelled=clock, monotonic=clock).pause(4)
    assert clock.now == 104.0
    Call(deadline=110.0, cancelled=clock, monotonic=clock).pause(4)
    assert clock.now == 108.0


def test_pause_ends_at_the_deadline() -> None:
    clock = Clock()
    with pytest.raises(CallDeadlineExceeded):
        Call(deadline=102.0, cancelled=clock, monotonic=clock).pause(60)
    assert clock.waits == [2.0]


def test_pause_ends_when_cancelled() -> None:
    clock = Clock(set_at=101.0)
    with pytest.raises(CallCancelled):
        Call(deadline=None, cancelled=clock, monotonic=clock).pause(60)
    assert clock.now == 101.0


def test_scopes_nest_and_end_with_their_body() -> None:
    outer, inner = Call(deadline=1.0), Call(deadline=2.0)
    before = current_call()
    with call_scope(outer) as given:
        assert given is outer
        with pytest.raises(CallDeadlineExceeded), call_scope(inner):  # its deadline is long past
            current_call().check()
        assert current_call() is outer
    assert current_call() is before


def test_a_call_belongs_to_its_thread() -> None:
    seen: list[Call] = []
    call = Call(deadline=5.0)
    with call_scope(call):
        plain = threading.Thread(target=lambda: seen.append(current_call()))
        carried = contextvars.copy_context()
        handed = threading.Thread(target=lambda: seen.append(carried.run(current_call)))
        for thread in (plain, handed):
            thread.start()
            thread.join()
    assert seen[0].deadline is None
    assert seen[1] is call


def test_a_call_is_a_value() -> None:
    stop = threading.Event()
    assert Call(deadline=5.0, cancelled=stop) == Call(deadline=5.0, cancelled=stop, monotonic=Clock())
    assert Call(deadline=5.0, cancelled=stop) != Call(deadline=6.0, cancelled=stop)
    assert repr(Call(deadline=5.0)) == "Call(deadline=5.0)"
