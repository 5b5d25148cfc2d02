"""Whom a client speaks as, and what holds for each of its requests (stages 1 and 6): limits, the
guard, and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import field, frozen
from prometheus_client import Counter, Histogram

from controllers.runtime.api.credentials import Credentials
from controllers.runtime.api.ratelimit import TokenBucket
from controllers.runtime.metrics import Metrics

DEFAULT_TIMEOUT: Final = 30.0

Guard = Callable[[str, str], float | None]
"""Called with (method, path) for each write; raises to refuse it, or returns its seconds.

After them the kernel does not send the write any more; None: there is no such limit.

It is asked before connecting, and again when the connection is ready, right before the bytes leave:
looking up a name, connecting and the TLS handshake may take longer than the lease holds. So it is
called more than once for one write."""

# As client-go's rest_client_request_duration_seconds in k8s.io/component-base.
_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class RequestMetrics:
    """Counters of one API server; thread-safe. Label lookups are kept: they are expensive."""

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
        # There before the first of them: PromQL's increase() does not see a series' first value.
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
            self._total.labels(code="403", host=host, method=method)

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


@frozen(kw_only=True)
class ClientConfig:
    """One client's name and rules. `name` appears in logs, `user_agent` in the audit log."""

    name: str
    user_agent: str
    credentials: Credentials
    metrics: RequestMetrics
    guard: Guard
    limiter: TokenBucket | None = None
    timeout: float = DEFAULT_TIMEOUT
    """Seconds for one request, unless the caller gives others."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with every request: impersonation."""
    protobuf: bool = False
    """Whether the operator lets it talk Protobuf."""
