"""The list half of the list-watch loop (stage 1): which list to ask for, and whether to believe it.

`watch.py` asks for a list at its start and whenever a watch cannot go on; `listing.py` reads the
pages. Both halves share one `Loop`: what they ask, and how they are stopped.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Self

from attrs import frozen

from cloudprovider.threads import start
from controllers.runtime.api import ApiError, BadRequest, Gone, LineStream, Response, RestClient
from controllers.runtime.cache.decoding import Encoding, read_page
from controllers.runtime.cache.listing import Listing, fetch_list, is_too_large
from controllers.runtime.cache.resources import ListMeta, T, is_newer
from controllers.runtime.cache.retries import Retries, WatchOptions
from controllers.runtime.cache.store import Cache, Item
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_TOO_LARGE_LIMIT: Final = 3
_SUSPICIOUS: Final = 0.5
"""A list not from etcd itself that has a smaller share of what is cached, is asked for again."""


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


class Stopped(Exception):
    """The loop is to end: `stop` was called, or a request was closed while its answer was
    awaited."""


class ListBehind(Exception):
    """A list is older than what was seen already."""


class Loop:
    """What is under way in one list-watch loop, so that `stop`, from any thread, can end it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.stopping = ClockEvent(clock)
        self._lock = threading.Lock()
        self._current: LineStream | PageRequest | None = None

    def begin(self, work: LineStream | PageRequest) -> None:
        """Let `stop` close what is about to begin. Raises Stopped."""
        with self._lock:
            if not self.stopping.is_set():
                self._current = work
                return
        work.close()
        raise Stopped

    def finish(self, work: LineStream | PageRequest) -> None:
        with self._lock:
            self._current = None
        work.close()

    def stop(self) -> None:
        """End the loop at once. May be called twice."""
        self.stopping.set()
        with self._lock:
            # What it waits for may take a minute: closed from outside, its wait ends now.
            if self._current is not None:
                self._current.close()


class Verdict(enum.Enum):
    """What a list's version says."""

    ONWARD = "as new as what was seen, or newer"
    BEHIND = "older than what was seen; not believed, or not yet"
    RESTORED = "older than what was seen, and believed"


class History:
    """Has the API server's history gone back? Judges the versions of lists. For one thread.

    resourceVersions only grow, with one exception: etcd was restored from a backup and counts on
    from an earlier number. Then everything that was seen later has not happened. A server that
    merely lags must not be mistaken for that, so a lower version is believed once two quorum lists,
    some seconds apart, agree: both are older than what was seen, and the second is not older than
    the first. Quorum lists are answered by etcd itself, so a lagging API server cannot give them.

    client-go takes any quorum list at once. The end is the same here; the second list guards
    against a server that talks to another etcd for a moment.
    """

    def __init__(self, believe_after: float) -> None:
        self._believe_after: Final = believe_after
        self._first_behind: tuple[str, float] | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether a quorum list was older than what was seen, and not proved wrong since."""
        return self._first_behind is not None

    def judge(self, seen: str, version: str, now: float, *, quorum: bool) -> Verdict:
        """Judge the version of a list asked for at `now` (monotonic), `seen` the newest."""
        # Not older, or not comparable: there is nothing to doubt, and an earlier doubt is settled.
        if not seen or not is_newer(seen, version):
            self._first_behind = None
            return Verdict.ONWARD
        # An API server's cache may lag behind; only etcd's own answer counts as a sign.
        if not quorum:
            return Verdict.BEHIND
        # A second one that is older still proves nothing: they have to agree.
        if self._first_behind is None or is_newer(self._first_behind[0], version):
            self._first_behind = (version, now)
        elif now - self._first_behind[1] >= self._believe_after:
            self._first_behind = None
            return Verdict.RESTORED
        return Verdict.BEHIND

    def wait(self, now: float) -> float:
        """Seconds until another quorum list may settle the doubt; 0.0 without one."""
        return 0.0 if self._first_behind is None else max(0.0, self._first_behind[1] + self._believe_after - now)


class PageRequest:
    """One request whose answer need not be awaited: `close` in another thread ends `wait`.

    The request itself has a thread of its own, which lives on until its answer, its timeout or its
    client's end, and is then forgotten; so a stop never waits for a server that does not answer."""

    def __init__(self, send: Callable[[], Response]) -> None:
        self._send = send
        self._ended = threading.Event()
        self._answer: Response | None = None
        self._error: BaseException | None = None

    def begin(self) -> Self:
        """Send; once."""
        start(self._run, "informer-list")
        return self

    def wait(self) -> Response:
        """Wait for the answer and return it; once. Raises what `send` raises, or Stopped."""
        self._ended.wait()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback holds this frame
        # Closed before an answer came: its thread is left behind with the request.
        if self._answer is None:
            raise Stopped
        return self._answer

    def close(self) -> None:
        """Don't wait any longer. From any thread, any number of times."""
        self._ended.set()

    def _run(self) -> None:
        try:
            self._answer = self._send()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error
        finally:
            self._ended.set()


