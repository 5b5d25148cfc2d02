"""Kubernetes' Protobuf: which messages there are, the envelope around an object, and objects as
dicts (for stages 1 and 6).

Comes in: bytes from the wing `api`. Goes out: what `json.loads` of the same object's JSON would
give. Imported when the first Protobuf is to be read or written: a process that talks JSON only
needs none of it.

Read first: `kubernetes.proto`, `schema.py`, `reading.py`. Imports no wing.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ACCEPT", "CONTENT_TYPE", "JSON", "MAGIC", "is_protobuf"]

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
JSON: Final = "application/json"
ACCEPT: Final = f"{CONTENT_TYPE},{JSON}"
"""What to ask for where either can be read, as client-go does: a server, or a proxy, that has no
Protobuf for a kind answers in JSON."""
MAGIC: Final = b"k8s\0"
"""How each object begins that is sent by itself."""


def is_protobuf(content_type: str) -> bool:
    """Whether a Content-Type header says so; its parameters (;stream=watch) do not matter."""
    return content_type.partition(";")[0].strip().lower() == CONTENT_TYPE
