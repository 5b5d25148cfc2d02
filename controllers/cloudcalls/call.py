"""One call to the provider (stage 5, cloud call): what is to be called, how it runs in a thread,
and whose turn it is. Made by `capabilities` and `nodes`, queued and timed by `pool`, which holds
its lock around every method of the queue; time comes in as an argument, and nothing waits.

Vendor code ends in :func:`run`: a call passes the guard if it changes the cloud, gets arguments
that cannot be changed, and has its answer validated and its exception translated, all within its
deadline. Whatever vendor code does, SystemExit included, costs that call and nothing else."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from attrs import define, field

from cloudprovider import Call, Throttled, call_scope
from cloudprovider.internal.readonly import read_only
from controllers.cloudcalls.answers import PARTIAL, REFUSED, SUCCESS, BatchAnswer, outcome_of, translate
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.fairqueue import FairQueue

R = TypeVar("R")

PRIORITY_DELETE = 20
"""Somebody waits for something to be gone, and it costs money until then."""
PRIORITY_NEW = 10
"""An object never served so far: a node that cannot take pods, a Service without an address."""
PRIORITY_NORMAL = 0
PRIORITY_SWEEP = -10
"""Periodic checks of everything: they have time. Higher ones overtake them."""


@define
class Outcome(Generic[R]):
    """How a call ended. Plain: no code of the vendor runs behind it."""

    label: str
    """As in the metrics."""
    answer: R | None = None
    error: Exception | None = None
    throttled: Throttled | None = None
    """What says that the cloud throttles, if anything does."""


@define(eq=False)
class CloudCall(Generic[R]):
    """One call; submitted once. The pool fills in what stands below the line, under its lock."""

    method: str
    """The vendor's method, as in the metrics."""
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    key: str
    """Whom the call is about. While an overdue call for a key runs, no other is made for it. "" for
    a batch: that parks nothing."""
    check: Callable[[Any], R]
    """Turns the raw answer into a valid one, or raises InvalidAnswer. Runs in the vendor thread."""
    mutating: bool = False
    """Whether the call changes the cloud: then it passes the guard first."""
    priority: int = PRIORITY_NORMAL

    about: str = field(kw_only=True, default="")
    """For people, where `key` is empty."""
    counted: bool = field(kw_only=True, default=True)
    """Whether it shows in the metrics and keeps to the rate; accessors that do no work don't."""
    slow: Callable[[str, str], object] | None = field(kw_only=True, default=None)
    """Called once, with the key and words for people, when the call has more time than usual and
    needs it. In the timer's thread: it must not block."""
    former: Any = field(kw_only=True, default=None)
    """What the provider finds in `current_call().former`."""

    # ----
    future: Future[R] | None = field(init=False, factory=Future)
    """The answer, or the error; ends when the call does, or when it is overdue or refused. Gone
    then: an error's traceback holds frames that hold the call, which must not hold the error."""
    until: Future[None] | None = field(init=False, default=None)
    """Ends when an overdue call does."""
    timeout: float = field(init=False, default=math.inf)
    cancelled: ClockEvent = field(init=False)
    kind: str = field(init=False)
    """Nodes, load balancers ...: for whose turn it is; see `CallQueue`."""
    added: float = field(init=False, default=0.0)
    """Its place in the order of those who wait."""
    started: float = field(init=False, default=math.nan)
    told_slow: bool = field(init=False, default=False)

    @property
    def shown(self) -> str:
        """Whom it is about, for people."""
        return self.key or self.about

    def end(self, error: Exception | None, answer: R | None = None) -> None:
        """Tell whoever waits. Once."""
        future, self.future = self.future, None
        assert future is not None
        if error is None:
            future.set_result(answer)  # type: ignore[arg-type]  # without an error there is an answer
        else:
            future.set_exception(error)


Called = CloudCall[Any]


# ---- in a thread of the pool


