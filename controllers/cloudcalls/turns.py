"""Which of the waiting calls goes next, and when (stage 5, cloud call): a fair queue, and the
limits of the operator and of the cloud. Pure: time comes in as an argument, nothing waits, and the
pool holds its lock around every method."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from controllers.cloudcalls.call import PRIORITY_NORMAL, CloudCall, Flow
from controllers.runtime.fairness import FAIR_SHARE, Lanes

NODES: Final = "nodes"
LOAD_BALANCERS: Final = "load-balancers"
ROUTES: Final = "routes"
VOLUMES: Final = "volumes"
OTHERS: Final = "others"
KINDS: Final = (NODES, LOAD_BALANCERS, ROUTES, VOLUMES, OTHERS)

_SLOW: Final = frozenset((LOAD_BALANCERS, ROUTES, VOLUMES))  # kinds that leave the slots kept for nodes alone
_SHARE: Final = 8

Called = CloudCall[Any]

_FLOOR = 1.0  # calls per second below which the adaptive limit never falls
_RECOVERY = 5.0  # seconds in which it doubles
_MAX_PAUSE = 300.0  # seconds that the cloud may ask for
_OBSERVED_SECONDS = 1.0
_OBSERVED_STARTS = 1024
_SHORTEST_SPAN = 0.1


def flow_of(method: str, key: str) -> Flow:
    """The flow of a call, by the vendor's method and the key."""
    if "load_balancer" in method:
        kind, _, rest = key.partition("/")
        return Flow(LOAD_BALANCERS, rest.partition("/")[0] if kind == "service" and "/" in rest else "")
    if "route" in method:
        return Flow(ROUTES)
    if "volume" in method:
        return Flow(VOLUMES)
    if method.startswith(("instance", "node_addresses", "get_zone", "pod_cidrs")):
        return Flow(NODES)
    return Flow(OTHERS)


class FairQueue:
    """The waiting calls, and how many of each flow hold a slot.

    Calls come in kinds (nodes, load balancers, routes, volumes, others), and those about a
    namespace's objects belong to that namespace. So that no backlog holds up all others:

    - Periodic checks (priority below 0) let all others pass, but every so many-th call is one of
      theirs.
    - Kinds take turns: the one with the fewest calls under way is next, then the one that was
      served longest ago. What may not start now (its kind is throttled, or has its share of the
      slots) holds up no other kind.
    - Within a kind namespaces take turns in the same way.
    - Within a namespace the higher priority goes first, and every so many-th call is the one that
      has waited longest.
    - An eighth of the slots is kept free of all but calls about nodes, whose answers come fast and
      are waited for by every pod of a new node; and an eighth of the rest is kept free of the one
      namespace that has all the others.
    - A kind that the cloud throttles is slowed down alone, unless the provider says that it is the
      whole account (`Throttled.whole_account`).
    """

    def __init__(self, slots: int) -> None:
        kept = max(1, slots // _SHARE) if slots > 1 else 0
        self._slow_slots = slots - kept
        self._namespace_slots = self._slow_slots - (max(1, self._slow_slots // _SHARE) if self._slow_slots > 1 else 0)
        self._free: deque[Called] = deque()  # those that never reach the cloud wait for a slot only
        self._lines: dict[bool, dict[Flow, Lanes[Called]]] = {False: {}, True: {}}  # periodic ones: True
        self._order = 0
        self._turn = 0
        self._served: dict[object, int] = {}
        self._running: Tally[object] = Tally()  # by kind, and by flow
        self._slow_running = 0
        self._passed = 0  # calls that went before periodic ones

    def push(self, call: Called) -> None:
        """A call waits from now on."""
        call.flow = flow_of(call.method, call.key)
        if not call.counted:
            self._free.append(call)
            return
        self._order += 1
        call.added = self._order
        self._lines[call.priority < PRIORITY_NORMAL].setdefault(call.flow, Lanes()).push(call)

    def remove(self, call: Called) -> None:
        """It waits no longer: it was given up."""
        if not call.counted:
            self._free.remove(call)
            return
        lines = self._lines[call.priority < PRIORITY_NORMAL]
        lines[call.flow].remove(call)
        if not lines[call.flow].size:
            del lines[call.flow]
            self._forget(call.flow)

    def next(self, wait: Callable[[str], float]) -> tuple[Called | None, float]:
        """Take out the call that may start now; otherwise None, and seconds until one may (or inf).

        `wait(kind)` is how long a call of this kind has to wait for the cloud's limits."""
        if self._free:
            return self._free.popleft(), 0.0
        soonest = math.inf
        share = self._passed >= FAIR_SHARE - 1
        for periodic in (True, False) if share else (False, True):
            found, seconds = self._next_of(self._lines[periodic], wait)
            if found is not None:
                self._passed = 0 if periodic or not self._lines[True] else self._passed + 1
                return found, 0.0
            soonest = min(soonest, seconds)
        return None, soonest

    def _next_of(self, lines: dict[Flow, Lanes[Called]], wait: Callable[[str], float]) -> tuple[Called | None, float]:
        soonest = math.inf
        for kind in sorted({flow.kind for flow in lines}, key=self._rank):
            if kind in _SLOW and self._slow_running >= self._slow_slots:
                continue
            flows = [flow for flow in lines if flow.kind == kind and not self._has_its_share(flow)]
            if not flows:
                continue
            seconds = wait(kind)
            if seconds > 0:
                soonest = min(soonest, seconds)
                continue
            flow = min(flows, key=self._rank)
            self._turn += 1
            self._served[kind] = self._served[flow] = self._turn
            call = lines[flow].pop()
            if not lines[flow].size:
                del lines[flow]
            return call, 0.0
        return None, soonest

    def _has_its_share(self, flow: Flow) -> bool:
        return bool(flow.namespace) and self._running[flow] >= self._namespace_slots

    def _rank(self, what: object) -> tuple[int, int]:
        return self._running[what], self._served.get(what, 0)

    def started(self, call: Called) -> None:
        """The call holds a slot."""
        self._running[call.flow] += 1
        self._running[call.flow.kind] += 1
        self._slow_running += call.flow.kind in _SLOW

    def ended(self, call: Called) -> None:
        """It does so no longer."""
        flow = call.flow
        self._running[flow.kind] -= 1
        self._running[flow] -= 1
        self._slow_running -= flow.kind in _SLOW
        if not self._running[flow]:
            del self._running[flow]
            self._forget(flow)

    def _forget(self, flow: Flow) -> None:
        """Forget a namespace that has no call any more."""
        if flow.namespace and not (self._running[flow] or flow in self._lines[False] or flow in self._lines[True]):
            self._served.pop(flow, None)

    def clear(self) -> list[Called]:
        """Take out all that wait."""
        waiting = self.waiting()
        self._free.clear()
        for lines in self._lines.values():
            lines.clear()
        return waiting

    def waiting(self) -> list[Called]:
        """The calls that wait."""
        lines = [line for lines in self._lines.values() for line in lines.values()]
        return [*self._free, *(call for line in lines for call in line.items())]


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
