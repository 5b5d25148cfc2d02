"""Which Events are worth a write: counting repeated ones, combining similar ones, limiting
talkative objects (stage 6). No I/O; one thread at a time. The rules and their figures are
those of client-go's EventCorrelator (tools/record/events_cache.go):

- the same event again (object, type, reason, message) raises the count of the stored one;
- ten messages that differ for the same object, type and reason, less than ten minutes apart: from
  the tenth on, one Event stands for all, with the latest message behind a prefix;
- 25 writes at once per object and type, then one every five minutes.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from attrs import Factory, define, field, frozen
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

COMBINED_PREFIX: Final = "(combined from similar events): "
SIMILAR_LIMIT: Final = 10
SIMILAR_SECONDS: Final = 600.0
KEPT_SECONDS: Final = 3600.0
"""An Event that did not happen again for so long is created again: the API server deletes it after
as long (--event-ttl)."""
BURST: Final = 25
REFILL_PER_SECOND: Final = 1 / 300
MAX_MESSAGE: Final = 1024
_LOG_SECONDS: Final = 60.0

_MODEL_PREFIX: Final = re.compile(r"^(?:Core|Events)?V\d+(?:(?:alpha|beta)\d+)?(?=[A-Z])")
_API_VERSIONS: Final[Mapping[str, str]] = {"Lease": "coordination.k8s.io/v1"}
_identity: Final = attrgetter("kind", "namespace", "name", "uid", "api_version", "field_path")  # any version
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@frozen
class Reference:
    """The object that an Event is about. `kubectl describe` finds Events by these."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"
    resource_version: str = ""
    field_path: str = ""


def reference(obj: Any) -> Reference:
    """Make the reference to an object: a model, raw JSON, V1ObjectReference, or a Reference.

    Models of list items lack kind and apiVersion; they are known by the class. Raises ValueError
    where a kind or a name is missing."""
    if isinstance(obj, Reference):
        return obj
    if isinstance(obj, Mapping):
        meta = obj.get("metadata") or {}
        found = Reference(
            kind=obj.get("kind") or "",
            name=meta.get("name") or "",
            namespace=meta.get("namespace") or "",
            uid=meta.get("uid") or "",
            api_version=obj.get("apiVersion") or "v1",
            resource_version=meta.get("resourceVersion") or "",
        )
    else:
        meta = getattr(obj, "metadata", None)
        named = obj if meta is None else meta  # V1ObjectReference holds name and UID itself
        # Items of a list come without kind and apiVersion; their class tells them.
        kind = getattr(obj, "kind", None) or _MODEL_PREFIX.sub("", type(obj).__name__)
        found = Reference(
            kind=kind,
            name=getattr(named, "name", None) or "",
            namespace=getattr(named, "namespace", None) or "",
            uid=getattr(named, "uid", None) or "",
            api_version=getattr(obj, "api_version", None) or _API_VERSIONS.get(kind, "v1"),
            resource_version=getattr(named, "resource_version", None) or "",
            field_path=getattr(obj, "field_path", None) or "",
        )
    # kubectl describe finds an Event by these; without them nobody would ever read it.
    if not found.kind or not found.name:
        raise ValueError(f"an Event needs an object with a kind and a name, got {type(obj).__name__}")
    return found


