"""Request bodies in Kubernetes' Protobuf, in which Go programs send the built-in kinds, read into the same JSON as the
other clients'.

Called by `api` for bodies of that media type; pure. Answers are always JSON, which those clients accept too. Field
numbers come with the types in `schema.json`. The form is that of k8s.io/apimachinery
pkg/runtime/serializer/protobuf and of the generated.proto files.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import JSON, bad_request
from cloudprovider.testing.apiserver.schema import format_micro_time, format_time, struct

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_EVENTS: Final = "events.k8s.io/v1"

Message = dict[int, list[Any]]
"""Field numbers with the values that were sent for each: int, or bytes that are text or another message."""


def decode(data: bytes) -> JSON:
    """The object of a body. Raises StatusError (400) for bytes that are none, and for kinds without a schema."""
    if not data.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = _message(data[len(_MAGIC) :])
        head = _message(_last(envelope, 1, b""))
        version, kind = _text(_last(head, 1, b"")), _text(_last(head, 2, b""))
        type_name = f"Events{kind}" if version == _EVENTS else kind
        obj = _object(_message(_last(envelope, 2, b"")), type_name)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise bad_request(f"the body is no {MEDIA_TYPE} of a kind that is known here: {error!r}") from error
    return {"kind": kind, "apiVersion": version, **obj}


# -- the wire ----------------------------------------------------------------------------------------------------------


def _message(data: bytes) -> Message:
    found: Message = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _LENGTH:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("unexpected EOF")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _last(message: Message, number: int, default: Any) -> Any:
    """Of a field that was sent several times the last value counts."""
    return message[number][-1] if number in message else default


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


# -- by the schema -----------------------------------------------------------------------------------------------------


@cache
def _numbered(type_name: str) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """(JSON name, type, numbers on the way there) of a struct's fields."""
    fields = struct(type_name).fields.values()
    return tuple((field.name, field.type, field.numbers) for field in fields if field.numbers)


def _object(message: Message, type_name: str) -> JSON:
    found: JSON = {}
    inside: dict[int, Message] = {}
    for name, type_text, numbers in _numbered(type_name):
        here = message
        if len(numbers) == 2:  # a struct that JSON shows inline
            if numbers[0] not in inside:
                inside[numbers[0]] = _message(b"".join(message.get(numbers[0], ())))
            here = inside[numbers[0]]
        if numbers[-1] in here:
            found[name] = _field(here[numbers[-1]], type_text)
    return found


def _field(values: list[Any], type_text: str) -> Any:
    text = type_text.removeprefix("*")
    if text.startswith("[]"):
        return [_value(value, text[2:]) for value in values]
    if text.startswith("{}"):
        entries = (_message(value) for value in values)
        return {_text(_last(entry, 1, b"")): _entry(entry, text[2:]) for entry in entries}
    return _value(values[-1], text)


def _entry(entry: Message, text: str) -> Any:
    """A map's value; one that is a list travels as a message with the list in it."""
    value = _last(entry, 2, b"" if text not in ("int", "int32", "int64", "bool") else 0)
    return _field(_message(value).get(1, []), text) if text.startswith("[]") else _value(value, text)


def _value(value: Any, text: str) -> Any:
    if text == "string":
        return _text(value)
    if text == "bool":
        return bool(value)
    if text in ("int", "int32", "int64"):
        return _signed(value)
    if text == "bytes":
        return base64.b64encode(value).decode()
    if text[0].isupper():
        return _object(_message(value), text)
    return _special(_message(value), text)


def _special(message: Message, text: str) -> Any:
    """Times, quantities and what else is a message of its own there and no object in JSON."""
    if text in ("time", "microtime"):
        if not message:
            return None
        moment = datetime.fromtimestamp(_signed(_last(message, 1, 0)), UTC)
        if text == "time":
            return format_time(moment)
        return format_micro_time(moment.replace(microsecond=_last(message, 2, 0) // 1000))
    if text == "quantity":
        return _text(_last(message, 1, b"0"))
    if text == "intstr":
        return _text(_last(message, 3, b"")) if _last(message, 1, 0) else _signed(_last(message, 2, 0))
    return json.loads(_last(message, 1, b"null"))
