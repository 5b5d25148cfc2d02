"""Informers (stages 1 and 2): a thread per kind that keeps a cache equal to the server, and tells
handlers the changes.

The cache changes and the handlers' queues fill under one lock, so a handler added at any time
starts from one moment's state and misses nothing after it. Follows client-go's shared informer, and
differs where it helps: a relist calls no handler about unchanged objects, an object recreated under
its name is a delete and an add, and a slow handler's backlog is bounded. There is no resync."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, cast

from attrs import frozen

from cloudprovider.helpers.objects import key_of
from controllers.runtime.api import RestClient
from controllers.runtime.cache.handlers import Delivery, Handlers
from controllers.runtime.cache.lists import Bookmark, Listed, Update, Watched
from controllers.runtime.cache.resources import Resource, T
from controllers.runtime.cache.retries import WatchOptions
from controllers.runtime.cache.store import Cache, Lister
from controllers.runtime.cache.watch import ListWatch
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)


@frozen
class InformerHealth:
    """How one informer does. Times in seconds.

    `silent_for` grows while neither list, event nor bookmark comes from the server (kube-apiserver
    sends a bookmark about every minute), None before `start`. `quarantined` maps keys to what is
    wrong with the objects. `error` is the last failure, "" while all is well.
    """

    resource: str
    synced: bool
    silent_for: float | None
    quarantined: dict[str, str]
    error: str


class Registration(Generic[T]):
    """One handler of one informer. All methods may be called from any thread, its own included."""

    def __init__(self, informer: Informer[T], delivery: Delivery[T]) -> None:
        self._informer = informer
        self._delivery = delivery

    def has_synced(self) -> bool:
        """Whether the handler was called, and returned, for every object of its first state."""
        return self._delivery.synced

    def pending(self) -> int:
        """How many events wait for the handler."""
        return self._delivery.pending()

    def remove(self) -> None:
        """Stop calling the handler. A call goes on; what waits is dropped. May be called twice."""
        self._informer._remove(self._delivery)


class Informer(Generic[T]):
    """The cache of one kind, kept true, and its handlers. All methods: any thread.

    Metrics: `informer_events_total{resource,type}`, `informer_stale_events_total{resource}`,
    `informer_last_sync_timestamp_seconds{resource}` (unix time of the last word from the server),
    and those of `watch.py`, `store.py` and `handlers.py`."""

    lister: Lister[T]
    """Reads the cache; empty until `has_synced`."""

    def __init__(
        self,
        rest: RestClient,
        resource: Resource[T],
        *,
        metrics: Metrics,
        clock: Clock = SYSTEM_CLOCK,
        options: WatchOptions | None = None,
    ) -> None:
        self.resource = resource
        self._metrics = metrics
        self._clock = clock
        self._cache = Cache(resource, metrics)
        self.lister = self._cache
        self._source = ListWatch(rest, self._cache, options, metrics=metrics, clock=clock)
        self._lock = threading.Lock()  # taken before a Delivery's and the cache's, never after
        self._deliveries: list[Delivery[T]] = []
        self._synced = False
        self._started: float | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"informer-{resource.plural}", daemon=True)
        events = metrics.counter("informer_events_total", "Watch events received.", ["resource", "type"])
        self._events = {kind: events.labels(resource.plural, kind) for kind in ("ADDED", "MODIFIED", "DELETED")}
        self._bookmarks = events.labels(resource.plural, "BOOKMARK")
        self._stale = metrics.counter(
            "informer_stale_events_total", "Watch events that repeated what was known.", ["resource"]
        ).labels(resource.plural)
        metrics.gauge(
            "informer_last_sync_timestamp_seconds", "Unix time of the last word from the server.", ["resource"]
        ).labels(resource.plural).set_function(self._last_sync)

    # Life

    def start(self) -> None:
        """Start listing and watching. No-op when started; RuntimeError after `stop`."""
        with self._lock:
            if self._stopped:
                raise RuntimeError(f"the informer of {self.resource.plural} was stopped")
            if self._started is None:
                self._thread.start()  # first: where the system has no thread left, a later call tries again
                self._started = self._clock.monotonic()

    def request_stop(self) -> None:
        """Begin to stop: the watch ends, waiting events go. May be called twice."""
        with self._lock:
            # Before the source is told: should `_run` fail in that moment, it must not begin again.
            self._stopped = True
            deliveries = list(self._deliveries)
        self._source.stop()
        for delivery in deliveries:
            delivery.close()

    def stop(self, timeout: float = 1.0) -> bool:
        """Stop and wait at most `timeout` real seconds; False when a handler is still busy.

        The cache stays readable. May be called twice, and from a handler (not waited for)."""
        self.request_stop()
        deadline = time.monotonic() + timeout
        ended = True
        # A handler may stop its own informer; a thread that joins itself would wait for ever.
        if self._started is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            ended = not self._thread.is_alive()
        with self._lock:
            deliveries = list(self._deliveries)
        for delivery in deliveries:
            ended = delivery.join(max(0.0, deadline - time.monotonic())) and ended
        return ended

    def has_synced(self) -> bool:
        """Whether the cache holds a complete list. A handler's own view:
        `Registration.has_synced`."""
        return self._synced

    def health(self) -> InformerHealth:
        """How it does, for health checks."""
        started = self._started
        # From the start on: one that never reached the server is as silent as one that lost it.
        silent = None if started is None else self._clock.monotonic() - max(started, self._source.last_contact)
        return InformerHealth(
            self.resource.plural, self._synced, silent, self._cache.quarantine.problems(), self._source.error
        )

    def busy(self) -> bool:
        """Whether a handler has something before it or under way."""
        with self._lock:
            return any(delivery.busy for delivery in self._deliveries)

    # Handlers

    def add_handler(
        self,
        on_add: Callable[[T, bool], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T], None] | None = None,
        *,
        name: str | None = None,
    ) -> Registration[T]:
        """Add a handler, at any time.

        `on_add(object, initial)` (`initial`: it was there at the handler's start), `on_update(old,
        new)`, `on_delete(last known state)` are called one after another in a thread of the
        handler's own. One that raises costs that call alone: it is logged and counted. `name` shows
        in metrics and logs.

        The objects are shared with everyone: never change one. RuntimeError after `stop`.
        """
        handlers = Handlers(name or _name_of(on_add, on_update, on_delete), on_add, on_update, on_delete)
        with self._lock:
            if self._stopped:
                raise RuntimeError(f"the informer of {self.resource.plural} was stopped")
            delivery = Delivery(self.resource.plural, handlers, metrics=self._metrics)
            delivery.start()  # first: where the system has no thread left, nothing is registered
            self._deliveries.append(delivery)
            if self._synced:
                delivery.push_initial([(key_of(obj), obj) for obj in self._cache.list()])
        return Registration(self, delivery)

    def _remove(self, delivery: Delivery[T]) -> None:
        with self._lock:
            # Removed twice, or after the informer has stopped: nothing is left to do.
            if delivery in self._deliveries:
                self._deliveries.remove(delivery)
        delivery.close()

    # The thread

    def _run(self) -> None:
        while not self._stopped:
            try:
                for update in self._source.updates():
                    self._take(update)
                return
            except Exception:
                # A fault of ours, or of a credential plugin: whatever it was, a list makes the
                # cache right again.
                delay = self._source.relist("internal")
                log.exception("%s: informer failed, retrying with a new list in %.1f s", self.resource.plural, delay)
                self._source.wait(delay)

    def _take(self, update: Update[T]) -> None:
        if isinstance(update, Watched):
            self._events[update.event].inc()
            # One lock for both: a handler added now must neither miss this change nor see it twice.
            with self._lock:
                changes = self._cache.apply(update.event, update.item)
                if changes:
                    for delivery in self._deliveries:
                        delivery.push(changes)
            # A replica that lags repeats what another one has shown; many of these point at one.
            if changes is None:
                self._stale.inc()
        elif isinstance(update, Bookmark):
            self._bookmarks.inc()
            self._cache.advance(update.version)
        else:
            self._take_list(update)

    def _take_list(self, listed: Listed[T]) -> None:
        with self._lock:
            changes = self._cache.replace(listed.items, listed.version, restored=listed.cause == "restored")
            if self._synced:
                for delivery in self._deliveries:
                    delivery.push(changes)
            else:
                # The first list is an add of everything, marked as such; relists are told as
                # changes.
                initial = [(change.key, cast(T, change.new)) for change in changes]
                for delivery in self._deliveries:
                    delivery.push_initial(initial)
                self._synced = True
        # A list later on is worth knowing of: it costs the server, and says that a watch could not
        # go on.
        if listed.cause == "start":
            log.info("%s: listed %d objects at version %s", self.resource.plural, len(self._cache), listed.version)
        else:
            log.info(
                "%s: listed again (%s): %d objects, %d changes",
                self.resource.plural, listed.cause, len(self._cache), len(changes),
            )  # fmt: skip

    def _last_sync(self) -> float:
        if not self._synced:
            return 0.0
        return self._clock.time() - (self._clock.monotonic() - self._source.last_contact)


def _name_of(*functions: Callable[..., None] | None) -> str:
    """A name for a handler: where its first function is defined."""
    for function in functions:
        if function is not None:
            module = getattr(function, "__module__", "") or ""
            name = getattr(function, "__qualname__", type(function).__qualname__)
            return f"{module.rpartition('.')[2]}.{name}".replace(".<locals>", "")
    return "none"
