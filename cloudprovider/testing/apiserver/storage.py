"""Versioned object store: what etcd is to the real server, in memory. One lock covers a whole
read-modify-write, so that no write ever has to be tried again.

Objects are shared, never copied: their readers must not change them. A revision is serialised once
and its bytes go to every reader and watcher."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import JSON

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
FIRST_VERSION: Final = 1


def encode(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return _encoder.encode(value).encode("utf-8", "surrogatepass")


class Stored:
    """One revision of one object.

    `key` is "name" or "namespace/name", `object` carries its resourceVersion, `version` is that as
    a number.
    """

    __slots__ = ("_data", "_is_current", "key", "object", "version")

    def __init__(self, key: str, obj: JSON, version: int) -> None:
        self.key = key
        self.object = obj
        self.version = version
        self._data: bytes | None = None
        self._is_current = True

    @property
    def data(self) -> bytes:
        """The object as JSON, kept from the first use on. Thread-safe: at worst done twice."""
        data = self._data
        if data is None:
            data = encode(self.object)
            # A revision of the past is read by one late watcher, if at all: not worth the memory.
            if self._is_current:
                self._data = data
        return data

    def supersede(self) -> None:
        """A later revision exists: the history need not hold this one's bytes."""
        self._is_current = False
        self._data = None

    @property
    def item(self) -> bytes:
        """The object as it stands in a list: without `kind` and `apiVersion`, which the list says
        once."""
        obj = self.object
        head = {name: obj[name] for name in ("kind", "apiVersion") if name in obj}
        prefix = encode(head)[:-1]
        # The bytes are there already: to serialise a list of 5,000 nodes again takes a second.
        if head and len(obj) > len(head) and self.data.startswith(prefix + b","):
            return b"{" + self.data[len(prefix) + 1 :]
        return encode({name: value for name, value in obj.items() if name not in head})

    @property
    def uid(self) -> str:
        """The object's UID."""
        return str(self.object.get("metadata", {}).get("uid", ""))


class Change:
    """One write: what kind it was, the object after it (for a deletion: its last state, at the
    deletion's version), and before it.
    """

    __slots__ = ("kind", "previous", "stored", "version")

    def __init__(self, kind: str, stored: Stored, previous: Stored | None) -> None:
        self.kind = kind
        self.stored = stored
        self.previous = previous
        self.version = stored.version

    @property
    def line(self) -> bytes:
        """The watch event of this change as one line."""
        return watch_line(self.kind, self.stored.data)


def watch_line(kind: str, data: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), data)


class Compacted(Exception):
    """The version asked for is older than the history kept. `oldest` is answerable."""

    def __init__(self, version: int, oldest: int) -> None:
        super().__init__(f"version {version} is compacted, oldest is {oldest}")
        self.version = version
        self.oldest = oldest


