"""One connection to the API server, and how it is made: TCP, a proxy's CONNECT, TLS (stages 1 and 6).

`transport.py` makes connections and keeps the idle ones; requests and streams write to them and read from them. Every
blocking step of a connection ends within milliseconds when another thread calls `interrupt`: looking up the name,
connecting, the TLS handshake, reads and writes.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import struct
import sys
import threading
from base64 import b64encode
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from attrs import field, frozen

from controllers.runtime.clock import SYSTEM_CLOCK, Clock, wait_for
from controllers.runtime.http1 import ProtocolError, Reader

KEEPALIVE_SECONDS: Final = 30
"""First TCP keep-alive probe and the interval of the next ones, as client-go's dialer."""

_KERNEL_TIMEOUTS: Final = sys.platform == "linux"
_TIMED_OUT: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Interrupted(Exception):
    """Another thread ended this connection."""


@frozen
class Proxy:
    """An HTTP proxy; `authorization` is the value of Proxy-Authorization, or ""."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Read `http://[user:password@]host[:port]`; raises ValueError, without the password, for anything else."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"unsupported proxy {parts.scheme}://{parts.hostname or ''}; use http://host:port")
        authorization = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = "Basic " + b64encode(pair.encode()).decode()
        return cls(parts.hostname, parts.port or 80, authorization)


@frozen
class Endpoint:
    """Where the API server is. `base_path` is what precedes every path ("" or "/k8s/clusters/c1")."""

    host: str
    port: int
    tls: bool
    base_path: str = ""
    server_name: str = ""
    proxy: Proxy | None = None

    @classmethod
    def parse(cls, url: str, *, server_name: str | None = None, proxy: str | None = None) -> Endpoint:
        """Read a server URL; `server_name` replaces the host in the TLS handshake. Raises ValueError."""
        parts: SplitResult = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"not a server URL: {url!r}; expected https://host[:port][/path]")
        tls = parts.scheme == "https"
        host = unquote(parts.hostname)
        return cls(
            host=host,
            port=parts.port or (443 if tls else 80),
            tls=tls,
            base_path=parts.path.rstrip("/"),
            server_name=server_name or host.partition("%")[0],
            proxy=Proxy.parse(proxy) if proxy else None,
        )

    @property
    def authority(self) -> str:
        """`host:port`, with brackets around an IPv6 address; the `host` label of the metrics."""
        host = self.host.partition("%")[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.base_path}"


class Connection:
    """One connection, used by one thread at a time; `interrupt` and `close` may come from any thread.

    `deadline` (clock seconds) bounds each write and read when set, else `timeout` bounds each single one. Over TLS on
    Linux time is looked at between records: a peer that trickles single bytes of one record stretches the deadline.
    """

    __slots__ = (
        "_applied",
        "_clock",
        "_condition",
        "_in_kernel",
        "_poll",
        "_sock",
        "context",
        "deadline",
        "idle_since",
        "interrupted",
        "reader",
        "requests",
        "timeout",
    )

    def __init__(self, context: ssl.SSLContext | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._condition = threading.Condition(threading.Lock())
        self._sock: socket.socket | None = None
        self._poll = select.poll()
        self._applied = -1.0
        self._in_kernel = False
        self.context = context
        self.deadline: float | None = None
        self.timeout: float | None = None
        self.idle_since = 0.0
        self.interrupted = False
        self.requests = 0
        self.reader = Reader(self.recv)

    def open(self, endpoint: Endpoint, deadline: float) -> None:
        """Connect within the deadline; raises OSError, ProtocolError (from a proxy) or Interrupted."""
        proxy = endpoint.proxy
        self.deadline = deadline
        try:
            sock = self._connect(proxy.host if proxy else endpoint.host, proxy.port if proxy else endpoint.port)
            if proxy and endpoint.tls:
                self._tunnel(endpoint, proxy)
            if self.context is not None:
                sock.settimeout(self._left())
                secure = self.context.wrap_socket(
                    sock, server_hostname=endpoint.server_name, do_handshake_on_connect=False
                )
                sock = self._adopt(secure)
                secure.settimeout(self._left())
                secure.do_handshake()
        except BaseException as error:
            self.close()
            if self.interrupted and isinstance(error, (OSError, ProtocolError)):
                raise Interrupted from error
            raise
        self._poll.register(sock.fileno(), select.POLLIN)
        if _KERNEL_TIMEOUTS:
            self._leave_waiting_to_kernel(sock)

    def send(self, data: bytes) -> None:
        """Write everything. An OSError means that the peer cannot have got the whole of it."""
        sock = self._ready()
        try:
            sock.sendall(data)
        except _TIMED_OUT as error:
            raise TimeoutError("timed out") from error

    def recv(self, size: int) -> bytes:
        """Read up to `size` bytes, b"" at the end; raises OSError (TimeoutError at the deadline) or Interrupted."""
        sock = self._ready()
        try:
            data = sock.recv(size)
        except _TIMED_OUT as error:
            raise TimeoutError("timed out") from error
        if not data and self.interrupted:
            raise Interrupted
        return data

    def quiet(self) -> bool:
        """Tell whether an idle connection is still usable: open, and the peer has sent nothing unasked."""
        return self._sock is not None and not self._poll.poll(0)

    def interrupt(self) -> None:
        """End whatever the using thread waits for, at once; it gets Interrupted or an OSError. Never blocks."""
        with self._condition:
            self.interrupted = True
            self._condition.notify_all()
            if self._sock is not None:
                self._shutdown(self._sock)

    def close(self) -> None:
        """Give the socket back; only the thread that uses the connection, or anyone when none does, may call this."""
        with self._condition:
            sock, self._sock = self._sock, None
            if sock is not None:
                sock.close()

    @staticmethod
    def _shutdown(sock: socket.socket) -> None:
        try:
            # Not SSLSocket.shutdown, which would also drop the TLS state under the reading thread.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.EBADF, errno.EINVAL):
                raise

    def _ready(self) -> socket.socket:
        """The socket, with what is left of the time set on it.

        Setting it costs a system call, so a value within a twentieth of the right one stays.
        """
        sock = self._sock
        if sock is None or self.interrupted:
            raise Interrupted
        left = self._left()
        if left is None or abs(left - self._applied) > left / 20:
            self._bound(sock, left)
            self._applied = -1.0 if left is None else left
        return sock

    def _leave_waiting_to_kernel(self, sock: socket.socket) -> None:
        """Bound reads and writes by socket options instead of Python's polling.

        For Python the socket is non-blocking, so that it neither polls nor tries again; for the kernel it blocks, for
        the time set. So a read gives the interpreter's lock away once, not three times: a small request takes 106 us of
        CPU instead of 118, and other threads' work is disturbed less. What ends for lack of time raises _TIMED_OUT.
        """
        sock.setblocking(False)
        os.set_blocking(sock.fileno(), True)
        self._in_kernel = True
        self._applied = -1.0

    def _bound(self, sock: socket.socket, seconds: float | None) -> None:
        if not self._in_kernel:
            sock.settimeout(seconds)
            return
        # Linux's struct timeval is two longs; zero means no end, so a last microsecond is left.
        microseconds = 0 if seconds is None else max(1, int(seconds * 1e6))
        value = struct.pack("ll", *divmod(microseconds, 1_000_000))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def _left(self) -> float | None:
        if self.deadline is None:
            return self.timeout
        left = self.deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _adopt(self, sock: socket.socket) -> socket.socket:
        with self._condition:
            self._sock = sock
            self._applied = -1.0
            if self.interrupted:
                raise Interrupted
        return sock

    def _connect(self, host: str, port: int) -> socket.socket:
        addresses = self._resolve(host, port)
        failure: OSError | None = None
        for place, (family, kind, protocol, _, address) in enumerate(addresses):
            left = self._left()
            share = None if left is None else left / (len(addresses) - place)
            try:
                return self._connect_one(socket.socket(family, kind, protocol), address, share)
            except OSError as error:
                self.close()
                if self.interrupted:
                    raise
                failure = failure or error
        raise failure or OSError(f"{host} has no address")

    def _connect_one(self, sock: socket.socket, address: Any, timeout: float | None) -> socket.socket:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
                if hasattr(socket, option):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), KEEPALIVE_SECONDS)
            # Non-blocking, so that an interrupt is seen either right after this call or, as the shutdown of a
            # connecting socket wakes its poller, in the wait below: there is no gap between the two.
            code = sock.connect_ex(address)
        except BaseException:
            sock.close()
            raise
        self._adopt(sock)
        if code == errno.EINPROGRESS:
            waiting = select.poll()
            waiting.register(sock.fileno(), select.POLLOUT)
            if not waiting.poll(None if timeout is None else max(1, int(timeout * 1000))):
                raise TimeoutError("timed out while connecting")
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if self.interrupted:
            raise Interrupted
        if code:
            raise OSError(code, os.strerror(code))
        sock.settimeout(self._left())
        return sock

    def _resolve(self, host: str, port: int) -> list[Any]:
        """Look the name up in a thread of its own: the resolver knows no deadline and cannot be interrupted."""
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # a name, not an address
        found: list[Any] = []

        def look_up() -> None:
            try:
                answer: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                answer = error
            with self._condition:
                found.append(answer)
                self._condition.notify_all()

        threading.Thread(target=look_up, name=f"resolve-{host}", daemon=True).start()
        with self._condition:
            wait_for(self._clock, self._condition, lambda: bool(found) or self.interrupted, self._left())
        if self.interrupted:
            raise Interrupted
        if not found:
            raise TimeoutError(f"timed out while looking up {host}")
        if isinstance(found[0], OSError):
            raise OSError(f"cannot look up {host}: {found[0].strerror or found[0]}") from found[0]
        return list(found[0])

    def _tunnel(self, endpoint: Endpoint, proxy: Proxy) -> None:
        lines = [f"CONNECT {endpoint.authority} HTTP/1.1", f"Host: {endpoint.authority}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))
        answer = self.reader.answer("CONNECT")
        if not 200 <= answer.status < 300 or self.reader.pending:
            raise ProtocolError(f"proxy {proxy.host}:{proxy.port} answered CONNECT with {answer.status}")
