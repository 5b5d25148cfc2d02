"""The gate (stage 5, cloud call): the one way through which every call of vendor code passes.

Controllers come here through `CloudCalls`. A call waits for its turn in the vendor pool, passes the guard if it changes
the cloud, runs on copies of its arguments with `current_call()` set, has its answer validated and its exception
translated, and is counted; its caller gets the answer, or the error, or CallOverdue at the deadline. Whatever vendor
code does, SystemExit included, costs that call and nothing else.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from attrs import define, frozen

from cloudprovider import Call, Throttled, call_scope
from controllers.cloudcalls.errors import (
    OVERDUE,
    PARTIAL,
    REFUSED,
    SUCCESS,
    SUPERSEDED,
    CallOverdue,
    outcome_of,
    translate,
)
from controllers.cloudcalls.jobs import Inbox, Job, JobState
from controllers.cloudcalls.limits import PRIORITY_NORMAL, Limits
from controllers.cloudcalls.metrics import CallMetrics
from controllers.cloudcalls.options import CloudCallOptions
from controllers.cloudcalls.outage import FAILED, Outage
from controllers.cloudcalls.pool import VendorPool
from controllers.cloudcalls.snapshots import Snapshots
from controllers.cloudcalls.standin import StandIn
from controllers.cloudcalls.turns import KINDS, flow_of
from controllers.cloudcalls.validate import BatchAnswer
from controllers.runtime.cleaning import text_of
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics

__all__ = ["Ask", "CallHealth", "Gateway", "OverdueCall"]

log = logging.getLogger(__name__)

R = TypeVar("R")

_TROUBLE_AFTER = 5.0  # seconds of failures without one answer until health says so
_SILENT = frozenset(
    (REFUSED, SUPERSEDED, "throttled", "cancelled")
)  # outcomes that tell nothing about the cloud's health


@define(eq=False)
class Ask(Generic[R]):
    """One call to be made."""

    method: str
    """The vendor's method, as in the metrics."""
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    key: str
    """Whom the call is about. While an overdue call for a key runs, no other is made for it. "" for a batch."""
    check: Callable[[Any], R]
    """Turns the raw answer into a valid one, or raises InvalidAnswer. Runs in the vendor thread."""
    mutating: bool = False
    """Whether the call changes the cloud: then it passes the guard first."""
    priority: int = PRIORITY_NORMAL
    about: str = ""
    """For people, where `key` is empty."""
    counted: bool = True
    """Whether it shows in the metrics and keeps to the rate; accessors that do no work don't."""


@frozen
class OverdueCall:
    """A call that was given up and still runs."""

    method: str
    key: str
    """What it is about: the parked key, or a description of the batch."""
    seconds: float
    """Since it began."""


@frozen
class CallHealth:
    """How the calls to the cloud are doing."""

    ok: bool
    """False while any call is overdue, or the cloud has answered none for a while."""
    fatal: bool
    """More threads are lost than allowed: the process should end with 1. Never turns back."""
    message: str
    overdue: tuple[OverdueCall, ...] = ()
    """The longest first."""


