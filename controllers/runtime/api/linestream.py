"""A streamed answer, event by event: what `cache/watch.py` reads (stage 1).

Bytes come from the stream's own connection (`transport.py`), a `Decoder` cuts them, and whole
events go to the watch: lines of JSON, or frames where the server says that it sends Protobuf. Made
by `RestClient.stream`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from controllers.runtime.api.errors import ApiError, HalfOpen, Unreachable
from controllers.runtime.api.transport import Transport
from controllers.runtime.api.wire import Answer, Connection, Interrupted, ProtocolError
from controllers.runtime.protobuf import is_protobuf

MAX_EVENT: Final = 64 * 1024 * 1024
"""Bytes; etcd stores objects of 1.5 MB, so no peer sends a longer one on purpose."""

_PREFIX: Final = 4


class Decoder(ABC):
    """Cuts the bytes of a stream, which come in any parts, into whole events. For one thread."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the event that is not complete
        self._length = 0  # of those parts

    @property
    def partial(self) -> bool:
        """Whether an event has begun and is not complete."""
        return bool(self._parts)

    @abstractmethod
    def feed(self, data: bytes) -> Iterable[bytes]:
        """Take what came next; returns the events that it completes. Raises ProtocolError."""


class LineDecoder(Decoder):
    """Events that end in a newline, returned without it; empty lines are left out."""

    def feed(self, data: bytes) -> Iterable[bytes]:
        # Split at once, and joined only where an event spans reads: watches bring many lines in a
        # piece.
        first, *others = data.split(b"\n")
        if first:
            self._parts.append(first)
            self._length += len(first)
            # A peer that never sends the newline would fill the memory.
            if self._length > MAX_EVENT:
                raise ProtocolError(f"a line of more than {MAX_EVENT} bytes")
        if not others:
            return ()
        whole = [b"".join(self._parts)] if self._parts else []
        last = others.pop()
        whole.extend(line for line in others if line)
        self._parts, self._length = ([last] if last else []), len(last)
        return whole


