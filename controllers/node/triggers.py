"""Stage 3: TRIGGER. Turns node events and the passing of time into keys.

From the shared node informer and from a ticker into the queues `Nodes` (initialise, pair labels)
and `NodeRefresh` (compare with the cloud). Decides whether there is work, never which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from cloudprovider.helpers.addresses import provided_node_ip
from cloudprovider.helpers.labels import missing_twins
from cloudprovider.helpers.objects import addresses_of, labels_of, needs_initialization
from cloudprovider.helpers.providerid import Ownership, ownership, provider_id_of
from controllers.node.addresses import has_ip
from controllers.node.kept import PAIRED
from controllers.runtime.cache import Lister, key_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.node.memory import NodeMemory
    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue

NEW_NODE = 10
"""Priority of a node that nothing can be scheduled on yet, above one that is only kept right."""
AGAIN = -10
"""Priority of an initialised node that only the provider asks for."""

_GATHERED: Final = 1.0  # seconds for which the provider's wishes to look at a node again become one look


class NodeTriggers:
    """The informer's handler and the sweep. Called from the informer's and the ticker's threads.

    `on_foreign(node)` is called for every node that waits with another provider's ID, and
    `on_shared(node, others)` for one whose provider ID other Nodes carry too."""

    def __init__(
        self,
        nodes: WorkQueue[str],
        refreshes: WorkQueue[str],
        lister: Lister[V1Node],
        cloud: CloudCalls,
        memory: NodeMemory,
        clock: Clock,
        on_foreign: Callable[[V1Node], None],
        on_shared: Callable[[V1Node, Sequence[str]], None],
    ) -> None:
        self._nodes = nodes
        self._refreshes = refreshes
        self._lister = lister
        self._cloud = cloud
        self._memory = memory
        self._clock = clock
        self._on_foreign = on_foreign
        self._on_shared = on_shared

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._look_at(node)
        self._note_id(None, node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        # A failing node's heartbeats must not bypass its back-off, so only what our work depends on
        # counts. Changes of additional labels are never undone, so they need no question.
        moved = _relevant(old) != _relevant(new)
        # Somebody set the taint again: initialised at once, it would be a fight at full speed.
        if moved and needs_initialization(new) and not needs_initialization(old):
            self._memory.of(new).tainted_again = True
        relabeled = labels_of(old) != labels_of(new) and _paired_labels(old) != _paired_labels(new)
        if moved or relabeled:
            self._look_at(new)
        if moved:
            self._note_id(old, new)
            if needs_initialization(old) and not needs_initialization(new) and not has_ip(addresses_of(new)):
                self._refreshes.add(key_of(new))  # opened without an IP address: the next sweep is far
        # While it is initialised, its own write is the change; the sweep compares it afterwards.
        if needs_initialization(new) or needs_initialization(old) or is_foreign(new, self._cloud):
            return
        if moved or (relabeled and self._undone(old, new)):
            self._refreshes.add(key_of(new))

    def on_delete(self, node: V1Node) -> None:
        self._nodes.forget(key_of(node))
        self._refreshes.forget(key_of(node))
        self._memory.forget(key_of(node))
        self._memory.note_id(key_of(node), provider_id_of(node), "")

    def sweep(self) -> int:
        """Ask for a refresh of every initialised node of this provider that is not being deleted;
        returns how many."""
        # An answer that came after its node's deletion made an entry once more.
        self._memory.forget_gone(lambda key: self._lister.get(key) is not None)
        due = [key_of(node) for node in self._lister.list() if is_refreshed(node) and not is_foreign(node, self._cloud)]
        for name in due:
            self._refreshes.add(name)
        return len(due)

    def look_again(self, name: str) -> bool:
        """The provider asks for another look at this node; False where there is none. From any
        thread."""
        node = self._lister.get(name)
        if node is None:
            return False
        # Later, and all together: a provider calls this for each of many machines that changed.
        if needs_initialization(node):
            self._nodes.add_after(name, _GATHERED, NEW_NODE)
        else:
            self._refreshes.add_after(name, _GATHERED, AGAIN)
        return True

    def _note_id(self, old: V1Node | None, new: V1Node) -> None:
        """Tell both if the node has the provider ID of another one. Of those that have it already,
        only a single one was not told before."""
        if is_foreign(new, self._cloud):
            return
        others = self._memory.note_id(key_of(new), provider_id_of(old) if old else "", provider_id_of(new))
        if others:
            self._on_shared(new, others)
            other = self._lister.get(others[0])
            if len(others) == 1 and other is not None:
                self._on_shared(other, (key_of(new),))

    def _undone(self, old: V1Node, new: V1Node) -> bool:
        """Whether a type, zone or region that we wrote was changed, and may be put back now."""
        before, after = _paired_labels(old), _paired_labels(new)
        entry = self._memory.find(key_of(new))
        if entry is None or entry.known is None:
            return False  # the next sweep compares it with the cloud for the first time
        as_written = {**entry.known.written, **entry.writing}
        return not entry.restored.left(self._clock.monotonic()) and any(
            after.get(key) not in (before.get(key), as_written.get(key)) for key in PAIRED
        )

    def _look_at(self, node: V1Node) -> None:
        if is_foreign(node, self._cloud):
            if needs_initialization(node):
                self._on_foreign(node)
            entry = self._memory.find(key_of(node))
            if entry is not None:
                entry.without_id = False
            return
        if needs_initialization(node):
            self._nodes.add(key_of(node), NEW_NODE)
        elif missing_twins(labels_of(node)):
            self._nodes.add(key_of(node))


def is_foreign(node: V1Node, cloud: CloudCalls) -> bool:
    """Whether its provider ID is another provider's: neither ours, nor still to be given."""
    return ownership(provider_id_of(node), cloud.provider_id_prefixes) is Ownership.FOREIGN


def is_refreshed(node: V1Node) -> bool:
    """Whether it is initialised, and not being deleted: then its instance is often gone already."""
    return not needs_initialization(node) and (node.metadata is None or node.metadata.deletion_timestamp is None)


def _relevant(node: V1Node) -> tuple[object, ...]:
    meta = node.metadata
    assert meta is not None
    return meta.uid, needs_initialization(node), provider_id_of(node), provided_node_ip(node)


def _paired_labels(node: V1Node) -> dict[str, str]:
    labels = labels_of(node)
    return {key: labels[key] for key in PAIRED if key in labels}
