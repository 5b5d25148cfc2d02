"""The cache of one kind (stage 2): what the server holds, as far as lists and watches have shown.
No I/O and no thread.

Three rules keep the cache true whatever comes over the wire:

- Versions only go forward: an event that repeats an older state (a replay, a replica that lags)
  changes nothing. The exception is a server restored from a backup (`lists.History`).
- One malformed object costs itself alone: the version that was known before it stays visible until
  its next well-formed version, or its deletion.
- An object with another UID is another object: first the old one is deleted, then the new one is
  added.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final, Generic, TypeVar

from attrs import frozen

from cloudprovider.helpers.objects import key_of, uid_of
from controllers.runtime.cache.decoding import Parser, metadata_of
from controllers.runtime.cache.resources import ApiObject, MalformedObject, Resource, T, is_newer, version_of
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

A = TypeVar("A")
R = TypeVar("R")

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
EVENT_TYPES: Final = frozenset({ADDED, MODIFIED, DELETED})


@frozen
class Item(Generic[T]):
    """One object off the wire. `obj` is None where it is malformed, and `problem` then says why.

    `key` is "" where not even a name could be read; `uid` and `version` likewise."""

    key: str
    uid: str
    version: str
    obj: T | None
    problem: str = ""


class ChangeKind(enum.Enum):
    """What a handler is called for."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


@frozen
class Change(Generic[T]):
    """One step of one object: ADD has only `new`, DELETE only `old` (last known), UPDATE both."""

    kind: ChangeKind
    key: str
    old: T | None
    new: T | None


class Lister(Generic[T]):
    """The reading side of a cache. Thread-safe; never waits for the server. The objects are
    shared: never change one."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._indexed: dict[str, dict[str, T]] = {}
        """By value of the index, then by key."""
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        """The object with this key ("name" or "namespace/name"), or None."""
        with self._lock:
            return self._objects.get(key)

    def list(self) -> list[T]:
        """All objects at one moment, in no particular order, in a list of the caller's own."""
        with self._lock:
            return [*self._objects.values()]

    def indexed(self, value: str) -> Sequence[T]:
        """The objects that the kind's index finds by this value, in no particular order."""
        with self._lock:
            return [*self._indexed.get(value, {}).values()]

    def keys(self) -> Sequence[str]:
        """The keys of all objects at one moment."""
        with self._lock:
            return [*self._objects]

    def __len__(self) -> int:
        return len(self._objects)


class Quarantine:
    """The objects whose newest version is malformed: counted, logged, shown. One thread writes.

    Metrics: the gauge `informer_quarantined_objects{resource}` (now), the counter
    `informer_malformed_objects_total{resource}` (every malformed version that came)."""

    def __init__(self, resource: str, metrics: Metrics) -> None:
        self._resource = resource
        self._problems: dict[str, str] = {}
        self._unnamed_logged = False
        self._now = metrics.gauge(
            "informer_quarantined_objects", "Objects whose newest version could not be parsed.", ["resource"]
        ).labels(resource)
        self._seen = metrics.counter(
            "informer_malformed_objects_total", "Object versions that could not be parsed.", ["resource"]
        ).labels(resource)
        self._now.set(0)

    def __contains__(self, key: str) -> bool:
        return key in self._problems

    def problems(self) -> dict[str, str]:
        """Key to problem, of all objects held now; a copy."""
        return dict(self._problems)

    def hold(self, key: str, problem: str) -> None:
        """Take in an object, or another malformed version of one held already. Without a key it is
        counted only."""
        self._seen.inc()
        if not key:
            if not self._unnamed_logged:
                self._unnamed_logged = True
                log.error("%s: an object without a name came from the API server: %s", self._resource, problem)
            return
        if key not in self._problems:
            log.error(
                "%s %s is malformed and skipped; its last valid version stays in use until it is repaired: %s",
                self._resource, key, problem,
            )  # fmt: skip
        self._problems[key] = problem
        self._now.set(len(self._problems))

    def release(self, key: str, why: str) -> None:
        """Let an object go: it is well again, or deleted. Nothing happens where it is not held."""
        if self._problems.pop(key, None) is not None:
            log.info("%s %s is no longer skipped: %s", self._resource, key, why)
            self._now.set(len(self._problems))

    def keep_only(self, keys: Set[str]) -> None:
        """Release all that a list did not show: they are deleted."""
        # A deletion that fell into a gap between two watches has no event; a list is all that tells
        # of it.
        for key in self._problems.keys() - keys:
            self.release(key, "deleted")


