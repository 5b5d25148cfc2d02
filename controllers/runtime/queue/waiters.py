"""Stage 3, its threads: which of those that wait for a key is woken, and for what.

Used only by ``workqueue.py``, whose lock all conditions here share and which holds it around every call.

Of the threads that wait, one, the *keeper*, wakes when the first delayed key is due; one, the *gatherer*, is filling a
batch; the others are *idle* and watch no time but their own timeout. One event wakes one thread. Who leaves makes sure
that what it would have seen to is seen to by another (`pass_on`).
"""

import threading

from controllers.runtime.clock import Clock

__all__ = ["Waiters"]

_LONGEST_WAIT = 3600.0  # seconds; the keeper looks again after that


class Waiters:
    """The threads in ``get`` and ``get_many`` of one queue."""

    __slots__ = ("_clock", "_gatherer", "_idle", "_keeper", "_keeping", "_waiting", "gathering")

    def __init__(self, lock: threading.Lock, clock: Clock) -> None:
        self._clock = clock
        self._waiting = threading.Condition(lock)
        self._keeper = threading.Condition(lock)
        self._gatherer = threading.Condition(lock)
        self._idle = 0  # threads in _waiting, those notified and not yet running among them
        self._keeping: float | None = None  # the time for which the keeper wakes; None without a keeper
        self.gathering = 0  # the size of the batch that the gatherer fills; 0 without one

    def wait(self, now: float, due: float | None, deadline: float | None) -> None:
        """Wait once, as keeper if nobody is and a key is due some time, and until `deadline` at most."""
        if due is not None and self._keeping is None:
            self._keeping = due = min(due, now + _LONGEST_WAIT)
            try:
                self._clock.wait(self._keeper, (due if deadline is None else min(due, deadline)) - now)
            finally:
                self._keeping = None
        else:
            self._idle += 1
            try:
                self._clock.wait(self._waiting, None if deadline is None else deadline - now)
            finally:
                self._idle -= 1

    def gather(self, size: int, seconds: float) -> None:
        """Wait once, as the one thread that fills a batch of `size`, at most so many seconds."""
        self.gathering = size
        try:
            self._clock.wait(self._gatherer, seconds)
        finally:
            self.gathering = 0

    def remind(self, due: float) -> None:
        """Some key is due at this time: see that a thread, if any waits, wakes for it."""
        if self._keeping is not None:
            if due < self._keeping:
                self._keeper.notify()
        elif self._idle:
            self._waiting.notify()

    def wake(self, ready: int) -> None:
        """A key became ready, one of `ready`: see that one thread, if any waits, comes for it."""
        if self.gathering:
            if ready >= self.gathering:
                self._gatherer.notify()
        elif self._idle:
            self._waiting.notify()
        elif self._keeping is not None:
            self._keeper.notify()

    def pass_on(self, ready: int, due: float | None) -> None:
        """The calling thread leaves: have another one come for the keys left, or watch the time of the next."""
        if ready:
            self.wake(ready)
        elif due is not None:
            self.remind(due)

    def wake_all(self) -> None:
        """The queue shuts down, or came closer to its end: let everyone look."""
        for condition in (self._waiting, self._keeper, self._gatherer):
            condition.notify_all()
