"""Stages 2 to 3: turns node events and the passing of time into keys.

From the shared node informer, and from a ticker; into the queue `Nodes` (initialise, label twins) and the queue
`NodeRefresh` (compare with the cloud). Decides whether there is work, never what the work is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudprovider.helpers.addresses import provided_node_ip
from cloudprovider.helpers.providerid import Ownership, ownership
from cloudprovider.helpers.taints import needs_initialization
from controllers.node.changes import pairing

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.cache import Lister
    from controllers.runtime.workqueue import WorkQueue

NEW_NODE = 10
"""Priority of a node that nothing can be scheduled on yet, above that of one that is only kept right."""


class NodeTriggers:
    """The informer's handler and the sweep. Called from the informer's and the ticker's threads."""

    def __init__(
        self, nodes: WorkQueue[str], refreshes: WorkQueue[str], lister: Lister[V1Node], prefixes: Sequence[str]
    ) -> None:
        self._nodes = nodes
        self._refreshes = refreshes
        self._lister = lister
        self._prefixes = tuple(prefixes)

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._look_at(node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        # A failing node's heartbeats must not bypass its back-off: only what our work depends on counts. A resync
        # shows the same object twice.
        if old is not new and _relevant(old) == _relevant(new):
            return
        self._look_at(new)
        if old is not new and not needs_initialization(new) and not needs_initialization(old) and self.owned(new):
            self._refreshes.add(_name(new))

    def on_delete(self, node: V1Node) -> None:
        self._nodes.forget(_name(node))
        self._refreshes.forget(_name(node))

    def sweep(self) -> int:
        """Ask for a refresh of every initialised node of this provider; returns how many."""
        due = [_name(node) for node in self._lister.list() if not needs_initialization(node) and self.owned(node)]
        for name in due:
            self._refreshes.add(name)
        return len(due)

    def owned(self, node: V1Node) -> bool:
        """Whether the node is this provider's to look after: its provider ID is ours, or still to be given."""
        provider_id = node.spec.provider_id if node.spec else None
        return ownership(provider_id, self._prefixes) is not Ownership.FOREIGN

    def _look_at(self, node: V1Node) -> None:
        if not self.owned(node):
            return
        if needs_initialization(node):
            self._nodes.add(_name(node), NEW_NODE)
        elif pairing(node):
            self._nodes.add(_name(node))


def _name(node: V1Node) -> str:
    assert node.metadata is not None
    assert node.metadata.name is not None
    return node.metadata.name


def _relevant(node: V1Node) -> tuple[object, ...]:
    meta, spec = node.metadata, node.spec
    assert meta is not None
    return (
        meta.uid,
        needs_initialization(node),
        spec.provider_id if spec else None,
        meta.labels,
        provided_node_ip(node),
    )
