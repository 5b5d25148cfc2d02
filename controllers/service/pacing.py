"""How soon the same is done again when something keeps asking for it, and when it is done although
nothing asks. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

from attrs import frozen

from cloudprovider.internal.backoff import Backoff

# Two writers that disagree about a Service never end by themselves. The first changes are acted
# upon at once, as a person's are; then each waits longer than the one before.
CHANGES: Final = Backoff(base=5.0, cap=300.0, at_once=5, quiet=600.0)
"""Ensuring a load balancer because its Service changed."""
RESTORED: Final = Backoff(base=60.0, cap=3600.0, quiet=7200.0)
"""Putting back our finalizer or the address, which another program removes."""
LAZY: Final = 60.0
"""Seconds after which a note that was removed or changed is put back, once for each we wrote."""
LOOKING: Final = 300.0
"""Seconds for which a new process asks the cloud whether a note holds, if it fails."""
EMPTY: Final = Backoff(base=60.0, cap=math.inf)
"""Ensuring again a load balancer that has no address yet, if before the drift check."""
EMPTY_CAP: Final = 1800.0
"""The longest of these delays, where there is no drift check; then they end."""


@frozen
class Schedule:
    """When a load balancer is looked at, and ensured, unasked (periods in seconds; 0: never)."""

    drift: float
    ensure: float
    chance: Callable[[], float] = random.random

    def next_look(self, now: float, empty: int = 0) -> float:
        """After so many answers without an address: soon, if one may be about to come."""
        return now + EMPTY.delay(empty - 1) if self.is_unfinished(empty) else self._spread(self.drift, now)

    def next_ensure(self, now: float) -> float:
        return self._spread(self.ensure, now)

    def is_unfinished(self, empty: int) -> bool:
        """Whether the cloud answered without an address so lately that one may be about to come."""
        return empty > 0 and EMPTY.delay(empty - 1) < (self.drift or EMPTY_CAP)

    def _spread(self, period: float, now: float) -> float:
        """After half of the period to all of it, so that not all come at once."""
        return now + period * (0.5 + 0.5 * self.chance()) if period else math.inf
