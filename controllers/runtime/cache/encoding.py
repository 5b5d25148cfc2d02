"""JSON or Protobuf (stage 1): which one a list-watch loop asks for, and how what came is read.

Protobuf costs the API server less: docs/reference/benchmarks.md says how much. The server says in
each answer what it sends. After a 406, or after three answers in a row that could not be read, a
kind is asked for in JSON as long as the process lives."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from controllers.runtime.api import ApiError, Response, RestClient
from controllers.runtime.cache.decoding import ListMeta, Unreadable, read_list, read_watch_line
from controllers.runtime.protobuf import ACCEPT, JSON, is_protobuf

if TYPE_CHECKING:
    from controllers.runtime.cache.parsing import WireObject
    from controllers.runtime.cache.resources import Resource

log = logging.getLogger(__name__)

_NOT_ACCEPTABLE: Final = 406
_UNREADABLE_LIMIT: Final = 3


class Encoding:
    """What one loop asks for. For the loop's thread."""

    def __init__(self, rest: RestClient, resource: Resource[Any]) -> None:
        self._rest = rest
        self._resource = resource
        self._given_up = False
        self._unreadable = 0  # answers in a row

    @property
    def accept(self) -> str:
        """The Accept header of the next request."""
        wanted = self._resource.in_protobuf and self._rest.protobuf and not self._given_up
        return ACCEPT if wanted else JSON

    def read_event(self, piece: bytes, content_type: str) -> tuple[str, WireObject | dict[str, Any]]:
        """Decode one piece of a watch into (type, object); an error's is raw. Raises Garbled."""
        if not is_protobuf(content_type):
            return read_watch_line(piece)
        from controllers.runtime.cache.protodecoding import read_watch_frame

        event = read_watch_frame(piece, self._resource.kind)
        self._unreadable = 0
        return event

    def failed(self, error: Exception) -> bool:
        """A request failed; returns whether another encoding is asked for from now on."""
        if self._given_up or self.accept == JSON:
            return False
        if isinstance(error, Unreadable):
            self._unreadable += 1
        refused = isinstance(error, ApiError) and error.status == _NOT_ACCEPTABLE
        self._given_up = refused or self._unreadable >= _UNREADABLE_LIMIT
        if self._given_up:
            log.warning(
                "%s: the API server's Protobuf is of no use, asking for JSON from now on: %s. If a proxy stands "
                "before the server, --kube-api-content-type=application/json avoids these tries",
                self._resource.plural, error,
            )  # fmt: skip
        return self._given_up


def read_page(page: Response, kind: str, each: Callable[[Any], None], meta: Callable[[ListMeta], None]) -> None:
    """Read a list page of items of `kind`, whatever its encoding; see `decoding.read_list`. `meta`
    is called once, with the page's metadata: before the items where it can be read first."""
    if not is_protobuf(page.headers.get("content-type", "")):
        return meta(read_list(page.data, kind, each))
    from controllers.runtime.cache.protodecoding import read_protobuf_list

    return read_protobuf_list(page.data, kind, each, meta)
