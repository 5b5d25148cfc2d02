"""What the demo knows: one row per node, filled from an informer of our own, the same that controllers use.

Data comes from the API server by watch; it goes to the views. Times are this process's: from the moment that the node
was first seen with the taint to the moment that it was seen without.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from cloudprovider.helpers.taints import needs_initialization
from cloudprovider.wellknown import LABEL_INSTANCE_TYPE, LABEL_TOPOLOGY_ZONE

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.cache import InformerFactory


@attrs.frozen
class Row:
    """One node as the views show it. `joined` and `ready` in seconds since the board's start."""

    name: str
    joined: float
    ready: float | None = None
    provider_id: str = ""
    addresses: tuple[str, ...] = ()
    type: str = ""
    zone: str = ""

    @property
    def took(self) -> float | None:
        """Seconds from taint seen to taint gone."""
        return None if self.ready is None else self.ready - self.joined


class Board:
    """Rows by node, safe to read while they change. `on_change` is called with each new state of a row."""

    def __init__(self, on_change: Callable[[Row], None] | None = None) -> None:
        self.began = time.monotonic()
        self.strangers: set[str] = set()
        """Nodes without the taint and without a provider ID: the fake cloud would take them for its own."""
        self.others = 0
        """Nodes that were initialised before, or by another cloud."""
        self._on_change = on_change
        self._rows: dict[str, Row] = {}
        self._lock = threading.Lock()

    def watch(self, informers: InformerFactory) -> None:
        """Fill the board from this factory's node informer; the caller starts it."""
        from controllers.runtime.cache import NODES

        informers.informer(NODES).add_handler(
            lambda node, _initial: self._see(node), lambda _old, new: self._see(new), name="demo"
        )

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def rows(self) -> list[Row]:
        """The present rows, in the order in which the nodes joined."""
        with self._lock:
            return list(self._rows.values())

    def ready(self) -> int:
        """How many nodes are initialised."""
        return sum(row.ready is not None for row in self.rows())

    def times(self) -> tuple[float, float] | None:
        """Median and longest time to initialise; None while no node is."""
        took = [row.took for row in self.rows() if row.took is not None]
        return (statistics.median(took), max(took)) if took else None

    def _see(self, node: V1Node) -> None:
        assert node.metadata is not None
        name = node.metadata.name or ""
        tainted = needs_initialization(node)
        with self._lock:
            row = self._rows.get(name)
            if row is None and not tainted:
                self.others += 1
                if not (node.spec and node.spec.provider_id):
                    self.strangers.add(name)
                return
            row = row or Row(name, self.elapsed())
            labels = node.metadata.labels or {}
            addresses = (node.status.addresses if node.status else None) or []
            seen = attrs.evolve(
                row,
                ready=None if tainted else (row.ready if row.ready is not None else self.elapsed()),
                provider_id=(node.spec.provider_id if node.spec else None) or "",
                addresses=tuple(one.address for one in addresses if one.type != "Hostname"),
                type=labels.get(LABEL_INSTANCE_TYPE, ""),
                zone=labels.get(LABEL_TOPOLOGY_ZONE, ""),
            )
            changed = seen != self._rows.get(name)
            self._rows[name] = seen
        if changed and self._on_change is not None:
            self._on_change(seen)
