"""Who answers in the API server's place, so that nothing is written there (beside stages 1 and 6): a dry run.

`ClientBuilder.stand_in` is asked by every client of the builder, ours and vendors', before a request is sent. A write
that it does not answer is still refused right before it would leave: `refuse` is asked where the fence is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from attrs import frozen

__all__ = ["NotSent", "Request", "StandIn", "stood_in_request"]


class NotSent(Exception):
    """A write was refused: this process changes nothing."""


@frozen(kw_only=True)
class Request:
    """One request, before it is sent."""

    client: str
    """The identity, as in `ClientBuilder.rest(name)`."""
    method: str
    path: str
    """Without the query."""
    query: Mapping[str, str]
    content_type: str
    body: Any
    """Parsed JSON; None without one, or where it is no JSON."""


class StandIn(Protocol):
    """Thread-safe; it may ask the API server itself."""

    def answer(self, request: Request) -> tuple[int, Any] | None:
        """Status and JSON of the answer; None: the request is to be sent."""

    def shown(self, path: str, data: bytes) -> bytes:
        """The body of a sent read, with what was answered here applied to it."""

    def refuse(self, method: str, path: str) -> None:
        """Raise NotSent unless the request changes nothing, whatever its method."""


def stood_in_request(
    client: str, method: str, path: str, query: Mapping[str, str], content_type: str, body: object
) -> Request:
    """The request, its body parsed where it is JSON already."""
    parsed = body
    if isinstance(body, bytes | str):
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = None
    return Request(client=client, method=method, path=path, query=query, content_type=content_type, body=parsed)
