"""The bytes of some cached objects, for those who write them back whole (between stages 2 and 6).

`protodecoding.py` hands them on with each object that came in Protobuf, `Resource.keep` says what
of them is worth keeping, and `store.py` keeps that as long as this very version is cached. Few
objects have any: a Node, until it is initialised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

LIMIT: Final = 32 * 1024 * 1024
"""Bytes kept at most. What comes beyond that is not kept, and is written by patches."""


class WireObject(NamedTuple):
    """An object that came in Protobuf."""

    message: Any
    """Read, but not yet made a model."""
    data: bytes
    """What it was read from."""


class KeptBytes(Generic[T]):
    """By the objects' keys. One thread writes, any thread reads."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._found: dict[str, tuple[T, bytes]] = {}

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self._size

    def get(self, key: str, obj: T) -> bytes | None:
        """Those of this very object, not of an earlier or a later version."""
        found = self._found.get(key)
        return found[1] if found is not None and found[0] is obj else None

    def put(self, key: str, obj: T, data: bytes | None) -> None:
        """Keep these in the place of what is kept under the key."""
        self.drop(key)
        if data and self._size + len(data) <= self._limit:
            self._size += len(data)
            self._found[key] = obj, data

    def drop(self, key: str) -> None:
        """Keep nothing under this key."""
        if key in self._found:
            self._size -= len(self._found.pop(key)[1])

    def keep_only(self, objects: Mapping[str, T]) -> None:
        """Drop what does not belong to one of these."""
        for key, (obj, _) in list(self._found.items()):
            if objects.get(key) is not obj:
                self.drop(key)
