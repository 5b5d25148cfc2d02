"""Types of the list-watch loop (stage 1): how `watch.py` is set, and what it yields."""

from __future__ import annotations

from typing import Generic

from attrs import field, frozen, validators

from controllers.runtime.cache.resources import T
from controllers.runtime.cache.store import Item


@frozen
class WatchOptions:
    """How to list and watch; all times in seconds. Tests shorten the defaults."""

    page_size: int = field(default=500, validator=validators.gt(0))
    watch_timeout: tuple[float, float] = (300.0, 600.0)
    """The server ends a watch after a time drawn from this range, to spread them over replicas."""
    silence: float = field(default=90.0, validator=validators.gt(0))
    """No byte for so long: the watch counts as half-open. Bookmarks come each minute."""
    list_timeout: float = field(default=60.0, validator=validators.gt(0))
    """For one page of a list, from the request to its last byte."""
    first_delay: float = field(default=0.8, validator=validators.gt(0))
    longest_delay: float = field(default=30.0, validator=validators.gt(0))
    longest_unanswered: float = field(default=4.0, validator=validators.gt(0))
    """The longest delay while the server gives no answer at all, so that its return is noticed."""
    longest_retry_after: float = 300.0
    """A Retry-After beyond this is cut to it."""
    believe_after: float = 10.0
    """Seconds between the two quorum lists that prove that history went back."""
    settled: float = 10.0
    """A watch that stood for so long was a success, even if it brought nothing."""


@frozen
class Listed(Generic[T]):
    """A complete list at `version`. `cause` says why: "start", "expired", "garbled", "stuck", ...

    "restored": the server's history went back, so that what was seen later has not happened.
    """

    items: list[Item[T]]
    version: str
    cause: str


@frozen
class Watched(Generic[T]):
    """One event: ADDED, MODIFIED or DELETED, of an item that has a key."""

    event: str
    item: Item[T]


@frozen
class Bookmark:
    """Everything up to this version has been shown."""

    version: str


Update = Listed[T] | Watched[T] | Bookmark
