"""Objects in JSON as kube-apiserver sends them in Protobuf: what Go's generated marshallers write.

Like those it writes every field that is no pointer, empty or not.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from controllers.runtime.protobuf.reading import INLINE, POINTERS
from controllers.runtime.protobuf.schema import MAGIC, message_class

LISTED = "List"
BEYOND_TIME = 10**14
"""Seconds: a time that no `datetime` holds, so that a model refuses the object."""


def message_of(name: str, raw: dict[str, Any]) -> Any:
    """The message of that name for an object in JSON. Raises TypeError and ValueError where a value
    is none of its field's type."""
    message = message_class(name)()
    pointers = POINTERS.get(name, "").split()
    for field in message.DESCRIPTOR.fields:
        kind, value = field.message_type, raw.get(field.name)
        if (name, field.name) == INLINE:
            message.persistentVolumeSource.CopyFrom(message_of(kind.name, raw))
        elif kind is not None and kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"].message_type
            target = getattr(message, field.name)
            for key, one in (value or {}).items():
                if inner is None:
                    target[key] = one
                else:
                    _fill(target[key], inner.name, one)
        elif field.is_repeated:
            target = getattr(message, field.name)
            for one in value or ():
                target.append(one) if kind is None else _fill(target.add(), kind.name, one)
        elif kind is not None:
            if field.name in raw:
                getattr(message, field.name).SetInParent()
                _fill(getattr(message, field.name), kind.name, value)
        elif value is not None or field.name not in pointers:
            setattr(message, field.name, field.default_value if value is None else value)
    return message


def seal(api_version: str, kind: str, message: Any) -> bytes:
    """The bytes of this message as an object of that kind, in its envelope."""
    unknown = message_class("Unknown")(raw=message.SerializeToString())
    unknown.typeMeta.apiVersion = api_version
    unknown.typeMeta.kind = kind
    sealed: bytes = MAGIC + unknown.SerializeToString()
    return sealed


def enveloped(raw: dict[str, Any], kind: str = "") -> bytes:
    """An object in its envelope."""
    kind = kind or raw["kind"]
    return seal(raw.get("apiVersion", "v1"), kind, message_of(kind, raw))


def page_of(page: bytes) -> bytes:
    """A list in JSON as Protobuf; what is none stays as it is."""
    found = _parsed(page)
    listed_kind = str(found.get("kind", "NodeList")) if found is not None else ""
    if found is None or not listed_kind.endswith(LISTED) or not isinstance(found.get("items", ""), list | None):
        return page
    kind = listed_kind.removesuffix(LISTED)
    listed = message_class("ObjectList")(
        items=[_as_sent(kind, item).SerializeToString() for item in found["items"] or ()]
    )
    listed.metadata.CopyFrom(message_of("ListMeta", found.get("metadata", {})))
    return seal(found.get("apiVersion", "v1"), listed_kind, listed)


def frame_of(line: bytes, kind: str) -> bytes:
    """A watch line as the frame of a watch of that kind, without its length; what is none stays as
    it is."""
    found = _parsed(line)
    raw = found.get("object") if found is not None else None
    if found is None or not isinstance(raw, dict) or not isinstance(raw.get("metadata", {}), dict):
        return line
    if not isinstance(found.get("type"), str):
        return line
    if found["type"] == "ERROR":
        kind = "Status"
    event = message_class("WatchEvent")(type=found["type"])
    event.object.raw = seal("v1", kind, _as_sent(kind, raw))
    sent: bytes = event.SerializeToString()
    return sent


def _as_sent(kind: str, raw: dict[str, Any]) -> Any:
    try:
        return message_of(kind, raw)
    except (TypeError, ValueError):  # malformed in a way that a message cannot be: here is one that can
        message = message_of(kind, {"metadata": raw["metadata"]})
        message.metadata.deletionTimestamp.seconds = BEYOND_TIME
        return message


def _fill(message: Any, name: str, value: Any) -> None:
    if name in ("Time", "MicroTime"):
        if value is not None:
            moment = datetime.fromisoformat(value)
            message.seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
            message.nanos = moment.microsecond * 1000
    elif name == "Quantity":
        message.string = value
    elif name == "IntOrString":
        message.type, message.intVal, message.strVal = (0, value, "") if isinstance(value, int) else (1, 0, value)
    else:
        message.CopyFrom(message_of(name, value))


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
