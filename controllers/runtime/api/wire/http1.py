"""HTTP/1.1 answers (RFC 9112), byte by byte (stages 1 and 6). Nothing here knows sockets, TLS or
time, so it is tested with bytes cut at every place.

http.client takes 0.25 ms of CPU for the headers of a small PATCH, this reader 0.01 ms, h11 ten
times that (docs/reports/benchmarks.md). It refuses what it does not understand
(`ProtocolError`): a wrong guess would hand one request's answer to another."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

RECV_SIZE: Final = 16384
"""Bytes asked for at once, as many as a TLS record has at most. Python takes that much memory
before it knows how many come, and leaves a hole where few came and are kept."""
MAX_HEAD: Final = 65536
MAX_CHUNK_LINE: Final = 4096
MAX_TRAILERS: Final = 100

_STATUS_LINE: Final = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
_CHUNK_SIZE: Final = re.compile(rb"[0-9a-fA-F]{1,15}")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_NO_BODY: Final = frozenset((204, 304))


class ProtocolError(Exception):
    """The peer sent something that is not a well-formed HTTP/1.1 answer."""


class Truncated(ProtocolError):
    """The connection ended in the middle of an answer."""


class NoAnswer(Truncated):
    """The connection ended before the first byte of an answer."""


class Reader:
    """The buffered bytes of one connection; for one thread at a time.

    `recv(n)` returns up to n bytes, and b"" at the end; what it raises passes."""

    __slots__ = ("_buffer", "_position", "_recv", "begun")

    def __init__(self, recv: Callable[[int], bytes]) -> None:
        self._recv = recv
        self._buffer = b""
        self._position = 0
        self.begun = False  # a byte of the answer asked for has come

    def end(self) -> None:
        """Receive nothing any more, and let go of `recv`, and so of whom it belongs to."""
        self._recv = _nothing

    @property
    def pending(self) -> bool:
        """Tell whether bytes were received that no answer has consumed."""
        return self._position < len(self._buffer)

    def answer(self, method: str) -> Answer:
        """Read the status line and headers of the next answer, past any 1xx; raises ProtocolError.

        `method` is the request's: an answer to HEAD has no body, nor a success of CONNECT."""
        self.begun = False
        while True:
            version, status, headers = self._head()
            if status == 101:
                raise ProtocolError("the peer switched protocols unasked")
            if status >= 200:
                return Answer(self, version, status, headers, method)

    def _head(self) -> tuple[int, int, dict[str, str]]:
        buffer = self._buffer[self._position :] if self._position else self._buffer
        self._buffer, self._position = b"", 0
        searched = 0
        while (end := buffer.find(b"\r\n\r\n", searched)) < 0:
            if len(buffer) > MAX_HEAD:
                raise ProtocolError(f"headers of more than {MAX_HEAD} bytes")
            searched = max(0, len(buffer) - 3)
            more = self._recv(RECV_SIZE)
            if not more:
                raise Truncated("connection closed inside the headers") if buffer else NoAnswer("connection closed")
            self.begun = True
            buffer = buffer + more if buffer else more
        self._keep(buffer, end + 4)
        lines = buffer[:end].decode("latin-1").split("\r\n")
        match = _STATUS_LINE.fullmatch(lines[0])
        if match is None:
            raise ProtocolError(f"not an HTTP/1.x status line: {lines[0][:80]!r}")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not name or name[-1] in " \t" or name[0] in " \t":
                raise ProtocolError(f"malformed header line: {line[:80]!r}")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return int(match[1]), int(match[2]), headers

    def some(self, limit: int) -> bytes:
        """Return at least one and at most `limit` bytes, or b"" at the end of the connection."""
        if self._position >= len(self._buffer):
            self._buffer, self._position = self._recv(RECV_SIZE), 0
        buffer, start = self._buffer, self._position
        end = min(start + limit, len(buffer))
        self._keep(buffer, end)
        return buffer[start:end]  # all of it is no copy

    def line(self, limit: int) -> bytes:
        """Return the bytes up to the next CRLF, which is consumed; raises Truncated, or
        ProtocolError past `limit`."""
        while (end := self._buffer.find(b"\r\n", self._position)) < 0:
            rest = self._buffer[self._position :]
            if len(rest) > limit:
                raise ProtocolError(f"a line of more than {limit} bytes inside a chunked body")
            more = self._recv(RECV_SIZE)
            if not more:
                raise Truncated("connection closed inside a chunked body")
            self._buffer, self._position = rest + more, 0
        if end - self._position > limit:
            raise ProtocolError(f"a line of more than {limit} bytes inside a chunked body")
        line = self._buffer[self._position : end]
        self._keep(self._buffer, end + 2)
        return line

    def _keep(self, buffer: bytes, position: int) -> None:
        """Keep what is still to be read. The rest is free at once: hundreds of connections may be
        idle."""
        self._buffer, self._position = (buffer, position) if position < len(buffer) else (b"", 0)