@define(eq=False)
class Event:
    """Something that a controller reported, `count` times until now. The first of its kind is what
    is stored in the cluster; `exists`, `dirty`, `tries` and `not_before` belong to who writes it.
    """

    ref: Reference
    type: str
    reason: str
    message: str
    first_at: float  # unix seconds: what people read
    last_at: float
    count: int = 1
    at: float = 0.0  # monotonic seconds: what periods are measured with, whatever becomes of the wall clock
    key: tuple[Hashable, ...] = field(
        init=False,
        default=Factory(lambda self: (_identity(self.ref), self.type, self.reason, self.message), takes_self=True),
    )
    namespace: str = field(init=False, default=Factory(lambda self: self.ref.namespace or "default", takes_self=True))
    """Where the Event lives: its object's, or "default" for those without one."""
    name: str = ""
    """"" until it is found to be the first of its kind."""
    exists: bool = False
    dirty: bool = False
    tries: int = 0
    not_before: float = 0.0

    def body(self, component: str) -> dict[str, Any]:
        """The whole Event (core/v1), for its creation."""
        about = {
            "kind": self.ref.kind,
            "namespace": self.ref.namespace,
            "name": self.ref.name,
            "uid": self.ref.uid,
            "apiVersion": self.ref.api_version,
            "resourceVersion": self.ref.resource_version,
            "fieldPath": self.ref.field_path,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "involvedObject": {key: value for key, value in about.items() if value},
            "type": self.type,
            "reason": self.reason,
            "message": self.message,
            "count": self.count,
            "firstTimestamp": timestamp(self.first_at),
            "lastTimestamp": timestamp(self.last_at),
            "source": {"component": component},
            "reportingComponent": component,
        }

    def change(self) -> dict[str, Any]:
        """What a repetition changes, as JSON merge patch. Totals, so it may be sent twice."""
        return {"count": self.count, "lastTimestamp": timestamp(self.last_at), "message": self.message}


class Correlator:
    """What was written recently, as far as `memory` reaches; without one it has one of its own."""

    def __init__(self, memory: EventMemory | None = None) -> None:
        self._memory = memory or EventMemory()
        self._last_stamp = 0

    def observe(self, event: Event) -> Event | None:
        """Count something that was reported; the Event to write now, or None when its object has
        no writes left.

        What is not written is still counted, and its number appears with the next write."""
        key, message = self._combine(event)
        stored: Event | None = self._memory.get("event", (self, key))
        # Or it was forgotten, an hour after the last: the API server has deleted its Event by then.
        if stored is None:
            stored = event
            stored.key, stored.name = key, self._name(event)
        else:
            stored.count += event.count
            stored.last_at = event.last_at
        stored.message = message
        self._memory.put("event", (self, key), stored, event.at, event.at + KEPT_SECONDS)
        if not self._afford(event):
            return None
        stored.dirty = True
        return stored

    def forget(self, event: Event) -> None:
        """The Event could not be stored: the next one of its kind becomes a new Event."""
        if self._memory.get("event", (self, event.key)) is event:
            self._memory.drop("event", (self, event.key))

    def _combine(self, event: Event) -> tuple[tuple[Hashable, ...], str]:
        group = event.key[:3]
        known: tuple[tuple[int, ...], float] | None = self._memory.get("group", (self, group))
        now = event.at
        messages = known[0] if known is not None and now - known[1] <= SIMILAR_SECONDS else ()
        message = hash(event.message)  # only their number counts
        # The same message again is a repetition, which the count tells: it makes no group.
        if message not in messages:
            messages = (*messages, message)
        combined = len(messages) >= SIMILAR_LIMIT
        self._memory.put("group", (self, group), (messages[combined:], now), now, now + SIMILAR_SECONDS)
        if not combined:
            return event.key, event.message
        return group, (COMBINED_PREFIX + event.message)[:MAX_MESSAGE]

    def _afford(self, event: Event) -> bool:
        owner = event.key[:2]
        now = event.at
        tokens, filled_at = self._memory.get("budget", (self, owner)) or (float(BURST), now)
        # As client-go: one broken object may not fill etcd with Events about itself.
        tokens = min(float(BURST), tokens + (now - filled_at) * REFILL_PER_SECOND)
        affordable = tokens >= 1
        tokens -= affordable
        full = now + (BURST - tokens) / REFILL_PER_SECOND
        self._memory.put("budget", (self, owner), (tokens, now), now, full)
        return affordable

    def _name(self, event: Event) -> str:
        """`<object>.<time>`, as kubectl's users know it; or something unique."""
        # Never the same twice, should the clock stand still or go back.
        self._last_stamp = max(self._last_stamp + 1, int(event.last_at * 1e9))
        name = f"{event.ref.name}.{self._last_stamp:x}"
        return name if len(name) <= 253 and _SUBDOMAIN.fullmatch(name) else str(uuid.uuid4())


