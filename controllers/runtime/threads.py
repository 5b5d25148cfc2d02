"""Threads of stages 4 and 5: a fixed number of them, none of which goes missing unnoticed.

Used by ``worker.py``. The threads are daemons: a vendor's call that never returns must not keep the process alive.
"""

import logging
import threading
from collections.abc import Callable

from prometheus_client import Counter

from controllers.runtime.clock import Clock, ClockEvent, wait_for

__all__ = ["LoopThreads"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 5.0
_LAST_CHANCES = 3


class LoopThreads:
    """`count` threads that each run `loop` until it returns.

    A loop that raises, be it SystemExit, is logged, counted in `restarts` and entered again: at once after a clean
    time, after pauses growing to 5 s when it happens again and again. Should a thread end all the same, `missing`
    tells. The methods may be called from any thread.
    """

    def __init__(self, name: str, count: int, loop: Callable[[], None], *, clock: Clock, restarts: Counter) -> None:
        if count < 1:
            raise ValueError(f"{name}: at least 1 thread is needed, got {count}")
        self.name = name
        self.count = count
        self._loop = loop
        self._clock = clock
        self._restarts = restarts
        self._stopping = ClockEvent(clock)
        self._changed = threading.Condition(threading.Lock())
        self._started = False
        self._alive = 0
        self._finished = 0  # loops that returned

    def start(self) -> None:
        """Start the threads. Raises RuntimeError when called twice, or when the system has no thread left."""
        with self._changed:
            if self._started:
                raise RuntimeError(f"{self.name} was started before")
            self._started = True
            self._alive = self.count  # from now on none is missing, also before the last one has begun
        for number in range(self.count):
            thread = threading.Thread(target=self._run, name=f"{self.name}-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                with self._changed:
                    self._alive -= self.count - number
                raise

    def stopping(self) -> None:
        """Say that the loops are about to return: one that raises from now on gets few further chances."""
        self._stopping.set()

    def wait_ended(self, timeout: float | None) -> bool:
        """Wait until all threads have ended; return whether they have."""
        with self._changed:
            return wait_for(self._clock, self._changed, lambda: self._alive == 0, timeout)

    def missing(self) -> int:
        """Threads that should be running and are not."""
        with self._changed:
            return self.count - self._alive - self._finished if self._started else 0

    def _run(self) -> None:
        finished = False
        failures = 0
        try:
            while True:
                began = self._clock.monotonic()
                try:
                    self._loop()
                    finished = True
                    return
                except BaseException:
                    self._restarts.inc()
                    logger.critical("%s: a thread's loop broke off and is entered again", self.name, exc_info=True)
                failures = failures + 1 if self._clock.monotonic() - began < _LONGEST_PAUSE else 1
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures - 2, 16)) if failures > 1 else 0.0
                if self._stopping.wait(pause) and failures > _LAST_CHANCES:
                    return
        finally:
            with self._changed:
                self._alive -= 1
                self._finished += finished
                self._changed.notify_all()
