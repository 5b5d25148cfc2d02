"""How fast the cloud may be asked (stage 5, cloud call): token bucket and adaptive slow-down.

A kind of call that the cloud throttles is slowed down alone, unless the provider says that it is
the whole account (`Throttled.whole_account`). Arithmetic only: time comes in as an argument,
nothing waits, and the pool holds its lock around every method."""

from __future__ import annotations

import math
from collections import deque

PRIORITY_DELETE = 20
"""Somebody waits for something to be gone, and it costs money until then."""
PRIORITY_NEW = 10
"""An object never served so far: a node that cannot take pods, a Service without an address."""
PRIORITY_NORMAL = 0
PRIORITY_SWEEP = -10
"""Periodic checks of everything: they have time. Higher ones overtake them."""

_FLOOR = 1.0  # calls per second below which the adaptive limit never falls
_RECOVERY = 5.0  # seconds in which it doubles
_MAX_PAUSE = 300.0  # seconds that the cloud may ask for
_OBSERVED_SECONDS = 1.0
_OBSERVED_STARTS = 1024
_SHORTEST_SPAN = 0.1


class Limiter:
    """Decides when the next call may start.

    Three brakes, the strongest of which counts:

    - a token bucket of `qps` calls per second and `burst` calls at once; 0 for no limit, and a
      burst of 0 means one second's worth;
    - the pause that the cloud named with Throttled (Retry-After), at most five minutes;
    - the adaptive limit. A Throttled answer halves the rate: the one in force, or without any the
      one observed in the second before (of a burst, over its own span). It never falls below one
      call per second, so that the cloud's recovery is noticed, and doubles every five seconds
      without another Throttled. At twice the rate that was too much once (or at `qps`) it is
      lifted.

    Throttled answers of calls that had started before the last halving don't halve again: they tell
    of the old rate.
    """

    def __init__(self, qps: float = 0.0, burst: int = 0) -> None:
        self._qps = qps if qps > 0 else math.inf
        self._burst = math.inf if qps <= 0 else float(burst) if burst > 0 else max(1.0, math.ceil(qps))
        self._floor = min(_FLOOR, self._qps / 4)
        self._tokens = min(self._burst, 1e9)
        self._stamp = -math.inf  # when the tokens were counted last
        self._paused_until = -math.inf
        self._slow_rate = math.inf  # the adaptive limit as it was at _slow_since; inf when there is none
        self._slow_since = -math.inf
        self._slow_ceiling = math.inf
        self._halved_at = -math.inf
        self._starts: deque[float] = deque(maxlen=_OBSERVED_STARTS)

    def delay(self, now: float) -> float:
        """The seconds after which to ask again; 0.0 when a call may start."""
        if now < self._paused_until:
            return self._paused_until - now
        rate = self.rate(now)
        if rate != math.inf:
            # While slowed down, calls are spread evenly instead of spending a second's worth at
            # once.
            capacity = self._burst if self._slow_rate == math.inf else max(1.0, min(rate / 10, self._burst))
            self._tokens = min(capacity, self._tokens + max(0.0, now - self._stamp) * rate)
            self._stamp = now
            if self._tokens < 1.0 - 1e-9:
                return (1.0 - self._tokens) / rate
        return 0.0

    def take(self, now: float) -> None:
        """A call starts. To be called after `delay` said 0.0 for this time."""
        if self.rate(now) != math.inf:
            self._tokens -= 1.0
        starts = self._starts
        starts.append(now)
        while starts[0] < now - _OBSERVED_SECONDS:
            starts.popleft()

    def throttled(self, now: float, *, started: float, retry_after: float | None) -> None:
        """The cloud throttled the call that began at `started`."""
        if retry_after is not None:
            self._paused_until = max(self._paused_until, now + min(retry_after, _MAX_PAUSE))
        resumes = max(now, self._paused_until)
        if started <= self._halved_at:
            if self._slow_rate != math.inf:
                # Old news about the rate, yet no time to speed up either.
                self._slow_rate, self._slow_since = self._rate_at(now), resumes
            return
        observed = max(self._observed(now), self._floor)
        before = min(self.rate(now), observed)
        if self._slow_rate == math.inf:
            self._slow_ceiling = min(self._qps, 2 * observed)
        self._slow_rate = max(self._floor, before / 2)
        self._slow_since = resumes
        self._halved_at = now
        self._tokens = min(self._tokens, 1.0)
        self._stamp = resumes

    def rate(self, now: float) -> float:
        """The calls per second allowed at present, ``inf`` without limit."""
        rate = self._rate_at(now)
        if rate >= self._slow_ceiling:
            self._slow_rate = self._slow_ceiling = math.inf
            return self._qps
        return min(rate, self._qps)

    def pause(self, now: float) -> float:
        """Seconds until calls may start again, 0.0 when the cloud asked for no pause."""
        return max(0.0, self._paused_until - now)

    def _rate_at(self, now: float) -> float:
        if self._slow_rate == math.inf:
            return math.inf
        # The exponent is bounded: an idle month must not overflow the power.
        return float(self._slow_rate * 2.0 ** min(64.0, max(0.0, now - self._slow_since) / _RECOVERY))

    def _observed(self, now: float) -> float:
        starts = self._starts
        while starts and starts[0] < now - _OBSERVED_SECONDS:
            starts.popleft()
        if not starts:
            return 0.0
        if len(starts) == _OBSERVED_STARTS:
            return len(starts) / max(now - starts[0], 1e-3)
        # A burst that began just now is judged by its own span: the quiet before it says nothing
        # about its rate.
        return len(starts) / min(_OBSERVED_SECONDS, max(now - starts[0], _SHORTEST_SPAN))


class Limits:
    """The operator's limit for all calls together, and the cloud's for each kind of call."""

    def __init__(self, qps: float = 0.0, burst: int = 0) -> None:
        self._all = Limiter(qps, burst)
        self._kinds: dict[str, Limiter] = {}

    def delay(self, kind: str, now: float) -> float:
        """The seconds after which to ask again; 0.0 when a call of this kind may start."""
        return max(self._all.delay(now), self._of(kind).delay(now))

    def take(self, kind: str, now: float) -> None:
        """A call of this kind starts, right after `delay` said 0.0."""
        self._all.take(now)
        self._of(kind).take(now)

    def throttled(
        self, kind: str, now: float, *, started: float, retry_after: float | None, whole_account: bool
    ) -> None:
        """The cloud throttled a call of this kind."""
        limiter = self._all if whole_account else self._of(kind)
        limiter.throttled(now, started=started, retry_after=retry_after)

    def rate(self, now: float, kind: str | None = None) -> float:
        """The calls per second allowed at present; without a kind, of the slowest one."""
        return min(limiter.rate(now) for limiter in self._both(kind))

    def pause(self, now: float, kind: str | None = None) -> float:
        """Seconds until calls may start again; without a kind, of the one that waits longest."""
        return max(limiter.pause(now) for limiter in self._both(kind))

    def _both(self, kind: str | None) -> list[Limiter]:
        return [self._all, *(self._kinds.values() if kind is None else [self._of(kind)])]

    def _of(self, kind: str) -> Limiter:
        limiter = self._kinds.get(kind)
        if limiter is None:
            limiter = self._kinds[kind] = Limiter()
        return limiter
