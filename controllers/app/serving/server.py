"""Connections of clients that nobody vouches for: bounded in number, in time and by peer.

Stage: beside all of them. Data comes from sockets; complete requests go to `answer`, in a few threads, and its bytes go
back. One thread does all reading and writing, TLS handshakes among it, and never waits for one client, so a client that
is silent, trickles its request or does not read its answer costs a socket, no thread, and holds up nobody:

- each phase has one deadline that no byte puts off: until the request is complete, until the answer is sent;
- where there are too many connections, of all or of one peer, the oldest whose answer is not being made gives way to
  the new one: a probe sends its request at once and is served long before its turn to give way has come; so do those
  that send bodies, where these need too much memory together;
- a whole connection ends after `CONNECTION_SECONDS`;
- what has to wait for another machine is answered by other threads than the rest (`answerers.py`).
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable

from controllers.app.serving.answerers import Answerers
from controllers.app.serving.connection import CHUNK, Connection, group_of
from controllers.app.serving.http1 import BadRequest, Request, Response, encode
from controllers.app.serving.limits import Limits

__all__ = ["Handler", "Later", "Server"]

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
MAX_PER_PEER = 128
ANSWERERS = 4
"""Threads that make answers, at most; they end when nothing is left to answer."""
REQUEST_SECONDS = 10.0
"""From the begin of a connection, or the first byte of a further request, until the whole request is there."""
ANSWER_SECONDS = 20.0
"""From then until the client has taken the whole answer."""
CONNECTION_SECONDS = 300.0

_ACCEPTED_AT_ONCE = 32  # connections, before those that are there are looked at
_LINGER = 2.0  # seconds in which the rest of a refused body is thrown away, so that its client gets to the answer
_TICK = 0.25  # seconds between two looks at the deadlines

Later = Callable[[], Response]
"""Makes an answer that may have to wait for another machine."""
Handler = Callable[[Request], Response | Later]
ContextSource = Callable[[], ssl.SSLContext]


class Server:
    """Answers requests until stopped. `start` binds, and raises OSError when it cannot; `stop` may be called twice.

    `answer` is called in one of a few threads, several at once; what it raises becomes a 500, and a log line. What it
    cannot know at once it returns as a function, which other threads call. `tls` gives the context of each new
    connection, without blocking; without it the connections are plain. `prepare` is called once, before the first
    connection is looked at and after the address is taken.
    """

    def __init__(
        self,
        address: tuple[str, int],
        answer: Handler,
        *,
        name: str = "server",
        tls: ContextSource | None = None,
        prepare: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        share_port: bool = False,
    ) -> None:
        self._asked, self._share = address, share_port
        self._answer = answer
        self._name = name
        self._tls = tls
        self._prepare = prepare
        self._limits = limits or Limits()
        self._desk: _Desk | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; those asked for before `start`."""
        return self._desk.address if self._desk is not None else self._asked

    def start(self) -> None:
        """Bind, and serve in the background."""
        host, port = self._asked
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            (host or "0.0.0.0", port), family=family, backlog=1024, reuse_port=self._share, dualstack_ipv6=both
        )
        desk = _Desk(listener, self._answer, self._name, self._tls, self._limits)
        thread = threading.Thread(target=self._run, args=(desk,), name=self._name, daemon=True)
        try:
            thread.start()
        except BaseException:
            desk.close()
            raise
        self._desk, self._thread = desk, thread

    def _run(self, desk: _Desk) -> None:
        try:
            self._prepare()
        except Exception:  # a thread's top
            log.exception("%s: nothing can be served", self._name)
            desk.close()
            return
        desk.run()

    def stop(self, timeout: float) -> bool:
        """Close the listener and every connection; True when the thread has ended within `timeout`."""
        if self._desk is None or self._thread is None:
            return True
        self._desk.stop()
        self._thread.join(timeout)
        return not self._thread.is_alive()


_BROKEN = Response(500, b"internal error\n")
_BUSY = Response(503, b"too many requests wait for an answer\n", headers=(("Retry-After", "1"),))


