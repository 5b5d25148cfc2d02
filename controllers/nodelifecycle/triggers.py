"""Stage 2: TRIGGER. Turns node events and time into keys of the queue `NodeLifecycle`.

The sweep queues every node that needs attention. Events make it quicker: a node that turns not
ready, or whose kubelet reports another machine, is asked about at once; one that turns ready loses
its taint at once. The Ready nodes of a zone are asked about as witnesses (`witnesses.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from cloudprovider.helpers import is_owned, is_ready, provider_id_of
from cloudprovider.helpers.taints import needs_initialization
from controllers.nodelifecycle.changes import (
    Attention,
    attention,
    can_witness,
    identity_of,
    is_announced,
    zone_of,
)
from controllers.nodelifecycle.replaced import machine_of
from controllers.runtime.cache import Derived, key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.shared import Shared
    from controllers.nodelifecycle.witnesses import Identity
    from controllers.runtime.queue import WorkQueue

TIDY = 10
"""Priority of a ready node that nothing can be scheduled on, above that of one to ask about."""


@frozen
class Survey:
    """All nodes at one time."""

    owned: int
    """Nodes that are certainly this provider's."""
    not_ready: frozenset[str]
    """Those of them that the cloud is to be asked about; some may be Ready, on another machine."""
    tidy: frozenset[str]
    """Those that are ready and still carry a taint of ours."""


@frozen(eq=False)
class _Look:
    """A revision of a node, and what counts here: worked out once, for all sweeps."""

    node: V1Node
    name: str
    owned: bool
    attention: Attention | None
    """By what stands in it; None: it depends on the time."""
    identity: Identity
    machine: tuple[str, str]
    witness: bool
    ready: bool


