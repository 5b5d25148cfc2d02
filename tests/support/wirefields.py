"""The fields of any Protobuf message, whatever its schema: what is on the wire, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.support.protobuf import message_of

Field = tuple[int, int, bytes]
"""Number, wire type, and the value's bytes (of a length-delimited one without its length)."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}


def encoded(kind: str, raw: dict[str, Any]) -> bytes:
    """The bytes of an object in JSON, without envelope."""
    found: bytes = message_of(kind, raw).SerializeToString()
    return found


def varint(value: int) -> bytes:
    """As it is on the wire."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes, wire_type: int = LENGTH) -> bytes:
    """One field of a message."""
    head = varint(number << 3 | wire_type)
    return head + (varint(len(value)) if wire_type == LENGTH else b"") + value


def several(*found: Field) -> bytes:
    """A message of these fields."""
    return b"".join(field(number, value, wire_type) for number, wire_type, value in found)


def fields(message: bytes) -> Iterator[Field]:
    """Every field of a message, in its order. Raises ValueError for what is none."""
    at = 0
    while at < len(message):
        head, at = _read_varint(message, at)
        number, wire_type = head >> 3, head & 7
        start = at
        if wire_type == VARINT:
            _, at = _read_varint(message, at)
        elif wire_type == LENGTH:
            length, start = _read_varint(message, at)
            at = start + length
        else:
            if wire_type not in _WIDTHS:
                raise ValueError(f"wire type {wire_type}")
            at += _WIDTHS[wire_type]
        if at > len(message):
            raise ValueError("the message ends inside a field")
        yield number, wire_type, message[start:at]


def counted(message: bytes, *without: int) -> Counter[Field]:
    """The fields of a message in no order, but for those with these numbers."""
    return Counter(one for one in fields(message) if one[0] not in without)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