class _Desk:
    """Everything between bind and close. `run` is its thread; the answering threads come and go."""

    def __init__(
        self, listener: socket.socket, answer: Handler, name: str, tls: ContextSource | None, limits: Limits
    ) -> None:
        host, port = listener.getsockname()[:2]
        self.address = (str(host), int(port))
        self._listener = listener
        self._answer = answer
        self._name = name
        self._tls = tls
        # Of the first crew everybody who is connected may have a place: evictions bound it.
        self._crew = Answerers(f"{name}-answers", ANSWERERS, places=MAX_CONNECTIONS, per_peer=MAX_CONNECTIONS)
        self._slow_crew = Answerers(
            f"{name}-asks", limits.slow_answerers, places=limits.slow_places, per_peer=limits.slow_per_peer
        )
        self._limits = limits
        self._selector = selectors.DefaultSelector()
        self._connections: dict[Connection, None] = {}  # in the order in which they began to wait for a request
        self._groups: dict[bytes, int] = {}
        # Between the threads, under the lock:
        self._lock = threading.Lock()
        self._stopping = False
        self._answered: deque[tuple[Connection, bytes]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        for sock in (listener, self._wake_in, self._wake_out):
            sock.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

    def stop(self) -> None:
        """Have `run` end; from any thread, at any time."""
        with self._lock:
            self._stopping = True
        self._wake()

    def run(self) -> None:
        """Serve until `stop`, then close everything."""
        try:
            looked = time.monotonic()
            while True:
                with self._lock:
                    if self._stopping:
                        return
                for key, _ in self._selector.select(_TICK):
                    self._handle(key)
                self._take_answers()
                now = time.monotonic()
                if now - looked >= _TICK:
                    looked = now
                    self._close_overdue(now)
        finally:
            self.close()

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._wake_in:
            try:
                while self._wake_in.recv(CHUNK):
                    pass
            except BlockingIOError:
                return
        elif not key.data.closed:  # an eviction in this very round
            self._advance(key.data)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # the client is gone already, or no descriptor is left
                log.debug("%s: a connection could not be accepted: %s", self._name, error)
                if error.errno in (errno.EMFILE, errno.ENFILE) and not self._evict(None):
                    time.sleep(_TICK / 10)  # it stays ready: not in a circle
                return
            peer = str(address[0])
            if not self._make_room(group_of(peer)):
                sock.close()
                continue
            now = time.monotonic()
            try:
                connection = Connection(sock, peer, now, now + REQUEST_SECONDS, self._tls and self._tls())
            except OSError as error:  # gone already
                log.debug("%s: the connection of %s broke: %s", self._name, peer, error)
                sock.close()
                continue
            self._selector.register(connection.sock, connection.wanted, connection)
            self._connections[connection] = None
            self._groups[connection.group] = self._groups.get(connection.group, 0) + 1

    def _make_room(self, group: bytes) -> bool:
        """False where everybody is being answered: the new one has to come again."""
        if self._groups.get(group, 0) >= MAX_PER_PEER:
            return self._evict(group)
        if len(self._connections) >= MAX_CONNECTIONS:
            return self._evict(max(self._groups, key=self._groups.__getitem__)) or self._evict(None)
        return True

    def _evict(self, group: bytes | None) -> bool:
        """Close the oldest connection, of this peer or of anybody, whose answer is not being made."""
        for connection in self._connections:
            if not connection.busy and group in (None, connection.group):
                self._close(connection)
                return True
        return False

    def _advance(self, connection: Connection) -> None:
        try:
            if connection.shaking:
                connection.shake()
                self._listen(connection)
            elif connection.to_send:
                connection.send()
                if connection.to_send:
                    self._listen(connection)
                else:
                    self._sent(connection)
            elif not connection.receive():
                self._close(connection)
            else:
                if connection.idle:
                    connection.idle, connection.deadline = False, time.monotonic() + REQUEST_SECONDS
                self._listen(connection)
                self._look(connection)
        except OSError as error:
            log.debug("%s: the connection of %s broke: %s", self._name, connection.peer, error)
            self._close(connection)

    def _listen(self, connection: Connection) -> None:
        """Hear of it when the socket is ready for what the connection wants to do next."""
        known = self._selector.get_map().get(connection.sock.fileno())
        if known is None:
            self._selector.register(connection.sock, connection.wanted, connection)
        elif known.events != connection.wanted:
            self._selector.modify(connection.sock, connection.wanted, connection)

    def _look(self, connection: Connection) -> None:
        """Is there a whole request? Then nothing more is read until it is answered."""
        try:
            request = connection.take_request(self._limits.max_body)
        except BadRequest as error:
            connection.last = connection.refused = True
            self._reply(connection, encode(Response(error.status, f"{error}\n".encode()), close=True))
            return
        if request is None:
            if connection.awaits_body:
                self._bound_bodies()
            return
        now = time.monotonic()
        connection.busy = True
        connection.deadline = now + (self._limits.answer_seconds or ANSWER_SECONDS)
        connection.last = not request.keep_alive or now - connection.began > CONNECTION_SECONDS
        self._selector.unregister(connection.sock)
        if not self._crew.add(connection.group, lambda: self._answer_one(connection, request)):
            raise OSError("no thread for an answer")

    def _bound_bodies(self) -> None:
        """Close the oldest ones whose body is being received, until the rest is within the bound."""
        held = sum(one.held for one in self._connections)
        for connection in [one for one in self._connections if one.awaits_body]:
            if held <= self._limits.all_bodies:
                return
            held -= connection.held
            self._close(connection)

    def _answer_one(self, connection: Connection, request: Request) -> None:
        """In a thread of the first crew."""
        if connection.closed:
            return
        answer = self._tried(request, lambda: self._answer(request))
        if isinstance(answer, Response):
            self._hand_over(connection, request, answer)
            return
        later = answer

        def wait() -> None:
            if connection.closed:
                return
            told = self._tried(request, later)
            self._hand_over(connection, request, told if isinstance(told, Response) else _BROKEN)

        if not self._slow_crew.add(connection.group, wait):
            self._hand_over(connection, request, _BUSY)

    def _tried(self, request: Request, make: Callable[[], Response | Later]) -> Response | Later:
        try:
            return make()
        except Exception:  # a thread's top: told to the client and in the log
            log.exception("%s: %s %s could not be answered", self._name, request.method, request.target)
            return _BROKEN

    def _hand_over(self, connection: Connection, request: Request, answer: Response) -> None:
        data = encode(answer, head_only=request.method == "HEAD", close=connection.last)
        with self._lock:
            self._answered.append((connection, data))
        self._wake()

    def _take_answers(self) -> None:
        while True:
            with self._lock:
                if not self._answered:
                    return
                connection, data = self._answered.popleft()
            if not connection.closed:
                self._reply(connection, data)

    def _reply(self, connection: Connection, data: bytes) -> None:
        connection.busy = False
        connection.to_send = memoryview(data)
        self._advance(connection)

    def _sent(self, connection: Connection) -> None:
        if connection.refused and self._limits.max_body:
            connection.linger(time.monotonic() + _LINGER)
            self._listen(connection)
            return
        if connection.last:
            self._close(connection)
            return
        connection.idle = True
        connection.deadline = time.monotonic() + (self._limits.idle_seconds or REQUEST_SECONDS)
        del self._connections[connection]  # it begins to wait anew: now it is the youngest
        self._connections[connection] = None
        connection.wanted = selectors.EVENT_READ
        self._listen(connection)
        if connection.received:
            self._look(connection)

    def _close_overdue(self, now: float) -> None:
        for connection in [one for one in self._connections if now >= one.deadline]:
            log.debug("%s: the connection of %s was too slow", self._name, connection.peer)
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        if connection.closed:
            return
        if connection.sock.fileno() in self._selector.get_map():
            self._selector.unregister(connection.sock)
        connection.close()
        if connection in self._connections:
            del self._connections[connection]
            left = self._groups[connection.group] - 1
            if left:
                self._groups[connection.group] = left
            else:
                del self._groups[connection.group]

    def close(self) -> None:
        """Close every socket."""
        for connection in list(self._connections):
            self._close(connection)
        self._listener.close()
        self._selector.close()
        with self._lock:
            self._stopping = True
            self._wake_in.close()
            self._wake_out.close()

    def _wake(self) -> None:
        with self._lock:
            if self._wake_out.fileno() < 0:
                return
            try:
                self._wake_out.send(b"x")
            except BlockingIOError:  # it is full of calls that were not heard yet: this one is among them
                return