class FrameDecoder(Decoder):
    """Events of Protobuf: four bytes with their length, big-endian, and that many bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._needed = _PREFIX  # bytes before the next step is possible

    def feed(self, data: bytes) -> Iterable[bytes]:
        self._parts.append(data)
        self._length += len(data)
        if self._length < self._needed:
            return ()
        # Joined only once a frame is complete or its length is known: a large frame comes in many
        # parts, and joining at each of them would take its length squared.
        data = b"".join(self._parts)
        whole = []
        at = 0
        self._needed = _PREFIX
        while len(data) - at >= _PREFIX:
            size = int.from_bytes(data[at : at + _PREFIX], "big")
            if size > MAX_EVENT:
                raise ProtocolError(f"a frame of more than {MAX_EVENT} bytes")
            end = at + _PREFIX + size
            if end > len(data):
                self._needed = end - at
                break
            whole.append(data[at + _PREFIX : end])
            at = end
        rest = data[at:]
        self._parts, self._length = ([rest] if rest else []), len(rest)
        return whole


class LineStream:
    """A streamed GET, line by line or frame by frame. Begins with `open` or the first iteration.

    So `close` works in every state and from any thread: before, while connecting, while blocked in
    a read. After it the iteration ends, without an error. The iteration ends normally, too, when
    the server ends the answer as it should; it raises the mapped ApiError when the server refuses
    (410, 429, ...) and Unreachable on truncation, reset, or `read_timeout` seconds without a byte
    (HalfOpen before that, where another request shows that the path may be broken).
    One thread reads; it must end in `close`, or in the end of the iteration."""

    protobuf = False
    """Whether the server says that it sends frames of Protobuf; known once it is open."""

    def __init__(
        self,
        transport: Transport,
        start: Callable[[Callable[[], bool]], bytes],
        refuse: Callable[[Answer, bytes], ApiError],
        opened: Callable[[str, float], None],
        *,
        path: str,
        read_timeout: float,
        open_timeout: float,
    ) -> None:
        self._transport = transport
        self._start = start  # waits for rate limit and credentials unless cancelled, returns the request's bytes
        self._refuse = refuse
        self._opened = opened  # metrics: code and seconds
        self._path = path
        self._read_timeout = read_timeout
        self._open_timeout = open_timeout
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._answer: Answer | None = None
        self._whole: deque[bytes] = deque()
        self._decoder: Decoder = LineDecoder()
        self._reading = False
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """The next line, without newline (and empty lines), or frame, without length."""
        while not self._closed:
            if self._whole:
                return self._whole.popleft()
            if self._answer is None:
                self.open()
            else:
                self._read()
        raise StopIteration

    def open(self) -> None:
        """Connect, send, and wait for the status; raises the mapped ApiError. No-op when open."""
        if self._answer is None and self._begin():
            try:
                self._connect()
            except BaseException:
                self._end(close=True)
                raise
            self._end()

    def close(self) -> None:
        """End the stream. From any thread, in any state, any number of times; never blocks."""
        with self._lock:
            self._closed = True
            connection, reading = self._connection, self._reading
            if reading:
                self._transport.sleeper.wake()  # it may wait for its turn or for credentials
            if connection is not None and reading:
                connection.scope.cancel()  # the reading thread gives it back
                return
            self._connection = None
        if connection is not None:
            self._transport.discard(connection)

    def _over(self) -> bool:
        return self._closed

    def _begin(self) -> bool:
        with self._lock:
            self._reading = not self._closed
            return self._reading

    def _end(self, *, close: bool = False) -> None:
        with self._lock:
            self._reading = False
            self._closed = self._closed or close
            # Closed while this thread read: only now may the descriptor go, as nobody uses it.
            connection = self._connection if self._closed else None
            if self._closed:
                self._connection = None
                self._whole.clear()
        if connection is not None:
            self._transport.discard(connection)

    def _adopt(self, connection: Connection) -> None:
        with self._lock:
            self._connection = connection
            if self._closed:
                connection.scope.cancel()

    def _connect(self) -> None:
        data = self._start(self._over)
        if self._over():
            return
        clock = self._transport.clock
        began = clock.monotonic()
        deadline = began + self._open_timeout
        try:
            connection = self._transport.open("GET", self._path, deadline, adopt=self._adopt)
            try:
                connection.send(data)
                answer = connection.reader.answer("GET")
                self._transport.reachability.answered(answer.status)
                # The body of a refusal is a Status, which says why: 410 needs a list, 403 a right.
                if answer.status != 200:
                    refusal = answer.body()
                    self._opened(str(answer.status), clock.monotonic() - began)
                    raise self._refuse(answer, refusal)
            except (OSError, ProtocolError, Interrupted) as error:
                raise self._lost(error) from error
        # Closed by us in the middle of connecting: that is an end, and no failure.
        except Unreachable:
            self._opened("<error>", clock.monotonic() - began)
            if self._over():
                return
            raise
        self._opened("200", clock.monotonic() - began)
        # A watch lasts for minutes: from now on only silence ends it.
        connection.scope.deadline, connection.scope.timeout = None, self._read_timeout
        self._answer = answer
        if is_protobuf(answer.headers.get("content-type", "")):
            self.protobuf = True
            self._decoder = FrameDecoder()

    def _read(self) -> None:
        answer = self._answer
        if answer is None or not self._begin():
            return
        ended = True
        try:
            data = answer.piece()
            ended = not data
            if data:
                self._whole.extend(self._decoder.feed(data))
            # The rest of it is lost: the watch must ask again from before it.
            elif self._decoder.partial:
                raise Unreachable("the stream ended inside an event", method="GET", path=self._path)
        except (OSError, ProtocolError, Interrupted) as error:
            ended = True
            if not self._over():
                raise self._lost(error) from error
        finally:
            self._end(close=ended)

    def _lost(self, error: Exception) -> ApiError:
        if isinstance(error, TimeoutError) and self._answer is not None:
            text = f"{self._transport.endpoint.url}: nothing came for {self._read_timeout:g} s"
            return Unreachable(text, method="GET", path=self._path)
        # Not closed by us, so the half-open detection has ended it.
        if isinstance(error, Interrupted) and self._answer is not None and not self._transport.closed:
            text = f"{self._transport.endpoint.url}: {HalfOpen.WHY}"
            return HalfOpen(text, method="GET", path=self._path)
        answered = self._answer is not None
        return self._transport.unreachable(error, sent=True, method="GET", path=self._path, answered=answered)
