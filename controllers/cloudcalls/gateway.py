"""The gate (stage 5, cloud call): the one way through which every call of vendor code passes.

A call waits for its turn in the pool, passes the guard if it changes the cloud, gets arguments that
cannot be changed, has its answer validated and its exception translated, and is counted. Whatever
vendor code does, SystemExit included, costs that call and nothing else."""

from __future__ import annotations

import logging
import math
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cloudprovider import Call, InstanceState, Throttled, call_scope
from cloudprovider.internal.readonly import read_only
from controllers.cloudcalls.answer import BatchAnswer
from controllers.cloudcalls.call import CallState, CloudCall, Inbox
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
from controllers.cloudcalls.metrics import CallMetrics
from controllers.cloudcalls.options import CloudCallOptions
from controllers.cloudcalls.outage import FAILED, STRANGER, Outage
from controllers.cloudcalls.pool import CallPool
from controllers.runtime.cleaning import text_of
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

R = TypeVar("R")

# Outcomes that tell nothing about the cloud's health.
_SILENT = frozenset((REFUSED, SUPERSEDED, "throttled", "cancelled"))


class DryRunBackend(Protocol):
    """Answers in the cloud's place, so that nothing there is changed. Thread-safe.

    With it the gateway has no way to make a call that changes the cloud: it passes on the method's
    name, `key` (whom the call is about) and the arguments, and never the method itself.
    """

    def answer(self, method: str, key: str, args: tuple[Any, ...]) -> Any:
        """Answer a call that would change the cloud, as the provider would; validated likewise.

        Called in a vendor thread, with read-only arguments; it raises as the provider."""

    def shown(self, method: str, key: str, answer: R) -> R:
        """The valid answer to a call, with what was answered here applied to it."""

    def stated(self, name: str, state: InstanceState | Exception) -> None:
        """A fresh answer about the state of a node's instance."""


