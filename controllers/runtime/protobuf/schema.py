"""The messages of Kubernetes' Protobuf as Python classes (for stages 1 and 6). Thread-safe.

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

__all__ = ["DecodeError", "PACKAGE", "message_class"]

PACKAGE: Final = "kubernetes"
_COMPILED: Final = "kubernetes.binpb"
_POOL: Final[Any] = DescriptorPool()
# With the import, of which there is one: two pools, each made by a thread of its own, would have
# two descriptors for each field, and what was made of one would not know the other's.
_POOL.AddSerializedFile(Path(__file__).with_name(_COMPILED).read_bytes())


@functools.cache
def message_class(name: str) -> Any:
    """The class of a message by its name in kubernetes.proto ("Node"); raises KeyError.

    A message keeps the fields that it does not know, and writes them back. Its `FromString` raises
    DecodeError.
    """
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))