class Cache(Lister[T]):
    """The objects of one kind by key. One thread writes (`replace`, `apply`, `advance`), any thread
    reads."""

    def __init__(self, resource: Resource[T], metrics: Metrics) -> None:
        super().__init__()
        self.quarantine = Quarantine(resource.plural, metrics)
        self.resource = resource
        self._index = resource.index
        self._version = ""
        self._parser = Parser(resource)

    @property
    def version(self) -> str:
        """The newest resourceVersion that any answer has shown; "" before the first list."""
        return self._version

    def read(self, raw: Any, *, reparse: bool = False) -> Item[T]:
        """Turn an object, raw or in Protobuf, into an item; never raises. Consumes `raw`. For the
        writing thread.

        An object that is cached at this very version is not parsed again, unless `reparse`:
        the item holds the cached one.
        """
        metadata = metadata_of(raw)
        if metadata is None:
            return Item("", "", "", None, "no metadata")
        name, namespace, uid, version = metadata
        # Not counted as an object: without a key nobody could tell when it is repaired or deleted.
        if not name or (self.resource.namespaced and not namespace):
            return Item("", uid, version, None, "metadata lacks a name or a namespace")
        key = f"{namespace}/{name}" if self.resource.namespaced else name
        known = self._objects.get(key)
        # Most of a relist is cached at the same version, and parsing is what a list costs.
        if known is not None and not reparse and version and version_of(known) == version and uid_of(known) == uid:
            return Item(key, uid, version, known)
        try:
            obj = self._parser.parse(raw)
        except MalformedObject as error:
            return Item(key, uid, version, None, str(error))
        return Item(key_of(obj), uid, version, obj)

    def replace(self, items: Iterable[Item[T]], version: str, *, restored: bool = False) -> list[Change[T]]:
        """Make the cache equal to a complete list, which stood at `version`; returns what changed.

        What the list lacks was deleted while no watch was open. A malformed item counts as present:
        its object keeps its last good version, unless the UID says that it is another object.
        Versions may go back where the server was `restored` from a backup; then each object that is
        still there is an update, whatever its version.
        """
        latest: dict[str, Item[T]] = {}
        for item in items:
            if not item.key:
                self.quarantine.hold("", item.problem)
                continue
            # Pages are of one snapshot, but one that expired between them starts over: the newer
            # counts.
            twin = latest.get(item.key)
            if twin is None or is_newer(twin.version, item.version) is not True:
                latest[item.key] = item
        objects: dict[str, T] = {}
        changes = [Change(ChangeKind.DELETE, key, old, None) for key, old in self._objects.items() if key not in latest]
        for key, item in latest.items():
            old = self._objects.get(key)
            if item.obj is None:
                self.quarantine.hold(key, item.problem)
                # A malformed item: with another UID its object is gone, else its last good version
                # stays.
                if old is not None and _is_another(old, item):
                    changes.append(Change(ChangeKind.DELETE, key, old, None))
                elif old is not None:
                    objects[key] = old
                continue
            self.quarantine.release(key, "valid again")
            new = item.obj
            same = old is not None and not _is_another(old, item)
            if old is not None and same and not restored and is_newer(item.version, version_of(old)) is False:
                new = old  # the same version, or one older than an event has shown
            objects[key] = new
            changes += _steps(key, old, new)
        # Only a whole list may do this: an event says nothing of other objects.
        self.quarantine.keep_only(latest.keys())
        indexed: dict[str, dict[str, T]] = {}
        if self._index is not None:
            for key, obj in objects.items():
                if value := self._index(obj):
                    indexed.setdefault(value, {})[key] = obj
        with self._lock:
            self._objects, self._indexed = objects, indexed
        # As it stands, not the larger one: after a restore it goes back, and a watch from the old
        # version would stay silent.
        self._version = version
        return changes

    def apply(self, event: str, item: Item[T]) -> list[Change[T]] | None:
        """Apply one watch event (ADDED, MODIFIED or DELETED) of an item that has a key; the
        changes.

        None means that the event was stale, a repetition of what is known already."""
        old = self._objects.get(item.key)
        if self._is_stale(event, item, old):
            return None
        # Before anything may be found wrong with the object: a watch that begins again must not ask
        # for this event a second time.
        self.advance(item.version)
        if event == DELETED:
            self.quarantine.release(item.key, "deleted")
            if old is None:
                return []
            self._put(item.key, None)
            # The deletion's own object is the newest state; it may be malformed.
            last = item.obj if item.obj is not None and item.uid == uid_of(old) else old
            return [Change(ChangeKind.DELETE, item.key, last, None)]
        if item.obj is None:
            self.quarantine.hold(item.key, item.problem)
            # Repaired, it may be well again: controllers go on with what they knew, rather than
            # tear down.
            if old is None or not _is_another(old, item):
                return []
            self._put(item.key, None)
            return [Change(ChangeKind.DELETE, item.key, old, None)]
        self.quarantine.release(item.key, "valid again")
        self._put(item.key, item.obj)
        return _steps(item.key, old, item.obj)

    def advance(self, version: str) -> None:
        """The server has shown all up to this version (a bookmark). Never goes back."""
        # Versions that cannot be compared (no kube-apiserver of ours) are taken as they come.
        if version and is_newer(version, self._version) is not False:
            self._version = version

    def _is_stale(self, event: str, item: Item[T], old: T | None) -> bool:
        """Whether an event tells nothing new.

        A watch shows each change once, in order, so an event no newer than all that was shown is a
        repetition. The one exception: a deletion counts as long as the very object is cached at no
        later a version.
        """
        if event == DELETED and old is not None and uid_of(old) == item.uid:
            # Its version may be older than the newest seen, where a relist has overtaken it.
            return is_newer(version_of(old), item.version) is True
        if old is not None and uid_of(old) == item.uid and is_newer(item.version, version_of(old)) is False:
            return True
        return bool(item.version) and is_newer(item.version, self._version) is False

    def _put(self, key: str, obj: T | None) -> None:
        with self._lock:
            if self._index is not None:
                self._reindex(self._index, key, self._objects.get(key), obj)
            if obj is None:
                del self._objects[key]
            else:
                self._objects[key] = obj

    def _reindex(self, index: Callable[[T], str], key: str, old: T | None, new: T | None) -> None:
        before = "" if old is None else index(old)
        after = "" if new is None else index(new)
        if before != after and before:
            self._indexed[before].pop(key)
            # An empty entry goes: names of Services that are gone must not pile up.
            if not self._indexed[before]:
                del self._indexed[before]
        if new is not None and after:
            self._indexed.setdefault(after, {})[key] = new


