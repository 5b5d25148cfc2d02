"""current_call(): what a provider learns about the call under way, by a clock moved by hand."""

from __future__ import annotations

import contextvars
import threading
from contextlib import nullcontext

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


@pytest.mark.parametrize(
    ("deadline", "set_at", "seconds", "error", "until"),
    [
        (None, None, 4, None, 104.0),
        (110.0, None, 4, None, 104.0),
        (102.0, None, 60, CallDeadlineExceeded, 102.0),
        (None, 101.0, 60, CallCancelled, 101.0),
    ],
    ids=["without an end", "before its end", "to its deadline", "until it is cancelled"],
)
def test_pause_sleeps_its_time_or_ends_with_the_call(
    deadline: float | None, set_at: float | None, seconds: float, error: type[Exception] | None, until: float
) -> None:
    clock = Clock(set_at=set_at)
    with pytest.raises(error) if error else nullcontext():
        Call(deadline=deadline, cancelled=clock, monotonic=clock).pause(seconds)
    assert clock.now == until


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
