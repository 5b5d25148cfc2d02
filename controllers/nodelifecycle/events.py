"""Events for the owners of nodes, about successors and unknown states. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import evolve

from cloudprovider import InstanceMetadata, InstanceNotFound, InstanceState, NotImplementedByProvider
from cloudprovider.helpers import provider_id_of
from controllers.cloudcalls import InvalidAnswer
from controllers.nodelifecycle import changes

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import Answer, CloudCalls
    from controllers.nodelifecycle.shared import Shared

log = logging.getLogger(__name__)

_NONE: Final = (InstanceNotFound, NotImplementedByProvider, InvalidAnswer)
"""There is no other instance of the name, or none that this provider can name. After any other
failure it is unknown."""

Successor = tuple["V1Node", InstanceMetadata | Exception] | None
"""A node whose instance is gone, and what the cloud says of its name; None when not asked."""


class OwnerEvents:
    """Thread-safe."""

    def __init__(self, shared: Shared, cloud: CloudCalls) -> None:
        self._shared = shared
        self._cloud = cloud

    def fetch_successors(self, keys: Sequence[str], deliver: Callable[[str, Successor], None]) -> None:
        """Ask the cloud, by name, about nodes whose instance is gone: is there a successor?"""
        nodes: dict[str, V1Node] = {}
        for key in keys:
            votes = self._shared.votes.get(key)
            node = self._shared.node(key, votes)
            if node is not None and votes is not None and votes.state is InstanceState.GONE:
                nodes[key] = node
            else:
                deliver(key, None)

        def answered(name: str, answer: Answer[InstanceMetadata]) -> None:
            self._shared.metrics.metadata(answer.unbound)
            deliver(name, (nodes[name], answer.unbound))

        if nodes:
            nameless = [changes.without_provider_id(node) for node in nodes.values()]
            self._cloud.fetch_metadata(nameless, answered, fresh=True)

    def report_successor(self, key: str, answer: Successor | Exception) -> None:
        """Report that another instance has the node's name now."""
        if answer is None or isinstance(answer, Exception):
            return
        node, found = answer
        known, machines = provider_id_of(node), self._shared.machines
        if isinstance(found, Exception):
            log.debug("node %s: no instance is known by its name: %s", key, found)
            if isinstance(found, _NONE):
                machines.succeeded(node, "")
        elif not found.provider_id or self._cloud.same_provider_id(known, found.provider_id):
            machines.succeeded(node, "")
        elif machines.succeeded(node, found.provider_id):  # it is asked again as long as the node is there
            log.warning("node %s: instance %s is gone and instance %s now has its name", key, known, found.provider_id)
            what = (
                "the Node object is deleted. A kubelet that runs on the new instance by then registers again only when "
                "it is restarted"
            )
            if machines.moved(node):
                what = "the Node object is created anew for the new instance, on which its kubelet runs already"
            self._shared.recorder.event(
                node,
                "Warning",
                "InstanceRecreated",
                f"The cloud now has instance {found.provider_id} under the name of this node, whose spec.providerID is "
                f"{known} and cannot change: once that is confirmed gone, {what}",
            )

    def report_unknown(self) -> None:
        """Report the nodes about which the cloud has not answered for long, parked keys among
        them; again each time that as much time has passed."""
        now, after = self._shared.now(), self._shared.options.unknown_event_after
        for name, votes in self._shared.votes.lasting_unknowns(now, after):
            if votes.reported_at is not None and now - votes.reported_at < after:
                continue
            node = self._shared.node(name, votes)
            if node is None:
                continue
            self._shared.votes.replace(name, votes, evolve(votes, reported_at=now))
            self._shared.recorder.event(
                node,
                "Warning",
                "InstanceStateUnknown",
                "This node is not ready, and the cloud does not say whether its instance runs, is shut down or gone. "
                f"Until it does, the node is neither tainted nor deleted: {votes.problem}",
            )