def _steps(key: str, old: T | None, new: T) -> list[Change[T]]:
    if old is new:
        return []
    if old is None:
        return [Change(ChangeKind.ADD, key, None, new)]
    # Deleted and created again between two looks: handlers must drop what they know of the old one.
    if uid_of(old) == uid_of(new):
        return [Change(ChangeKind.UPDATE, key, old, new)]
    return [Change(ChangeKind.DELETE, key, old, None), Change(ChangeKind.ADD, key, None, new)]


def _is_another(old: ApiObject, item: Item[Any]) -> bool:
    """Whether the item is another object of that name. A malformed one without UID never is."""
    return uid_of(old) != item.uid and (item.obj is not None or bool(item.uid))


class Derived(Generic[A, R]):
    """Remembers what `make` returned for each object of the last call, for sweeps that look at all
    objects again and again. For one thread at a time.

    Objects are distinguished by their identity: a cache never changes one, it replaces it.
    """

    def __init__(self, make: Callable[[A], R]) -> None:
        self._make = make
        self._places: list[int] = []
        self._known: dict[int, tuple[A, R]] = {}  # by the object's address; the object is kept alive here
        self._made: list[R] = []

    def of(self, objects: Sequence[A]) -> Sequence[R]:
        """What is made of each of these objects, in their order; others are forgotten."""
        places = list(map(id, objects))
        if places != self._places:
            known, make = self._known, self._make
            found = [known.get(place) or (one, make(one)) for place, one in zip(places, objects, strict=True)]
            self._places, self._known = places, dict(zip(places, found, strict=True))
            self._made = [made for _, made in found]
        return self._made
