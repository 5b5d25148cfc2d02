"""What is counted of requests to the API server (stages 1 and 6), under the names of the Go programs.

`clients.py` and `vendorclient.py` count here; /metrics shows it.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Histogram

from controllers.runtime.metrics import Metrics

# As client-go's rest_client_request_duration_seconds in k8s.io/component-base.
_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class RequestMetrics:
    """Counters of one API server; thread-safe. The label lookups are remembered, for they cost more than counting."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._host = host
        self._total = metrics.counter(
            "rest_client_requests_total",
            "Requests to the API server, by status code (<error>: no answer), method and host.",
            ("code", "host", "method"),
        )
        self._seconds = metrics.histogram(
            "rest_client_request_duration_seconds",
            "Seconds from sending a request to its complete answer, by verb and host.",
            ("verb", "host"),
            _BUCKETS,
        )
        self._limited = metrics.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Seconds that requests waited for the client-side limit (--kube-api-qps), by verb and host.",
            ("verb", "host"),
            _BUCKETS,
        )
        self._known: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, code: str, seconds: float) -> None:
        """Count one request; `code` is the status, or "<error>"."""
        known = self._known.get((method, code))
        if known is None:
            known = self._known[method, code] = (
                self._total.labels(code=code, host=self._host, method=method),
                self._seconds.labels(verb=method, host=self._host),
            )
        known[0].inc()
        known[1].observe(seconds)

    def limited(self, method: str, seconds: float) -> None:
        """Count a wait for the rate limit."""
        self._limited.labels(verb=method, host=self._host).observe(seconds)