def run(call: CloudCall[R], clock: Clock, guard: Callable[[str], object] | None) -> Outcome[R]:
    """Make the call, in a thread of the pool. Never raises.

    `guard(method)` may raise to refuse a call that changes the cloud; what it raises goes to the
    caller."""
    if call.mutating and guard is not None:
        try:
            guard(call.method)
        except Exception as refusal:  # noqa: BLE001 - handed to the caller, who called nothing
            return Outcome(REFUSED, error=refusal)
    try:
        deadline, former = call.started + call.timeout, _handed_out(call.former)
        with call_scope(Call(deadline, call.cancelled, clock.monotonic, former=former)):
            answer = call.check(call.fn(*map(_handed_out, call.args)))
    except BaseException as raised:  # noqa: BLE001 - the vendor boundary: nothing gets past it
        # No local name for the error: its cause's traceback holds this frame, and both would stay.
        return _failed(translate(raised, call.method))
    if isinstance(answer, BatchAnswer):
        return Outcome(SUCCESS if answer.complete else PARTIAL, answer, throttled=answer.throttled)
    return Outcome(SUCCESS, answer)


def _failed(error: Exception) -> Outcome[Any]:
    return Outcome(outcome_of(error), error=error, throttled=error if isinstance(error, Throttled) else None)


def _handed_out(arg: Any) -> Any:
    """An argument as the provider gets it: the cache's own objects, which are read-only, and others
    made so. A list is a new one for each call, to be sorted and cut."""
    return [read_only(one) for one in arg] if isinstance(arg, list | tuple) else read_only(arg)


# ---- whose turn it is

NODES: Final = "nodes"
LOAD_BALANCERS: Final = "load-balancers"
ROUTES: Final = "routes"
VOLUMES: Final = "volumes"
OTHERS: Final = "others"
KINDS: Final = (NODES, LOAD_BALANCERS, ROUTES, VOLUMES, OTHERS)

_NO_WORK: Final = "no work"  # accessors, which never reach the cloud
_SLOW: Final = frozenset((LOAD_BALANCERS, ROUTES, VOLUMES))  # kinds that leave the slots kept for nodes alone
_SHARE: Final = 8

_FLOOR = 1.0  # calls per second below which the adaptive limit never falls
_RECOVERY = 5.0  # seconds in which it doubles
_MAX_PAUSE = 300.0  # seconds that the cloud may ask for
_OBSERVED_SECONDS = 1.0
_OBSERVED_STARTS = 1024
_SHORTEST_SPAN = 0.1


def kind_of(method: str) -> str:
    """The kind of a call, by the vendor's method."""
    if "load_balancer" in method:
        return LOAD_BALANCERS
    if "route" in method:
        return ROUTES
    if "volume" in method:
        return VOLUMES
    if method.startswith(("instance", "node_addresses", "get_zone", "pod_cidrs")):
        return NODES
    return OTHERS


def _namespace(key: str) -> str:
    kind, _, name = key.partition("/")
    return name.partition("/")[0] if kind == "service" else ""


