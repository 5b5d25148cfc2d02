"""List, then watch, for ever (stage 1): the API server's side of one informer.

Bytes come from `RestClient`; `ListWatch.updates` yields complete lists, events and bookmarks in the
order in which the cache must apply them. All that may go wrong on the way is settled here, so the
informer sees updates only:

| what happens                                    | what is done                                                  |
|-------------------------------------------------|---------------------------------------------------------------|
| the watch ends as it should (its timeout)       | watch again from the last version, at once                    |
| reset, truncation, refused connection, 5xx      | the same, after a delay                                       |
| 429, or any answer with Retry-After             | the same, after the time that the server asks for             |
| nothing came for `silence` seconds, or since a  | taken for half-open: watch again at once; the third time list |
|   request that was not answered                 |                                                               |
| 410, as an answer or as an ERROR event          | list, not older than what was seen                            |
| a line or frame that cannot be read             | watch again from before it; the second time list              |
| Protobuf that cannot be read, the third time    | the same, in JSON from now on; also after a 406               |
| ERROR events, or streams that break at once     | watch again; after five in a row that brought nothing, list   |
| 410 on that list                                | a quorum list                                                 |
| that list has less than half of what is cached  | a quorum list, which is believed                              |
| "Too large resource version" on that list       | a delay; the third time a quorum list                         |
| a list that is older than what was seen         | a quorum list; if that is older, too, another one after 10 s  |
| that one agrees: etcd was restored              | believed: it replaces everything                              |

Delays (`retries.py`) start over once a watch brought something or stood for ten seconds, or an
outage ended.

Half-open connections: a watch may be quiet for hours, so its own timeout (5 to 10 minutes) is too
slow a test. TCP keepalive finds a peer that is gone, but not a proxy or a server that hangs.
kube-apiserver sends a bookmark about every 60 s to each watch that allows them, so 90 s without a
byte mean a dead one. Without bookmarks it costs a request. It is found sooner, within seconds for
the leader, when some other request is not answered (`HalfOpenDetection`): the Lease is renewed all
the time.

A server restored from a backup counts its versions from an earlier number. A watch from what is the
future there stays silent, or shows only what comes after that number is reached. So after an
outage, and after a bookmark that is older than what was seen, a quorum list of one object asks for
its version. `lists.History` says when a lower one is believed.

Follows client-go's reflector, and
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Final, Generic

from controllers.runtime.api import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    HalfOpen,
    RestClient,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_status,
)
from controllers.runtime.cache.decoding import Encoding, metadata_of
from controllers.runtime.cache.lists import Bookmark, ListBehind, Lists, Loop, Stopped, Update, Watched
from controllers.runtime.cache.resources import DecodeError, T, is_newer
from controllers.runtime.cache.retries import Retries, WatchOptions
from controllers.runtime.cache.store import EVENT_TYPES, Cache
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_GARBLED_LIMIT: Final = 2
_FRUITLESS_LIMIT: Final = 5
_SILENCES_LIMIT: Final = 3
_MARGIN: Final = 0.9  # a share of `silence`: the read's own timer and our clock need not agree to the millisecond


class ListWatch(Generic[T]):
    """Lists and watches the kind of a cache. One thread iterates `updates`, and applies each one to
    the cache before it asks for the next: a watch starts from the cache's version, so what was not
    applied is asked for again. All else is for any thread."""

    def __init__(
        self,
        rest: RestClient,
        cache: Cache[T],
        options: WatchOptions | None = None,
        *,
        metrics: Metrics,
        clock: Clock,
        rng: random.Random | None = None,
    ) -> None:
        self._rest = rest
        self._cache = cache
        self._resource = cache.resource
        self._options = options = options or WatchOptions()
        self._clock = clock
        self._rng = rng or random.Random()
        self._loop = Loop(clock)
        self._retries = Retries(self._resource.plural, options, clock, self._rng, self._loop.stopping)
        self._encoding = Encoding(rest, self._resource)
        self._lists = Lists(rest, cache, options, self._encoding, self._loop, self._retries, metrics=metrics)
        self._in_doubt = False  # the server was away, or a bookmark was older than what was seen
        self._fruitless = 0  # watches in a row that opened and brought nothing but trouble
        self._garbled = 0
        self._silences = 0
        self._last_contact = self._quiet_since = clock.monotonic()
        self._open_since: float | None = None  # of the present watch
        self._restarts = metrics.counter(
            "informer_watch_restarts_total", "Watches that ended, by cause.", ["resource", "cause"]
        )

    @property
    def last_contact(self) -> float:
        """When the server last sent a list, event or bookmark, or it started (`monotonic`)."""
        return self._last_contact

    @property
    def error(self) -> str:
        """What went wrong last, "" once the server has answered again."""
        return self._retries.error

    def stop(self) -> None:
        """End `updates` at once: whatever it does. May be called twice."""
        self._loop.stop()
        self._retries.wake()

    def wait(self, seconds: float) -> bool:
        """Wait; returns True at once when stopped."""
        return self._loop.stopping.wait(seconds)

    def relist(self, cause: str) -> float:
        """Have the next `updates` begin with a list, as an update failed; returns the delay."""
        self._lists.cause = cause
        return self._retries.delay()

    def updates(self) -> Iterator[Update[T]]:
        """Yield updates until `stop`. A new iteration goes on where the last one was left."""
        while not self._loop.stopping.is_set():
            phase = self._list if self._lists.cause else self._watch
            try:
                yield from phase()
            except Stopped:
                return
            except (ApiError, DecodeError, ListBehind) as error:
                if self._loop.stopping.is_set():
                    return
                listing = phase == self._list
                delay = self._lists.failed(error, _cause(error)) if listing else self._watch_failed(error)
                self._retries.pause(delay, error)

    def _list(self) -> Iterator[Update[T]]:
        listed = self._lists.take()
        self._fruitless = self._garbled = self._silences = 0
        if listed.cause not in ("expired", "garbled", "stuck", "internal"):
            self._retries.start_over()  # after those, only a watch that works shows that the trouble is over
        self._hear()
        yield listed

    def _watch(self) -> Iterator[Update[T]]:
        self._in_doubt = self._in_doubt or self._retries.was_away
        # A restored server stays silent on a watch from its future, so its version is asked for
        # first.
        if self._in_doubt:
            self._lists.compare_version()
            self._in_doubt = False
            if self._lists.cause:
                return
        low, high = self._options.watch_timeout
        query = {
            **self._resource.selection,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._cache.version,
            "timeoutSeconds": str(int(self._rng.uniform(low, high))),
        }
        stream = self._rest.stream(
            self._resource.path(), query=query, read_timeout=self._options.silence, accept=self._encoding.accept
        )
        self._loop.begin(stream)
        useful = False
        self._open_since = None
        try:
            stream.open()
            self._open_since = self._quiet_since = self._clock.monotonic()
            for data in stream:
                update = self._decode(data, stream.protobuf)
                # Versions only grow: the server was restored from a backup, or another one answers.
                if isinstance(update, Bookmark) and is_newer(self._cache.version, update.version):
                    self._in_doubt = True
                    raise DecodeError(f"a bookmark at version {update.version}, though {self._cache.version} was seen")
                if not useful:
                    useful = True
                    self._fruitless = self._garbled = self._silences = 0
                    self._retries.start_over()
                self._hear()
                yield update
        finally:
            self._loop.finish(stream)
            stood = self._open_for() >= min(self._options.stable_after, self._options.silence * _MARGIN)
            if stood:
                self._retries.start_over()
            # Five of these in a row: an event that the server cannot send, which a list steps over.
            elif self._open_since is not None and not useful:
                self._fruitless += 1
        if self._loop.stopping.is_set():
            raise Stopped
        self._restarts.labels(self._resource.plural, "closed").inc()
        if not stood:  # a server that shuts down, or one that would have us ask without pause
            self._relist_if_stuck()
            trouble = DecodeError("the server ended it after a moment")
            self._loop.stopping.wait(self._retries.complain("watch", trouble, warn=not useful))

    def _decode(self, data: bytes, protobuf: bool) -> Update[T]:
        event, raw = self._encoding.read_event(data, protobuf)
        if event in EVENT_TYPES:
            item = self._cache.read(raw)
            if not item.key:
                raise DecodeError(f"{event} event: {item.problem}")
            return Watched(event, item)
        if event == "BOOKMARK":
            metadata = metadata_of(raw)
            return Bookmark("" if metadata is None else metadata.version)
        if event == "ERROR" and isinstance(raw, dict):
            raise from_status(0, None, raw, method="GET", path=self._resource.path())
        raise DecodeError(f"a watch event of the unknown type {event[:40]!r}")

    def _watch_failed(self, error: Exception) -> float:
        if isinstance(error, HalfOpen) or (isinstance(error, Unreachable) and self._was_silent()):
            self._restarts.labels(self._resource.plural, "silent").inc()
            self._silences += 1
            if self._silences >= _SILENCES_LIMIT:
                self._lists.cause = "silent"
            log.debug("%s: watch renewed: %s", self._resource.plural, error)
            return 0.0
        self._restarts.labels(self._resource.plural, _cause(error)).inc()
        waits = not self._encoding.failed(error)
        if isinstance(error, Gone):
            self._lists.cause = "expired"
            # The first 410 is ordinary after an outage; one after the other is not.
            waits = self._retries.failures > 0
        elif isinstance(error, DecodeError):
            self._garbled += 1
            if self._garbled >= _GARBLED_LIMIT:
                self._lists.cause = "garbled"
        elif isinstance(error, BadRequest):
            self._lists.cause = "refused"
        self._relist_if_stuck()
        return self._retries.complain("watch", error, waits=waits)

    def _open_for(self) -> float:
        return 0.0 if self._open_since is None else self._clock.monotonic() - self._open_since

    def _was_silent(self) -> bool:
        quiet = self._clock.monotonic() - self._quiet_since
        return self._open_since is not None and quiet >= self._options.silence * _MARGIN

    def _relist_if_stuck(self) -> None:
        """Step over an event that the server cannot send, by a list."""
        if self._fruitless >= _FRUITLESS_LIMIT and not self._lists.cause:
            self._lists.cause = "stuck"

    def _hear(self) -> None:
        self._last_contact = self._quiet_since = self._clock.monotonic()
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
    (DecodeError, "garbled"),
    (ListBehind, "behind"),
)
