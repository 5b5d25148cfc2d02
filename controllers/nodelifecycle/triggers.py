"""Stage 3: TRIGGER. Turns node events and time into keys of the queue `NodeLifecycle`.

The sweep queues every node that needs attention. Events make it quicker: a node that turns not
ready, or whose kubelet reports another machine, is asked about at once; one that turns ready loses
its taint at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.helpers import is_owned, is_ready, provider_id_of
from controllers.nodelifecycle.changes import Attention, can_be_sampled, hands_off, identity_of, machine_of, zone_of
from controllers.runtime.cache import Derived, key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.memory import Shared
    from controllers.nodelifecycle.writes import NodeWriter
    from controllers.runtime.queue import WorkQueue

TIDY: Final = 10
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
    """None: it depends on the time, or on what is remembered of its machine."""
    sampled: bool
    hands_off: bool


class NodeLifecycleTriggers:
    """The informer's handler and the sweep. Called from the informer's and the ticker's threads."""

    def __init__(self, queue: WorkQueue[str], shared: Shared, writer: NodeWriter) -> None:
        self._queue = queue
        self._shared = shared
        self._candidates = shared.candidates
        self._writer = writer
        self._looks = Derived(self._look_at)

    # ---- events

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._shared.age(node)  # it is known from now on

    def on_update(self, old: V1Node, new: V1Node) -> None:
        name = key_of(new)
        self._shared.age(new)
        before, after = machine_of(old), machine_of(new)
        changed_machine = uid_of(old) == uid_of(new) and any(before) and any(after) and before != after
        if changed_machine:
            self._shared.moves[name] = uid_of(new), self._shared.now()
        ready, wanted = is_ready(new), self._shared.attention(new)
        # Answers are about one instance and one outage: a row of them ends with either.
        if (ready and wanted is not Attention.ASK) or identity_of(old) != identity_of(new):
            self._candidates.forget(name)
        if ready and wanted is Attention.TIDY:
            self._queue.add(name, TIDY)
        if wanted is Attention.ASK and ((is_ready(old) and not ready) or changed_machine):
            self._queue.add(name)

    def on_delete(self, node: V1Node) -> None:
        self._shared.forget(key_of(node))
        self._queue.forget(key_of(node))
        self._writer.gone(node)

    # ---- the sweep

    def survey(self) -> Survey:
        """Look at all nodes of the cache."""
        owned = 0
        found: dict[Attention, set[str]] = {kind: set() for kind in Attention}
        ready: dict[str, list[str]] = {}
        left: list[str] = []
        for one in self._looks.of(self._shared.lister.list()):
            if not one.owned:
                continue  # of another cloud, or without an ID: "gone" could be said of it by mistake
            owned += 1
            if one.hands_off:
                left.append(one.name)
            needed = None if one.name in self._shared.moves else one.attention
            if needed is not Attention.NONE:
                found[needed or self._shared.attention(one.node)].add(one.name)
            if one.sampled:
                ready.setdefault(one.zone, []).append(one.name)
        return Survey(owned, frozenset(found[Attention.ASK]), frozenset(found[Attention.TIDY]), ready, tuple(left))

    def due(self, survey: Survey) -> dict[str, int]:
        """The nodes that need work now, with their priorities: all without a timer of their
        own."""
        now = self._shared.now()
        parked = frozenset(self._queue.parked())  # they come back by themselves, after a back-off
        due = dict.fromkeys(survey.tidy - parked, TIDY)
        for name in sorted(survey.not_ready - parked):
            one = self._candidates.get(name)
            # Where a timer brings it by itself, the sweep must not bypass a back-off.
            if (one is None or one.rests_until <= now) and not self._queue.num_requeues(name):
                due[name] = 0
        return due

    def _look_at(self, node: V1Node) -> _Look:
        shared = self._shared
        owned, left = is_owned(provider_id_of(node), shared.prefixes), hands_off(node)
        lasts = (is_ready(node) or left or not owned) and not shared.moved(node)
        needed = shared.attention(node) if lasts else None
        sampled = can_be_sampled(node, shared.prefixes)
        return _Look(node, key_of(node), zone_of(node), owned, needed, sampled, left)
