"""Watches: from the store's changes to the lines of a chunked response.

A watcher sees the present objects (where asked for), then every later change, bookmarks while
nothing else happens, and an ERROR event when its version is too old. Lines without selectors are
built once per change and shared by all watchers."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from typing import Final

import attrs

from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.errors import JSON, StatusError
from cloudprovider.testing.apiserver.kinds.kind import Kind
from cloudprovider.testing.apiserver.rest.reads import (
    Filter,
    Query,
    make_filter,
    parse_flag,
    parse_number,
    parse_version,
)
from cloudprovider.testing.apiserver.storage import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    Compacted,
    Store,
    Stored,
    Subscription,
    encode,
    watch_line,
)

_BEFORE_THE_END: Final = 2.0
_LONGEST: Final = 3600  # seconds of a watch that does not say how long
_IDLE: Final = 1.0  # seconds between two looks whether the client is still there
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


@attrs.frozen
class WatchOptions:
    """A watch as asked for. `since`: None for the present state first, else the version to resume
    from; `timeout` in seconds.
    """

    selected: Filter
    since: int | None
    bookmarks: bool
    initial: bool
    initial_end: bool
    timeout: float


def parse_watch(store: Store, kind: Kind, namespace: str, query: Query) -> WatchOptions:
    """The watch that a query describes. Raises StatusError."""
    selected = make_filter(kind, namespace, query)
    version = parse_version(query.get("resourceVersion", ""))
    bookmarks = parse_flag(query, "allowWatchBookmarks") or False
    wanted = parse_flag(query, "sendInitialEvents")
    match = query.get("resourceVersionMatch", "")
    _check(wanted, match)
    timeout = parse_number(query, "timeoutSeconds") or _LONGEST
    initial = wanted or (wanted is None and version == 0)
    # Without it the real server waits for that version; so do we, by telling nothing older.
    if version > store.version and wanted is not None:
        raise errors.too_large_resource_version(version, store.version)
    # With sendInitialEvents the version says only how fresh the first state must be.
    since = None if initial or version == 0 else version
    return WatchOptions(selected, since, bookmarks, initial, initial and bookmarks, timeout)


def _check(wanted: bool | None, match: str) -> None:
    causes = []
    path = "resourceVersionMatch"
    if wanted is not None:
        if match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            causes.append(errors.forbidden_value(path, why))
    elif match:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(errors.forbidden_value(path, why))
        if match != "NotOlderThan":
            causes.append(errors.not_supported(path, match, ["NotOlderThan"]))
    if causes:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", causes)


class WatchStream:
    """The lines of one watch, with all that happens from now on. Iterate `batches()` in one thread;
    `close()` frees the subscription and may be called twice.
    """

    def __init__(self, store: Store, kind: Kind, options: WatchOptions, bookmark_interval: float) -> None:
        self._store = store
        self._kind = kind
        self._options = options
        self._interval = bookmark_interval
        self._first: list[bytes] = []
        self._gone: Compacted | None = None
        self._subscription: Subscription | None = None
        try:
            self._first = self._open()
        # Answered in the stream, as by the real server: the status of the answer is 200.
        except Compacted as gone:
            self._gone = gone

    def end(self) -> None:
        """End `batches` soon; from any thread, even before it runs."""
        if self._subscription is not None:
            # By the same queue, so that what came before it is still sent.
            self._subscription.pending.put(None)

    def batches(self) -> Iterator[list[bytes]]:
        """Lists of lines as they come; an empty list when nothing happened for a second.

        Ends at the timeout, and after `end`. Raises StatusError for what becomes an ERROR event.
        """
        options = self._options
        if self._gone is not None:
            raise errors.expired(f"too old resource version: {self._gone.version} ({self._gone.oldest})")
        assert self._subscription is not None
        if self._first:
            yield self._first
        pending = self._subscription.pending
        deadline = time.monotonic() + options.timeout
        bookmark_at = self._next_bookmark(deadline)
        while True:
            now = time.monotonic()
            if now >= deadline:
                return
            # Also while changes come: one of another namespace moves the version, and no line says
            # so.
            if options.bookmarks and now >= bookmark_at:
                bookmark_at = self._next_bookmark(deadline)
                yield self._bookmark()
            wait = min(deadline, bookmark_at if options.bookmarks else deadline) - now
            try:
                # Woken each second, as only the connection's thread notices that its client has
                # gone.
                item = pending.get(timeout=max(0.0, min(wait, _IDLE)))
            except queue.Empty:
                yield []
                continue
            lines: list[bytes] = []
            while item is not None:
                line = self._line(item)
                if line is not None:
                    lines.append(line)
                # A burst goes out in few writes; bounded, as its first line should not wait for its
                # last.
                if pending.empty() or len(lines) >= 100:
                    break
                item = pending.get()
            if lines:
                yield lines
            if item is None:
                return

    def _next_bookmark(self, deadline: float) -> float:
        """After the interval, or two seconds before the watch ends where that comes first."""
        now = time.monotonic()
        last = deadline - _BEFORE_THE_END
        return last if now < last < now + self._interval else now + self._interval

    def close(self) -> None:
        """Stop receiving changes."""
        if self._subscription is not None:
            self._store.unsubscribe(self._subscription)

    def _open(self) -> list[bytes]:
        options = self._options
        if options.since is not None:
            self._subscription, missed = self._store.subscribe(self._kind.plural, options.since)
            return [line for line in map(self._line, missed) if line is not None]
        self._subscription, objects, version = self._store.subscribe_now(self._kind.plural)
        if not options.initial:
            return []
        # Before any later change: both come from one look, under the store's lock.
        lines = [watch_line(ADDED, one.data) for one in objects if options.selected.matches(one)]
        if options.initial_end:
            lines.append(self._bookmark_line(version, {INITIAL_EVENTS_END: "true"}))
        return lines

    def _line(self, change: Change) -> bytes | None:
        if self._options.since is not None and change.version <= self._options.since:
            return None  # the client has seen a later state than this server had when the watch began
        selected = self._options.selected
        if not selected.selects:
            # An object never changes its namespace, so that its former state says nothing more.
            if selected.namespace and not selected.matches(change.stored):
                return None
            return change.line
        # To a watcher with a selector, an object that begins to match is new, and one that ends to
        # is gone.
        now = change.kind != DELETED and selected.matches(change.stored)
        before = change.previous is not None and selected.matches(change.previous)
        if now:
            return watch_line(MODIFIED if before else ADDED, change.stored.data)
        if not before:
            return None
        return watch_line(DELETED, self._last_match(change).data)

    def _last_match(self, change: Change) -> Stored:
        """An object that left the selection is shown as it last matched, when it left."""
        if change.previous is None or change.kind == DELETED:
            return change.stored
        last = dict(change.previous.object)
        last["metadata"] = {**last["metadata"], "resourceVersion": str(change.version)}
        return Stored(change.stored.key, last, change.version)

    def _bookmark(self) -> list[bytes]:
        assert self._subscription is not None
        version = self._store.quiet_version(self._subscription)
        # None where a change waits to be sent: a bookmark beyond it would have the client skip it.
        return [] if version is None else [self._bookmark_line(version, None)]

    def _bookmark_line(self, version: int, annotations: JSON | None) -> bytes:
        kind = self._kind
        obj = kind.struct.clean({"metadata": {"resourceVersion": str(version)}}, None, "", [])
        if annotations:
            obj["metadata"]["annotations"] = annotations
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        return watch_line("BOOKMARK", encode(obj))


def error_line(error: StatusError) -> bytes:
    """An ERROR event that carries a Status."""
    return watch_line("ERROR", encode(error.body()))
