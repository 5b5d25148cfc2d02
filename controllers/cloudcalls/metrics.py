"""Metrics of cloud calls (stage 5): the metric families and the usual duration of each method.

The gateway reports each call's end here; the metrics server reads the families at a scrape. The two
named in the first place follow the Go CCM's conventions, which has no such metrics itself.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable

from controllers.cloudcalls.errors import OUTCOMES
from controllers.cloudcalls.pool import CallPool
from controllers.cloudcalls.turns import KINDS
from controllers.runtime.metrics import Metrics

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_WEIGHT = 0.2


class CallMetrics:
    """Counts calls of one provider. Thread-safe; one call costs about 4 us."""

    def __init__(self, provider: str, metrics: Metrics) -> None:
        self._provider = provider
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
        self._counting: dict[tuple[str, str], Callable[[], None]] = {}
        self._timing: dict[str, Callable[[float], None]] = {}
        self._typical: dict[str, tuple[float, float, float]] = {}  # mean, last duration, time of the last

    def _gauge(self, name: str, doc: str, value: Callable[[], float], kind: str = "") -> None:
        """A gauge labelled with the provider, and the kind of call if there is one."""
        labels = {"provider": self._provider} | ({"kind": kind} if kind else {})
        self._metrics.gauge(name, doc, tuple(labels)).labels(**labels).set_function(value)

    def ended(self, method: str, outcome: str, seconds: float) -> None:
        """A call ended, or was given up."""
        count = self._counting.get((method, outcome))
        if count is None:
            count = self._requests.labels(self._provider, method, outcome).inc
            self._counting[method, outcome] = count
        count()
        observe = self._timing.get(method)
        if observe is None:
            observe = self._timing[method] = self._durations.labels(self._provider, method).observe
        observe(seconds)

    def answered(self, method: str, seconds: float, now: float) -> None:
        """A call gave a usable answer after `seconds`, at `now`."""
        before = self._typical.get(method)
        mean = seconds if before is None else before[0] + _WEIGHT * (seconds - before[0])
        self._typical[method] = (mean, seconds, now)

    def usual(self, method: str) -> tuple[float, float] | None:
        """(seconds that this method takes, when it last answered); None before the first.

        No less than the last one took: when a stall ends, nothing else is slow beside it."""
        known = self._typical.get(method)
        return None if known is None else (max(known[0], known[1]), known[2])

    def items(self, method: str, outcomes: Tally[str]) -> None:
        """What one batch answer said about its keys."""
        for outcome, count in outcomes.items():
            self._items.labels(self._provider, method, outcome).inc(count)

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
