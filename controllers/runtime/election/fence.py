"""The fence: asked right before a write leaves, it refuses once the lease may be another's.

Data comes from the elector, which says how long the lease is certainly ours; the answer goes to
every client (`ClientBuilder.guard`) and to the gateway (`CloudCalls(guard=...)`). Time is
CLOCK_BOOTTIME: a process or machine that slept through its lease writes nothing when it wakes."""

from __future__ import annotations

import math
import threading

from controllers.runtime.api import ApiError
from controllers.runtime.clock import SYSTEM_CLOCK, Clock


class LeaseLost(ApiError):
    """A write was refused, and not sent, because this process may not hold the lease."""


class Fence:
    """Whether one lease is held. Thread-safe; asking costs one look at the clock.

    The elector extends and revokes it; once revoked it stays so.
    """

    def __init__(self, lease: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """`lease` is its name, for messages."""
        self._lease = lease
        self._clock = clock
        self._lock = threading.Lock()
        self._until = -math.inf
        self._revoked = ""

    def held(self) -> bool:
        """Whether the lease is certainly ours now."""
        return self._clock.boottime() < self._until

    def left(self) -> float:
        """Seconds for which the lease is certainly ours; 0 or less where it is not."""
        return self._until - self._clock.boottime()

    def check(self, *_about: str) -> float:
        """For how many seconds the lease is certainly ours; raises LeaseLost where it is not now.

        A guard: what is about to be done does not matter.
        """
        now, until = self._clock.boottime(), self._until
        if now < until:
            return until - now
        if self._revoked:
            raise LeaseLost(f"not sent: the lease {self._lease} is not held any more: {self._revoked}")
        if self._until == -math.inf:
            raise LeaseLost(f"not sent: this process does not hold the lease {self._lease}")
        raise LeaseLost(
            f"not sent: the lease {self._lease} may have been lost: it was certain until {now - self._until:.1f} s ago"
        )

    def extend(self, until: float) -> None:
        """The lease is ours until then, by the clock's `boottime`. Does nothing once revoked."""
        with self._lock:
            if not self._revoked:
                self._until = until

    def revoke(self, reason: str) -> None:
        """From now on every check fails; `reason` goes into the error. The first reason stays."""
        with self._lock:
            self._revoked = self._revoked or reason
            self._until = -math.inf
