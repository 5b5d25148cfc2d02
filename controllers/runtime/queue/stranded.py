"""Stage 4: the keys that failed because the API server gave no answer. They return when it answers again.

`outcomes.py` brings keys with their errors, and requeues those that return. During an outage each key backs off, a
minute in the end; without this it would wait for as long after the outage is over.
"""

import random
import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from controllers.runtime.api import ApiError, Recovery

__all__ = ["SPREAD", "Stranded"]

K = TypeVar("K", bound=Hashable)

SPREAD: Final = 2.0
"""Seconds over which the keys come back after an outage, so that they are no blow to a server that has just started."""


class Stranded(Generic[K]):
    """The keys of one queue that wait for the server. Thread-safe. `bring_back(key, delay)` requeues one of them."""

    def __init__(self, bring_back: Callable[[K, float], object], chance: Callable[[], float] = random.random) -> None:
        self._bring_back = bring_back
        self._chance = chance
        self._lock = threading.Lock()
        self._keys: set[K] = set()
        self._recovery: Recovery | None = None

    def add(self, key: K, error: Exception) -> None:
        """The key failed so, and backs off; nothing happens unless the error says that the server gave no answer."""
        recovery = error.recovery if isinstance(error, ApiError) else None
        if recovery is None:
            self.discard(key)
            return
        with self._lock:
            self._keys.add(key)
            known, self._recovery = self._recovery is recovery, recovery
        if not known or recovery.done():  # done: the server came back before this failure was settled
            recovery.then(self._release)

    def discard(self, key: K) -> None:
        """The key needs nobody to fetch it."""
        if self._keys:
            with self._lock:
                self._keys.discard(key)

    def _release(self) -> None:
        with self._lock:
            keys, self._keys = self._keys, set()
        for key in keys:
            self._bring_back(key, SPREAD * self._chance())
