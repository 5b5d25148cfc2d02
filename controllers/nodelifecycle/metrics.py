"""The controller's metrics: those of the Go controller (controllers/nodelifecycle/metrics.go), and
our own of deletions. No I/O.

What is asked in a batch counts once for each node: an answer about a node is one to
`instance_exists`, and to `instance_shutdown` if the instance exists."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from cloudprovider import CallCancelled, InstanceNotFound, InstanceState, NotImplementedByProvider
from controllers.cloudcalls import CallsClosed
from controllers.runtime.metrics import Metrics, exponential_buckets

if TYPE_CHECKING:
    from controllers.nodelifecycle.deletion_policy import Breaker
    from controllers.nodelifecycle.deletion_votes import DeletionVotes
    from controllers.nodelifecycle.witnesses import Witnesses
    from controllers.runtime.clock import Clock

_EXISTS: Final = "instance_exists"
_SHUTDOWN: Final = "instance_shutdown"
_METADATA: Final = "instance_metadata"


class NodeLifecycleMetrics:
    """How long the sweeps take, what the cloud answered, and what became of the nodes. Thread-safe.

    `unknown_after`: seconds without a usable answer after which a node counts as unknown.
    """

    def __init__(
        self,
        metrics: Metrics,
        votes: DeletionVotes,
        witnesses: Witnesses,
        breaker: Breaker,
        clock: Clock,
        unknown_after: float,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began = 0.0
        self._left: set[str] = set()
        self._duration = metrics.histogram(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "Time from a look at all nodes until all those that needed it have been worked on.",
            buckets=exponential_buckets(0.001, 2, 15),
        )
        self._calls = metrics.counter(
            "cloud_node_lifecycle_controller_cloud_provider_calls_total",
            "What the cloud answered to questions about nodes, by operation and result.",
            ["operation", "result"],
        )
        self.deleted = metrics.counter(
            "node_lifecycle_deleted_nodes_total", "Nodes deleted because their instance is gone."
        )
        self.alarms = metrics.counter(
            "node_lifecycle_deletion_breaker_trips_total",
            "Times that an alarm was raised: a zone where the cloud is not believed, or too many deletions.",
        )
        metrics.gauge(
            "node_lifecycle_unknown_nodes", "Nodes that are not ready and of which the cloud has long said nothing."
        ).set_function(lambda: float(len(votes.lasting_unknowns(clock.monotonic(), unknown_after))))
        metrics.gauge(
            "node_lifecycle_deletion_breaker_open",
            "1 while deletions are limited to a trickle in zones without a Ready node that shows whether the cloud "
            "tells the truth.",
        ).set_function(lambda: float(breaker.is_alarming))
        metrics.gauge(
            "node_lifecycle_held_nodes", "Nodes that the cloud says are gone, and that are not deleted for now."
        ).set_function(lambda: float(votes.held()))
        metrics.gauge(
            "node_lifecycle_contradicting_nodes",
            "Nodes that are still Ready a minute after the cloud said that they are gone.",
        ).set_function(lambda: float(sum(map(len, witnesses.contradictions(clock.monotonic()).values()))))

    def sweep_began(self, began: float, keys: Collection[str]) -> None:
        """A look at all nodes brought these up. It joins one that is not done."""
        with self._lock:
            if not self._left:
                self._began = began
            self._left.update(keys)
            if not self._left:
                self._observe()

    def worked_on(self, key: str) -> None:
        """The key has been worked on, well or not, or needs no work any more."""
        with self._lock:
            if key in self._left:
                self._left.remove(key)
                if not self._left:
                    self._observe()

    def state(self, state: InstanceState | Exception) -> None:
        """The cloud answered, or failed to, whether an instance exists and runs."""
        if isinstance(state, Exception):
            method = getattr(state, "method", "")
            self._count(_SHUTDOWN if _SHUTDOWN in method else _EXISTS, _result(state))
        elif state is InstanceState.GONE:
            self._count(_EXISTS, "instance_not_found")
        else:
            self._count(_EXISTS, "success")
            self._count(_SHUTDOWN, "success")

    def metadata(self, found: object) -> None:
        """The cloud answered, or failed to, which instance has a node's name."""
        self._count(_METADATA, _result(found) if isinstance(found, Exception) else "success")

    def _count(self, operation: str, result: str) -> None:
        self._calls.labels(operation=operation, result=result).inc()

    def _observe(self) -> None:
        self._duration.observe(self._clock.monotonic() - self._began)


def _result(error: Exception) -> str:
    if isinstance(error, NotImplementedByProvider):
        return "not_implemented"
    if isinstance(error, InstanceNotFound):
        return "instance_not_found"
    if isinstance(error, CallCancelled | CallsClosed):
        return "canceled"
    return "error"