class Lists(Generic[T]):
    """The lists of one kind. For the loop's thread."""

    def __init__(
        self,
        rest: RestClient,
        cache: Cache[T],
        options: WatchOptions,
        encoding: Encoding,
        loop: Loop,
        retries: Retries,
        *,
        metrics: Metrics,
    ) -> None:
        self.cause = "start"
        """Why a list is to be taken; "" while a watch goes on."""
        self._quorum = False
        self._rest = rest
        self._cache = cache
        self._resource = cache.resource
        self._options = options
        self._encoding = encoding
        self._loop = loop
        self._retries = retries
        self._clock = loop.clock
        self._history = History(options.believe_after)
        self._too_large = 0
        plural = cache.resource.plural
        self._relists = metrics.counter(
            "informer_relists_total", "Complete lists taken, by cause; the first one's is start.", ["resource", "cause"]
        )
        self._restored = metrics.counter(
            "informer_history_resets_total", "Times that the server was found restored from a backup.", ["resource"]
        ).labels(plural)
        self._failures = metrics.counter(
            "informer_list_failures_total", "Lists that failed, by cause.", ["resource", "cause"]
        )

    def take(self) -> Listed[T]:
        """Take a complete list, not older than what was seen. Raises ApiError, DecodeError,
        ListBehind and Stopped."""
        seen, asked = self._cache.version, self._clock.monotonic()
        listing = self._list("" if self._quorum else seen)
        cause = self._judge(seen, listing.version, asked)
        if seen and not self._quorum and len(listing.items) < len(self._cache) * _SUSPICIOUS:
            # A server's cache that is wrongly empty stays so for us: the watch goes on from its
            # version, and shows only what changes later. etcd itself must confirm it.
            self._quorum, asked = True, self._clock.monotonic()
            listing = self._list("")
            cause = self._judge(seen, listing.version, asked)
        self.cause = ""
        self._quorum = False
        self._too_large = 0
        self._relists.labels(self._resource.plural, cause).inc()
        return Listed(listing.items, listing.version, cause)

    def _list(self, not_older_than: str) -> Listing[Item[T]]:
        return fetch_list(
            self._fetch,
            self._resource.kind,
            self._read_unless_stopped,
            page_size=self._options.page_size,
            not_older_than=not_older_than,
        )

    def compare_version(self) -> None:
        """Ask whether the server's history has gone back. If so, a quorum list is to be taken."""
        seen = self._cache.version

        def compare(head: ListMeta) -> None:
            if is_newer(seen, head.resource_version):
                self.cause, self._quorum = "behind", True

        read_page(self._fetch({"limit": "1"})(), self._resource.kind, lambda _: None, compare)

    def failed(self, error: Exception, cause: str) -> float:
        """A list failed; `cause` labels it. Returns the seconds before the next one."""
        waits = True
        if self._encoding.failed(error):
            waits = False
        # A replica that lags: waiting helps, mostly; the third time etcd itself is asked.
        elif isinstance(error, ApiError) and is_too_large(error):
            cause = "too_large_version"
            # One replica may lag for long, and a load balancer may lead to it each time.
            self._too_large += 1
            self._quorum = self._quorum or self._too_large >= _TOO_LARGE_LIMIT
        elif isinstance(error, (Gone, BadRequest, ListBehind)):
            # The first 410 says only that our version is too old for this list: ask without it,
            # immediately.
            waits = self._quorum or not isinstance(error, Gone)
            self._quorum = True
        self._failures.labels(self._resource.plural, cause).inc()
        delay = self._retries.complain("list", error, waits=waits)
        # The back-off of a failure does not apply: the server answers, and in time it may be
        # believed.
        if isinstance(error, ListBehind) and self._history.in_doubt:
            delay = 0.0  # it is known when the next list can settle the doubt
        return max(self._history.wait(self._clock.monotonic()), delay)

    def _judge(self, seen: str, version: str, asked: float) -> str:
        """The cause of the list at hand, which was `asked` for at that time; or raises."""
        verdict = self._history.judge(seen, version, asked, quorum=self._quorum)
        if verdict is Verdict.BEHIND:
            why = "no quorum list" if not self._quorum else "another quorum list has to confirm that"
            raise ListBehind(f"the API server is at version {version}, though {seen} was seen: {why}")
        if verdict is Verdict.ONWARD:
            return self.cause
        self._restored.inc()
        log.error(
            "%s: the API server was restored from a backup: two quorum lists say that its version went back from %s to "
            "%s. Everything is read again", self._resource.plural, seen, version,
        )  # fmt: skip
        return "restored"

    def _read_unless_stopped(self, raw: Any) -> Item[T]:
        if self._loop.stopping.is_set():
            raise Stopped  # in the middle of a page, which may take a second to parse
        return self._cache.read(raw, reparse=self._history.in_doubt)

    def _fetch(self, query: Mapping[str, str]) -> Callable[[], Response]:
        rest, path, timeout = self._rest, self._resource.path(), self._options.list_timeout
        accept, query = self._encoding.accept, {**self._resource.selection, **query}
        request = PageRequest(lambda: rest.request("GET", path, query=query, accept=accept, timeout=timeout)).begin()

        def wait() -> Response:
            self._loop.begin(request)
            try:
                return request.wait()
            finally:
                self._loop.finish(request)

        return wait
