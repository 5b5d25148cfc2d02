"""The bytes of a watch, cut into its events (stage 1): lines of JSON, or frames of Protobuf.

`linestream.py` puts in what came off the wire, in any parts, and takes out whole pieces. A frame is
four bytes, the length of what follows, big-endian, and that many bytes. 1 thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from controllers.runtime.api.wire import ProtocolError

MAX_PIECE: Final = 64 * 1024 * 1024
"""Bytes; etcd stores objects of 1.5 MB, so no peer sends a longer piece on purpose."""

_PREFIX: Final = 4


class Pieces(ABC):
    """A way to cut a stream."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the piece that is not complete
        self._length = 0  # of those parts

    @property
    def partial(self) -> bool:
        """Whether a piece has begun and is not complete."""
        return bool(self._parts)

    @abstractmethod
    def cut(self, data: bytes) -> Iterable[bytes]:
        """Take in what came next; returns the pieces that it completes. Raises ProtocolError."""


class Lines(Pieces):
    """Pieces that end in a newline, without it; empty ones are left out."""

    def cut(self, data: bytes) -> Iterable[bytes]:
        first, *others = data.split(b"\n")
        if first:
            self._parts.append(first)
            self._length += len(first)
            if self._length > MAX_PIECE:
                raise ProtocolError(f"a line of more than {MAX_PIECE} bytes")
        if not others:
            return ()
        whole = [b"".join(self._parts)] if self._parts else []
        last = others.pop()
        whole.extend(line for line in others if line)
        self._parts, self._length = ([last] if last else []), len(last)
        return whole


class Frames(Pieces):
    """Pieces that each come with their length."""

    def __init__(self) -> None:
        super().__init__()
        self._needed = _PREFIX  # bytes until something can be said

    def cut(self, data: bytes) -> Iterable[bytes]:
        self._parts.append(data)
        self._length += len(data)
        if self._length < self._needed:
            return ()
        # Joined only once a frame is complete, or its length is known: a large frame comes in many
        # parts, and to join them at each would take its length squared.
        data = b"".join(self._parts)
        whole = []
        at = 0
        self._needed = _PREFIX
        while len(data) - at >= _PREFIX:
            size = int.from_bytes(data[at : at + _PREFIX], "big")
            if size > MAX_PIECE:
                raise ProtocolError(f"a frame of more than {MAX_PIECE} bytes")
            end = at + _PREFIX + size
            if end > len(data):
                self._needed = end - at
                break
            whole.append(data[at + _PREFIX : end])
            at = end
        rest = data[at:]
        self._parts, self._length = ([rest] if rest else []), len(rest)
        return whole
