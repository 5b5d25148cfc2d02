"""A streamed answer as lines: what `cache/watch.py` reads (stage 1).

Bytes come from a connection of its own (`transport.py`); lines go to the watch. `RestClient.stream`
makes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from controllers.runtime.api.errors import ApiError, Unreachable
from controllers.runtime.api.transport import Transport
from controllers.runtime.api.wire import Answer, Connection, Interrupted, ProtocolError

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes; etcd stores objects of 1.5 MB, so a longer line means that the peer sends no lines at
all."""


class LineStream:
    """A streamed GET, line by line. Nothing is sent before `open` or the first iteration.

    So `close` works in every state and from any thread: before, while connecting, while blocked in
    a read. After it the iteration ends, without an error. The iteration ends normally, too, when
    the server ends the answer as it should; it raises the mapped ApiError when the server refuses
    (410, 429, ...) and Unreachable on truncation, reset, or `read_timeout` seconds without a byte.
    One thread reads; it must end in `close`, or in the end of the iteration.

    `with` closes it.
    """

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
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []  # of the line that is not complete
        self._length = 0
        self._reading = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called or the stream has ended."""
        return self._closed

    def __enter__(self) -> LineStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """The next line, without its newline; empty lines are left out."""
        while not self._closed:
            if self._lines:
                return self._lines.popleft()
            if self._answer is None:
                self.open()
            else:
                self._read()
        raise StopIteration

    def open(self) -> None:
        """Connect, send, and wait for the status; raises the mapped ApiError. Does nothing when
        open or closed."""
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
                connection.interrupt()  # the reading thread gives it back
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
                self._lines.clear()
        if connection is not None:
            self._transport.discard(connection)

    def _adopt(self, connection: Connection) -> None:
        with self._lock:
            self._connection = connection
            if self._closed:
                connection.interrupt()

    def _connect(self) -> None:
        data = self._start(self._over)
        if self._over():
            return
        clock = self._transport.clock
        began = clock.monotonic()
        deadline = began + self._open_timeout
        try:
            connection = self._transport.connect(deadline, self._adopt, method="GET", path=self._path)
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
        connection.deadline, connection.timeout = None, self._read_timeout
        self._answer = answer

    def _read(self) -> None:
        answer = self._answer
        if answer is None or not self._begin():
            return
        ended = True
        try:
            data = answer.piece()
            ended = not data
            if data:
                self._split(data)
            elif self._parts:
                raise Unreachable("the stream ended inside a line", method="GET", path=self._path)
        except (OSError, ProtocolError, Interrupted) as error:
            ended = True
            if not self._over():
                raise self._lost(error) from error
        finally:
            self._end(close=ended)

    def _split(self, data: bytes) -> None:
        first, *others = data.split(b"\n")
        if first:
            self._parts.append(first)
            self._length += len(first)
            if self._length > MAX_LINE:
                raise ProtocolError(f"a line of more than {MAX_LINE} bytes")
        if not others:
            return
        if self._parts:
            self._lines.append(b"".join(self._parts))
        last = others.pop()
        self._lines.extend(line for line in others if line)
        self._parts, self._length = ([last] if last else []), len(last)

    def _lost(self, error: Exception) -> ApiError:
        if isinstance(error, TimeoutError) and self._answer is not None:
            text = f"{self._transport.endpoint.url}: nothing came for {self._read_timeout:g} s"
            return Unreachable(text, method="GET", path=self._path)
        answered = self._answer is not None
        return self._transport.unreachable(error, sent=True, method="GET", path=self._path, answered=answered)
