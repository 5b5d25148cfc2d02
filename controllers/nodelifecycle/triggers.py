"""Stages 2 to 3: turns node events and the passing of time into keys of the queue `NodeLifecycle`.

From the shared node informer and from a ticker. The sweep brings up every node that needs attention; events only make
it quicker: a node that turns not ready is asked about at once, one that turns ready loses its taint at once. Where a
node is said to be gone, Ready nodes of its zone are called as witnesses (see witnesses.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.helpers import is_owned, is_ready, provider_id_of
from controllers.nodelifecycle.changes import (
    Attention,
    attention,
    can_witness,
    is_announced,
    zone_of,
)
from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.cases import Cases
    from controllers.nodelifecycle.witnesses import Identity, Witnesses
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue

TIDY = 10
"""Priority of a ready node that nothing can be scheduled on, above that of one to ask about."""

_PAUSE: Final = 1.0  # seconds between two calls of a zone's witnesses, as nodes turn out to be gone one by one


@frozen
class Survey:
    """All nodes at one time."""

    owned: int
    """Nodes that are certainly this provider's."""
    not_ready: frozenset[str]
    """Those of them that the cloud is to be asked about."""
    tidy: frozenset[str]
    """Those that are ready and still carry a taint of ours."""


class NodeLifecycleTriggers:
    """The informer's handler and the sweep. Called from the informer's and the ticker's threads."""

    def __init__(
        self,
        queue: WorkQueue[str],
        lister: Lister[V1Node],
        cases: Cases,
        witnesses: Witnesses,
        prefixes: Sequence[str],
        *,
        grace: float,
        out_of_service: bool,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._lister = lister
        self._cases = cases
        self._witnesses = witnesses
        self._called: dict[str, float] = {}  # zone: when its witnesses were called
        self._prefixes = tuple(prefixes)
        self._grace = grace
        self._out_of_service = out_of_service
        self._clock = clock

    def attention(self, node: V1Node) -> Attention:
        """What this node needs now."""
        now = self._clock.time()
        return attention(node, self._prefixes, now, self._grace, out_of_service=self._out_of_service)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        if old is new:
            return  # a resync
        name = key_of(new)
        ready = is_ready(new)
        if ready or uid_of(old) != uid_of(new) or provider_id_of(old) != provider_id_of(new):
            self._cases.forget(name)
        if ready:
            if self.attention(new) is Attention.TIDY:
                self._queue.add(name, TIDY)
            return
        self._witnesses.excuse(name, self._clock.monotonic())
        if is_ready(old) and self.attention(new) is Attention.ASK:
            self._queue.add(name)

    def on_delete(self, node: V1Node) -> None:
        self._cases.forget(key_of(node))
        self._witnesses.excuse(key_of(node), self._clock.monotonic())
        self._queue.forget(key_of(node))

    def survey(self) -> Survey:
        """Look at all nodes; asks nobody."""
        owned = 0
        found: dict[Attention, set[str]] = {kind: set() for kind in Attention}
        for node in self._lister.list():
            if is_owned(provider_id_of(node), self._prefixes):
                owned += 1
                found[self.attention(node)].add(key_of(node))
        return Survey(owned, frozenset(found[Attention.ASK]), frozenset(found[Attention.TIDY]))

    def call_witnesses(self, node: V1Node) -> None:
        """This node was just said to be gone for the first time: have the Ready nodes of its zone asked about."""
        zone, now = zone_of(node), self._clock.monotonic()
        if now - self._called.get(zone, -_PAUSE) >= _PAUSE:
            self._call({zone: now})

    def call_all_witnesses(self) -> None:
        """Have the witnesses asked about whose word is missing, in every zone where a node is said to be gone."""
        since: dict[str, float] = {}
        for name, case in self._cases.gone():
            node = self._lister.get(name)
            if node is not None and case.is_of(node) and not case.released and not is_announced(node):
                zone = zone_of(node)
                since[zone] = max(case.since, since.get(zone, case.since))
        self._witnesses.keep(since)
        self._call(since)

    def _call(self, since: Mapping[str, float]) -> None:
        now = self._clock.monotonic()
        for zone, nodes in self._who_can_witness(since).items():
            self._called[zone] = now
            self._witnesses.seat(zone, nodes, now)
            for name in self._witnesses.call(zone, since[zone], now):
                self._queue.add(name)

    def _who_can_witness(self, zones: Collection[str]) -> dict[str, dict[str, Identity]]:
        found: dict[str, dict[str, Identity]] = {zone: {} for zone in zones}
        if zones:
            for node in self._lister.list():
                zone = zone_of(node)
                if zone in found and can_witness(node, self._prefixes):
                    found[zone][key_of(node)] = (uid_of(node), provider_id_of(node))
        return found

    def due(self, survey: Survey) -> dict[str, int]:
        """The nodes that need work now, with their priorities: all but those that rest."""
        now = self._clock.monotonic()
        asked = {name: 0 for name in survey.not_ready if not self._rests(name, now)}
        return dict.fromkeys(survey.tidy, TIDY) | asked

    def enqueue(self, due: Mapping[str, int]) -> None:
        """Have these worked on."""
        for name, priority in due.items():
            self._queue.add(name, priority)

    def _rests(self, name: str, now: float) -> bool:
        """Whether a timer will bring the node up by itself: the sweep must not bypass a backoff."""
        case = self._cases.get(name)
        return (case is not None and case.rests_until > now) or self._queue.num_requeues(name) > 0
