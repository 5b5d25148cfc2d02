"""Code that may hang, in a bounded number of threads, waited for until a deadline.

Stage: beside the six. `desk.py` has a handler called here. A call that does not return in time keeps its thread until
it does; whoever waited goes on. Where all threads are kept, nothing is begun.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cloudprovider import Call, call_scope
from controllers.runtime.clock import Clock, ClockEvent

__all__ = ["Bounded", "NoThread", "TooLate"]

T = TypeVar("T")


class TooLate(Exception):
    """It has not returned by its deadline."""


class NoThread(Exception):
    """All threads are kept by calls that have not returned."""


class _Running(Generic[T]):
    def __init__(self, name: str, until: float, clock: Clock) -> None:
        self.name = name
        self.until = until
        self.ended = ClockEvent(clock)
        self.cancelled = ClockEvent(clock)
        self.answer: T | None = None
        self.error: Exception | None = None


class Bounded:
    """Thread-safe."""

    def __init__(self, threads: int, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._lock = threading.Lock()
        self._running: set[_Running[object]] = set()

    def call(self, name: str, work: Callable[[], T], until: float) -> T:
        """What `work()` returns or raises, in a thread of its own with `current_call()` set.

        `until` is in seconds of the clock's monotonic time. Raises TooLate then, and NoThread at once where there is
        none.
        """
        running: _Running[object] = _Running(name, until, self._clock)
        with self._lock:
            if len(self._running) >= self._threads:
                raise NoThread(f"{self._threads} requests are under way, as many as may be")
            self._running.add(running)
        try:
            threading.Thread(target=self._run, args=(running, work), name=f"webhook-{name}", daemon=True).start()
        except RuntimeError as error:
            self._end(running)
            raise NoThread(f"no thread can be started: {error}") from error
        if not running.ended.wait(max(0.0, until - self._clock.monotonic())):
            running.cancelled.set()
            raise TooLate("no answer in time")
        if running.error is not None:
            try:
                raise running.error
            finally:
                del running  # the traceback holds this frame
        return running.answer  # type: ignore[return-value]  # what `work` returned

    def overdue(self) -> list[tuple[str, float]]:
        """The calls past their deadline that have not returned: (name, seconds since), the longest first."""
        now = self._clock.monotonic()
        with self._lock:
            late = [(one.name, now - one.until) for one in self._running if now > one.until]
        return sorted(late, key=lambda one: -one[1])

    def _run(self, running: _Running[object], work: Callable[[], object]) -> None:
        try:
            with call_scope(Call(running.until, running.cancelled, self._clock.monotonic)):
                running.answer = work()
        except Exception as error:  # noqa: BLE001 - a thread's top: raised again for whoever waits
            running.error = error
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler costs its request, and nothing else
            running.error = RuntimeError(f"{type(error).__name__} was raised")
        finally:
            self._end(running)

    def _end(self, running: _Running[object]) -> None:
        with self._lock:
            self._running.discard(running)
        running.ended.set()
