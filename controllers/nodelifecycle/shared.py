"""What the controller's parts share: handed to each as one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.deletion_votes import DeletionVotes, NodeVotes
    from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
    from controllers.nodelifecycle.options import NodeLifecycleOptions
    from controllers.nodelifecycle.replaced import Machines
    from controllers.nodelifecycle.witnesses import Witnesses
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder


@frozen
class Shared:
    """Cache, memory, outlets and options of one controller."""

    lister: Lister[V1Node]
    votes: DeletionVotes
    witnesses: Witnesses
    machines: Machines
    recorder: EventRecorder
    metrics: NodeLifecycleMetrics
    clock: Clock
    options: NodeLifecycleOptions

    def now(self) -> float:
        """Seconds of the monotonic clock, as in the votes."""
        return self.clock.monotonic()

    def node(self, name: str, votes: NodeVotes | None) -> V1Node | None:
        """The node of the cache that these votes are about; None if it is gone, or another one."""
        node = self.lister.get(name)
        return node if node is not None and votes is not None and votes.is_of(node) else None
