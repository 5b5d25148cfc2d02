"""Kubernetes' Protobuf: which messages there are, the envelope around an object, and objects as
dicts (for stages 1 and 6).

Comes in: bytes from the wing `api`. Goes out: what `json.loads` of the same object's JSON would
give. Imported when the first Protobuf is to be read or written: a process that talks JSON only
needs none of it.

Read first: `kubernetes.proto`, `schema.py`, `reading.py`. Imports no wing.
"""

from __future__ import annotations

import importlib
from typing import Final

__all__ = ["ACCEPT", "CONTENT_TYPE", "JSON", "MAGIC", "is_protobuf", "unusable"]

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


def unusable() -> str:
    """Why JSON is better here; "" where Protobuf is.

    The package protobuf has a part in C. Without it all is read by Python: many times slower than
    JSON, and not safe where several threads begin at once."""
    try:
        importlib.import_module("google._upb._message")
    except ImportError as error:
        return str(error)
    from google.protobuf.internal import api_implementation

    kind = api_implementation.Type()
    return "" if kind == "upb" else f"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION={kind}"
