"""Complete lists, page by page (stage 1): every item of one consistent snapshot, read while its
page is decoded, so that memory holds the raw text of one page at most. Follows
https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
and client-go's pager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from attrs import frozen

from controllers.runtime.api import ApiError, Gone, Response, RestClient, ServerError
from controllers.runtime.cache.decoding import read_page
from controllers.runtime.cache.resources import DecodeError, ListMeta, split_key

if TYPE_CHECKING:
    from controllers.runtime.cache.resources import Raw, Resource

R = TypeVar("R")

Fetch = Callable[[Mapping[str, str]], Callable[[], Response]]
"""Begins one list request with this query; what it returns waits for the answer, and raises
ApiError."""

_TRIES_IN_PAGES: Final = 2


@frozen
class Listing(Generic[R]):
    """Every item of one snapshot, and the resourceVersion from which a watch continues it."""

    items: list[R]
    version: str


def fetch_list(
    fetch: Fetch, kind: str, read: Callable[[Any], R], *, page_size: int, not_older_than: str = ""
) -> Listing[R]:
    """Fetch a complete list of items of `kind` ("Node").

    Without `not_older_than` it is a quorum read: whatever was written before it is in it. With it
    the server may answer from its cache, as long as that has reached this version. Never asks for
    resourceVersion=0, which may be arbitrarily old and turns paging off.

    A snapshot that expires between two pages (410) makes the pages so far worthless: the list
    starts over, at the second time without pages, which cannot expire half-way. Raises ApiError
    (Gone: `not_older_than` is too old for the server) and DecodeError.
    """
    start = {"resourceVersion": not_older_than, "resourceVersionMatch": "NotOlderThan"} if not_older_than else {}
    for _ in range(_TRIES_IN_PAGES):
        listing = _in_pages(fetch, kind, read, start, page_size)
        if listing is not None:
            return listing
    # Without pages the server holds the whole answer in memory: only where pages have failed.
    listing = _in_pages(fetch, kind, read, start, 0)
    if listing is None:
        raise Gone(f"the list of {kind} objects expired between its pages, time and again", status=410)
    return listing


def quorum_list(
    rest: RestClient, resource: Resource[Any], read: Callable[[Raw], R], key: str = "", *, page_size: int = 500
) -> list[R]:
    """What `read` makes of every object of a kind, or of the one with this key, if it is there:
    whatever was written before this call is in it.

    For what must not be decided by a cache. Needs the permission to list alone. Blocks for as long
    as the server takes; raises ApiError.
    """
    namespace, name = split_key(key) if key else ("", "")
    path = resource.path(namespace or None)
    selection = {"fieldSelector": f"metadata.name={name}"} if name else resource.selection

    def fetch(query: Mapping[str, str]) -> Callable[[], Response]:
        return lambda: rest.request("GET", path, query={**selection, **query})

    def read_object(raw: object) -> R:
        if not isinstance(raw, dict):  # it may stand for the very object that is looked for
            raise DecodeError("an item that is no object")
        return read(raw)

    try:
        return fetch_list(fetch, resource.kind, read_object, page_size=page_size).items
    except DecodeError as error:  # a proxy's page must not pass for an empty list
        message = f"the answer is no {resource.kind}List: {error}"
        raise ServerError(message, status=200, method="GET", path=path) from error


def is_too_large(error: ApiError) -> bool:
    """Whether the server said that it has not reached the version asked for (504).

    An API server that lags behind the one which answered before says so; it passes by waiting. The
    cause is set since 1.19; the sentence is for proxies that drop it."""
    return error.has_cause("ResourceVersionTooLarge") or (
        error.status == 504 and "Too large resource version" in error.message
    )


def _in_pages(
    fetch: Fetch, kind: str, read: Callable[[Any], R], start: Mapping[str, str], page_size: int
) -> Listing[R] | None:
    """One pass over the pages; None when the snapshot expired after the first one.

    In Protobuf a page is asked for before the items of the one before it are read."""
    items: list[R] = []
    limit = {"limit": str(page_size)} if page_size else {}
    version, token, waiting = "", "", fetch({**start, **limit})

    def ahead(meta: ListMeta) -> None:
        nonlocal token, version, waiting
        # A proxy that caches GETs would have it go on for ever, and fill the memory.
        if meta.continue_token and meta.continue_token == token:
            raise DecodeError("a list whose pages repeat themselves")
        version = version or meta.resource_version  # the first page's: a watch from there repeats, never skips
        token = meta.continue_token
        if token:
            waiting = fetch({"continue": token, **limit})

    while True:
        try:
            page = waiting()
        except Gone:
            if not token:
                raise
            return None
        read_page(page, kind, lambda raw: items.append(read(raw)), ahead)
        if not token:
            return Listing(items, version)
