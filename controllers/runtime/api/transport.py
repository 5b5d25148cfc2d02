"""Requests over a pool of connections to one API server (stages 1 and 6). All identities share one,
so that as many connections exist as threads use them at the same time.

The one repetition that happens here without the caller knowing: a connection that was idle turns
out to be dead, and either the request cannot have reached the server, or it is a read and not a
byte of an answer came.

When an answer does not come in time, the path to the server may be broken without a sign (a load
balancer that was replaced, say): see `HalfOpenDetection`."""

from __future__ import annotations

import math
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from controllers.runtime.api.errors import ApiError, ClientClosed, CredentialsUnavailable, HalfOpen, Unreachable
from controllers.runtime.api.ratelimit import Sleeper
from controllers.runtime.api.reachability import Reachability
from controllers.runtime.api.tls import TLSFiles
from controllers.runtime.api.wire import Connection, Endpoint, Interrupted, ProtocolError
from controllers.runtime.clock import SYSTEM_CLOCK, Clock

READS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that may be repeated, whatever became of the first try."""

Ask = Callable[[], float | None]
"""A guard: raises, or returns for how many seconds its leave holds (None: without end)."""

MAX_IDLE: Final = 256
"""Idle connections kept; beyond that many threads, surplus ones are closed."""

IDLE_SECONDS: Final = 60.0
"""An idle connection is not reused after this time: kube-apiserver closes it after 90 s."""

INTERRUPT_INTERVAL: Final = 60.0
"""Seconds between two times that silent connections are interrupted. A healthy watch may be silent,
and a server that answers late is not helped by many connections that are opened again."""


class Transport:
    """Exchanges requests for answers; thread-safe. After `close` every call, waiting ones too,
    raises ClientClosed."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: TLSFiles | None = None,
        *,
        sleeper: Sleeper | None = None,
        reachability: Reachability | None = None,
        half_open: HalfOpenDetection | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.sleeper = sleeper or Sleeper()
        self.clock = self.sleeper.clock
        self.reachability = reachability or Reachability(self.clock)
        # Plain HTTP goes through a proxy by naming the whole URL; HTTPS through a tunnel.
        proxy = endpoint.proxy
        through = proxy if proxy and proxy.scheme != "socks5" and not endpoint.tls else None
        self.target_prefix = (f"http://{endpoint.authority}" if through else "") + endpoint.base_path
        self.proxy_authorization = through.authorization if through else ""
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: deque[Connection] = deque()  # the most recently used last
        self._live: set[Connection] = set()
        self._half_open = half_open or HalfOpenDetection(self.clock)
        self._half_open.add(self)

    @property
    def closed(self) -> bool:
        return self.sleeper.closed

    @property
    def tls(self) -> TLSFiles | None:
        """What its connections speak TLS with."""
        return self._tls

    def connections(self) -> tuple[int, int]:
        """How many connections there are, and how many of them are idle."""
        with self._lock:
            return len(self._live), len(self._idle)

    def exchange(
        self, method: str, path: str, data: bytes, deadline: float, guard: Ask | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send `data`, a complete request, and return its answer's status, headers (lower-case
        names), body.

        `path` is only for messages. `guard` is asked before connecting, and again each time a
        connection is ready, right before the bytes leave; what it raises passes, and nothing is
        sent. What it returns are the seconds for which its leave holds: the kernel sends nothing
        later. Raises Unreachable, whose `sent` says whether the request may have been applied."""
        began = self.clock.monotonic()
        connection = self._take() or self.open(method, path, deadline, guard=guard)
        while True:
            sent = False
            try:
                # Here and not earlier: connecting and the TLS handshake may have outlasted the
                # lease.
                leave = guard() if guard is not None else None
                connection.scope.deadline = deadline
                within = None
                # After that the kernel drops the write, so that none is applied once the lease is
                # another's.
                if method not in READS:
                    within = deadline - self.clock.monotonic()
                    within = within if leave is None else min(within, leave)
                connection.send(data, within)
                sent = True
                answer = connection.reader.answer(method)
                body = answer.body()
            except (OSError, ProtocolError, Interrupted) as error:
                self.discard(connection)
                if isinstance(error, ssl.SSLError):
                    self.recheck_tls()
                if isinstance(error, TimeoutError) and sent:
                    # Only after sending: before that the network or the name may be at fault.
                    self._half_open.timed_out(began)
                # An idle connection that the server has just closed. A write is only repeated if it
                # cannot have arrived; a timeout says nothing of that.
                stale = connection.requests > 0 and not (sent and connection.reader.begun)
                if stale and (not sent or method in READS) and not isinstance(error, (TimeoutError, Interrupted)):
                    connection = self.open(method, path, deadline, guard=guard)
                    continue
                # Whether a write was applied is not known once its bytes have left: the caller must
                # look.
                raise self.unreachable(error, sent=sent, method=method, path=path) from error
            except BaseException:
                self.discard(connection)
                raise
            # Any answer counts, a refusal too: the path works, and all who back off may try again.
            self.reachability.answered(answer.status)
            connection.requests += 1
            self._half_open.answered(connection.opened)
            # Bytes that nobody asked for would be taken for the next request's answer.
            if answer.keep_alive and not connection.reader.pending:
                self._give_back(connection)
            else:
                self.discard(connection)
            return answer.status, answer.headers, body

    def open(
        self,
        method: str,
        path: str,
        deadline: float,
        *,
        adopt: Callable[[Connection], None] | None = None,
        guard: Ask | None = None,
    ) -> Connection:
        """Open a connection, which ends with `discard`; raises as `exchange`.

        `adopt` gets it before it is connected, so that another thread can cancel the connecting.
        """
        if guard is not None:
            guard()
        try:
            context = self._tls.context() if self._tls is not None else None
        except OSError as error:
            raise CredentialsUnavailable(f"TLS files: {error}", method=method, path=path) from error
        connection = Connection(context, self.clock)
        with self._lock:
            if self.closed:
                raise ClientClosed("the client is closed", sent=False, method=method, path=path)
            # Before it is connected: a `close` meanwhile must reach it, too.
            self._live.add(connection)
        try:
            if adopt is not None:
                adopt(connection)
            connection.open(self.endpoint, deadline)
        except (OSError, ProtocolError, Interrupted) as error:
            self.discard(connection)
            if isinstance(error, ssl.SSLError):
                self.recheck_tls()
            raise self.unreachable(error, sent=False, method=method, path=path) from error
        except BaseException:
            self.discard(connection)
            raise
        return connection

    def discard(self, connection: Connection) -> None:
        """Close a connection that no thread reads."""
        with self._lock:
            self._live.discard(connection)
        connection.close()

    def discard_idle(self, since: float) -> None:
        """Close what is idle, and was then."""
        with self._lock:
            # What was used since then is well; to open all again would be a storm of handshakes.
            old = [connection for connection in self._idle if connection.last_received <= since]
            self._idle = deque(connection for connection in self._idle if connection.last_received > since)
        for connection in old:
            self.discard(connection)

    def interrupt_silent(self, since: float) -> None:
        """End what waits on a connection on which nothing came since then: streams, and
        requests."""
        with self._lock:
            silent = [connection for connection in self._live if connection.last_received <= since]
        for connection in silent:
            connection.scope.cancel()

    def recheck_tls(self) -> None:
        """A certificate was refused: look at the files at the next connection."""
        if self._tls is not None:
            self._tls.recheck()

    def close(self) -> None:
        """End every wait and exchange at once and close all connections. May be called twice."""
        with self._lock:
            self.sleeper.close()
            idle, self._idle = self._idle, deque()
            live, self._live = self._live, set()
        # Closed by the thread that uses it: closed under its hands, the descriptor could already
        # be another file's.
        for connection in live:
            connection.scope.cancel()
        for connection in idle:
            connection.close()

    def unreachable(self, error: Exception, *, sent: bool, method: str, path: str, answered: bool = False) -> ApiError:
        """Say what a failure of a connection means to the caller of a request.

        It is reported to `reachability`, unless the server had `answered` this request before.
        """
        if self.closed:
            return ClientClosed("the client is closed", sent=sent, method=method, path=path)
        proxy = self.endpoint.proxy
        where = f"{self.endpoint.url} through the {proxy}" if proxy else self.endpoint.url
        if isinstance(error, TimeoutError):
            text = f"{where}: timed out waiting for the {'answer' if sent else 'connection'}"
        elif isinstance(error, ssl.SSLError):
            text = f"{where}: TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
        elif isinstance(error, OSError):
            text = f"{where}: {error.strerror or error}"
        elif isinstance(error, Interrupted):
            text = f"{where}: {HalfOpen.WHY}"
        else:
            text = f"{where}: {error}" if str(error) else f"{where}: connection ended"
        lost = Unreachable(text, sent=sent, method=method, path=path)
        # A stream that was open had its answer: that it broke is no sign of an outage.
        lost.recovery = self.reachability.recovery if answered else self.reachability.failed(text)
        return lost

    def _take(self) -> Connection | None:
        now = self.clock.monotonic()
        context = self._context_if_known()
        while True:
            with self._lock:
                if self.closed or not self._idle:
                    return None
                connection = self._idle.pop()
            idle = now - connection.last_received
            # Looked at however short it was idle: a server may close right after an answer, and a
            # write that is sent into the closing connection fails without telling whether it was
            # applied.
            # Another context: the certificate or the CA has changed since it was opened.
            if idle < IDLE_SECONDS and connection.context is context and connection.quiet():
                return connection
            self.discard(connection)

    def _context_if_known(self) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        try:
            return self._tls.context()
        except OSError:
            return None  # no context could ever be made, so there is no connection either; opening one tells why

    def _give_back(self, connection: Connection) -> None:
        now = self.clock.monotonic()
        surplus: list[Connection] = []
        with self._lock:
            if self.closed:
                surplus.append(connection)
            else:
                self._idle.append(connection)
                # From the old end: the server closes those first, and a busy client never needs
                # them.
                while len(self._idle) > MAX_IDLE or now - self._idle[0].last_received >= IDLE_SECONDS:
                    surplus.append(self._idle.popleft())
        for old in surplus:
            self.discard(old)


class HalfOpenDetection:
    """Finds connections that are dead without a sign, over all transports to one API server.
    Thread-safe.

    A request that is not answered in its time makes every connection of that time suspect: idle
    ones are closed. Once a connection that is newer than that request brings an answer, the server
    is well: then all on which nothing came since are interrupted, so that watches are opened again
    and requests repeated. The election renews the Lease all the time and waits for seconds only, so
    the leader finds such a path within seconds."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._transports: list[Transport] = []
        self._since = math.inf  # when the last unanswered request began; inf: none
        self._not_before = 0.0

    def add(self, transport: Transport) -> None:
        """From now on this one's connections are closed and interrupted, too."""
        with self._lock:
            self._transports.append(transport)

    def timed_out(self, began: float) -> None:
        """A request that began then was not answered in its time (monotonic seconds)."""
        with self._lock:
            # A server that is slow for long must not have all its watches opened again with each
            # answer.
            if self._clock.monotonic() >= self._not_before:
                self._since = began if self._since == math.inf else max(self._since, began)
            transports = list(self._transports)
        for transport in transports:
            transport.discard_idle(began)

    def answered(self, opened: float) -> None:
        """The server answered on a connection that was opened then."""
        if opened <= self._since:  # without the lock, as each answer passes here
            return
        with self._lock:
            if opened <= self._since:
                return  # an older connection says nothing of the others
            since, self._since = self._since, math.inf
            self._not_before = self._clock.monotonic() + INTERRUPT_INTERVAL
            transports = list(self._transports)
        for transport in transports:
            transport.interrupt_silent(since)
