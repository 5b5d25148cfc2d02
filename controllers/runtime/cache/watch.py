"""List, then watch, for ever (stage 1): the API server's side of one informer.

Bytes come from `RestClient`; `ListWatch.updates` yields complete lists, events and bookmarks in the order in
which the cache must apply them. All that may go wrong on the way is settled here, so the informer sees updates only:

| what happens                                    | what is done                                                  |
|-------------------------------------------------|---------------------------------------------------------------|
| the watch ends as it should (its timeout)       | watch again from the last version, at once                    |
| reset, truncation, refused connection, 5xx      | the same, after a delay                                       |
| 429, or any answer with Retry-After             | the same, after the time that the server asks for             |
| nothing came for `silence` seconds              | taken for half-open: watch again at once; the third time list |
| 410, as an answer or as an ERROR event          | list, not older than what was seen                            |
| a line that cannot be read                      | watch again from before it; the second time list              |
| ERROR events, or streams that break at once     | watch again; after five in a row that brought nothing, list   |
| 410 on that list                                | a quorum list                                                 |
| "Too large resource version" on that list       | a delay; the third time a quorum list                         |
| a list that is older than what was seen         | a quorum list; if that is older, too, another one after 10 s  |
| that one agrees: etcd was restored              | believed: it replaces everything                              |

Delays (`retries.py`) start over once a watch brought something or stood for ten seconds, or an outage ended.

Half-open connections: a watch may be quiet for hours, so its own timeout (5 to 10 minutes) is too slow a test. TCP
keepalive finds a peer that is gone, but not a proxy or a server that hangs. kube-apiserver sends a bookmark about
every 60 s to each watch that allows them, so 90 s without a byte mean a dead one. Without bookmarks it costs a request.

A server restored from a backup counts its versions from an earlier number. A watch from what is the future there stays
silent, or shows only what comes after that number is reached. So after an outage, and after a bookmark that is older
than what was seen, a quorum list of one object asks for its version. `history.py` says when a lower one is believed.

Follows client-go's reflector, and https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol

from controllers.runtime.api import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_status,
)
from controllers.runtime.cache.decoding import Garbled, read_list, read_watch_line
from controllers.runtime.cache.history import History, Verdict
from controllers.runtime.cache.listing import Abandoned, PageRequest, fetch_list, is_too_large
from controllers.runtime.cache.resources import Resource, T, is_newer
from controllers.runtime.cache.retries import Retries
from controllers.runtime.cache.store import EVENT_TYPES, Item
from controllers.runtime.cache.watchtypes import Bookmark, Listed, Rest, Update, Watched, WatchOptions
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.metrics import Metrics

__all__ = ["ListWatch"]

log = logging.getLogger(__name__)

_GARBLED_LIMIT: Final = 2
_FRUITLESS_LIMIT: Final = 5
_TOO_LARGE_LIMIT: Final = 3
_SILENCES_LIMIT: Final = 3
_MARGIN: Final = 0.9  # a share of `silence`: the read's own timer and our clock need not agree to the millisecond


class _Closable(Protocol):
    def close(self) -> None: ...


class _Stopped(Exception):
    """stop() was called."""


class _ListBehind(Exception):
    """A list is older than what was seen already."""


class ListWatch(Generic[T]):
    """Lists and watches one kind. One thread iterates `updates`; `stop` and the properties are for any thread.

    `read` turns a raw object into an item (`read_anew`: whatever was read before). `version` returns the newest
    resourceVersion that the consumer has applied, "" before its first list; every watch starts from it, so what was not
    applied is asked for again.
    """

    def __init__(
        self,
        rest: Rest,
        resource: Resource[T],
        read: Callable[[Any], Item[T]],
        version: Callable[[], str],
        *,
        metrics: Metrics,
        clock: Clock,
        namespace: str | None = None,
        options: WatchOptions | None = None,
        rng: random.Random | None = None,
        read_anew: Callable[[Any], Item[T]] | None = None,
    ) -> None:
        self._rest = rest
        self._resource = resource
        self._path = resource.path(namespace)
        self._read = read
        self._read_anew = read_anew or read
        self._version = version
        self._clock = clock
        self._options = options or WatchOptions()
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._current: _Closable | None = None
        self._stop = ClockEvent(clock)
        self._history = History(self._options.believe_after)
        self._retries = Retries(resource.plural, self._options, clock, self._rng, self._stop)
        self._relist_cause = "start"
        self._quorum = False
        self._fruitless = 0  # watches in a row that opened and brought nothing but trouble
        self._in_doubt = False  # the server was away, or a bookmark was older than what was seen
        self._garbled = 0
        self._too_large = 0
        self._silences = 0
        self._heard = self._quiet_since = clock.monotonic()
        self._open_since: float | None = None  # of the present watch
        self._relists = metrics.counter(
            "informer_relists_total", "Complete lists taken, by cause; the first one's is start.", ["resource", "cause"]
        )
        self._restored = metrics.counter(
            "informer_history_resets_total", "Times that the server was found restored from a backup.", ["resource"]
        ).labels(resource.plural)
        self._list_failures = metrics.counter(
            "informer_list_failures_total", "Lists that failed, by cause.", ["resource", "cause"]
        )
        self._restarts = metrics.counter(
            "informer_watch_restarts_total", "Watches that ended, by cause.", ["resource", "cause"]
        )

    @property
    def heard(self) -> float:
        """When the server last sent a list, event or bookmark, by the clock's `monotonic`; the start before that."""
        return self._heard

    @property
    def error(self) -> str:
        """What went wrong last, "" once the server has been heard again."""
        return self._retries.error

    def stop(self) -> None:
        """End `updates` at once: while connecting, listing, reading, or waiting. May be called twice."""
        self._stop.set()
        self._retries.wake()
        with self._lock:
            if self._current is not None:
                self._current.close()

    def wait(self, seconds: float) -> bool:
        """Wait; returns True at once when stopped."""
        return self._stop.wait(seconds)

    def relist(self, cause: str) -> float:
        """Have the next `updates` begin with a list, as an update could not be applied; returns the delay before it."""
        self._relist_cause = cause
        return self._retries.delay()

    def updates(self) -> Iterator[Update[T]]:
        """Yield updates until `stop`. A new iteration goes on where the last one was left."""
        while not self._stop.is_set():
            phase = self._list if self._relist_cause else self._watch
            try:
                yield from phase()
            except _Stopped:
                return
            except (ApiError, Garbled, _ListBehind) as error:
                if self._stop.is_set():
                    return
                failed = self._list_failed if phase == self._list else self._watch_failed
                self._retries.pause(failed(error), error)

    # Listing

    def _list(self) -> Iterator[Update[T]]:
        seen, asked = self._version(), self._clock.monotonic()
        listing = fetch_list(
            self._fetch,
            self._resource.kind,
            self._read_unless_stopped,
            page_size=self._options.page_size,
            not_older_than="" if self._quorum else seen,
        )
        cause = self._judge(seen, listing.version, asked)
        self._relist_cause = ""
        self._quorum = False
        self._too_large = self._fruitless = self._garbled = self._silences = 0
        if cause not in ("expired", "garbled", "stuck", "internal"):
            self._retries.start_over()  # after those, only a watch that works shows that the trouble is over
        self._relists.labels(self._resource.plural, cause).inc()
        self._hear()
        yield Listed(listing.items, listing.version, cause)

    def _judge(self, seen: str, version: str, asked: float) -> str:
        """The cause of the list at hand, which was `asked` for at that time; raises where it is not believed."""
        verdict = self._history.judge(seen, version, asked, quorum=self._quorum)
        if verdict is Verdict.BEHIND:
            why = "no quorum list" if not self._quorum else "another quorum list has to confirm that"
            raise _ListBehind(f"the API server is at version {version}, though {seen} was seen: {why}")
        if verdict is Verdict.ONWARD:
            return self._relist_cause
        self._restored.inc()
        log.error(
            "%s: the API server was restored from a backup: two quorum lists say that its version went back from %s to "
            "%s. Everything is read again", self._resource.plural, seen, version,
        )  # fmt: skip
        return "restored"

    def _ask_version(self) -> None:
        """Has the server's history gone back? If so, list before the next watch."""
        seen = self._version()
        head = read_list(self._fetch({"limit": "1"}), self._resource.kind, lambda _: None)
        self._in_doubt = False
        if is_newer(seen, head.resource_version):
            self._relist_cause, self._quorum = "behind", True

    def _read_unless_stopped(self, raw: Any) -> Item[T]:
        if self._stop.is_set():
            raise _Stopped  # in the middle of a page, which may take a second to parse
        return self._read_anew(raw) if self._history.in_doubt else self._read(raw)

    def _fetch(self, query: Mapping[str, str]) -> bytes:
        timeout = self._options.list_timeout
        request = PageRequest(lambda: self._rest.request("GET", self._path, query=query, timeout=timeout).data)
        self._begin(request)
        try:
            return request.fetch()
        except Abandoned:
            raise _Stopped from None
        finally:
            self._finish(request)

    def _list_failed(self, error: Exception) -> float:
        cause = _cause(error)
        waits = True
        if isinstance(error, ApiError) and is_too_large(error):
            cause = "too_large_version"
            self._too_large += 1
            self._quorum = self._quorum or self._too_large >= _TOO_LARGE_LIMIT
        elif isinstance(error, (Gone, BadRequest, _ListBehind)):
            waits = self._quorum or not isinstance(error, Gone)
            self._quorum = True
        self._list_failures.labels(self._resource.plural, cause).inc()
        delay = self._retries.complain("list", error, waits=waits)
        if isinstance(error, _ListBehind) and self._history.in_doubt:
            delay = 0.0  # it is known when the next list can settle the doubt
        return max(self._history.wait(self._clock.monotonic()), delay)

    # Watching

    def _watch(self) -> Iterator[Update[T]]:
        self._in_doubt = self._in_doubt or self._retries.was_away
        if self._in_doubt:
            self._ask_version()
            if self._relist_cause:
                return
        low, high = self._options.watch_timeout
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version(),
            "timeoutSeconds": str(int(self._rng.uniform(low, high))),
        }
        lines = self._rest.stream(self._path, query=query, read_timeout=self._options.silence)
        self._begin(lines)
        useful = False
        self._open_since = None
        try:
            lines.open()
            self._open_since = self._quiet_since = self._clock.monotonic()
            for line in lines:
                update = self._decode(line)
                if isinstance(update, Bookmark) and is_newer(self._version(), update.version):
                    self._in_doubt = True
                    raise Garbled(f"a bookmark at version {update.version}, though {self._version()} was seen")
                if not useful:
                    useful = True
                    self._fruitless = self._garbled = self._silences = 0
                    self._retries.start_over()
                self._hear()
                yield update
        finally:
            self._finish(lines)
            stood = self._open_for() >= min(self._options.settled, self._options.silence * _MARGIN)
            if stood:
                self._retries.start_over()
            elif self._open_since is not None and not useful:
                self._fruitless += 1
        if self._stop.is_set():
            raise _Stopped
        self._restarts.labels(self._resource.plural, "closed").inc()
        if not stood:  # a server that shuts down, or one that would have us ask without pause
            self._relist_if_stuck()
            trouble = Garbled("the server ended it after a moment")
            self._stop.wait(self._retries.complain("watch", trouble, told=not useful))

    def _decode(self, line: bytes) -> Update[T]:
        event, raw = read_watch_line(line)
        if event in EVENT_TYPES:
            item = self._read(raw)
            if not item.key:
                raise Garbled(f"{event} event: {item.problem}")
            return Watched(event, item)
        if event == "BOOKMARK":
            metadata = raw.get("metadata")
            version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
            return Bookmark(version if isinstance(version, str) else "")
        if event == "ERROR":
            raise from_status(0, None, raw, method="GET", path=self._path)
        raise Garbled(f"a watch event of the unknown type {event[:40]!r}")

    def _watch_failed(self, error: Exception) -> float:
        if isinstance(error, Unreachable) and self._was_silent():
            self._restarts.labels(self._resource.plural, "silent").inc()
            self._silences += 1
            if self._silences >= _SILENCES_LIMIT:
                self._relist_cause = "silent"
            log.debug("%s: watch renewed: %s", self._resource.plural, error)
            return 0.0
        self._restarts.labels(self._resource.plural, _cause(error)).inc()
        waits = True
        if isinstance(error, Gone):
            self._relist_cause = "expired"
            waits = self._retries.failures > 0
        elif isinstance(error, Garbled):
            self._garbled += 1
            if self._garbled >= _GARBLED_LIMIT:
                self._relist_cause = "garbled"
        elif isinstance(error, BadRequest):
            self._relist_cause = "refused"
        self._relist_if_stuck()
        return self._retries.complain("watch", error, waits=waits)

    def _open_for(self) -> float:
        return 0.0 if self._open_since is None else self._clock.monotonic() - self._open_since

    def _was_silent(self) -> bool:
        quiet = self._clock.monotonic() - self._quiet_since
        return self._open_since is not None and quiet >= self._options.silence * _MARGIN

    def _relist_if_stuck(self) -> None:
        """Step over an event that the server cannot send, by a list."""
        if self._fruitless >= _FRUITLESS_LIMIT and not self._relist_cause:
            self._relist_cause = "stuck"

    # Both

    def _begin(self, work: _Closable) -> None:
        """Let `stop` close what is about to begin."""
        with self._lock:
            if not self._stop.is_set():
                self._current = work
                return
        work.close()
        raise _Stopped

    def _finish(self, work: _Closable) -> None:
        with self._lock:
            self._current = None
        work.close()

    def _hear(self) -> None:
        self._heard = self._quiet_since = self._clock.monotonic()
        self._retries.error = ""


def _cause(error: Exception) -> str:
    """The error as a metric's label."""
    for kind, cause in _CAUSES:
        if isinstance(error, kind):
            return cause
    return "refused"


_CAUSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (Gone, "expired"),
    (TooManyRequests, "throttled"),
    (Unauthorized, "unauthorized"),
    (Forbidden, "forbidden"),
    (ServerError, "server_error"),
    (Unreachable, "unreachable"),
    (Garbled, "garbled"),
    (_ListBehind, "behind"),
)
