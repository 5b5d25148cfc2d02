"""The official client as vendors get it: its calls pass our guard, limits and metrics (beside stage 6).

`clients.py` makes one per identity; a vendor wraps it, as in `CoreV1Api(builder.client("acme"))`. Requests leave over
urllib3 connections of its own, with the same credentials as ours.
"""

from __future__ import annotations

import io
import json
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject, RESTResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError
from urllib3.util.connection import create_connection
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from controllers.runtime.api.credentials import Credentials
from controllers.runtime.api.errors import ClientClosed
from controllers.runtime.api.ratelimit import TokenBucket, Waits
from controllers.runtime.api.requestmetrics import RequestMetrics
from controllers.runtime.api.standin import StandIn, stood_in_request
from controllers.runtime.api.transport import READS
from controllers.runtime.api.wire import Endpoint, ProtocolError, Proxy, Reader, open_tunnel
from controllers.runtime.clock import Clock

Ask = Callable[[str, str], None]


class _Rest(RESTClientObject):
    """The official transport, with what our own does before and after each request."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        name: str,
        stand_in: Callable[[], StandIn | None],
        credentials: Credentials,
        waits: Waits,
        metrics: RequestMetrics,
        guard: Callable[[str, str], None],
        limiter: TokenBucket | None,
        timeout: float,
        headers: Iterable[tuple[str, str]],
        socks: Proxy | None,
    ) -> None:
        super().__init__(configuration)
        self.pool_manager.pool_classes_by_scheme = _pools(guard, socks)
        self._name = name
        self._stand_in = stand_in
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
        stand_in = self._stand_in()
        if stand_in is not None and (answer := self._stood_in(stand_in, method, path, headers or {}, body)) is not None:
            return answer
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

    def _stood_in(
        self, stand_in: StandIn, method: str, target: str, headers: Mapping[str, Any], body: Any
    ) -> RESTResponse | None:
        """The answer of who stands in for the server; an error is one that the official client understands."""
        path, _, query = target.partition("?")
        kind = next((str(value) for name, value in headers.items() if name.lower() == "content-type"), "")
        answer = stand_in.answer(stood_in_request(self._name, method, path, dict(parse_qsl(query)), kind, body))
        if answer is None:
            return None
        status, content = answer
        data = json.dumps(content).encode()
        sent = {"content-type": "application/json"}
        return RESTResponse(urllib3.HTTPResponse(io.BytesIO(data), headers=sent, status=status, preload_content=True))


class VendorClient(ApiClient):
    """The official ApiClient over `_Rest`; the keyword arguments are its."""

    def __init__(self, configuration: Configuration, *, user_agent: str, **settings: Any) -> None:
        socks: Proxy | None = None
        if configuration.proxy and configuration.proxy.startswith("socks5"):
            # The official client would need another library for it; our connections do it themselves.
            socks, configuration.proxy = Proxy.parse(configuration.proxy), None
        super().__init__(configuration)
        self.user_agent = user_agent
        self.rest_client = _Rest(configuration, socks=socks, **settings)


def _pools(guard: Ask, socks: Proxy | None) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """urllib3's pools, with connections that ask the guard right before a write leaves, and know SOCKS5."""

    class Guarded(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            if socks is None:
                return super()._new_conn()
            try:
                return _through(socks, Endpoint(self._dns_host, self.port, tls=False), self.timeout)
            except (OSError, ProtocolError) as error:
                raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error

        def request(self, method: str, url: str, *args: Any, **options: Any) -> None:
            if self.sock is None:
                self.connect()  # which may take longer than the lease holds
            if method not in READS:
                guard(method, url)
            super().request(method, url, *args, **options)

    class GuardedTLS(Guarded, HTTPSConnection):
        def connect(self) -> None:
            # As Go and our own connections: certificates without the extensions that Python 3.13 asks for are fine.
            self.ssl_context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
            self.ssl_context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not self.ca_certs:
                self.ssl_context.load_default_certs()
            super().connect()

    class Plain(urllib3.HTTPConnectionPool):
        ConnectionCls = Guarded

    class TLS(urllib3.HTTPSConnectionPool):
        ConnectionCls = GuardedTLS

    return {"http": Plain, "https": TLS}


class _Wire:
    """A plain socket, as `wire/tunnel.py` wants it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.reader = Reader(self.recv)

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def recv(self, size: int) -> bytes:
        return self._sock.recv(size)


def _through(proxy: Proxy, endpoint: Endpoint, timeout: Any) -> socket.socket:
    sock = create_connection((proxy.host, proxy.port), timeout)
    try:
        open_tunnel(_Wire(sock), endpoint, proxy)
    except BaseException:
        sock.close()
        raise
    return sock
