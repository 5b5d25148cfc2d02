"""The controller's metrics: Go's, by cluster CIDR, and our own of nodes that wait. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.runtime.metrics import FINE_BUCKETS, Metrics, exponential_buckets, watch_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodeipam.cidr_set import CIDRSet
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock

_CLUSTER = ("clusterCIDR",)


class NodeIPAMMetrics:
    """Thread-safe. Names are Go's, its misspelt one too.

    Follows: pkg/controller/nodeipam/ipam/cidrset/metrics.go of Kubernetes.
    """

    def __init__(self, metrics: Metrics, lister: Lister[V1Node], waits: Callable[[V1Node], bool], clock: Clock) -> None:
        self._clock = clock
        self._metrics = metrics
        self._allocations = metrics.counter(
            "node_ipam_controller_cidrset_cidrs_allocations_total", "Pod CIDRs that were taken.", _CLUSTER
        )
        self._releases = metrics.counter(
            "node_ipam_controller_cidrset_cidrs_releases_total", "Pod CIDRs that were given back.", _CLUSTER
        )
        self._most = metrics.gauge(
            "node_ipam_controller_cirdset_max_cidrs", "Pod CIDRs that the cluster CIDR has room for.", _CLUSTER
        )
        self._usage = metrics.gauge(
            "node_ipam_controller_cidrset_usage_cidrs", "The share of pod CIDRs that are taken, 0 to 1.", _CLUSTER
        )
        self._tries = metrics.histogram(
            "node_ipam_controller_cidrset_allocation_tries_per_request",
            "Places looked at for each pod CIDR.",
            _CLUSTER,
            buckets=exponential_buckets(1, 5, 5),
        )
        self._delay = metrics.histogram(
            "node_ipam_controller_allocation_duration_seconds",
            "Seconds between a node's creation and its pod CIDRs.",
            buckets=FINE_BUCKETS,
        )
        self._conflicts = metrics.counter(
            "node_ipam_controller_conflicts_total",
            "Pod CIDRs found on a node that overlap with another node's, that another program wrote, or that are wider "
            "than a node gets and that no allocator gave.",
            ("kind",),
        )
        # At 0 from the start, or an alert on their increase would miss the first.
        for kind in ("overlap", "other_writer", "too_wide"):
            self._conflicts.labels(kind=kind)
        self._stopped = metrics.gauge(
            "node_ipam_controller_stopped", "1 once another allocator was found at work and nothing is given out."
        )
        self._stopped.set(0)
        watch_waiting(
            metrics,
            ("node_ipam_controller_nodes_without_cidrs", "Nodes that wait for their pod CIDRs."),
            (
                "node_ipam_controller_oldest_node_without_cidrs_age_seconds",
                "Seconds that the oldest of these nodes has waited, as far as this process saw it; 0 without one.",
            ),
            lister.list,
            waits,
            clock,
        )

    def lacking_family(self, nodes: Callable[[], Sized]) -> None:
        """Who has ranges of one family, in a cluster of two."""
        self._metrics.gauge(
            "node_ipam_controller_nodes_without_family", "Nodes whose pod CIDRs lack a family that the cluster has."
        ).set_function(lambda: len(nodes()))

    def pool(self, pool: CIDRSet) -> None:
        """A cluster CIDR is there."""
        cluster = str(pool.cluster)
        self._most.labels(clusterCIDR=cluster).set(pool.capacity)
        self._usage.labels(clusterCIDR=cluster).set(pool.used / pool.capacity)
        self._allocations.labels(clusterCIDR=cluster)
        self._releases.labels(clusterCIDR=cluster)

    def changed(self, pool: CIDRSet, more: int) -> None:
        """So many more blocks are taken; fewer, where it is negative."""
        cluster = str(pool.cluster)
        (self._allocations if more > 0 else self._releases).labels(clusterCIDR=cluster).inc(abs(more))
        self._usage.labels(clusterCIDR=cluster).set(pool.used / pool.capacity)

    def searched(self, pool: CIDRSet) -> None:
        """A block was looked for."""
        self._tries.labels(clusterCIDR=str(pool.cluster)).observe(pool.tries)

    def written(self, node: V1Node) -> None:
        """The node has its ranges now."""
        created = node.metadata.creation_timestamp if node.metadata is not None else None
        if created is not None:
            self._delay.observe(max(0.0, self._clock.time() - created.timestamp()))

    def conflict(self, kind: str) -> None:
        """One "overlap", "other_writer" or "too_wide"."""
        self._conflicts.labels(kind=kind).inc()

    def stopped(self) -> None:
        """Nothing is given out any more."""
        self._stopped.set(1)