class Ages:
    """For how long this process has known each node, and known it as initialised or not.

    Seconds of its own monotonic clock: by the node's creation time a manager whose clock is ahead
    would take a node that joins for an old one. Thread-safe."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[tuple[str, bool], float]] = {}

    def age(self, node: V1Node, now: float) -> float:
        """Seconds since this very node was first seen, or was last seen to be initialised."""
        stage = uid_of(node), needs_initialization(node)
        known = self._since.get(key_of(node))
        if known is None or known[0] != stage:
            known = self._since[key_of(node)] = stage, now
        return now - known[1]

    def forget(self, name: str) -> None:
        """The node was deleted."""
        self._since.pop(name, None)


class NodeLifecycleTriggers:
    """The informer's handler and the sweep. Called from the informer's and the ticker's threads."""

    def __init__(
        self,
        queue: WorkQueue[str],
        shared: Shared,
        prefixes: Sequence[str],
    ) -> None:
        self._queue = queue
        self._shared = shared
        self._votes = shared.votes
        self._witnesses = shared.witnesses
        self._prefixes = tuple(prefixes)
        self._looks = Derived(self._look_at)
        self._ages = Ages()

    def age(self, node: V1Node) -> float:
        """Seconds for which this process has known the node as it is: initialised, or not."""
        return self._ages.age(node, self._shared.now())

    def attention(self, node: V1Node) -> Attention:
        """What this node needs now."""
        leaves = node.metadata is None or node.metadata.deletion_timestamp is not None
        if is_ready(node) and not leaves and self._shared.machines.moved(node):
            return Attention.ASK  # its kubelet speaks for another machine
        return self._alone(node)

    def _alone(self, node: V1Node) -> Attention:
        """What this node needs by what stands in it."""
        options = self._shared.options
        return attention(
            node,
            self._prefixes,
            self.age(node),
            options.uninitialized_grace_period,
            out_of_service=options.out_of_service_taint,
        )

    def on_add(self, node: V1Node, initial: bool) -> None:
        self.age(node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        name = key_of(new)
        self.age(new)
        ready, wanted = is_ready(new), self.attention(new)
        if (ready and wanted is not Attention.ASK) or identity_of(old)[:2] != identity_of(new)[:2]:
            self._votes.forget(name)
        if ready and wanted is Attention.TIDY:
            self._queue.add(name, TIDY)
        if not ready:
            self._witnesses.not_ready(name, identity_of(new), self._shared.now())
        if wanted is Attention.ASK and is_ready(old) and not (ready and self._shared.machines.moved(old)):
            self._queue.add(name)

    def on_delete(self, node: V1Node) -> None:
        self._votes.forget(key_of(node))
        self._ages.forget(key_of(node))
        self._witnesses.deleted(key_of(node), zone_of(node))
        self._queue.forget(key_of(node))

    def survey(self) -> Survey:
        """Look at all nodes of the cache."""
        owned = 0
        found: dict[Attention, set[str]] = {kind: set() for kind in Attention}
        looks, machines = self._all(), self._shared.machines
        machines.keep({one.name for one in looks})
        for one in looks:
            if one.owned:
                owned += 1
                # Whether its machine has moved depends on what the cloud has said since.
                moved = one.ready and machines.has_moved(one.name, *one.identity[:2], one.machine)
                needed = None if moved else one.attention
                if needed is not Attention.NONE:
                    found[needed or self.attention(one.node)].add(one.name)
        return Survey(owned, frozenset(found[Attention.ASK]), frozenset(found[Attention.TIDY]))

    def call_witnesses(self) -> None:
        """Queue a question about each witness whose answer is missing, in every zone where a node
        is said to be gone; and about a few Ready nodes that the cloud has never called existing."""
        now = self._shared.now()
        owned = [one for one in self._all() if one.owned]
        ready = self._ready(owned)
        self._witnesses.look({one.name: one.identity for one in owned})
        for zone in dict.fromkeys([*ready, *self._witnesses.zones()]):
            self._witnesses.register(zone, ready.get(zone, {}))
        since: dict[str, float] = {}
        for name, votes in self._votes.gone():
            node = self._shared.node(name, votes)
            if node is not None and not votes.released and not is_announced(node):
                zone = zone_of(node)
                since[zone] = max(votes.since, since.get(zone, votes.since))
        self._witnesses.keep(since, now)
        called = [name for zone, after in since.items() for name in self._witnesses.call(zone, after, now)]
        for name in [*called, *self._witnesses.census(now)]:
            self._queue.add(name)

    def _all(self) -> Sequence[_Look]:
        return self._looks.of(self._shared.lister.list())

    def _look_at(self, node: V1Node) -> _Look:
        owned, ready = is_owned(provider_id_of(node), self._prefixes), is_ready(node)
        needed = self._alone(node) if ready or not owned else None
        witness = can_witness(node, self._prefixes)
        return _Look(node, key_of(node), owned, needed, identity_of(node), machine_of(node), witness, ready)

    def _ready(self, owned: Iterable[_Look]) -> dict[str, dict[str, Identity]]:
        """By zone: the Ready nodes, which show that their instances run."""
        found: dict[str, dict[str, Identity]] = {}
        for one in owned:
            if one.witness:
                found.setdefault(one.identity[2], {})[one.name] = one.identity
            elif not one.ready:  # its event may come later than this sweep
                self._witnesses.not_ready(one.name, one.identity, self._shared.now())
        return found

    def due(self, survey: Survey) -> dict[str, int]:
        """The nodes that need work now, with their priorities: all without a timer of their
        own."""
        now = self._shared.now()
        asked = {name: 0 for name in sorted(survey.not_ready) if not self._rests(name, now)}
        return dict.fromkeys(survey.tidy, TIDY) | asked

    def enqueue(self, due: Mapping[str, int]) -> None:
        """Queue these."""
        for name, priority in due.items():
            self._queue.add(name, priority)

    def _rests(self, name: str, now: float) -> bool:
        """Whether a timer queues the node by itself: the sweep must not bypass a back-off."""
        votes = self._votes.get(name)
        return (votes is not None and votes.rests_until > now) or self._queue.num_requeues(name) > 0
