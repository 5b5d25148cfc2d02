"""Pure, beside stage 4: how soon the same may be done again, when something keeps asking for it; and when it is done
although nothing asks.

Two writers that disagree about a Service never end by themselves. The first few changes are acted upon at once, as a
person's are; then each waits longer than the one before, until it has been quiet for a while.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

from attrs import frozen


@frozen
class Pace:
    """How often something was done of late. Part of a record."""

    count: int = 0
    last: float = 0.0
    """When it was done last (`clock.monotonic`)."""
    told: bool = False
    """Whether the present wait was reported."""


@frozen(kw_only=True)
class Limit:
    """So many times at once, then after `base` seconds, doubled each time up to `cap`; anew after `calm` quiet ones."""

    free: int
    base: float
    cap: float
    calm: float

    def left(self, pace: Pace, now: float) -> float:
        """Seconds until it may be done again; 0.0: now."""
        if pace.count < self.free or now - pace.last >= self.calm:
            return 0.0
        return max(0.0, pace.last + doubled(self.base, pace.count - self.free, self.cap) - now)

    def done(self, pace: Pace, now: float) -> Pace:
        """The pace after it was done."""
        calm = now - pace.last >= self.calm
        return Pace(1 if calm else pace.count + 1, now)


def doubled(base: float, times: int, cap: float) -> float:
    """`base`, doubled so many times, at most `cap`."""
    return min(cap, base * 2.0 ** min(times, 60))


CHANGES: Final = Limit(free=6, base=5.0, cap=300.0, calm=600.0)
"""Ensuring a load balancer because its Service changed."""
RESTORED: Final = Limit(free=1, base=60.0, cap=3600.0, calm=7200.0)
"""Putting back our finalizer or the address, which somebody else removes."""
LAZY: Final = 60.0
"""Seconds after which a note that somebody removed or changed is put back: once for each that we wrote."""
EMPTY: Final = 60.0
"""Seconds after which a load balancer without an address is ensured again; doubled each time, up to a drift period."""
EMPTY_CAP: Final = 1800.0
"""The longest of these, where there is no drift check; then they end."""


@frozen
class Schedule:
    """When a load balancer is looked at, and ensured, although nothing asks for it (periods in seconds; 0: never)."""

    drift: float
    ensure: float
    chance: Callable[[], float] = random.random

    def next_look(self, now: float, empty: int = 0) -> float:
        """After the cloud answered so often in a row without an address: soon, if one may be about to come."""
        return now + _patience(empty) if self.is_unfinished(empty) else self._spread(self.drift, now)

    def next_ensure(self, now: float) -> float:
        return self._spread(self.ensure, now)

    def is_unfinished(self, empty: int) -> bool:
        """Whether the cloud answered without an address so lately that one may be about to come."""
        return empty > 0 and _patience(empty) < (self.drift or EMPTY_CAP)

    def _spread(self, period: float, now: float) -> float:
        """After half of the period to all of it, so that not all come at once."""
        return now + period * (0.5 + 0.5 * self.chance()) if period else math.inf


def _patience(empty: int) -> float:
    return doubled(EMPTY, empty - 1, math.inf)
