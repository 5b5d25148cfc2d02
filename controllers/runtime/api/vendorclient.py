"""The official client as vendors get it: its calls pass the guard, limits and metrics (stage 6).

`clients.py` makes one per identity; a vendor wraps it, as in `CoreV1Api(builder.client("acme"))`.
Requests leave over urllib3 connections of its own, with the same credentials as ours."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable
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

from controllers.runtime.api.clientconfig import ClientConfig
from controllers.runtime.api.errors import ClientClosed
from controllers.runtime.api.tls import TLSSettings
from controllers.runtime.api.transport import READS, Transport
from controllers.runtime.api.wire import (
    Endpoint,
    ProtocolError,
    Proxy,
    Reader,
    deliver_within,
    forget_at_close,
    open_tunnel,
)

WATCH_SECONDS: Final = 30
"""How long a provider's own watch lasts by default. So short because nothing else shows that its
server is gone: a watch may be silent for hours."""
_WATCH_GRACE: Final = 10.0  # seconds for the end of a watch to come

_STREAMS: Final = ("exec", "attach", "portforward")
"""Parts of a pod that are opened by GET, and changed all the same."""


def configuration_of(endpoint: Endpoint, tls: TLSSettings) -> Configuration:
    """A new Configuration of the official client, without credentials. The environment's proxies
    are not asked for again."""
    made = Configuration(
        host=endpoint.url,
        ssl_ca_cert=tls.ca_file or None,
        cert_file=tls.cert_file or None,
        key_file=tls.key_file or None,
        verify_ssl=tls.verify,
        tls_server_name=endpoint.server_name if endpoint.server_name != endpoint.host else None,
        no_proxy="",
    )
    made.proxy = endpoint.proxy.url if endpoint.proxy else None  # not left to it: that would be the environment's
    return made


class _Rest(RESTClientObject):
    """The official transport, with what our own does before and after each request."""

    def __init__(self, configuration: Configuration, config: ClientConfig, transport: Transport) -> None:
        super().__init__(configuration)
        self.pool_manager.pool_classes_by_scheme = _pools(config, transport)
        self._transport = transport
        self._config = config
        self._sleeper = transport.sleeper
        self._base_path = f"{transport.endpoint.base_path}/".removeprefix("/")
        self._clock = transport.clock

    def request(
        self,
        method: str,
        url: str,
        headers: Any = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> RESTResponse:
        """Send one request. Without a timeout of the caller's ours holds.

        A watch without one of either kind lasts `WATCH_SECONDS`, and then ends as any watch does;
        `kubernetes.watch` goes on behind the last event. A server that is silent for longer is
        gone: that raises urllib3's ReadTimeoutError."""
        config = self._config
        if config.limiter is not None and (delay := config.limiter.reserve()):
            config.metrics.limited(method, delay)
            self._sleeper.sleep(delay, for_retry=False)
        path = "/" + url.partition("://")[2].partition("/")[2].removeprefix(self._base_path)
        if self._sleeper.closed:
            raise ClientClosed("the client is closed", sent=False, method=method, path=path)
        if method not in READS:
            config.guard(method, path)
        if _request_timeout is None:
            query = dict(parse_qsl(path.partition("?")[2]))
            _request_timeout = config.timeout
            if query.get("watch", "false").lower() not in ("false", "0"):
                seconds = query.get("timeoutSeconds", "")
                if not seconds.isdecimal() or not int(seconds):  # 0 is none, to the API server too
                    url = re.sub("&timeoutSeconds=[^&]*", "", url)
                    url, seconds = f"{url}&timeoutSeconds={WATCH_SECONDS}", str(WATCH_SECONDS)
                _request_timeout = (config.timeout, int(seconds) + _WATCH_GRACE)
        sent = urllib3.HTTPHeaderDict({name: value for name, value in (headers or {}).items() if value is not None})
        for name, value in config.headers:
            sent.add(name, value)
        began = self._clock.monotonic()
        code = "<error>"
        try:
            response: RESTResponse = super().request(  # type: ignore[no-untyped-call]  # the client has no annotations
                method, url, headers=sent, body=body, post_params=post_params, _request_timeout=_request_timeout
            )
            code = str(response.status)
        finally:
            config.metrics.observe(method, code, self._clock.monotonic() - began)
        if response.status == 401:
            config.credentials.rejected(sent.get("authorization") or "")
            self._transport.recheck_tls()
        return response


class VendorClient(ApiClient):
    """The official ApiClient over `_Rest`.

    What takes the place of its `call_api`, as `kubernetes.stream` does for a moment, is asked for
    leave before: such a call sends by connections of its own. Raises AttributeError where
    `rest_client` is replaced, and ApiValueError for `kubernetes.stream` where the kubeconfig says
    to act as another, as it would act with all rights of the kubeconfig's user.
    """

    def __init__(self, configuration: Configuration, config: ClientConfig, transport: Transport) -> None:
        """`transport` is that of our own clients: where to, which proxy, what TLS."""
        if (proxy := transport.endpoint.proxy) and proxy.scheme == "socks5":
            # The official client would need another library for it; our connections do it
            # themselves.
            configuration.proxy = None
        super().__init__(configuration)
        self.user_agent = config.user_agent
        self.rest_client = _Rest(configuration, config, transport)
        self._impersonates = bool(config.headers)
        self._ask = config.guard

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


def _pools(config: ClientConfig, transport: Transport) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """urllib3's pools, whose connections ask the guard right before a write, know SOCKS5, and speak
    TLS as our own do: with the present CA and certificate."""
    proxy, tls = transport.endpoint.proxy, transport.tls

    class Guarded(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            try:
                sock = self._through(proxy) if proxy and proxy.scheme == "socks5" else super()._new_conn()
            except NewConnectionError as error:
                if proxy is None:
                    raise
                raise NewConnectionError(self, f"no way through the {proxy}: {error.__cause__ or error}") from error
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
                leave = config.guard(method, url)
                wire = getattr(self.sock, "socket", self.sock)  # TLS inside of TLS is no socket
                deliver_within(wire, config.timeout if leave is None else min(config.timeout, leave))
            super().request(method, url, *args, **options)

    class GuardedTLS(Guarded, HTTPSConnection):
        @property
        def is_connected(self) -> bool:
            # Its certificate may have ended, and another may be in the file.
            return super().is_connected and (tls is None or self.ssl_context is tls.context())

        def connect(self) -> None:
            if tls is not None:
                self.ssl_context = tls.context()
                self.ca_certs = self.cert_file = self.key_file = None  # the context has them
            try:
                super().connect()
            except ssl.SSLError:
                if tls is not None:
                    tls.recheck()
                raise

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
