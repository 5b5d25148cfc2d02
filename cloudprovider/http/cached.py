"""A value that is good for a time, and is loaded by one thread at a time (stage 5, cloud call):
small listings of the cloud (zones, types), and tokens, which `tokens.py` builds on it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from cloudprovider.errors import CloudProviderError
from cloudprovider.helpers.timelimits import time_limit

__all__ = ["Cached"]

EARLY, MOST_EARLY = 0.2, 60.0  # of its time, and at most so many seconds
REST = 1.0  # seconds between two loads that nobody needed yet

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Cached(Generic[T]):
    """For small listings that seldom change: zones, machine types, networks. Never for what the
    host asks about a machine: a node is deleted on the strength of a fresh answer.

    `load` is called by the first thread that asks, and again when a fifth of the time is left (a
    minute at most): then by one thread, while the others get the old value, which also stays, with
    a warning in the log, where that load fails. After the end everybody waits for the one that
    loads, as long as its own call lasts, and gets its error where it fails. `seconds` is how long a
    value is good, or a function that tells it. For any thread.
    """

    def __init__(
        self,
        load: Callable[[], T],
        seconds: float | Callable[[T], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._seconds = seconds
        self._now = monotonic
        self._lock = threading.Lock()
        self._held: tuple[T, float, float, float] | None = None  # value, when loaded, when to renew, end
        self._cleared = 0
        self._failures: list[str] = []  # the last one's words; a new list with each

    def get(self) -> T:
        """The value. Raises what `load` raises, and CloudProviderError."""
        held, now = self._held, self._now()
        if held is None or now >= held[3]:
            return self._loaded(held)
        if now >= held[2] and self._lock.acquire(blocking=False):
            try:
                return self._try()
            except CloudProviderError as error:
                self._held = (held[0], held[1], now + REST, held[3])
                logger.warning("%s; the former value is used for %.0f s more", error, held[3] - now)
            finally:
                self._lock.release()
        return held[0]

    def other_than(self, value: T) -> T:
        """A value that was loaded after this one, which the cloud did not accept; the same one
        where it is less than a second old: another load would not help."""
        held = self._held
        if held is None or held[0] is not value:
            return self.get()
        return value if self._now() < held[1] + REST else self._loaded(held)

    def clear(self) -> None:
        """Forget the value: it was changed in the cloud. One that is being loaded is not kept."""
        self._cleared += 1
        self._held = None

    def _loaded(self, known: tuple[T, float, float, float] | None) -> T:
        """The value that this thread loads, or that another one loads meanwhile."""
        failures = self._failures
        if not self._lock.acquire(timeout=time_limit(calls=2)):
            raise CloudProviderError("another thread still waits for the cloud's answer to the same question")
        try:
            held = self._held
            if held is not known and held is not None:
                return held[0]
            if failures is not self._failures:  # one failed while this thread waited: all would, in a row
                raise CloudProviderError(*self._failures)
            return self._try()
        finally:
            self._lock.release()

    def _try(self) -> T:
        cleared = self._cleared
        try:
            value = self._load()
        except CloudProviderError as error:
            self._failures = [str(error)]
            raise
        now, good = self._now(), self._seconds(value) if callable(self._seconds) else self._seconds
        if cleared == self._cleared:
            self._held = (value, now, now + good - min(MOST_EARLY, good * EARLY), now + good)
        return value