class Gateway:
    """See the module. Thread-safe. `guard(method)` is called right before each mutating call, in the vendor thread;
    what it raises goes to the caller instead. `on_fatal(message)` is called at most once."""

    def __init__(
        self,
        provider: str,
        options: CloudCallOptions,
        *,
        metrics: Metrics,
        clock: Clock,
        guard: Callable[[str], None] | None = None,
        stand_in: StandIn | None = None,
        on_fatal: Callable[[str], None] | None = None,
    ) -> None:
        self.options = options
        self.clock = clock
        self.metrics = CallMetrics(provider, metrics)
        self.outage = Outage(clock)
        self.provider = provider
        self._guard = guard
        self._stand_in = stand_in
        self._snapshots = Snapshots(options.snapshots, self._mutated)
        self._mutating_methods: set[str] = set()
        self._mutating_lock = threading.Lock()
        self._pool = VendorPool(
            self._execute,
            Limits(options.qps, options.burst),
            name=provider,
            concurrency=options.concurrency,
            max_abandoned=options.max_abandoned,
            clock=clock,
            on_end=self._ended,
            on_fatal=on_fatal or (lambda message: None),
        )
        self._add_gauges()

    def call(self, ask: Ask[R]) -> R:
        """Make the call and return its answer. Blocks until then, or until its deadline.

        Raises the errors of `cloudprovider.errors` and of `controllers.cloudcalls.errors`, and what the guard raises.
        """
        parked = self.parked_error(ask.key, ask.method)
        if parked is not None:
            raise parked
        inbox = Inbox()
        job = self.submit(ask, inbox)
        while not inbox.ended:
            inbox.started.clear()
            if job.deadline <= self.clock.monotonic():
                if self._pool.expire(job):
                    raise self.overdue_error(job)
                break  # it ended at the last moment
            inbox.wait(self.clock, job.deadline)
        inbox.clear()
        error = job.take_error()
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback holds this frame
        answer: R = job.answer
        return answer

    def submit(self, ask: Ask[Any], inbox: Inbox, patience: float = math.inf) -> Job:
        """Queue the call; its end goes to the inbox, whose thread must watch the deadline. See `VendorPool.submit`."""
        job = Job(
            ask,
            ask.method,
            ask.key,
            inbox,
            timeout=self.options.timeout_of(ask.method),
            priority=ask.priority,
            clock=self.clock,
            flow=flow_of(ask.method, ask.key),
            patience=patience,
            limited=ask.counted,
        )
        self._pool.submit(job)
        return job

    def expire(self, job: Job) -> bool:
        """Give up a job that is past its deadline; see `VendorPool.expire`."""
        return self._pool.expire(job)

    def drop(self, job: Job) -> bool:
        """Give up a job whose answer is no longer needed, because its keys are asked about in another way."""
        return self._pool.expire(job, SUPERSEDED)

    def overdue_error(self, job: Job) -> CallOverdue:
        """What the caller of an expired job gets."""
        assert job.until is not None
        return CallOverdue(job.method, job.key, job.timeout, job.until)

    def parked_error(self, key: str, method: str) -> CallOverdue | None:
        """The refusal of a call whose key is parked; None when it may be made."""
        until = self._pool.parked_until(key)
        return None if until is None else CallOverdue(method, key, self.options.timeout_of(method), until)

    def has_spare_threads(self) -> bool:
        """Whether so few threads are lost that one more may be risked without need."""
        return 2 * len(self._pool.overdue()) <= self.options.max_abandoned

    def health(self) -> CallHealth:
        """How the calls are doing. Cheap."""
        now = self.clock.monotonic()
        jobs = sorted(self._pool.overdue(), key=lambda job: job.started)
        overdue = {job: OverdueCall(job.method, job.key or job.work.about, now - job.started) for job in jobs}
        fatal = self._pool.fatal()
        trouble = self.outage.trouble()
        if trouble is not None and now - trouble.since < _TROUBLE_AFTER:
            trouble = None
        message = fatal
        if not fatal:
            blamed = sorted(jobs, key=lambda job: not job.key)[:3]  # of a batch, hardly anyone is to blame
            calls = [overdue[job] for job in blamed]
            shown = ", ".join(f"{c.method} for {c.key} since {c.seconds:.0f} s" for c in calls)
            more = f" and {len(overdue) - 3} more" if len(overdue) > 3 else ""
            problems = [f"overdue: {shown}{more}"] if overdue else []
            if trouble is not None:
                problems.append(
                    f"every call has failed for {now - trouble.since:.0f} s ({trouble.calls} calls), the last one:"
                    f" {trouble.last}"
                )
            message = "; ".join(problems) or "ok"
        ok = not overdue and trouble is None and not fatal
        return CallHealth(ok, bool(fatal), message, tuple(overdue.values()))

    def changing(self) -> list[OverdueCall]:
        """The calls under way that may change the cloud, those that were given up too; the longest first."""
        now = self.clock.monotonic()
        jobs = sorted({*self._pool.running(), *self._pool.overdue()}, key=lambda job: job.started)
        return [
            OverdueCall(job.method, job.key or job.work.about, now - job.started) for job in jobs if job.work.mutating
        ]

    def in_flight(self) -> int:
        """Calls under way, overdue ones not counted."""
        return len(self._pool.running())

    def parked(self) -> Mapping[str, OverdueCall]:
        """The keys that rest until an overdue call ends."""
        now = self.clock.monotonic()
        return {
            key: OverdueCall(job.method, key, now - job.started) for key, job in sorted(self._pool.parked().items())
        }

    def cancel_running(self) -> None:
        """See `VendorPool.cancel_running`."""
        self._pool.cancel_running()

    def close(self, timeout: float | None = None) -> bool:
        """Make no further calls, and wait for those under way; True when they ended in time. May be called twice."""
        self._pool.close()
        return self._pool.wait_idle(timeout)

    # ---- in vendor threads

    def _execute(self, job: Job) -> Throttled | None:
        ask: Ask[Any] = job.work
        stand_in = self._stand_in
        if ask.mutating and self._guard is not None and stand_in is None:
            try:
                self._guard(ask.method)
            except Exception as refusal:  # noqa: BLE001 - handed to the caller, who called nothing
                job.error, job.outcome = refusal, REFUSED
                return None
        loan = None
        answer = None
        try:
            loan = self._snapshots.lend(ask.args)
            with call_scope(Call(job.deadline, job.cancelled, self.clock.monotonic)):
                if ask.mutating and stand_in is not None:
                    answer = ask.check(stand_in.answer(ask.method, ask.key, loan.args))
                else:
                    answer = ask.check(ask.fn(*loan.args))
            if stand_in is not None:
                answer = stand_in.shown(ask.method, ask.key, answer)
        except BaseException as error:  # noqa: BLE001 - the vendor boundary: nothing gets past it
            job.error = translate(error, ask.method)
            job.outcome = outcome_of(job.error)
        else:
            job.answer = answer
            job.outcome = SUCCESS
        if loan is not None and loan.pairs:
            self._settle(ask.method, loan)
        if isinstance(answer, BatchAnswer):
            if not answer.is_complete():
                job.outcome = PARTIAL
            return answer.throttled
        return job.error if isinstance(job.error, Throttled) else None

    def _settle(self, method: str, loan: Any) -> None:
        try:
            self._snapshots.settle(method, loan)
        except BaseException as error:  # noqa: BLE001 - the comparison may run code of what a vendor put in there
            log.error("the arguments of the provider's %s cannot be compared any more: %s", method, text_of(error))

    def _mutated(self, method: str, what: str) -> None:
        self.metrics.mutated(method)
        with self._mutating_lock:
            if method in self._mutating_methods:
                return
            self._mutating_methods.add(method)
        log.warning(
            "cloud provider %r changed its argument %s while %s was under way; arguments are read-only. The change is"
            " dropped. Reported once for each method, counted in cloudprovider_api_argument_mutations_total",
            self.provider,
            what,
            method,
        )

    # ---- in vendor threads, and in that of whoever gave a call up

    def _ended(self, job: Job, seconds: float) -> None:
        ask: Ask[Any] = job.work
        if job.state is JobState.ENDED:
            outcome = job.outcome
            if outcome in (SUCCESS, PARTIAL):
                self.metrics.answered(ask.method, seconds, self.clock.monotonic())
                if isinstance(job.answer, BatchAnswer):
                    values = job.answer.values.values()
                    self.metrics.items(
                        ask.method, Tally(outcome_of(v) if isinstance(v, Exception) else SUCCESS for v in values)
                    )
        else:
            outcome = job.fate
        if outcome == OVERDUE:
            # Whoever asked tells it, once for many; see `runtime/queue/failurelog.py`.
            log.debug(
                "cloud provider %r: %s for %s has not answered within %.1f s and is abandoned; its thread is blocked"
                " until it returns",
                self.provider,
                ask.method,
                ask.key or ask.about,
                seconds,
            )
        if ask.counted:
            self.metrics.ended(ask.method, outcome, seconds)
            self._tell_outage(job, outcome, seconds)

    def _tell_outage(self, job: Job, outcome: str, seconds: float) -> None:
        ask: Ask[Any] = job.work
        if outcome in (SUCCESS, PARTIAL) and isinstance(job.answer, BatchAnswer) and job.answer.values:
            values = job.answer.values.values()
            errors = [v for v in values if isinstance(v, Exception) and outcome_of(v) in FAILED]
            if len(errors) == len(values):
                self.outage.call_failed(ask.key, f"{ask.method}: {text_of(errors[-1])}")
            else:
                self.outage.call_answered(len(values) - len(errors))
        elif outcome in FAILED:
            error = job.error
            what = f"no answer after {seconds:.0f} s" if error is None else text_of(error)
            self.outage.call_failed(ask.key, f"{ask.method}: {what}")
        elif outcome not in _SILENT:
            self.outage.call_answered()

    def _add_gauges(self) -> None:
        pool, gauge = self._pool, self.metrics.gauge
        gauge(
            "cloudprovider_api_requests_in_flight",
            "Provider calls under way, overdue ones not counted.",
            lambda: len(pool.running()),
        )
        gauge(
            "cloudprovider_api_requests_waiting",
            "Provider calls that wait for a free slot or for the rate limit.",
            pool.waiting,
        )
        gauge(
            "cloudprovider_api_requests_overdue",
            "Provider calls past their deadline that still hold a thread.",
            lambda: len(pool.overdue()),
        )
        gauge(
            "cloudprovider_api_requests_parked",
            "Keys that rest until an overdue call ends.",
            lambda: len(pool.parked()),
        )
        gauge(
            "cloudprovider_api_throttle_rate",
            "Provider calls allowed per second at present, of the kind slowed down most; +Inf without limit.",
            lambda: pool.rate()[0],
        )
        for kind in KINDS:
            gauge(
                "cloudprovider_api_kind_throttle_rate",
                "Provider calls of each kind allowed per second at present; +Inf without limit.",
                lambda kind=kind: pool.rate(kind)[0],  # type: ignore[misc]  # a default argument binds the loop's value
                kind,
            )
        gauge(
            "cloudprovider_api_throttle_pause_seconds",
            "Seconds until the next provider call, as the cloud asked for with Retry-After.",
            lambda: pool.rate()[1],
        )
