"""One connection to the API server, and how it is made: TCP, a proxy, TLS (stages 1 and 6).

Every blocking step of a connection ends in time, and within milliseconds when another thread calls
`cancel`: looking up the name, connecting, the proxy's answer, the TLS handshake, reads and
writes. `cancelscope.py` sees to both."""

from __future__ import annotations

import select
import socket
import ssl
from typing import Final

from controllers.runtime.api.wire.cancelscope import CancelScope, Interrupted
from controllers.runtime.api.wire.dialing import deliver_within, dial
from controllers.runtime.api.wire.endpoint import Endpoint
from controllers.runtime.api.wire.http1 import ProtocolError, Reader
from controllers.runtime.api.wire.tunnel import TLSInTLS, open_tunnel
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_WRITE_SIZE: Final = 1 << 20
"""Bytes handed over at once; OpenSSL takes them all or none, so a large body goes in parts."""


class Connection:
    """One connection, used by one thread at a time. Its `scope` has the time limits of every write
    and read, and ends them from any thread."""

    __slots__ = (
        "_poll",
        "_poll_write",
        "_sock",
        "_stream",
        "_tls",
        "context",
        "last_received",
        "opened",
        "reader",
        "requests",
        "scope",
    )

    def __init__(self, context: ssl.SSLContext | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.scope = CancelScope(clock)
        self._sock: socket.socket | None = None
        self._tls: ssl.SSLSocket | TLSInTLS | None = None
        self._stream: socket.socket | TLSInTLS | None = None
        self._poll = select.poll()
        self._poll_write = select.poll()
        self.context = context
        self.opened = clock.monotonic()
        self.last_received = self.opened  # when the last byte came
        self.requests = 0
        self.reader = Reader(self.recv)

    def open(self, endpoint: Endpoint, deadline: float) -> None:
        """Connect in time; raises OSError, ProtocolError (from a proxy) or Interrupted."""
        proxy = endpoint.proxy
        self.scope.deadline = deadline
        try:
            sock = dial(self.scope, proxy.host if proxy else endpoint.host, proxy.port if proxy else endpoint.port)
            self._use(sock)
            if proxy and proxy.tls:
                self._secure(proxy.host.partition("%")[0].removesuffix("."))
            if proxy and (endpoint.tls or proxy.scheme == "socks5"):
                open_tunnel(self, endpoint, proxy)
            if endpoint.tls:
                self._secure(endpoint.server_name)
        except BaseException as error:
            self.close()
            # What the step failed with is only the effect of the cancel.
            if self.scope.cancelled and isinstance(error, (OSError, ProtocolError)):
                raise Interrupted from error
            raise

    def send(self, data: bytes, within: float | None = None) -> None:
        """Write everything. An OSError means that the peer cannot have got the whole of it.

        `within` (seconds): what the network has not taken by then the kernel drops, should this
        process stand still, too. It holds for later writes until another is given.
        """
        if within is not None and self._sock is not None:
            deliver_within(self._sock, within)
        until = self.scope.begin_step()
        stream = self._ready()
        view: bytes | memoryview = data
        while view:
            part = view if len(view) <= _WRITE_SIZE else memoryview(view)[:_WRITE_SIZE]
            try:
                sent = stream.send(part)
            except _NOT_NOW as error:
                self._wait_for(error, select.POLLOUT, until)
                continue
            if sent == len(view):
                return
            view = memoryview(view)[sent:]

    def recv(self, size: int) -> bytes:
        """Up to `size` bytes, b"" at the end; raises TimeoutError, OSError or Interrupted."""
        until = self.scope.begin_step()
        stream = self._ready()
        if self._tls is None or not self._tls.pending():
            self.scope.wait(self._poll, until)  # first, for an answer takes longer than asking for it does
        while True:
            try:
                data = stream.recv(size)
            except _NOT_NOW as error:
                self._wait_for(error, select.POLLIN, until)
                continue
            if not data and self.scope.cancelled:
                raise Interrupted
            self.last_received = self.scope.clock.monotonic()
            return data

    def quiet(self) -> bool:
        """Tell whether an idle connection is still usable: open, with nothing unasked in it."""
        return self._stream is not None and not self._poll.poll(0)

    def close(self) -> None:
        """Give the socket back; for the thread that uses it, or any when none does."""
        self._stream = None
        self.scope.close()
        self.reader.end()  # else the two would hold each other until the garbage collector comes

    def _ready(self) -> socket.socket | TLSInTLS:
        if self._stream is None:
            raise Interrupted
        return self._stream

    def _wait_for(self, error: OSError, usually: int, until: float | None) -> None:
        """Wait for what the socket said that it needs; `usually` is what a plain one means."""
        if isinstance(error, ssl.SSLWantReadError):
            usually = select.POLLIN
        elif isinstance(error, ssl.SSLWantWriteError):
            usually = select.POLLOUT
        self.scope.wait(self._poll if usually == select.POLLIN else self._poll_write, until)

    def _use(self, sock: socket.socket) -> None:
        self._sock = self._stream = sock
        self._poll.register(sock.fileno(), select.POLLIN)
        self._poll_write.register(sock.fileno(), select.POLLOUT)

    def _secure(self, server_name: str) -> None:
        """Put TLS on top of what there is."""
        assert self.context is not None
        assert self._sock is not None
        until = self.scope.begin_step()
        # TLS to an https proxy is there already; the ssl module cannot wrap a TLS socket again.
        if isinstance(self._tls, ssl.SSLSocket):
            secure: ssl.SSLSocket | TLSInTLS = TLSInTLS(self.context, self._tls, server_name)
        else:
            secure = self.context.wrap_socket(self._sock, server_hostname=server_name, do_handshake_on_connect=False)
            self.scope.add(secure, replaces=self._sock)
            self._sock = secure
        self._tls = self._stream = secure
        while True:
            try:
                return secure.do_handshake()
            except _NOT_NOW as error:
                self._wait_for(error, select.POLLIN, until)
