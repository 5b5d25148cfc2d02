"""Stage 3: TRIGGER. Turns node events and time into keys of the queue `NodeLifecycle`.

The sweep queues every node that needs attention. Events make it quicker: a node that turns not
ready, or whose kubelet reports another machine, is asked about at once; one that turns ready loses
its taint at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.helpers import is_owned, is_ready, provider_id_of
from cloudprovider.helpers.taints import needs_initialization
from controllers.nodelifecycle.changes import (
    Attention,
    attention,
    can_witness,
    hands_off,
    identity_of,
    machine_of,
    zone_of,
)
from controllers.runtime.cache import Derived, key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.memory import Shared
    from controllers.runtime.queue import WorkQueue

TIDY: Final = 10
"""Priority of a ready node that nothing can be scheduled on, above that of one to ask about."""

SETTLED: Final = 600.0
"""Seconds after which an instance that the cloud still calls existing is taken for the same one,
reinstalled, where its kubelet reports another machine. A cloud may know a terminated instance for a
while."""


@frozen
class Survey:
    """All nodes at one time."""

    owned: int
    """Nodes that are certainly this provider's."""
    not_ready: frozenset[str]
    """Those of them that the cloud is to be asked about; some may be Ready, on another machine."""
    tidy: frozenset[str]
    """Those that are ready and still carry a taint of ours."""
    ready: Mapping[str, list[str]]
    """By zone: those that can be in a sample."""
    hands_off: tuple[str, ...] = ()
    """Those that an administrator keeps us from."""


@frozen(eq=False)
class _Look:
    """A revision of a node, and what counts here: worked out once, for all sweeps."""

    node: V1Node
    name: str
    zone: str
    owned: bool
    attention: Attention | None
    """By what stands in it; None: it depends on the time."""
    witness: bool
    hands_off: bool


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

    def __init__(self, queue: WorkQueue[str], shared: Shared, prefixes: Sequence[str]) -> None:
        self._queue = queue
        self._shared = shared
        self._candidates = shared.candidates
        self._prefixes = tuple(prefixes)
        self._looks = Derived(self._look_at)
        self._ages = Ages()
        self.on_gone: Callable[[V1Node], object] = lambda node: None
        """Called with each node that was deleted."""

    # ---- a node

    def age(self, node: V1Node) -> float:
        """Seconds for which this process has known the node as it is: initialised, or not."""
        return self._ages.age(node, self._shared.now())

    def exists(self, node: V1Node) -> None:
        """The cloud calls the instance of this node existing."""
        found = self._shared.moves.get(key_of(node))
        if found is not None and self._shared.now() - found[1] >= SETTLED:
            self._shared.moves.pop(key_of(node), None)

    def can_witness(self, node: V1Node) -> bool:
        """Whether the node can be in a sample."""
        return can_witness(node, self._prefixes) and not self._shared.moved(node)

    def attention(self, node: V1Node) -> Attention:
        """What this node needs now."""
        leaves = node.metadata is None or node.metadata.deletion_timestamp is not None
        if (
            is_ready(node)
            and not leaves
            and self._shared.moved(node)
            and is_owned(provider_id_of(node), self._prefixes)
            and not hands_off(node)
        ):
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

    # ---- events

    def on_add(self, node: V1Node, initial: bool) -> None:
        self.age(node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        name = key_of(new)
        self.age(new)
        if self._changed_machine(old, new):
            self._shared.moves[name] = uid_of(new), self._shared.now()
        ready, wanted = is_ready(new), self.attention(new)
        if (ready and wanted is not Attention.ASK) or identity_of(old) != identity_of(new):
            self._candidates.forget(name)
        if ready and wanted is Attention.TIDY:
            self._queue.add(name, TIDY)
        if wanted is Attention.ASK and ((is_ready(old) and not ready) or self._changed_machine(old, new)):
            self._queue.add(name)

    def on_delete(self, node: V1Node) -> None:
        self._candidates.forget(key_of(node))
        self._ages.forget(key_of(node))
        self._shared.moves.pop(key_of(node), None)
        self._queue.forget(key_of(node))
        self.on_gone(node)

    def _changed_machine(self, old: V1Node, new: V1Node) -> bool:
        before, after = machine_of(old), machine_of(new)
        return uid_of(old) == uid_of(new) and any(before) and any(after) and before != after

    # ---- the sweep

    def survey(self) -> Survey:
        """Look at all nodes of the cache."""
        owned = 0
        found: dict[Attention, set[str]] = {kind: set() for kind in Attention}
        ready: dict[str, list[str]] = {}
        left: list[str] = []
        for one in self._looks.of(self._shared.lister.list()):
            if not one.owned:
                continue
            owned += 1
            if one.hands_off:
                left.append(one.name)
            needed = None if one.name in self._shared.moves else one.attention
            if needed is not Attention.NONE:
                found[needed or self.attention(one.node)].add(one.name)
            if one.witness:
                ready.setdefault(one.zone, []).append(one.name)
        return Survey(owned, frozenset(found[Attention.ASK]), frozenset(found[Attention.TIDY]), ready, tuple(left))

    def due(self, survey: Survey) -> dict[str, int]:
        """The nodes that need work now, with their priorities: all without a timer of their
        own."""
        now = self._shared.now()
        parked = frozenset(self._queue.parked())  # they come back by themselves, after a back-off
        asked = {name: 0 for name in sorted(survey.not_ready - parked) if not self._rests(name, now)}
        return dict.fromkeys(survey.tidy - parked, TIDY) | asked

    def enqueue(self, due: Mapping[str, int]) -> None:
        """Queue these."""
        for name, priority in due.items():
            self._queue.add(name, priority)

    def _look_at(self, node: V1Node) -> _Look:
        owned, ready = is_owned(provider_id_of(node), self._prefixes), is_ready(node)
        left = hands_off(node)
        needed = self._alone(node) if ready or left or not owned else None
        return _Look(node, key_of(node), zone_of(node), owned, needed, can_witness(node, self._prefixes), left)

    def _rests(self, name: str, now: float) -> bool:
        """Whether a timer queues the node by itself: the sweep must not bypass a back-off."""
        one = self._candidates.get(name)
        return (one is not None and one.rests_until > now) or self._queue.num_requeues(name) > 0
