"""Whether a node that is confirmed gone may be deleted now, and who is told when not (between stages 4 and 6).

`reconcile.py` asks before each deletion. The witnesses of the node's zone decide (witnesses.py); where there is none,
the count does (breaker.py). Nodes whose deletion the cluster autoscaler has announced need neither. What is held back
shows in metrics and Events; `release` lets go what is held at that moment.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from controllers.nodelifecycle.breaker import Breaker
from controllers.nodelifecycle.cases import Case, Cases
from controllers.nodelifecycle.changes import is_announced, zone_of
from controllers.nodelifecycle.witnesses import Contradiction, Verdict, Witnesses

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

_TOLD: Final = 3  # Ready nodes of a zone that get an Event when the cloud calls more of them gone


@frozen
class Permit:
    """The answer to one question. Without `allowed`, the node is held back, or `waiting` for the witnesses."""

    allowed: bool
    waiting: bool = False
    counted_at: float | None = None
    """When the count let it go: to be given back when the deletion does not take place."""


class Permits:
    """Decides on deletions. Thread-safe."""

    def __init__(
        self,
        lister: Lister[V1Node],
        cases: Cases,
        witnesses: Witnesses,
        breaker: Breaker,
        recorder: EventRecorder,
        metrics: NodeLifecycleMetrics,
        clock: Clock,
        *,
        alarm_after: float,
    ) -> None:
        """`alarm_after`: seconds that a contradiction must last before it is told, longer than it takes until the Node
        of a terminated instance is no longer Ready."""
        self._lister = lister
        self._cases = cases
        self._witnesses = witnesses
        self._breaker = breaker
        self._lock = threading.Lock()  # the breaker's
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._alarm_after = alarm_after
        self._told: dict[str, float] = {}  # zone: since when it is contradicted, as far as told

    def needs_witnesses(self, node: V1Node, case: Case) -> bool:
        """Whether this node, said to be gone, is deleted only if the witnesses of its zone speak for the cloud."""
        return self._breaker.options.enabled and not case.released and not is_announced(node)

    def ask(self, key: str, node: V1Node, case: Case) -> Permit:
        """Whether this node, confirmed gone, may be deleted now."""
        if not self.needs_witnesses(node, case):
            return Permit(True)
        now, zone = self._clock.monotonic(), zone_of(node)
        verdict = self._witnesses.verdict(zone, case.since, now)
        if verdict is Verdict.BELIEVED:
            return Permit(True)
        if verdict is Verdict.WAITING:
            return Permit(False, waiting=True)
        if verdict is Verdict.CONTRADICTED:
            why = ""
            if zone in self._told:
                why = (
                    f"The cloud says that the instance of this node is gone, but it says so of Ready nodes of zone "
                    f"{zone!r} too, so it is not believed there and this node is not deleted. Check the provider's "
                    "credentials, region and account"
                )
            self._hold(key, node, case, "DeletingNodeHeldBack", why)
            return Permit(False)
        return self._count(key, node, case, now)

    def held(self, name: str, case: Case) -> str:
        """Why this node is held back, for people."""
        node = self._lister.get(name)
        zone = zone_of(node) if node is not None else ""
        for one in self._witnesses.contradictions():
            if one.zone == zone:
                names = ", ".join(one.names[:_TOLD]) + (", ..." if len(one.names) > _TOLD else "")
                return f"held back: the cloud calls Ready nodes of zone {zone!r} gone too ({names})"
        return (
            f"held back: zone {zone!r} has no Ready node to check the cloud's answer, and --node-deletion-limit holds"
        )

    def refund(self, permit: Permit) -> None:
        """The permit was not used: the node turned out to be there, or the API server refused."""
        if permit.counted_at is not None:
            with self._lock:
                self._breaker.refund(permit.counted_at)

    def survey(self, owned: int, calm: bool) -> None:
        """Take note of the number of nodes before a sweep, and raise the alarm where the cloud is contradicted."""
        now = self._clock.monotonic()
        with self._lock:
            closed = self._breaker.observe(now, owned, calm=calm)
        if closed:
            log.warning("the limit on node deletions is lifted: %s", closed)
        found = self._witnesses.contradictions()
        lasting = {one.zone: one for one in found if now - one.since >= self._alarm_after}
        for zone in [zone for zone in self._told if zone not in lasting]:
            del self._told[zone]
            log.warning("zone %r: the cloud no longer says that a Ready node is gone; deletions continue there", zone)
        for zone, contradiction in lasting.items():
            if zone not in self._told:
                self._told[zone] = contradiction.since
                self._alarm(contradiction, now)

    def release(self) -> int:
        """An operator's word: delete what is held back now, if the cloud still says that it is gone."""
        count = self._cases.release_held()
        log.warning(
            "SIGUSR1: %d nodes that were held back are deleted if the cloud still says that they are gone", count
        )
        return count

    def _count(self, key: str, node: V1Node, case: Case, now: float) -> Permit:
        held = self._cases.held() - case.held
        with self._lock:
            admission = self._breaker.admit(now, case.since, held)
            limit, deletions = self._breaker.limit(now), self._breaker.deletions(now)
        window = self._breaker.options.window
        if admission.released:
            log.warning("the limit on node deletions is lifted: %s", admission.released)
        if admission.allowed:
            return Permit(True, counted_at=now)
        if admission.opened:
            self._metrics.alarms.inc()
            log.error(
                "ALARM: the cloud says that more than %d nodes are gone, %d were deleted within %g s, and their zones "
                "have no Ready node to check its answers. From now on one node is deleted per "
                "--node-deletion-trickle. If the nodes are really gone, send SIGUSR1 to this process: the nodes that "
                "are held back now are deleted then",
                limit,
                deletions,
                window,
            )
        self._hold(
            key,
            node,
            case,
            "DeletionBreakerOpened" if admission.opened else "DeletingNodeHeldBack",
            "The cloud says that the instance of this node is gone. Its zone has no Ready node to check this. So "
            f"at most {limit} such nodes are deleted in {window:g} s, and only a few after a start of the controller. "
            "This node is held back. If it is really gone, delete the Node, or send SIGUSR1 to the controller manager",
        )
        return Permit(False)

    def _hold(self, key: str, node: V1Node, case: Case, reason: str, why: str) -> None:
        tell = bool(why) and (not case.held_told or reason == "DeletionBreakerOpened")
        self._cases.replace(key, case, evolve(case, held=True, held_told=case.held_told or tell))
        if tell:
            self._recorder.event(node, "Warning", reason, why)

    def _alarm(self, contradiction: Contradiction, now: float) -> None:
        self._metrics.alarms.inc()
        names = contradiction.names
        log.error(
            "ALARM: zone %r: for %.0f s the cloud has said that %d Ready nodes are gone (%s). That cannot be right, so "
            "no node of that zone is deleted until this ends. Check the provider's credentials, region and account",
            contradiction.zone,
            now - contradiction.since,
            len(names),
            ", ".join(names[:_TOLD]) + (", ..." if len(names) > _TOLD else ""),
        )
        for name in names[:_TOLD]:
            node = self._lister.get(name)
            if node is not None:
                self._recorder.event(
                    node,
                    "Warning",
                    "ReadyNodeSaidToBeGone",
                    "This node is Ready, but the cloud says that its instance is gone. Until this ends, no node is "
                    f"deleted in zone {contradiction.zone!r}. If the instance is really gone, delete the Node. If it "
                    "exists, check the provider's credentials, region and account",
                )
