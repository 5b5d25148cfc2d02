"""What a row of the parity table says: requests in order, with values remembered from one answer
for the next request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@attrs.frozen
class Step:
    """One request. `$name` in paths, queries, bodies and names of the scenario stands for a value
    that an earlier `save` kept.

    `save` maps such a name to a path in the answer (`metadata.uid`, `items.0.metadata.name`).
    `compare` is "all" (status, reason, message and object), "outcome" (status and reason only,
    where the message is Go's own wording of a parser or the object is the server's business), or
    "nothing" (set-up whose answer other rows compare).
    """

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    query: Mapping[str, str] = attrs.field(factory=dict)
    save: Mapping[str, str] = attrs.field(factory=dict)
    compare: str = "all"
    token: str = "admin"
    expect: int | None = None
    """The status that both must give: states the semantics in the table itself."""
    raw: bytes | None = None
    """A body as it is, instead of `body`."""


@attrs.frozen
class Scenario:
    """A topic: steps sent in order to one server, then to the other, and the paths to clean up
    afterwards."""

    name: str
    steps: Sequence[Step]
    cleanup: Sequence[str] = ()


def post(path: str, body: Any, **more: Any) -> Step:
    """Create."""
    return Step("POST", path, body, **more)


def put(path: str, body: Any, **more: Any) -> Step:
    """Replace."""
    return Step("PUT", path, body, **more)


def get(path: str, **more: Any) -> Step:
    """Read."""
    return Step("GET", path, **more)


def merge(path: str, body: Any, **more: Any) -> Step:
    """JSON merge patch."""
    return Step("PATCH", path, body, MERGE, **more)


def strategic(path: str, body: Any, **more: Any) -> Step:
    """Strategic merge patch."""
    return Step("PATCH", path, body, STRATEGIC, **more)


def json_patch(path: str, body: Any, **more: Any) -> Step:
    """JSON Patch."""
    return Step("PATCH", path, body, JSON_PATCH, **more)


def delete(path: str, body: Any = None, **more: Any) -> Step:
    """Delete."""
    return Step("DELETE", path, body, **more)