class Gateway:
    """See the module. Thread-safe. `guard(method)` is called right before each mutating call, in
    the vendor thread; what it raises goes to the caller instead."""

    def __init__(
        self,
        provider: str,
        options: CloudCallOptions,
        metrics: Metrics,
        clock: Clock,
        guard: Callable[[str], object] | None = None,
        dry_run: DryRunBackend | None = None,
    ) -> None:
        self.options = options
        self.clock = clock
        self.metrics = CallMetrics(provider, metrics)
        self.outage = Outage(clock)
        self.provider = provider
        self._guard = guard
        self._dry_run = dry_run
        self.pool = CallPool(provider, options, clock, self._execute, self._ended)
        self.metrics.watch(self.pool)

    def call(self, call: CloudCall[R]) -> R:
        """Make the call and return its answer. Blocks until then, or until its deadline.

        Raises the errors of `cloudprovider.errors` and of `controllers.cloudcalls.errors`, and what
        the guard raises.
        """
        parked = self.parked_error(call.key, call.method)
        if parked is not None:
            raise parked
        inbox = Inbox()
        # The usual time is up before the deadline only where a call has more of it: building a load
        # balancer, say.
        self.submit(call, inbox, patience=self.options.timeout)
        reported = call.patience == call.timeout
        while not inbox.ended:
            inbox.started.clear()
            now, look_at = self.clock.monotonic(), call.deadline if reported else call.look_at
            if call.deadline <= now:
                if self.pool.expire(call):
                    raise self.overdue_error(call)
                break  # it ended at the last moment
            if look_at <= now:
                reported = True
                self._tell_slow(call)
                continue
            inbox.wait(self.clock, look_at)
        inbox.clear()
        error = call.take_error()
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback holds this frame
        return call.answer  # type: ignore[return-value]  # without an error there is an answer

    def submit(self, call: CloudCall[Any], inbox: Inbox, patience: float = math.inf) -> CloudCall[Any]:
        """Queue the call; its end goes to the inbox, whose thread watches the deadline."""
        call.inbox = inbox
        call.timeout = self.options.timeout_of(call.method)
        call.patience = min(patience, call.timeout)
        call.cancelled = ClockEvent(self.clock)
        self.pool.submit(call)
        return call

    def _tell_slow(self, call: CloudCall[Any]) -> None:
        text = (
            f"the provider's {call.method} has not answered after {call.patience:g} s (--cloud-api-timeout). Such a "
            f"call may take up to {call.timeout:g} s ({self.options.flag_of(call.method)})"
        )
        log.warning("%s: %s", call.key, text)
        if call.slow is not None:
            call.slow(call.key, text)

    def overdue_error(self, call: CloudCall[Any]) -> CallOverdue:
        """What the caller of an expired call gets."""
        assert call.until is not None
        return CallOverdue(call.method, call.key, call.timeout, call.until, self.options.flag_of(call.method))

    def parked_error(self, key: str, method: str) -> CallOverdue | None:
        """The refusal of a call whose key is parked; None when it may be made."""
        until = self.pool.parked_until(key)
        if until is None:
            return None
        return CallOverdue(method, key, self.options.timeout_of(method), until, self.options.flag_of(method))

    # ---- in vendor threads

    def _execute(self, call: CloudCall[Any]) -> Throttled | None:
        dry_run = self._dry_run
        if call.mutating and self._guard is not None and dry_run is None:
            try:
                self._guard(call.method)
            except Exception as refusal:  # noqa: BLE001 - handed to the caller, who called nothing
                call.error, call.outcome = refusal, REFUSED
                return None
        answer = None
        try:
            args = tuple(map(_handed_out, call.args))
            with call_scope(Call(call.deadline, call.cancelled, self.clock.monotonic)):
                if call.mutating and dry_run is not None:
                    answer = call.check(dry_run.answer(call.method, call.key, args))
                else:
                    answer = call.check(call.fn(*args))
            if dry_run is not None:
                answer = dry_run.shown(call.method, call.key, answer)
        except BaseException as error:  # noqa: BLE001 - the vendor boundary: nothing gets past it
            call.error = translate(error, call.method)
            call.outcome = outcome_of(call.error)
        else:
            call.answer = answer
            call.outcome = SUCCESS
        if isinstance(answer, BatchAnswer):
            if not answer.is_complete():
                call.outcome = PARTIAL
            return answer.throttled
        return call.error if isinstance(call.error, Throttled) else None

    # ---- in vendor threads, and in the thread that gave a call up

    def _ended(self, call: CloudCall[Any], seconds: float) -> None:
        if call.state is CallState.ENDED:
            outcome = call.outcome
            if outcome in (SUCCESS, PARTIAL):
                self.metrics.answered(call.method, seconds, self.clock.monotonic())
                if isinstance(call.answer, BatchAnswer):
                    values = call.answer.values.values()
                    self.metrics.items(
                        call.method, Tally(outcome_of(v) if isinstance(v, Exception) else SUCCESS for v in values)
                    )
        else:
            outcome = call.fate
        if outcome == OVERDUE:
            # The controller logs it, once for many; see `runtime/queue/failurelog.py`.
            log.debug(
                "cloud provider %r: %s for %s has not answered within %.1f s and is abandoned; its thread is blocked"
                " until it returns",
                self.provider,
                call.method,
                call.shown,
                seconds,
            )
        if call.counted:
            self.metrics.ended(call.method, outcome, seconds)
            self._tell_outage(call, outcome, seconds)

    def _tell_outage(self, call: CloudCall[Any], outcome: str, seconds: float) -> None:
        if call.key.startswith(STRANGER):
            return
        if outcome in (SUCCESS, PARTIAL) and isinstance(call.answer, BatchAnswer) and call.answer.values:
            values = call.answer.values.values()
            errors = [v for v in values if isinstance(v, Exception) and outcome_of(v) in FAILED]
            if len(errors) == len(values):
                self.outage.call_failed(call.key, f"{call.method}: {text_of(errors[-1])}")
            else:
                self.outage.call_answered(len(values) - len(errors))
        elif outcome in FAILED:
            error = call.error
            what = f"no answer after {seconds:.0f} s" if error is None else text_of(error)
            self.outage.call_failed(call.key, f"{call.method}: {what}")
        elif outcome not in _SILENT:
            self.outage.call_answered()


def _handed_out(arg: Any) -> Any:
    """An argument as the provider gets it: the cache's own objects, which are read-only, and others
    made so. A list is a new one for each call, to be sorted and cut."""
    return list(map(read_only, arg)) if isinstance(arg, list | tuple) else read_only(arg)
