"""The bytes of lists and watches in JSON (stage 1): pure functions to raw objects.

A list page is decoded item by item, so that never more than one item of it exists as a dict beside
the page's text. What cannot be decoded is `Garbled`: the reader asks the server again from the last
version it is sure of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from attrs import frozen

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_EXCERPT: Final = 60


class Garbled(Exception):
    """Bytes that are no list, or no watch event. The message shows a short excerpt's shape."""


class Unreadable(Garbled):
    """The bytes came as Protobuf: perhaps JSON can be read."""


@frozen
class ListMeta:
    """A list page's own metadata: the version to watch from, and the next page's token, or ""."""

    resource_version: str
    continue_token: str


def read_list(data: bytes, kind: str, each: Callable[[Any], None]) -> ListMeta:
    """Call `each` with every raw item of a list page, in order, then return the page's metadata.

    `kind` is the items' ("Node"). Raises Garbled for anything that is not a complete list of that
    kind with a resourceVersion: an empty object from a proxy must never pass for an empty list.
    Items before the damage have then been handed out already, to be dropped with the page."""
    try:
        fields = _read_fields(data.decode(), each)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"list page of {len(data)} bytes: {_shape(error)}") from error
    metadata = fields.get("metadata") if "items" in fields else None
    found = metadata if isinstance(metadata, dict) else {}
    return list_meta(kind, fields.get("kind"), found.get("resourceVersion"), found.get("continue"))


def list_meta(kind: str, found: object, version: object, token: object) -> ListMeta:
    """The metadata of a list of that kind: its own kind, resourceVersion and continue. Raises
    Garbled for what is no such list."""
    if found not in (None, f"{kind}List"):
        raise Garbled(f"expected a {kind}List, got {str(found)[:_EXCERPT]!r}")
    if not isinstance(version, str) or not version:
        raise Garbled(f"a {kind}List without items or resourceVersion")
    return ListMeta(version, token if isinstance(token, str) else "")


def read_watch_line(line: bytes) -> tuple[str, dict[str, Any]]:
    """Decode one line of a watch into (type, raw object). Raises Garbled; any type passes."""
    try:
        event = _DECODER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise Garbled(f"watch line of {len(line)} bytes: {_shape(error)}") from error
    if isinstance(event, dict):
        kind, raw = event.get("type"), event.get("object")
        if isinstance(kind, str) and isinstance(raw, dict):
            return kind, raw
    raise Garbled("a watch line without type and object")


def _read_fields(text: str, each: Callable[[Any], None]) -> dict[str, Any]:
    """Read one JSON object; the elements of its array `items` go to `each`, all else is
    returned."""
    fields: dict[str, Any] = {}
    at = _expect(text, 0, "{")
    if text.startswith("}", at):
        at += 1
    else:
        while True:
            name, at = _DECODER.raw_decode(text, at)
            if not isinstance(name, str):
                raise ValueError("an object's key is not a string")
            at = _expect(text, at, ":")
            if name == "items" and text.startswith("[", at):
                at = _read_items(text, at + 1, each)
                fields[name] = True
            else:
                fields[name], at = _DECODER.raw_decode(text, at)
                if name == "items" and fields[name] is not None:
                    raise ValueError("items is no array")
            at, done = _next(text, at, "}")
            if done:
                break
    if _skip(text, at) != len(text):
        raise ValueError("more after the end of the object")
    return fields


def _read_items(text: str, at: int, each: Callable[[Any], None]) -> int:
    at = _skip(text, at)
    if text.startswith("]", at):
        return at + 1
    while True:
        item, at = _DECODER.raw_decode(text, at)
        each(item)
        at, done = _next(text, at, "]")
        if done:
            return at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match is not None else at


def _expect(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"no {sign!r} at {at}")
    return _skip(text, at + 1)


def _next(text: str, at: int, end: str) -> tuple[int, bool]:
    """Step over a comma (then there is more) or over `end`."""
    at = _skip(text, at)
    if text.startswith(end, at):
        return at + 1, True
    return _expect(text, at, ","), False


def _shape(error: Exception) -> str:
    # The text of a UnicodeDecodeError or JSONDecodeError holds positions, never contents.
    return f"{type(error).__name__}: {error}"[:200]