class Answer:
    """One answer whose headers were read; the body is read through `piece` or `body`.

    `headers` has lower-case names, repeated ones joined by ", ". `keep_alive` tells, once the body
    was read to its end, whether the connection may carry another request.
    """

    __slots__ = (
        "_chunked",
        "_ended",
        "_first_chunk",
        "_left",
        "_reader",
        "_until_close",
        "headers",
        "keep_alive",
        "status",
    )

    def __init__(self, reader: Reader, version: int, status: int, headers: dict[str, str], method: str) -> None:
        self._reader = reader
        self.status = status
        self.headers = headers
        connection = headers.get("connection", "").lower()
        self.keep_alive = "close" not in connection and (version == 1 or "keep-alive" in connection)
        self._chunked = self._until_close = False
        self._first_chunk = True
        self._left = 0
        coding = headers.get("transfer-encoding")
        length = headers.get("content-length")
        if coding is not None and coding.strip().lower() != "chunked":
            raise ProtocolError(f"unknown transfer encoding: {coding[:80]!r}")
        if method == "HEAD" or status in _NO_BODY or (method == "CONNECT" and status < 300):
            pass
        elif coding is not None:
            self._chunked = True
            if length is not None:
                self.keep_alive = False  # two lengths: ours is right, but the peer is not to be trusted again
        elif length is not None:
            values = {value.strip() for value in length.split(",")}
            # Several that differ are an attack on what stands between (request smuggling), or a
            # broken proxy.
            if len(values) != 1 or not _DIGITS.fullmatch(only := values.pop()):
                raise ProtocolError(f"malformed Content-Length: {length[:80]!r}")
            self._left = int(only)
        else:
            self._until_close = True
            self.keep_alive = False
        self._ended = not (self._chunked or self._until_close or self._left)

    def piece(self) -> bytes:
        """Return the next bytes of the body at once, b"" at its end; raises ProtocolError."""
        if self._ended:
            return b""
        if self._chunked:
            return self._chunk()
        if self._until_close:
            data = self._reader.some(RECV_SIZE)
            self._ended = not data
            return data
        data = self._reader.some(self._left)
        if not data:
            raise Truncated(f"connection closed, {self._left} bytes of the body missing")
        self._left -= len(data)
        self._ended = not self._left
        return data

    def body(self) -> bytes:
        """Read the body to its end."""
        first = self.piece()
        if self._ended:
            return first
        parts = [first]
        while data := self.piece():
            parts.append(data)
        return b"".join(parts)

    def _chunk(self) -> bytes:
        if not self._left:
            if not self._first_chunk and self._reader.line(1):
                raise ProtocolError("a chunk longer than its size")
            self._first_chunk = False
            line = self._reader.line(MAX_CHUNK_LINE)
            match = _CHUNK_SIZE.match(line)
            if match is None or line[match.end() :].strip(b" \t")[:1] not in (b"", b";"):
                raise ProtocolError(f"malformed chunk size: {line[:80]!r}")
            self._left = int(match[0], 16)
            if not self._left:
                # Trailers are read, as the next answer begins behind them, and thrown away.
                for _ in range(MAX_TRAILERS):
                    if not self._reader.line(MAX_HEAD):
                        self._ended = True
                        return b""
                raise ProtocolError(f"more than {MAX_TRAILERS} trailers")
        data = self._reader.some(self._left)
        if not data:
            raise Truncated("connection closed inside a chunk")
        self._left -= len(data)
        return data


def _nothing(size: int) -> bytes:
    return b""
