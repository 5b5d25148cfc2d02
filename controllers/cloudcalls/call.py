"""One call to the provider (stage 5, cloud call): what is to be called, and how it runs in a thread
of the pool. Made by `capabilities` and `nodes`, queued and timed by `pool`.

Vendor code ends in :func:`run`: a call passes the guard if it changes the cloud, gets arguments
that cannot be changed, and has its answer validated and its exception translated, all within its
deadline. Whatever vendor code does, SystemExit included, costs that call and nothing else."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from attrs import define, field

from cloudprovider import Call, Throttled, call_scope
from cloudprovider.internal.readonly import each_read_only, read_only
from controllers.cloudcalls.answers import BatchAnswer
from controllers.cloudcalls.errors import PARTIAL, REFUSED, SUCCESS, outcome_of, translate
from controllers.runtime.clock import Clock, ClockEvent

R = TypeVar("R")

PRIORITY_DELETE = 20
"""Somebody waits for something to be gone, and it costs money until then."""
PRIORITY_NEW = 10
"""An object never served so far: a node that cannot take pods, a Service without an address."""
PRIORITY_NORMAL = 0
PRIORITY_SWEEP = -10
"""Periodic checks of everything: they have time. Higher ones overtake them."""


class CallState(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """It ended in time."""
    OVERDUE = "overdue"
    """Given up, and still running."""
    LATE = "late"
    """Given up, and ended since."""


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
    outcome: Outcome[R] | None = field(init=False, default=None)
    """From its end until it is told; gone then, too."""
    until: Future[None] | None = field(init=False, default=None)
    """Ends when an overdue call does."""
    state: CallState = field(init=False, default=CallState.QUEUED)
    timeout: float = field(init=False, default=math.inf)
    cancelled: ClockEvent = field(init=False)
    kind: str = field(init=False)
    """Nodes, load balancers ...: for whose turn it is; see `callqueue.py`."""
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

    def end_late(self) -> None:
        """An overdue call has ended: its key may be asked about again."""
        self.outcome = None
        assert self.until is not None
        self.until.set_result(None)


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
    return each_read_only(arg) if isinstance(arg, list | tuple) else read_only(arg)
