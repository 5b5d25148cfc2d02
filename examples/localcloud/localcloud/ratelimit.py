"""How many requests the API takes, as a bucket of tokens."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

__all__ = ["RateLimit"]


class RateLimit:
    """`rate` requests a second, and as many at once. Thread-safe."""

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._tokens = self._most
        self._now = now
        self._filled = now()
        self._lock = threading.Lock()

    def take(self) -> int:
        """0 where the request may be answered; otherwise the whole seconds until the next one
        may."""
        with self._lock:
            now = self._now()
            self._tokens = min(self._most, self._tokens + (now - self._filled) * self._rate)
            self._filled = now
            if self._tokens >= 1:
                self._tokens -= 1
                return 0
            return max(1, math.ceil((1 - self._tokens) / self._rate))
