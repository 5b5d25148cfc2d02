"""The node controller's metrics: those of the Go controller, and our own of nodes that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.helpers.taints import needs_initialization
from controllers.runtime.metrics import FINE_BUCKETS, Metrics, exponential_buckets, watch_waiting

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.node.memory import NodeMemory
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock

_DELAY_BUCKETS = exponential_buckets(1, 4, 6)


class NodeMetrics:
    """How long nodes wait for their initialisation, and which cannot be adopted. Thread-safe."""

    def __init__(self, metrics: Metrics, lister: Lister[V1Node], memory: NodeMemory, clock: Clock) -> None:
        self._delays = (
            metrics.histogram(
                "node_controller_cloud_provider_taint_removal_delay_seconds",
                "Seconds between a node's creation and the removal of the uninitialized taint.",
                buckets=_DELAY_BUCKETS,
            ),
            metrics.histogram(
                "node_controller_initial_node_sync_delay_seconds",
                "Seconds between a node's creation and the end of its initialisation.",
                buckets=_DELAY_BUCKETS,
            ),
            metrics.histogram(
                "node_controller_node_initialization_duration_seconds",
                "Seconds between a node's creation and the end of its initialisation, in finer buckets.",
                buckets=FINE_BUCKETS,
            ),
        )
        metrics.gauge(
            "node_controller_nodes_without_provider_id",
            "Initialised nodes that have no provider ID and could not be adopted.",
        ).set_function(memory.without_id)
        metrics.gauge(
            "node_controller_nodes_lacking_addresses",
            "Nodes without any IP address, or for which the cloud's last answer lacks addresses that they have.",
        ).set_function(memory.lacking_addresses)
        metrics.gauge(
            "node_controller_nodes_sharing_provider_id",
            "Nodes whose provider ID another Node carries too.",
        ).set_function(memory.sharing)
        watch_waiting(
            metrics,
            ("node_controller_uninitialized_nodes", "Nodes that wait for their initialisation."),
            (
                "node_controller_oldest_uninitialized_node_age_seconds",
                "Seconds that the oldest of these nodes has waited, as far as this process saw it; 0 without one.",
            ),
            lister.list,
            needs_initialization,
            clock,
        )

    def initialised(self, delay: float) -> None:
        """A node was initialised, `delay` seconds after its creation."""
        for histogram in self._delays:
            histogram.observe(delay)
