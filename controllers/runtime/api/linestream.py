"""A streamed answer, piece by piece: what `cache/watch.py` reads (stage 1).

Bytes come from a connection of its own (`transport.py`), `pieces.py` cuts them, and pieces go to
the watch: lines, or frames where the server says that it sends Protobuf. By `RestClient.stream`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from controllers.runtime.api.errors import ApiError, HalfOpen, Unreachable
from controllers.runtime.api.pieces import Frames, Lines, Pieces
from controllers.runtime.api.transport import Transport
from controllers.runtime.api.wire import Answer, Connection, Interrupted, ProtocolError
from controllers.runtime.protobuf import is_protobuf


class LineStream:
    """A streamed GET, line by line or frame by frame. Begins with `open` or the first iteration.

    So `close` works in every state and from any thread: before, while connecting, while blocked in
    a read. After it the iteration ends, without an error. The iteration ends normally, too, when
    the server ends the answer as it should; it raises the mapped ApiError when the server refuses
    (410, 429, ...) and Unreachable on truncation, reset, or `read_timeout` seconds without a byte
    (HalfOpen before that, where another request shows that the path may be broken).
    One thread reads; it must end in `close`, or in the end of the iteration."""

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
        self._pieces: Pieces = Lines()
        self._reading = False
        self._closed = False

    @property
    def content_type(self) -> str:
        """What the server says that it sends; "" before it has answered."""
        return "" if self._answer is None else self._answer.headers.get("content-type", "")

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
                self._transport.waits.wake()  # it may wait for its turn or for credentials
            if connection is not None and reading:
                connection.life.interrupt()  # the reading thread gives it back
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
                connection.life.interrupt()

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
                if answer.status != 200:
                    refusal = answer.body()
                    self._opened(str(answer.status), clock.monotonic() - began)
                    raise self._refuse(answer, refusal)
            except (OSError, ProtocolError, Interrupted) as error:
                raise self._lost(error) from error
        except Unreachable:
            self._opened("<error>", clock.monotonic() - began)
            if self._over():
                return
            raise
        self._opened("200", clock.monotonic() - began)
        connection.life.deadline, connection.life.timeout = None, self._read_timeout
        self._answer = answer
        if is_protobuf(self.content_type):
            self._pieces = Frames()

    def _read(self) -> None:
        answer = self._answer
        if answer is None or not self._begin():
            return
        ended = True
        try:
            data = answer.piece()
            ended = not data
            if data:
                self._whole.extend(self._pieces.cut(data))
            elif self._pieces.partial:
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
        if isinstance(error, Interrupted) and self._answer is not None and not self._transport.closed:
            text = f"{self._transport.endpoint.url}: {HalfOpen.WHY}"
            return HalfOpen(text, method="GET", path=self._path)
        answered = self._answer is not None
        return self._transport.unreachable(error, sent=True, method="GET", path=self._path, answered=answered)
