"""The bytes of lists and watches in Protobuf (stage 1): what `decoding.py` is for JSON, imported
when the first Protobuf comes.

What of an object is no Protobuf is `Unreadable`, with its whole page: its name cannot be known, and
the cache must not take it for deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from controllers.runtime.cache.decoding import Garbled, ListMeta, Unreadable, list_meta
from controllers.runtime.cache.parsing import WireObject
from controllers.runtime.protobuf.reading import message_in, object_in, read_enveloped
from controllers.runtime.protobuf.schema import message_class, unwrap


def read_protobuf_list(data: bytes, kind: str, each: Callable[[Any], None], meta: Callable[[ListMeta], None]) -> None:
    """Call `meta` with the metadata of a list page, and then `each` with every item, in order.

    As `decoding.read_list`, but the items are WireObjects. Raises Unreadable.
    """
    try:
        envelope = unwrap(data, "ListEnvelope")
        page, head = envelope.raw, envelope.raw.metadata
        found = list_meta(kind, envelope.typeMeta.kind, head.resourceVersion, getattr(head, "continue"))
    except (ValueError, Garbled) as error:
        raise Unreadable(f"list page: {error}") from error
    meta(found)
    for item in page.items:
        try:
            message = message_in(kind, item)
        except ValueError as error:
            raise Unreadable(f"list page of {len(data)} bytes: {error}") from error
        each(WireObject(message))


def read_watch_frame(frame: bytes, kind: str) -> tuple[str, WireObject | dict[str, Any]]:
    """Decode one frame of a watch of that kind into (type, object), the object raw where it is an
    error; any type is let through. Raises Unreadable."""
    try:
        event = message_class("WatchEvent").FromString(frame)
        if event.type == "ERROR":
            return event.type, read_enveloped(event.object.raw, "Status")
        return event.type, WireObject(message_in(kind, object_in(event.object.raw, kind)))
    except (ValueError, DecodeError) as error:
        raise Unreadable(f"watch frame of {len(frame)} bytes: {error}") from error
