"""The official client as vendors get it: its calls pass our guard, limits and metrics (beside stage 6).

`clients.py` makes one per identity; a vendor wraps it, as in `CoreV1Api(builder.client("acme"))`. Requests leave over
urllib3 connections of its own, with the same credentials as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject, RESTResponse

from controllers.runtime.apierrors import ClientClosed
from controllers.runtime.clock import Clock
from controllers.runtime.credentials import Credentials
from controllers.runtime.ratelimit import TokenBucket, Waits
from controllers.runtime.requestmetrics import RequestMetrics
from controllers.runtime.transport import READS


class _Rest(RESTClientObject):
    """The official transport, with what our own does before and after each request."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        credentials: Credentials,
        waits: Waits,
        metrics: RequestMetrics,
        guard: Callable[[str, str], None],
        limiter: TokenBucket | None,
        timeout: float,
        headers: Iterable[tuple[str, str]],
    ) -> None:
        super().__init__(configuration)
        self._credentials = credentials
        self._waits = waits
        self._clock: Clock = waits.clock
        self._metrics = metrics
        self._guard = guard
        self._limiter = limiter
        self._timeout = timeout
        self._headers = tuple(headers)

    def request(
        self,
        method: str,
        url: str,
        headers: Any = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> RESTResponse:
        """Send one request. Without a timeout of the caller's ours holds, except for a watch."""
        if self._limiter is not None and (delay := self._limiter.reserve()):
            self._metrics.limited(method, delay)
            self._waits.pause(delay, hurried=False)
        path = "/" + url.partition("://")[2].partition("/")[2]
        if self._waits.closed:
            raise ClientClosed("the client is closed", sent=False, method=method, path=path)
        if method not in READS:
            self._guard(method, path)
        if _request_timeout is None and "watch=" not in path:
            _request_timeout = self._timeout
        sent = urllib3.HTTPHeaderDict({name: value for name, value in (headers or {}).items() if value is not None})
        for name, value in self._headers:
            sent.add(name, value)
        began = self._clock.monotonic()
        code = "<error>"
        try:
            response: RESTResponse = super().request(  # type: ignore[no-untyped-call]  # the client has no annotations
                method, url, headers=sent, body=body, post_params=post_params, _request_timeout=_request_timeout
            )
            code = str(response.status)
        finally:
            self._metrics.observe(method, code, self._clock.monotonic() - began)
        if response.status == 401:
            self._credentials.rejected(sent.get("authorization") or "")
        return response


class VendorClient(ApiClient):
    """The official ApiClient over `_Rest`; the keyword arguments are its."""

    def __init__(self, configuration: Configuration, *, user_agent: str, **settings: Any) -> None:
        super().__init__(configuration)
        self.user_agent = user_agent
        self.rest_client = _Rest(configuration, **settings)
