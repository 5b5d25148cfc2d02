"""Connections of clients that nobody vouches for: bounded in number, in time and by peer.

Stage: beside all of them. Data comes from sockets; complete requests go to `answer`, in a few threads, and its bytes go
back. One thread does all reading and writing, and never waits for one client, so a client that is silent, trickles its
request or does not read its answer costs a socket, no thread, and holds up nobody:

- each phase has one deadline that no byte puts off: until the request is complete, until the answer is sent;
- where there are too many connections, of all or of one peer, the oldest whose answer is not being made gives way to
  the new one: a probe sends its request at once and is served long before its turn to give way has come;
- a whole connection ends after `CONNECTION_SECONDS`.

TLS belongs into `_Connection.receive` and `send`: a non-blocking handshake is one more phase under the first deadline.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from controllers.app.serving.http1 import BadRequest, Request, Response, encode, head_end, parse

__all__ = ["Reception"]

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
MAX_PER_PEER = 128
ANSWERERS = 4
"""Threads that make answers, at most; they end when nothing is left to answer."""
REQUEST_SECONDS = 10.0
"""From the begin of a connection, or the end of the answer before, until the whole request is there."""
ANSWER_SECONDS = 20.0
"""From then until the client has taken the whole answer."""
CONNECTION_SECONDS = 300.0

_ACCEPTED_AT_ONCE = 32  # connections, before those that are there are looked at
_CHUNK = 65536
_TICK = 0.25  # seconds between two looks at the deadlines

Handler = Callable[[Request], Response]


class _Connection:
    """One client's socket, and how far its request or answer has come. Only the reception's thread touches it."""

    def __init__(self, sock: socket.socket, peer: str, now: float) -> None:
        self.sock = sock
        self.peer = peer
        self.group = _group(peer)
        self.began = now
        self.deadline = now + REQUEST_SECONDS
        self.received = bytearray()
        self.to_send = memoryview(b"")
        self.busy = False  # its request is complete, and its answer is being made
        self.last = False  # close after this answer
        self.closed = False

    def receive(self) -> bool:
        """Take what has come; False at the end of the stream."""
        data = self.sock.recv(_CHUNK)
        self.received += data
        return bool(data)

    def send(self) -> None:
        """Send what can be sent now."""
        self.to_send = self.to_send[self.sock.send(self.to_send) :]


class Reception:
    """Answers requests until stopped. `start` binds, and raises OSError when it cannot; `stop` may be called twice.

    `answer` is called in one of a few threads, several at once; what it raises becomes a 500, and a log line.
    """

    def __init__(self, address: tuple[str, int], answer: Handler, *, name: str = "reception") -> None:
        self._asked = address
        self._answer = answer
        self._name = name
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
        listener = socket.create_server((host or "0.0.0.0", port), family=family, backlog=1024)
        desk = _Desk(listener, self._answer, self._name)
        thread = threading.Thread(target=desk.run, name=self._name, daemon=True)
        try:
            thread.start()
        except BaseException:
            desk.close()
            raise
        self._desk, self._thread = desk, thread

    def stop(self, timeout: float) -> bool:
        """Close the listener and every connection; True when the thread has ended within `timeout`."""
        if self._desk is None or self._thread is None:
            return True
        self._desk.stop()
        self._thread.join(timeout)
        return not self._thread.is_alive()


class _Desk:
    """Everything between bind and close. `run` is its thread; the answering threads come and go."""

    def __init__(self, listener: socket.socket, answer: Handler, name: str) -> None:
        host, port = listener.getsockname()[:2]
        self.address = (str(host), int(port))
        self._listener = listener
        self._answer = answer
        self._name = name
        self._selector = selectors.DefaultSelector()
        self._connections: dict[_Connection, None] = {}  # in the order in which they began to wait for a request
        self._groups: dict[bytes, int] = {}
        # Between the threads, under the lock:
        self._lock = threading.Lock()
        self._stopping = False
        self._asking: deque[tuple[_Connection, Request]] = deque()
        self._answered: deque[tuple[_Connection, bytes]] = deque()
        self._answerers = 0
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
                for key, mask in self._selector.select(_TICK):
                    self._handle(key, mask)
                self._take_answers()
                now = time.monotonic()
                if now - looked >= _TICK:
                    looked = now
                    self._close_overdue(now)
        finally:
            self.close()

    def _handle(self, key: selectors.SelectorKey, mask: int) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._wake_in:
            try:
                while self._wake_in.recv(_CHUNK):
                    pass
            except BlockingIOError:
                return
        elif not key.data.closed:  # an eviction in this very round
            self._advance(key.data, mask)

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
            connection = _Connection(sock, str(address[0]), time.monotonic())
            if not self._make_room(connection.group):
                sock.close()
                continue
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, connection)
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

    def _advance(self, connection: _Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                connection.send()
                if not connection.to_send:
                    self._sent(connection)
            elif not connection.receive():
                self._close(connection)
            else:
                self._look(connection)
        except BlockingIOError:
            return
        except OSError as error:
            log.debug("%s: the connection of %s broke: %s", self._name, connection.peer, error)
            self._close(connection)

    def _look(self, connection: _Connection) -> None:
        """Is there a whole request? Then nothing more is read until it is answered."""
        try:
            end = head_end(connection.received)
            if not end:
                return
            request = parse(bytes(connection.received[:end]), connection.peer)
        except BadRequest as error:
            connection.last = True
            self._reply(connection, encode(Response(error.status, f"{error}\n".encode()), close=True))
            return
        del connection.received[:end]
        now = time.monotonic()
        connection.busy = True
        connection.deadline = now + ANSWER_SECONDS
        connection.last = not request.keep_alive or now - connection.began > CONNECTION_SECONDS
        self._selector.unregister(connection.sock)
        self._ask(connection, request)

    def _ask(self, connection: _Connection, request: Request) -> None:
        with self._lock:
            self._asking.append((connection, request))
            if self._answerers >= ANSWERERS:
                return
            self._answerers += 1
        try:
            threading.Thread(target=self._answer_all, name=f"{self._name}-answers", daemon=True).start()
        except RuntimeError:  # no thread to be had: the next request tries again, this one waits for it
            with self._lock:
                self._answerers -= 1
            raise OSError("no thread for an answer") from None

    def _answer_all(self) -> None:
        """A thread's life: answer until there is nothing to answer."""
        while True:
            with self._lock:
                if not self._asking:
                    self._answerers -= 1
                    return
                connection, request = self._asking.popleft()
            if connection.closed:
                continue
            try:
                answer = self._answer(request)
            except Exception:  # a thread's top: told to the client and in the log
                log.exception("%s: %s %s could not be answered", self._name, request.method, request.target)
                answer = Response(500, b"internal error\n")
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

    def _reply(self, connection: _Connection, data: bytes) -> None:
        connection.busy = False
        connection.to_send = memoryview(data)
        known = connection.sock.fileno() in self._selector.get_map()
        (self._selector.modify if known else self._selector.register)(
            connection.sock, selectors.EVENT_WRITE, connection
        )
        self._advance(connection, selectors.EVENT_WRITE)

    def _sent(self, connection: _Connection) -> None:
        if connection.last:
            self._close(connection)
            return
        connection.deadline = time.monotonic() + REQUEST_SECONDS
        del self._connections[connection]  # it begins to wait anew: now it is the youngest
        self._connections[connection] = None
        self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
        if connection.received:
            self._look(connection)

    def _close_overdue(self, now: float) -> None:
        for connection in [one for one in self._connections if now >= one.deadline]:
            log.debug("%s: the connection of %s was too slow", self._name, connection.peer)
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        connection.closed = True
        if connection.sock.fileno() in self._selector.get_map():
            self._selector.unregister(connection.sock)
        connection.sock.close()
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


def _group(peer: str) -> bytes:
    """What counts as one peer: an IPv4 address, or an IPv6 network of the size that one customer gets."""
    address = peer.partition("%")[0].removeprefix("::ffff:")
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)[:8]
    return address.encode()
