"""Exponential back-off: how long to wait before the same thing is done again. Pure; callers hand in
the time and the chance.

Used in two ways. Who counts failures asks for a delay::

    pause = Backoff(base=1.0, cap=30.0).delay(failures)

Who does not want to do a thing again too soon keeps an :class:`Attempts`, one for each key::

    RESTORE = Backoff(base=60.0, cap=3600.0, quiet_delays=2.0)
    attempts = NO_ATTEMPTS
    if not attempts.left(now):
        restore()
        attempts = RESTORE.next(attempts, now)

After a success, go back to :data:`NO_ATTEMPTS`.
"""

import math
from typing import Final

from attrs import evolve, field, frozen, validators

_MOST_DOUBLINGS: Final = 64  # a year of failures must not overflow a float


@frozen
class Attempts:
    """What was done in a row, and how long to wait before it is done once more."""

    count: int = 0
    last: float = -math.inf
    """When it was done last, on the caller's monotonic clock."""
    delay: float = 0.0
    """Seconds after `last` before it may be done again."""

    def left(self, now: float) -> float:
        """Seconds until it may be done again; 0.0: now."""
        return max(0.0, self.last + self.delay - now)


NO_ATTEMPTS: Final = Attempts()


@frozen
class Backoff:
    """`base` seconds, multiplied by `factor` each time, never more than `cap`."""

    base: float = field(default=0.005, validator=validators.gt(0))
    cap: float = field(default=60.0, validator=validators.gt(0))
    jitter: float = field(default=0.5, validator=[validators.ge(0), validators.le(1)])
    """The share of a delay that is left to chance: 0.5 spreads 60 s over 30 to 60 s, so that what
    failed together does not return together. Without a chance handed in, delays are whole."""
    factor: float = field(default=2.0, validator=validators.ge(1), kw_only=True)
    at_once: int = field(default=0, validator=validators.ge(0), kw_only=True)
    """So many attempts are followed by no delay."""
    quiet: float = field(default=math.inf, validator=validators.gt(0), kw_only=True)
    """An attempt so many seconds after the one before is a first one again."""
    quiet_delays: float = field(default=math.inf, validator=validators.ge(1), kw_only=True)
    """The same, as a multiple of the delay after the attempt before."""

    def delay(self, attempts: int, chance: float = 0.0) -> float:
        """Seconds to wait after `attempts` earlier attempts; a `chance` of 0 to 1 takes none to all
        of the jitter off."""
        grown = attempts - self.at_once
        if grown < 0:
            return 0.0
        whole = min(self.cap, self.base * self.factor ** min(grown, _MOST_DOUBLINGS))
        return whole * (1.0 - self.jitter * chance)

    def next(self, attempts: Attempts, now: float) -> Attempts:
        """What stands after one more attempt, made `now`."""
        if self.is_over(attempts, now):
            attempts = NO_ATTEMPTS
        return evolve(attempts, count=attempts.count + 1, last=now, delay=self.delay(attempts.count))

    def is_over(self, attempts: Attempts, now: float) -> bool:
        """Whether it has been quiet for so long that the next attempt is a first one."""
        quiet = now - attempts.last
        # Without a delay there is no multiple of it to compare with.
        return quiet >= self.quiet or 0.0 < self.quiet_delays * attempts.delay <= quiet
