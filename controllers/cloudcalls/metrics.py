"""How cloud calls are doing (stage 5): metrics, and what health checks say.

The pool reports each call's end here; the metrics server reads the families at a scrape. The two
named in the first place follow the Go CCM's conventions, which has no such metrics itself.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter as Tally
from collections.abc import Callable, Sized
from typing import Any, Final

from attrs import frozen

from cloudprovider.internal.cleaning import text_of
from controllers.cloudcalls.answers import OUTCOMES, OVERDUE, REFUSED, SUCCESS, BatchAnswer, CallFailed, outcome_of
from controllers.cloudcalls.call import KINDS, CloudCall, Outcome
from controllers.cloudcalls.pool import CallPool
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

Called = CloudCall[Any]

STRANGER: Final = "admission/"
"""Begins the key of a call about an object that a webhook was asked about. It is in no cluster, and
a client of the webhook port may invent as many as it likes: such a call proves nothing, whatever
its outcome."""

_FAILED: Final = frozenset(("error", "aborted", OVERDUE))  # it is open whether the cloud answers at all
_SILENT: Final = frozenset((REFUSED, "throttled", "cancelled"))  # these tell nothing about that
_PLACES: Final = 200  # whose traceback is shown
_RUN: Final = 3  # failed calls in a row that are trouble
_TROUBLE_AFTER: Final = 5.0  # seconds of failures without one answer until health says so
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


@frozen
class OverdueCall:
    """A call that was given up and still runs."""

    method: str
    key: str
    """What it is about: the parked key, or a description of the batch."""
    seconds: float
    """Since it began."""

    @classmethod
    def of(cls, call: Called, now: float) -> OverdueCall:
        """The call, for those who ask how it is."""
        return cls(call.method, call.shown, now - call.started)


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


class CallMetrics:
    """Counts calls of one provider. Thread-safe; one call costs about 4 us."""

    def __init__(self, provider: str, metrics: Metrics, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._requests = metrics.counter(
            "cloudprovider_api_requests_total",
            f"Calls of provider methods by how they ended ({', '.join(OUTCOMES)}).",
            ("provider", "method", "outcome"),
        )
        self._durations = metrics.histogram(
            "cloudprovider_api_request_duration_seconds",
            "Seconds from the start of a provider call to its end, or to the moment when it was overdue.",
            ("provider", "method"),
            _BUCKETS,
        )
        self._items = metrics.counter(
            "cloudprovider_api_batch_items_total",
            "Keys asked about in batch calls, by the outcome of each.",
            ("provider", "method", "outcome"),
        )
        self._metrics = metrics
        # The label lookups of prometheus_client cost more than the counting.
        self._counting: dict[tuple[str, str], tuple[Callable[[], None], Callable[[float], None]]] = {}
        # Failed calls in a row: how many, since when, about what, and the last one.
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._failed = 0
        self._since = 0.0
        self._about: set[str] = set()
        self._last = ""

    # ---- by the pool

    def ended(self, call: Called, outcome: Outcome[Any] | None, seconds: float) -> None:
        """A call ended, or was given up: None."""
        if outcome is None:
            self._overdue(call, seconds)
            return
        # The start tells its own failures, once the log is known to be ours again.
        if isinstance(outcome.error, CallFailed) and call.key != "provider":
            self._tell_once(outcome.error)
        if not call.counted:
            return
        self._count(call.method, outcome.label, seconds)
        answer = outcome.answer
        if not isinstance(answer, BatchAnswer):
            self._heard(call, outcome.label, outcome.error)
            return
        last: Exception | None = None
        labels: Tally[str] = Tally()
        for value in answer.values.values():
            if isinstance(value, Exception):
                last = value
                labels[outcome_of(value)] += 1
            else:
                labels[SUCCESS] += 1
        for label, count in labels.items():
            self._items.labels(self._provider, call.method, label).inc(count)
        # Where each single key failed, the cloud is in trouble although the call itself succeeded.
        if last is not None and _FAILED.issuperset(labels):
            self._heard(call, "error", last)
        else:
            self._heard(call, outcome.label, None)

    def _overdue(self, call: Called, seconds: float) -> None:
        # The controller logs it, once for many; see `runtime/queue/failurelog.py`.
        log.debug(
            "cloud provider %r: %s for %s has not answered within %.1f s and is abandoned; its thread is blocked until"
            " it returns",
            self._provider,
            call.method,
            call.shown,
            seconds,
        )
        if call.counted:
            self._count(call.method, OVERDUE, seconds)
            self._heard(call, OVERDUE, TimeoutError(f"no answer after {seconds:.0f} s"))

    def _tell_once(self, error: CallFailed) -> None:
        """The traceback of a bug: the controller logs one line for each try, which has the
        place."""
        with self._lock:
            if not error.place or error.place in self._told or len(self._told) >= _PLACES:
                return
            self._told.add(error.place)
        cause = error.__cause__
        log.error(
            "cloud provider %r: %s; the traceback is shown once for this place",
            self._provider,
            error,
            # Without the exception itself, whose own code would run here.
            exc_info=CallFailed(str(error)).with_traceback(cause.__traceback__ if cause is not None else None),
        )

    def _count(self, method: str, outcome: str, seconds: float) -> None:
        found = self._counting.get((method, outcome))
        if found is None:
            ends = self._requests.labels(self._provider, method, outcome)
            times = self._durations.labels(self._provider, method)
            found = self._counting[method, outcome] = (ends.inc, times.observe)
        count, observe = found
        count()
        observe(seconds)

    def _heard(self, call: Called, outcome: str, error: Exception | None) -> None:
        """Keep count of failed calls without one answer between."""
        if call.key.startswith(STRANGER) or (outcome in _SILENT or (outcome not in _FAILED and not self._failed)):
            return
        with self._lock:
            if outcome not in _FAILED:
                self._failed = 0
                self._about.clear()
                return
            if not self._failed:
                self._since = self._clock.monotonic()
            self._failed += 1
            self._last = f"{call.method}: {text_of(error)}"
            if len(self._about) < _RUN:
                self._about.add(call.key)

    # ---- for health

    def health(self, pool: CallPool) -> CallHealth:
        """Cheap."""
        now = self._clock.monotonic()
        calls = sorted(pool.overdue(), key=lambda call: call.started)
        overdue = tuple(OverdueCall.of(call, now) for call in calls)
        if fatal := pool.fatal():
            return CallHealth(False, True, fatal, overdue)
        problems: list[str] = []
        if overdue:
            blamed = sorted(calls, key=lambda call: not call.key)[:3]  # of a batch, hardly anyone is to blame
            shown = ", ".join(f"{call.method} for {call.shown} since {now - call.started:.0f} s" for call in blamed)
            problems.append(f"overdue: {shown}{_and_more(overdue)}")
        slow = sorted(
            f"{call.method} for {call.key} since {now - call.started:.0f} of at most {call.timeout:.0f} s"
            for call in pool.running()
            if call.key and now - call.started >= pool.options.timeout
        )
        if slow:
            problems.append(f"slow: {', '.join(slow[:3])}{_and_more(slow)}")
        trouble = self._trouble(now)
        problems += [trouble] if trouble else []
        return CallHealth(not overdue and not trouble, False, "; ".join(problems) or "ok", overdue)

    def _trouble(self, now: float) -> str:
        """The run of failed calls that still goes on; "" where there is none to speak of."""
        with self._lock:
            # One Service that the cloud refuses, or the routes of one node (one for each family),
            # where nothing else happens, prove nothing.
            services = sum(key.startswith("service/") for key in self._about)
            routes = sum(key.startswith("route/") for key in self._about)
            refused = services + routes == len(self._about) and 2 * services + routes <= 2
            seconds = now - self._since
            if self._failed < _RUN or refused or seconds < _TROUBLE_AFTER:
                return ""
            return f"every call has failed for {seconds:.0f} s ({self._failed} calls), the last one: {self._last}"

    # ---- the pool's gauges

    def watch(self, pool: CallPool) -> None:
        """Gauges of the pool, computed at each scrape."""
        gauge = self._gauge
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

    def _gauge(self, name: str, doc: str, value: Callable[[], float], kind: str = "") -> None:
        """A gauge labelled with the provider, and the kind of call if there is one."""
        labels = {"provider": self._provider} | ({"kind": kind} if kind else {})
        self._metrics.gauge(name, doc, tuple(labels)).labels(**labels).set_function(value)


def _and_more(shown: Sized) -> str:
    """What is said after the first three."""
    return f" and {len(shown) - 3} more" if len(shown) > 3 else ""
