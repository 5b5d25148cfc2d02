"""The envelope around each object in Protobuf (stages 1 and 6): the bytes "k8s\\0", then a message
that names the object's kind and holds its bytes.

Read by `reading.py`; pure functions. Follows
https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from controllers.runtime.protobuf import CONTENT_TYPE, MAGIC
from controllers.runtime.protobuf.schema import DecodeError, message_class

__all__ = ["CONTENT_TYPE", "MAGIC", "Enveloped", "open_envelope", "seal"]


@frozen
class Enveloped:
    """What an envelope holds: the kind's name, and the object's bytes."""

    api_version: str
    kind: str
    raw: bytes


def open_envelope(data: bytes) -> Enveloped:
    """Open the envelope of one object; raises ValueError for what is none, or is encoded again (as
    JSON, gzip)."""
    unknown = unwrap(data, "Unknown")
    return Enveloped(unknown.typeMeta.apiVersion, unknown.typeMeta.kind, unknown.raw)


def seal(api_version: str, kind: str, message: Any) -> bytes:
    """The bytes to send for this message: an object of that kind, in its envelope."""
    unknown = message_class("Unknown")(raw=message.SerializeToString())
    unknown.typeMeta.apiVersion = api_version
    unknown.typeMeta.kind = kind
    sealed: bytes = MAGIC + unknown.SerializeToString()
    return sealed


def unwrap(data: bytes, name: str) -> Any:
    """The envelope as the message `name`: Unknown, or one that is the same on the wire. Raises
    ValueError."""
    if not data.startswith(MAGIC):
        raise ValueError(f"{len(data)} bytes that do not begin as Kubernetes' Protobuf does")
    try:
        found = message_class(name).FromString(memoryview(data)[len(MAGIC) :])
        if found.contentEncoding or found.contentType not in ("", CONTENT_TYPE):
            raise ValueError("the object is encoded once more inside its envelope")
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the envelope cannot be read: {error}") from error
    return found
