"""Whom a client speaks as, and what holds for each of its requests (stages 1 and 6): limits, the
guard, metrics, and who may answer in the server's place.

`ClientConfig.answered` is the one seam for a dry run: every client of a builder, ours and vendors',
asks there before a request is sent. Writes are refused by the guard as well."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Protocol

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


class NotSent(Exception):
    """A write was refused: this process changes nothing."""


@frozen(kw_only=True)
class Request:
    """One request, before it is sent."""

    client: str
    """The identity, as in `ClientBuilder.rest(name)`."""
    method: str
    path: str
    """Without the query."""
    content_type: str
    body: Any
    """As the caller gave it: an object, or JSON as text or bytes; None without one."""


class StandIn(Protocol):
    """Answers in the API server's place. Thread-safe; it may ask the API server itself."""

    def answer(self, request: Request) -> tuple[int, Any] | None:
        """Status and JSON of the answer; None: the request is to be sent."""

    def shown(self, path: str, data: bytes) -> bytes:
        """The body of a sent read, with what was answered here applied to it."""


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
    stand_in: Callable[[], StandIn | None] = lambda: None
    """Who answers in the server's place now, if anybody does."""

    def answered(self, method: str, path: str, content_type: str, body: Any) -> tuple[int, bytes] | None:
        """Status and JSON of what a dry run answers; None: the request is to be sent."""
        if (stand_in := self.stand_in()) is None:
            return None
        asked = Request(client=self.name, method=method, path=path, content_type=content_type, body=body)
        answer = stand_in.answer(asked)
        return None if answer is None else (answer[0], json.dumps(answer[1]).encode())