def timestamp(at: float) -> str:
    """RFC 3339 with whole seconds, as metav1.Time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


CACHE_SIZE: Final = 4096
"""What a process's recorders remember together, of each kind of thing; as one of client-go's."""

_Key = tuple[object, Hashable]
"""Whose it is, and its key."""


class EventMemory(Collector):
    """Shared memory: up to `size` Events, groups of similar ones, and budgets, none for longer than
    it is of use. Thread-safe."""

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kinds: dict[str, OrderedDict[_Key, tuple[Any, float]]] = {}

    @classmethod
    def of(cls, metrics: Metrics) -> EventMemory:
        """The one of the process that these metrics are of."""
        return metrics.collector("event_memory", cls)

    def get(self, kind: str, key: _Key) -> Any:
        with self._lock:
            items = self._kinds.setdefault(kind, OrderedDict())
            # A look counts as use too: the Events of objects that are in trouble are the last to
            # go.
            if key not in items:
                return None
            items.move_to_end(key)
            return items[key][0]

    def put(self, kind: str, key: _Key, value: Any, now: float, until: float) -> None:
        """Keep it until then; times are monotonic seconds."""
        with self._lock:
            items = self._kinds.setdefault(kind, OrderedDict())
            items[key] = value, until
            items.move_to_end(key)
            # The least recently used go first; what is over is mostly among them.
            while len(items) > self._size or next(iter(items.values()))[1] <= now:
                items.popitem(last=False)

    def drop(self, kind: str, key: _Key) -> None:
        with self._lock:
            self._kinds.setdefault(kind, OrderedDict()).pop(key, None)

    def sizes(self) -> dict[str, int]:
        """How many there are, by kind."""
        with self._lock:
            return {kind: len(items) for kind, items in self._kinds.items()}

    def collect(self) -> Iterable[Metric]:
        """For the metrics."""
        family = GaugeMetricFamily(
            "event_recorder_remembered",
            f"Events remembered to combine repeated ones, of all controllers; at most {CACHE_SIZE} of each kind.",
            labels=["kind"],
        )
        for kind, size in self.sizes().items():
            family.add_metric([kind], size)
        yield family


class Counts:
    """The recorder's metrics, and of drops one log line a minute for each reason."""

    def __init__(self, metrics: Metrics, component: str, clock: Clock) -> None:
        writes = metrics.counter(
            "event_recorder_writes_total", "Events written, by operation.", ("component", "operation")
        )
        self.created = writes.labels(component=component, operation="create")
        self.patched = writes.labels(component=component, operation="patch")
        self.merged = metrics.counter(
            "event_recorder_merged_total",
            "Events that were told by the write of an equal one still waiting.",
            ("component",),
        ).labels(component=component)
        self._dropped = metrics.counter(
            "event_recorder_dropped_total", "Events that were not written, by reason.", ("component", "reason")
        )
        self._component = component
        self.clock = clock
        self._lock = threading.Lock()
        self._silent: dict[str, tuple[float, int]] = {}

    def drop(self, reason: str, what: str, number: int = 1) -> None:
        self._dropped.labels(component=self._component, reason=reason).inc(number)
        now = self.clock.monotonic()
        with self._lock:
            until, more = self._silent.get(reason, (float("-inf"), 0))
            # A full queue drops thousands: one line a minute says how many, and the metric counts
            # each.
            if now < until:
                self._silent[reason] = (until, more + number)
                return
            self._silent[reason] = (now + _LOG_SECONDS, 0)
        # Neither is a fault: the object was talkative, or its namespace is being deleted.
        level = logging.INFO if reason in ("rate_limited", "namespace") else logging.WARNING
        hint = "; needs the rule: apiGroups [''], resources [events], verbs [create, patch]"
        log.log(
            level,
            "%s: %d Event(s) dropped (%s): %s%s",
            self._component,
            more + number,
            reason,
            what,
            hint if reason == "forbidden" else "",
        )
