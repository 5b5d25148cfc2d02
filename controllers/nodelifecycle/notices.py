"""Beside stages 4 and 5: what the owners of nodes are told about the cloud's word, by Events. Decides nothing.

A node whose instance is gone may have a successor: the cloud is asked, by name, and `tell_successor` says so. A node of
which the cloud has long said nothing is told at a sweep. From the cases of `cases.py` to stage 6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider import InstanceMetadata, InstanceState
from cloudprovider.helpers import provider_id_of
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.cases import Cases

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

Successor = tuple["V1Node", InstanceMetadata | Exception] | None
"""A node whose instance is gone, and what the cloud says of its name; None when it was not asked."""


class OwnerNotices:
    """Thread-safe. `unknown_after`: seconds without a usable answer after which an owner is told, again and again."""

    def __init__(
        self,
        lister: Lister[V1Node],
        cloud: CloudCalls,
        recorder: EventRecorder,
        cases: Cases,
        metrics: NodeLifecycleMetrics,
        clock: Clock,
        *,
        unknown_after: float,
    ) -> None:
        self._lister = lister
        self._cloud = cloud
        self._recorder = recorder
        self._cases = cases
        self._metrics = metrics
        self._clock = clock
        self._unknown_after = unknown_after

    def fetch_successors(self, keys: Sequence[str], deliver: Callable[[str, Successor], None]) -> None:
        """Ask the cloud, by name, about nodes whose instance is gone: is there another one in its place?

        Apart from everything else, as it informs people and decides nothing.
        """
        nodes: dict[str, V1Node] = {}
        for key in keys:
            node = self._lister.get(key)
            case = self._cases.get(key)
            if node is not None and case is not None and case.state is InstanceState.GONE and case.is_of(node):
                nodes[key] = node
            else:
                deliver(key, None)

        def answered(name: str, found: InstanceMetadata | Exception) -> None:
            self._metrics.metadata(found)
            deliver(name, (nodes[name], found))

        if nodes:
            nameless = [changes.without_provider_id(node) for node in nodes.values()]
            self._cloud.fetch_metadata(nameless, answered, fresh=True)

    def tell_successor(self, key: str, answer: Successor | Exception) -> None:
        """Tell a node's owner if another instance has its name now."""
        if answer is None or isinstance(answer, Exception):
            return
        node, found = answer
        known = provider_id_of(node)
        if isinstance(found, Exception):
            log.debug("node %s: no instance is known by its name: %s", key, found)
        elif found.provider_id and not self._cloud.same_provider_id(known, found.provider_id):
            log.warning("node %s: instance %s is gone and instance %s now has its name", key, known, found.provider_id)
            self._recorder.event(
                node,
                "Warning",
                "InstanceRecreated",
                f"The cloud now has instance {found.provider_id} under the name of this node, whose spec.providerID is "
                f"{known} and cannot change: once that is confirmed gone, the Node object is deleted, and the new "
                "instance's kubelet must register again",
            )

    def tell_unknown(self) -> None:
        """Tell the owners of nodes of which the cloud has said nothing for long; parked keys are among them."""
        now = self._clock.monotonic()
        for name, case in self._cases.lasting_unknowns(now, self._unknown_after):
            if case.told_at is not None and now - case.told_at < self._unknown_after:
                continue
            node = self._lister.get(name)
            if node is None or not case.is_of(node):
                continue
            self._cases.replace(name, case, evolve(case, told_at=now))
            self._recorder.event(
                node,
                "Warning",
                "InstanceStateUnknown",
                "This node is not ready, and the cloud does not say whether its instance runs, is shut down or gone. "
                f"Until it does, the node is neither tainted nor deleted: {case.problem}",
            )