class CallQueue:
    """The waiting calls, how many of each kind hold a slot, and how fast each kind may go.

    - Kinds of calls take turns, and within load balancers the Services' namespaces do. What may not
      start now holds up no other kind.
    - Within a kind or namespace the higher priority goes first, and none starves.
    - A kind that the cloud throttles is slowed down alone, unless the provider says that it is the
      whole account (`Throttled.whole_account`); the operator's limit is for all kinds together.
    """

    def __init__(self, slots: int, qps: float = 0.0, burst: int = 0) -> None:
        # Answers about nodes come fast, and every pod of a new node waits for one: backlogs of
        # slower kinds leave them an eighth of the slots.
        kept = max(1, slots // _SHARE) if slots > 1 else 0
        self._slow_slots = slots - kept
        # And one namespace leaves an eighth of the rest to the others.
        most = self._slow_slots - (max(1, self._slow_slots // _SHARE) if self._slow_slots > 1 else 0)
        # In the order of their turns.
        self._kinds: OrderedDict[str, FairQueue[Called]] = OrderedDict(
            (kind, FairQueue(_namespace, most) if kind == LOAD_BALANCERS else FairQueue())
            for kind in (_NO_WORK, *KINDS)
        )
        self._limit = Limiter(qps, burst)
        self._limits = {kind: Limiter() for kind in KINDS}
        self._order = 0
        self._slow_running = 0

    def push(self, call: Called) -> None:
        """A call waits from now on."""
        call.kind = kind_of(call.method) if call.counted else _NO_WORK
        self._order += 1
        call.added = self._order
        self._kinds[call.kind].push(call)

    def next(self, now: float) -> tuple[Called | None, float]:
        """Take out the call that may start now, for which there is a slot. Otherwise None, and the
        seconds until one may as far as the limits go (or inf)."""
        soonest = math.inf
        for kind, waiting in self._kinds.items():
            if not waiting.ready or (kind in _SLOW and self._slow_running >= self._slow_slots):
                continue
            if kind != _NO_WORK:
                limit = self._limits[kind]
                delay = max(self._limit.delay(now), limit.delay(now))
                if delay > 0:
                    soonest = min(soonest, delay)
                    continue
                self._limit.take(now)
                limit.take(now)
            self._kinds.move_to_end(kind)
            self._slow_running += kind in _SLOW
            return waiting.pop(), 0.0
        return None, soonest

    def ended(self, call: Called) -> None:
        """The call holds its slot no longer."""
        self._slow_running -= call.kind in _SLOW
        self._kinds[call.kind].ended(call.key)

    def remove(self, call: Called) -> None:
        """It waits no longer: it was given up."""
        self._kinds[call.kind].remove(call)

    def clear(self) -> list[Called]:
        """Take out all that wait."""
        calls = self.waiting()
        for waiting in self._kinds.values():
            waiting.clear()
        return calls

    def waiting(self) -> list[Called]:
        """The calls that wait."""
        return [call for waiting in self._kinds.values() for call in waiting.items()]

    def throttled(self, call: Called, now: float, throttled: Throttled) -> None:
        """The cloud throttled this call."""
        limit = self._limit if throttled.whole_account or call.kind == _NO_WORK else self._limits[call.kind]
        limit.throttled(now, started=call.started, retry_after=throttled.retry_after)

    def rate(self, now: float, kind: str | None = None) -> tuple[float, float]:
        """(calls per second allowed, seconds of pause left) at present, of one kind or of the
        slowest."""
        limits = [self._limit, *(self._limits.values() if kind is None else [self._limits[kind]])]
        return min(limit.rate(now) for limit in limits), max(limit.pause(now) for limit in limits)


class Limiter:
    """Decides when the next call may start.

    Three brakes, the strongest of which counts:

    - a token bucket of `qps` calls per second and `burst` calls at once; 0 for no limit, and a
      burst of 0 means one second's worth;
    - the pause that the cloud named with Throttled (Retry-After), at most five minutes;
    - the adaptive limit. A Throttled answer halves the rate: the one in force, or without any the
      one observed in the second before. It doubles every five seconds without another Throttled.
    """

    def __init__(self, qps: float = 0.0, burst: int = 0) -> None:
        self._qps = qps if qps > 0 else math.inf
        self._burst = math.inf if qps <= 0 else float(burst) if burst > 0 else max(1.0, math.ceil(qps))
        # Some calls go on: otherwise nobody would notice that the cloud has recovered.
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
        if retry_after is not None:  # bounded: a clock that is off would stop all calls for days
            self._paused_until = max(self._paused_until, now + min(retry_after, _MAX_PAUSE))
        resumes = max(now, self._paused_until)
        if started <= self._halved_at:
            # Answers of calls that started before the last halving tell of the old rate, so they
            # don't halve again. Yet it is no time to speed up either.
            rate = self.rate(now)
            if self._slow_rate != math.inf:
                self._slow_rate, self._slow_since = rate, resumes
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
        if self._slow_rate == math.inf:
            return self._qps
        # The exponent is bounded: an idle month must not overflow the power.
        rate = float(self._slow_rate * 2.0 ** min(64.0, max(0.0, now - self._slow_since) / _RECOVERY))
        # Twice the rate that was too much, or the operator's own: nothing more is to be learnt.
        if rate >= self._slow_ceiling:
            self._slow_rate = self._slow_ceiling = math.inf
            return self._qps
        return min(rate, self._qps)

    def pause(self, now: float) -> float:
        """Seconds until calls may start again, 0.0 when the cloud asked for no pause."""
        return max(0.0, self._paused_until - now)

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
