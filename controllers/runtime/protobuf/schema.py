"""The messages of Kubernetes' Protobuf as Python classes (for stage 1). Thread-safe.

`kubernetes.proto` says what they are; `kubernetes.binpb` is the same, compiled. No code is
generated from it: such code runs with few versions of the `protobuf` library only, and a vendor's
program has a version of its own. The classes come from a pool of their own: another package may
hold messages of the same names."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from controllers.runtime.protobuf import CONTENT_TYPE, MAGIC

PACKAGE: Final = "kubernetes"
_COMPILED: Final = "kubernetes.binpb"
_POOL: Final[Any] = DescriptorPool()
# With the import, of which there is one: two pools, each made by a thread of its own, would have
# two descriptors for each field, and what was made of one would not know the other's.
_POOL.AddSerializedFile(Path(__file__).with_name(_COMPILED).read_bytes())


@functools.cache
def message_class(name: str) -> Any:
    """The class of a message by its name in kubernetes.proto ("Node"); raises KeyError.

    A message keeps the fields it does not know, and writes them back. `FromString` raises
    DecodeError."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


__all__ = ["CONTENT_TYPE", "MAGIC", "open_envelope"]


def open_envelope(data: bytes) -> Any:
    """The envelope of one object, with `typeMeta` and the object's bytes, `raw`; raises ValueError,
    too if encoded again."""
    return unwrap(data, "Unknown")


def unwrap(data: bytes, name: str) -> Any:
    """The envelope as the message `name`: Unknown, or the same on the wire. Raises ValueError."""
    # Protobuf takes nearly any bytes for some message: the four magic ones are all that tells.
    if not data.startswith(MAGIC):
        raise ValueError(f"{len(data)} bytes that do not begin as Kubernetes' Protobuf does")
    try:
        found = message_class(name).FromString(memoryview(data)[len(MAGIC) :])
        if found.contentEncoding or found.contentType not in ("", CONTENT_TYPE):
            raise ValueError("the object is encoded once more inside its envelope")
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the envelope cannot be read: {error}") from error
    return found
