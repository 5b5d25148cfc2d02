"""A clock that stands still until a test moves it. Stands in for
``controllers.runtime.clock.SYSTEM_CLOCK``."""

import threading
from collections.abc import Callable

_REAL_LIMIT = 60.0  # seconds of real time that a test may wait for another thread
_HANG_LIMIT = 60.0  # seconds of real time that the thread of the test itself may stand in `wait`


class _Waiter:
    __slots__ = ("condition", "deadline")

    def __init__(self, condition: threading.Condition, deadline: float | None) -> None:
        self.condition = condition
        self.deadline = deadline


class FakeClock:
    """A Clock whose time passes only by :meth:`advance`.

    Notifications work as ever: ``wait`` returns when its condition is notified, or when `advance`
    reaches its end. `advance` wakes every waiter of a condition of which one ran out of time, so
    waits may return True without a cause, as the Clock contract allows.
    """

    def __init__(self, monotonic: float = 1_000.0, unix: float = 1_700_000_000.0) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._monotonic = monotonic
        self._offset = unix - monotonic
        self._suspended = 0.0
        self._waiters: set[_Waiter] = set()

    def monotonic(self) -> float:
        return self._monotonic

    def time(self) -> float:
        return self._monotonic + self._offset

    def boottime(self) -> float:
        return self._monotonic + self._suspended

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return condition.wait(0)
        with self._changed:
            waiter = _Waiter(condition, None if timeout is None else self._monotonic + timeout)
            self._waiters.add(waiter)
            self._changed.notify_all()
        try:
            # `advance` needs the condition's lock to wake this waiter, so it cannot do that before
            # this thread waits.
            if threading.current_thread() is not threading.main_thread():
                condition.wait()
            elif not condition.wait(_HANG_LIMIT):
                raise AssertionError(f"the test waits on a clock that nobody moves: {timeout=}, nothing notified it")
        finally:
            with self._changed:
                self._waiters.discard(waiter)
                self._changed.notify_all()
        return waiter.deadline is None or self._monotonic < waiter.deadline

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once and wake the waiters whose time ran out. Don't hold any of
        their conditions."""
        if seconds < 0:
            raise ValueError("time does not go back; use step_wall_clock for a wall clock set wrong")
        with self._changed:
            self._monotonic += seconds
            due = {w.condition for w in self._waiters if w.deadline is not None and w.deadline <= self._monotonic}
        for condition in due:
            with condition:
                condition.notify_all()

    def step_wall_clock(self, seconds: float) -> None:
        """Set the wall clock alone forward or back, as an administrator or NTP does."""
        with self._changed:
            self._offset += seconds

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep: the wall clock and `boottime` go on, `monotonic` and every wait
        stand still."""
        with self._changed:
            self._suspended += seconds
            self._offset += seconds

    def next_deadline(self) -> float | None:
        """Seconds from now until the first timed wait ends; None when no thread waits with a
        timeout."""
        with self._changed:
            ends = [w.deadline for w in self._waiters if w.deadline is not None and w.deadline > self._monotonic]
            return min(ends) - self._monotonic if ends else None

    def wait_for_waiters(self, count: int = 1, *, timed: bool = False) -> None:
        """Block until at least `count` threads are inside `wait` (`timed`: with a timeout). Real
        time, 60 s at most.

        Those that `advance` has woken don't count. One that was notified does until it runs again,
        so this proves that threads came to wait, not that they are still idle after a notification.
        """

        def waits(waiter: _Waiter) -> bool:
            return not timed if waiter.deadline is None else waiter.deadline > self._monotonic

        self._await(lambda: sum(map(waits, self._waiters)) >= count, f"{count} waiting threads")

    def wait_for_timeout(self, seconds: float) -> None:
        """Block until some thread waits with this much time left (to the microsecond). Real time,
        60 s at most."""

        def found() -> bool:
            return any(
                w.deadline is not None and abs(w.deadline - self._monotonic - seconds) < 1e-6 for w in self._waiters
            )

        self._await(found, f"a thread waiting {seconds} s")

    def _await(self, predicate: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(predicate, _REAL_LIMIT):
                ends = sorted(w.deadline - self._monotonic for w in self._waiters if w.deadline is not None)
                raise AssertionError(f"no sign of {what}; {len(self._waiters)} waiting, timeouts {ends}")