class Collection:
    """The objects of one resource with their changes. Guarded by the store's lock."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.changes: deque[Change] = deque()
        self.subscriptions: set[Subscription] = set()

    def at(self, version: int) -> list[Stored]:
        """The objects in key order as they were at `version`, by undoing later changes."""
        undone: dict[str, Stored | None] = {}
        for change in reversed(self.changes):
            # Changes are in order, so that all before it are older too.
            if change.version <= version:
                break
            # The loop goes backwards: what is left in the end is the oldest of the later changes.
            undone[change.stored.key] = change.previous
        found = {**self.objects, **undone}
        return [stored for key in sorted(found) if (stored := found[key]) is not None]


class Subscription:
    """A watcher's place in the store: `pending` receives every later change of one resource, and
    what others put in to wake the watcher.

    Made by `Store.subscribe`, ended by `Store.unsubscribe`; read by one thread.
    """

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.pending: SimpleQueue[Any] = SimpleQueue()


class Store:
    """All resources under one rising revision. Every method is safe from many threads.

    `history` bounds the number of changes kept, over all resources; older ones count as
    compacted."""

    def __init__(self, *, history: int = 20_000) -> None:
        self.lock = threading.RLock()
        self._collections: dict[str, Collection] = {}
        self._version = FIRST_VERSION
        self._oldest = FIRST_VERSION
        self._history = history
        self._recent: deque[str] = deque()

    @property
    def version(self) -> int:
        """The latest revision."""
        return self._version

    @property
    def oldest(self) -> int:
        """The oldest revision that can still be read or watched from."""
        return self._oldest

    def collection(self, resource: str) -> Collection:
        """The objects of a resource. Read it with the lock held."""
        found = self._collections.get(resource)
        if found is None:
            with self.lock:
                found = self._collections.setdefault(resource, Collection())
        return found

    def get(self, resource: str, key: str) -> Stored | None:
        """The newest revision of an object, None if there is none."""
        # No lock: a revision is never changed, and a dictionary is read in one step.
        return self.collection(resource).objects.get(key)

    def snapshot(self, resource: str, version: int | None = None) -> tuple[list[Stored], int]:
        """All objects of a resource in key order, and the version they show (the latest).

        Raises Compacted when the history no longer reaches back to `version`."""
        with self.lock:
            at = self._version if version is None else version
            # The changes to undo are dropped: what they deleted would be missing.
            if at < self._oldest:
                raise Compacted(at, self._oldest)
            return self.collection(resource).at(at), at

    def put(self, resource: str, key: str, obj: JSON) -> Stored:
        """Store a new object or the next revision of one.

        `obj` and its `metadata` are fresh dictionaries: the resourceVersion is written there."""
        with self.lock:
            held = self.collection(resource)
            previous = held.objects.get(key)
            self._version += 1
            obj["metadata"]["resourceVersion"] = str(self._version)
            stored = Stored(key, obj, self._version)
            held.objects[key] = stored
            # Under the same lock, or two watchers could see two changes in a different order.
            self._record(resource, held, Change(MODIFIED if previous else ADDED, stored, previous))
            return stored

    def remove(self, resource: str, key: str, last: Mapping[str, Any] | None = None) -> Stored:
        """Delete an object; `last` is its final state, if another. Raises KeyError."""
        with self.lock:
            held = self.collection(resource)
            previous = held.objects.pop(key)
            self._version += 1
            final = dict(previous.object if last is None else last)
            # A deletion has a version of its own, by which a watch resumes behind it.
            final["metadata"] = {**final.get("metadata", {}), "resourceVersion": str(self._version)}
            stored = Stored(key, final, self._version)
            self._record(resource, held, Change(DELETED, stored, previous))
            return stored

    def subscribe(self, resource: str, since: int) -> tuple[Subscription, list[Change]]:
        """Start watching: the changes after `since` so far, and a subscription for later ones.

        Raises Compacted when changes after `since` may have been dropped."""
        with self.lock:
            # "Nothing new" would be a lie: the changes between may be dropped already.
            if since < self._oldest:
                raise Compacted(since, self._oldest)
            held = self.collection(resource)
            missed: list[Change] = []
            for change in reversed(held.changes):
                if change.version <= since:
                    break
                missed.append(change)
            # Found from the newest on, as few are missed of many; told in their order.
            missed.reverse()
            subscription = Subscription(resource)
            held.subscriptions.add(subscription)
            return subscription, missed

    def subscribe_now(self, resource: str) -> tuple[Subscription, list[Stored], int]:
        """Start watching at the latest version: the present objects, their version, and what comes
        later."""
        with self.lock:
            objects, version = self.snapshot(resource)
            subscription, _ = self.subscribe(resource, version)
            return subscription, objects, version

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; a second time is a no-op."""
        with self.lock:
            self.collection(subscription.resource).subscriptions.discard(subscription)

    def quiet_version(self, subscription: Subscription) -> int | None:
        """The latest version if this subscriber has taken every change up to it, else None: what a
        bookmark may say.
        """
        with self.lock:
            return self._version if subscription.pending.empty() else None

    def compact(self, version: int | None = None) -> int:
        """Drop the history before `version` (by default all of it); older versions answer 410.

        Returns the oldest version left. May be called at any time; going backwards is a no-op."""
        with self.lock:
            target = self._version if version is None else min(version, self._version)
            while self._recent and self._oldest < target:
                held = self._collections[self._recent[0]]
                # The order over all resources: the first one that stays ends it.
                if held.changes[0].version > target:
                    break
                held.changes.popleft()
                self._recent.popleft()
            self._oldest = max(self._oldest, target)
            return self._oldest

    def _record(self, resource: str, held: Collection, change: Change) -> None:
        # Its bytes go with it, or 20,000 changes of large nodes would be held twice.
        if change.previous is not None:
            change.previous.supersede()
        held.changes.append(change)
        self._recent.append(resource)
        if len(self._recent) > self._history:
            # The oldest change of all is the oldest one of its resource.
            dropped = self._collections[self._recent.popleft()].changes.popleft()
            self._oldest = max(self._oldest, dropped.version)
        for subscription in held.subscriptions:
            subscription.pending.put(change)
