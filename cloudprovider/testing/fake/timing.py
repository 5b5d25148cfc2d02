"""Time inside the fake cloud (stage 5): clocks that tests may move, and waits that end early.

`Waiting` serves latency and hangs. A wait ends when its time is up, when the fault behind it is released, when the
cloud is closed, and, unless it is a hard hang, when the host cancels the call or its deadline passes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from cloudprovider.call import current_call
from cloudprovider.testing.fake.errors import FakeCloudClosed

__all__ = ["SYSTEM_TIME", "Clock", "SystemTime", "Waiting"]

_TICK = 0.02  # seconds between two looks at what nobody notifies us of: cancellation, another process's release


class Clock(Protocol):
    """Reads time and waits. The host's clocks, and tests' that are moved by hand, have this shape."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def time(self) -> float:
        """Unix seconds."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """``condition.wait(timeout)``, by this clock's time."""
        ...


class SystemTime:
    """The machine's clock."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    @staticmethod
    def wait(condition: threading.Condition, timeout: float | None) -> bool:
        return condition.wait(timeout)


SYSTEM_TIME: Clock = SystemTime()


class Waiting:
    """All the waits of one cloud in this process. Thread-safe.

    `polls`: released faults are noticed by looking again (another process may release them).
    """

    def __init__(self, clock: Clock, *, polls: bool) -> None:
        self._clock = clock
        self._polls = polls
        self._condition = threading.Condition(threading.Lock())
        self._closed = False
        self._asleep = 0

    @property
    def asleep(self) -> int:
        """How many threads wait here now."""
        return self._asleep

    def latency(self, seconds: float) -> None:
        """Let `seconds` pass. Raises `CallInterrupted` when the host gives up meanwhile, as an aborted request does."""
        if self._clock is SYSTEM_TIME:
            current_call().pause(seconds)
        else:
            self.hang(seconds, None, hard=True)

    def hang(self, seconds: float | None, released: Callable[[], bool] | None, *, hard: bool) -> None:
        """Wait `seconds` (None: without end) or until released. Raises `CallInterrupted` unless `hard`."""
        end = None if seconds is None else self._clock.monotonic() + seconds
        call = current_call()
        polls = not hard or (released is not None and self._polls)
        with self._condition:
            self._asleep += 1
            try:
                while not (released is not None and released()):
                    if self._closed:
                        raise FakeCloudClosed("the fake cloud was closed during the call")
                    if not hard:
                        call.check()
                    left = None if end is None else end - self._clock.monotonic()
                    if left is not None and left <= 0:
                        return
                    if polls:
                        left = _TICK if left is None else min(left, _TICK)
                    self._clock.wait(self._condition, left)
            finally:
                self._asleep -= 1

    def wake(self) -> None:
        """Let every hang look again whether it was released."""
        with self._condition:
            self._condition.notify_all()

    def close(self) -> None:
        """End all waits with `FakeCloudClosed`, now and later."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
