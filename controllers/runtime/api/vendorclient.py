"""The official client as vendors get it: its calls pass the guard, limits and metrics (stage 6).

`clients.py` makes one per identity; a vendor wraps it, as in `CoreV1Api(builder.client("acme"))`.
Requests leave over urllib3 connections of its own, with the same credentials as ours."""

from __future__ import annotations

import io
import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import urllib3
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiValueError
from kubernetes.client.rest import RESTClientObject, RESTResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import NewConnectionError
from urllib3.util.connection import create_connection
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

from controllers.runtime.api.errors import ClientClosed
from controllers.runtime.api.identity import Identity, StandIn, stood_in_request
from controllers.runtime.api.ratelimit import Waits
from controllers.runtime.api.transport import READS
from controllers.runtime.api.wire import (
    Endpoint,
    ProtocolError,
    Proxy,
    Reader,
    deliver_within,
    forget_at_close,
    open_tunnel,
)
from controllers.runtime.clock import Clock

_STREAMS: Final = ("exec", "attach", "portforward")
"""Parts of a pod that are opened by GET, and changed all the same."""


class _Rest(RESTClientObject):
    """The official transport, with what our own does before and after each request."""

    def __init__(self, configuration: Configuration, identity: Identity, waits: Waits, socks: Proxy | None) -> None:
        super().__init__(configuration)
        self.pool_manager.pool_classes_by_scheme = _pools(identity, socks, lambda: self._refusals)
        self._refusals = 0
        self._identity = identity
        self._waits = waits
        self._clock: Clock = waits.clock

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
        identity = self._identity
        if identity.limiter is not None and (delay := identity.limiter.reserve()):
            identity.metrics.limited(method, delay)
            self._waits.pause(delay, hurried=False)
        path = "/" + url.partition("://")[2].partition("/")[2]
        stand_in = identity.stand_in()
        if stand_in is not None and (answer := self._stood_in(stand_in, method, path, headers or {}, body)) is not None:
            return answer
        if self._waits.closed:
            raise ClientClosed("the client is closed", sent=False, method=method, path=path)
        if method not in READS:
            identity.guard(method, path)
        if _request_timeout is None and ("watch=" not in path or "watch=false" in path.lower()):
            _request_timeout = identity.timeout
        sent = urllib3.HTTPHeaderDict({name: value for name, value in (headers or {}).items() if value is not None})
        for name, value in identity.headers:
            sent.add(name, value)
        began = self._clock.monotonic()
        code = "<error>"
        try:
            response: RESTResponse = super().request(  # type: ignore[no-untyped-call]  # the client has no annotations
                method, url, headers=sent, body=body, post_params=post_params, _request_timeout=_request_timeout
            )
            code = str(response.status)
        finally:
            identity.metrics.observe(method, code, self._clock.monotonic() - began)
        if response.status == 401:
            self._refusals += 1
            identity.credentials.rejected(sent.get("authorization") or "")
        return response

    def _stood_in(
        self, stand_in: StandIn, method: str, target: str, headers: Mapping[str, Any], body: Any
    ) -> RESTResponse | None:
        """The answer of who stands in for the server; an error as the official client has it."""
        path, _, query = target.partition("?")
        kind = next((str(value) for name, value in headers.items() if name.lower() == "content-type"), "")
        answer = stand_in.answer(
            stood_in_request(self._identity.name, method, path, dict(parse_qsl(query)), kind, body)
        )
        if answer is None:
            return None
        status, content = answer
        data = json.dumps(content).encode()
        sent = {"content-type": "application/json"}
        return RESTResponse(urllib3.HTTPResponse(io.BytesIO(data), headers=sent, status=status, preload_content=True))


class VendorClient(ApiClient):
    """The official ApiClient over `_Rest`.

    What takes the place of its `call_api`, as `kubernetes.stream` does for a moment, is asked for
    leave before: such a call sends by connections of its own. Raises AttributeError where
    `rest_client` is replaced, and ApiValueError for `kubernetes.stream` where the kubeconfig says
    to act as another, as it would act with all rights of the kubeconfig's user.
    """

    def __init__(self, configuration: Configuration, identity: Identity, waits: Waits) -> None:
        socks: Proxy | None = None
        if configuration.proxy and configuration.proxy.startswith("socks5"):
            # The official client would need another library for it; our connections do it
            # themselves.
            socks, configuration.proxy = Proxy.parse(configuration.proxy), None
        super().__init__(configuration)
        self.user_agent = identity.user_agent
        self.rest_client = _Rest(configuration, identity, waits, socks)
        self._impersonates = bool(identity.headers)
        self._ask = identity.guard

    def __setattr__(self, name: str, value: Any) -> None:
        """See the class."""
        if name == "rest_client" and hasattr(self, "_ask"):
            raise AttributeError(
                "rest_client of a client of ClientBuilder.client() cannot be replaced: nothing would hold back its "
                "writes when the lease is lost. ClientBuilder.config() is for clients of one's own"
            )
        if name == "call_api" and getattr(value, "__self__", None) is self:
            self.__dict__.pop(name, None)  # put back
            return
        super().__setattr__(name, self._asking(value) if name == "call_api" else value)

    def _asking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        streams = str(getattr(call, "__module__", "")).startswith("kubernetes.stream")

        def ask(method: str, url: str, *args: Any, **options: Any) -> Any:
            path = "/" + url.partition("://")[2].partition("/")[2]
            last = path.partition("?")[0].rpartition("/")[2]
            if streams and self._impersonates:
                raise ApiValueError(
                    f"{path}: the kubeconfig says to act as another (as, as-groups ...), which kubernetes.stream cannot"
                )
            if streams or last in _STREAMS or method not in READS:
                self._ask("CONNECT" if method in READS else method, path)
            return call(method, url, *args, **options)

        return ask


def _pools(
    identity: Identity, socks: Proxy | None, refusals: Callable[[], int]
) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """urllib3's pools, whose connections ask the guard right before a write, and know SOCKS5.

    `refusals` is how many 401 there were.
    """

    class Guarded(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            sock = super()._new_conn() if socks is None else self._through(socks)
            forget_at_close(sock)
            return sock

        def _through(self, proxy: Proxy) -> socket.socket:
            try:
                return _through(proxy, Endpoint(self._dns_host, self.port, tls=False), self.timeout)
            except (OSError, ProtocolError) as error:
                raise NewConnectionError(self, f"Failed to establish a new connection: {error}") from error

        def request(self, method: str, url: str, *args: Any, **options: Any) -> None:
            if self.sock is None:
                self.connect()  # which may take longer than the lease holds
            if method not in READS:
                leave = identity.guard(method, url)
                wire = getattr(self.sock, "socket", self.sock)  # TLS inside of TLS is no socket
                deliver_within(wire, identity.timeout if leave is None else min(identity.timeout, leave))
            super().request(method, url, *args, **options)

    class GuardedTLS(Guarded, HTTPSConnection):
        _made_at = 0

        @property
        def is_connected(self) -> bool:
            # Its certificate may have ended, and another may be in the file.
            return super().is_connected and (not self.cert_file or self._made_at == refusals())

        def connect(self) -> None:
            self._made_at = refusals()
            if self.cert_file and not os.path.getsize(self.cert_file):
                self.cert_file = self.key_file = None  # of a plugin that was not there yet, and gives a token alone
            # As Go and our own connections: certificates without the extensions that Python 3.13
            # asks for are fine.
            self.ssl_context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
            self.ssl_context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self.ssl_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a CA need not be self-signed
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
