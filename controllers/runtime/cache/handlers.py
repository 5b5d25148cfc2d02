"""Delivery to one handler (stage 2 to 3): a queue and a thread of its own, so that a slow handler
delays no other.

The informer pushes changes under its lock, in the order in which the cache took them. For each
object a handler sees add, update*, delete, add, ... where `old` of an update is exactly the object
that it saw last. Beyond 10,000 waiting events a change is merged into the one that waits for the
same key: add and update become an add, update and delete a delete, and an object that came and went
meanwhile is not shown; a delete and the add of its successor stay two."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic

from attrs import define, frozen

from controllers.runtime.cache.resources import T
from controllers.runtime.cache.store import Change, ChangeKind
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

MERGE_ABOVE: Final = 10_000


@frozen
class Handlers(Generic[T]):
    """The functions of one handler; each may be None. They must not change the objects."""

    name: str
    add: Callable[[T, bool], None] | None
    update: Callable[[T, T], None] | None
    delete: Callable[[T], None] | None


@define(eq=False)
class _Entry(Generic[T]):
    """A waiting call. `kind` None marks the end of the initial adds. `before`: its delete."""

    kind: ChangeKind | None
    key: str
    old: T | None
    new: T | None
    initial: bool
    before: _Entry[T] | None = None


class Delivery(Generic[T]):
    """The queue and the thread of one handler. All methods may be called from any thread.

    Metrics: `informer_handler_errors_total{resource,handler}`, and
    `informer_handler_pending{resource,handler}`, the number of waiting events."""

    def __init__(self, resource: str, handlers: Handlers[T], *, metrics: Metrics) -> None:
        self._resource = resource
        self._handlers = handlers
        self._condition = threading.Condition(threading.Lock())
        self._entries: OrderedDict[_Entry[T], None] = OrderedDict()  # in their order; any one can be taken out
        self._tails: dict[str, _Entry[T]] = {}  # the last waiting entry of each object
        self._synced = False
        self._closed = False
        self._merging = False
        self._calling = False
        self._errors = metrics.counter(
            "informer_handler_errors_total", "Handler calls that raised.", ["resource", "handler"]
        ).labels(resource, handlers.name)
        self._pending = metrics.gauge(
            "informer_handler_pending", "Events that wait for a handler.", ["resource", "handler"]
        ).labels(resource, handlers.name)
        # Read when scraped: to set a gauge with each event would cost more than the event.
        self._pending.set_function(self._entries.__len__)
        self._thread = threading.Thread(target=self._run, name=f"informer-{resource}-{handlers.name}"[:60], daemon=True)

    @property
    def name(self) -> str:
        return self._handlers.name

    @property
    def synced(self) -> bool:
        """Whether every object of the first state was delivered: the calls have returned."""
        return self._synced

    @property
    def busy(self) -> bool:
        """Whether an event waits, or a call is under way; True until the first state is out."""
        with self._condition:
            return not self._synced or bool(self._entries) or self._calling

    def pending(self) -> int:
        """How many events wait."""
        return len(self._entries)

    def start(self) -> None:
        """Start the thread; once."""
        self._thread.start()

    def push_initial(self, objects: Sequence[tuple[str, T]]) -> None:
        """Push the first state as adds with initial=True, then a mark. Called once, first."""
        with self._condition:
            for key, obj in objects:
                self._append(_Entry(ChangeKind.ADD, key, None, obj, True))
            self._append(_Entry(None, "", None, None, False))
            self._condition.notify()

    def push(self, changes: Sequence[Change[T]]) -> None:
        """Push changes in their order."""
        with self._condition:
            for change in changes:
                # A slow handler must not fill the memory; merged, it still sees the last state of
                # each object.
                if len(self._entries) < MERGE_ABOVE or not self._merge(change):
                    self._append(_Entry(change.kind, change.key, change.old, change.new, False))
            self._condition.notify()

    def close(self) -> None:
        """Deliver nothing more: what waits is dropped, a call goes on. May be called twice."""
        with self._condition:
            self._closed = True
            self._entries.clear()
            self._tails.clear()
            self._condition.notify_all()

    def join(self, timeout: float | None) -> bool:
        """Wait `timeout` real seconds for the thread's end; True when it has ended, or is the
        caller's own."""
        # Not started, where the system had no thread left; or a handler that stops its own
        # informer.
        if self._thread.ident is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _append(self, entry: _Entry[T]) -> None:
        if self._closed:
            return
        self._entries[entry] = None
        if entry.kind is not None:
            tail = self._tails.get(entry.key)
            # If this entry is merged away later, its delete becomes the object's last entry again.
            if tail is not None and tail.kind is ChangeKind.DELETE:
                entry.before = tail
            self._tails[entry.key] = entry

    def _merge(self, change: Change[T]) -> bool:
        """Let the waiting add or update of the same object show the newer state instead."""
        tail = self._tails.get(change.key)
        # A delete and the add of its successor stay two: they are two objects, of two UIDs.
        if tail is None or tail.kind is ChangeKind.DELETE:
            return False
        if not self._merging:
            self._merging = True
            log.warning(
                "%s: handler %s is %d events behind; further changes of the same objects are merged",
                self._resource, self.name, len(self._entries),
            )  # fmt: skip
        if change.kind is ChangeKind.UPDATE:
            tail.new = change.new
        # The handler knows it: it must hear of the deletion, with the last state that the cache
        # had.
        elif tail.kind is ChangeKind.UPDATE:
            tail.kind, tail.old, tail.new = ChangeKind.DELETE, change.old, None
        else:  # it came and went, and the handler never saw it
            del self._entries[tail]
            # Its predecessor of that name is still to be told as deleted; a later add comes behind
            # that.
            if tail.before is not None and tail.before in self._entries:
                self._tails[change.key] = tail.before
            else:
                del self._tails[change.key]
        return True

    def _run(self) -> None:
        handlers: Handlers[Any] = self._handlers
        while (entry := self._next()) is not None:
            if entry.kind is None:
                self._synced = True
                continue
            try:
                if entry.kind is ChangeKind.ADD:
                    if handlers.add is not None:
                        handlers.add(entry.new, entry.initial)
                elif entry.kind is ChangeKind.UPDATE:
                    if handlers.update is not None:
                        handlers.update(entry.old, entry.new)
                elif handlers.delete is not None:
                    handlers.delete(entry.old)
            except BaseException:  # a handler's SystemExit must not end the thread either
                self._errors.inc()
                log.exception(
                    "%s: handler %s failed on %s of %s", self._resource, self.name, entry.kind.value, entry.key
                )

    def _next(self) -> _Entry[T] | None:
        """The next entry; None when closed."""
        with self._condition:
            self._calling = False
            while not self._entries and not self._closed:
                self._condition.wait()
            if self._closed:
                return None
            self._calling = True
            entry, _ = self._entries.popitem(last=False)
            # A newer one of the same object may have taken its place at the end.
            if self._tails.get(entry.key) is entry:
                del self._tails[entry.key]
            self._merging = self._merging and bool(self._entries)
            return entry
