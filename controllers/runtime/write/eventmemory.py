"""What the writers of Events remember of what they wrote (stage 6), with one bound for the whole
process: what was not touched for the longest time is forgotten first, whosever it is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controllers.runtime.metrics import Metrics

CACHE_SIZE: Final = 4096
"""What all the recorders of a process remember together, of each kind of thing; as one of
client-go's."""

V = TypeVar("V")
_Key = tuple[object, Hashable]


class EventMemory(Collector):
    """The memory of all who share it: up to `size` Events, groups of similar ones, and budgets.
    Thread-safe."""

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._kinds: dict[str, OrderedDict[_Key, Any]] = {}

    @classmethod
    def of(cls, metrics: Metrics) -> EventMemory:
        """The one of the process that these metrics are of."""
        return metrics.collector("event_memory", cls)

    def get(self, kind: str, key: _Key) -> Any:
        with self._lock:
            items = self._kinds.setdefault(kind, OrderedDict())
            value = items.get(key)
            if value is not None:
                items.move_to_end(key)
            return value

    def put(self, kind: str, key: _Key, value: Any) -> None:
        with self._lock:
            items = self._kinds.setdefault(kind, OrderedDict())
            items[key] = value
            items.move_to_end(key)
            if len(items) > self._size:
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
            "event_recorder_remembered", "What the recorders of Events remember together, by kind.", labels=["kind"]
        )
        for kind, size in self.sizes().items():
            family.add_metric([kind], size)
        yield family


class Share(Generic[V]):
    """One owner's part of one kind of things in a memory."""

    def __init__(self, memory: EventMemory, kind: str) -> None:
        self._memory = memory
        self._kind = kind
        self._owner = object()

    def get(self, key: Hashable) -> V | None:
        found: V | None = self._memory.get(self._kind, (self._owner, key))
        return found

    def put(self, key: Hashable, value: V) -> None:
        self._memory.put(self._kind, (self._owner, key), value)

    def drop(self, key: Hashable) -> None:
        self._memory.drop(self._kind, (self._owner, key))
