"""The nodes that the demo shows: one row each, filled from an informer of our own, the same that controllers use.

Data comes from the API server by watch; it goes to the scenes. Times are this process's: from the moment that the node
was first seen with the taint to the moment that it was seen without.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from cloudprovider.helpers.taints import get_node_condition, needs_initialization
from cloudprovider.wellknown import LABEL_INSTANCE_TYPE, LABEL_TOPOLOGY_ZONE
from livedemo.scene import NodeRow

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.cache import InformerFactory


class NodeRows:
    """Rows by node, safe to read while they change."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.strangers: set[str] = set()
        """Nodes without the taint and without a provider ID: the fake cloud would take them for its own."""
        self._rows: dict[str, NodeRow] = {}
        self._lock = threading.Lock()

    def watch(self, informers: InformerFactory) -> None:
        """Fill the rows from this factory's node informer; the caller starts it."""
        from controllers.runtime.cache import NODES

        informers.informer(NODES).add_handler(
            lambda node, _initial: self._see(node),
            lambda _old, new: self._see(new),
            self._lose,
            name="demo",
        )

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def rows(self) -> list[NodeRow]:
        """The present rows, in the order in which the nodes joined."""
        with self._lock:
            return list(self._rows.values())

    def _see(self, node: V1Node) -> None:
        assert node.metadata is not None
        name = node.metadata.name or ""
        tainted = needs_initialization(node)
        with self._lock:
            row = self._rows.get(name)
            if row is None and not tainted:
                if not (node.spec and node.spec.provider_id):
                    self.strangers.add(name)
                return
            row = row or NodeRow(name, self.elapsed())
            labels = node.metadata.labels or {}
            addresses = (node.status.addresses if node.status else None) or []
            ready = get_node_condition(node, "Ready")
            network = get_node_condition(node, "NetworkUnavailable")
            self._rows[name] = attrs.evolve(
                row,
                ready=None if tainted else (row.ready if row.ready is not None else self.elapsed()),
                answering=ready is None or ready.status == "True",
                provider_id=(node.spec.provider_id if node.spec else None) or "",
                addresses=tuple(one.address for one in addresses if one.type != "Hostname"),
                type=labels.get(LABEL_INSTANCE_TYPE, ""),
                zone=labels.get(LABEL_TOPOLOGY_ZONE, ""),
                pod_cidr=(node.spec.pod_cidr if node.spec else None) or "",
                routed=network is not None and (network.status, network.reason) == ("False", "RouteCreated"),
            )

    def _lose(self, node: V1Node) -> None:
        assert node.metadata is not None
        name = node.metadata.name or ""
        with self._lock:
            row = self._rows.get(name)
            if row is not None:
                self._rows[name] = attrs.evolve(row, deleted=self.elapsed())


def times(rows: Sequence[NodeRow]) -> tuple[float, float] | None:
    """Median and longest time to initialise; None while no node is."""
    took = [row.took for row in rows if row.took is not None]
    return (statistics.median(took), max(took)) if took else None
