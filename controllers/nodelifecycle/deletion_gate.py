"""Stage 4: DECIDE. Whether a node that is confirmed gone may be deleted now, by the table of
`deletion_policy.py`; and the log, metrics and Events about nodes that are held back.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider import InstanceState
from controllers.nodelifecycle.changes import is_announced, zone_of
from controllers.nodelifecycle.deletion_policy import Breaker, Verdict, judge

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.deletion_votes import NodeVotes
    from controllers.nodelifecycle.shared import Shared

log = logging.getLogger(__name__)

REPORT_AFTER: Final = 60.0
"""Seconds after which a node that was said to be gone, and is still there, gets an Event that says
why, whatever the reason is."""

_NAMED: Final = 3  # Ready nodes of a zone that get an Event when the cloud calls more of them gone


@frozen
class Decision:
    """Whether a node may be deleted. If not, it is held back, or `waiting` for answers."""

    allowed: bool
    waiting: bool = False
    counted_at: float | None = None
    """When the limit let it go: to be given back when the deletion does not take place."""


class DeletionGate:
    """Decides on deletions, and reports what is held back. Thread-safe."""

    def __init__(self, shared: Shared, breaker: Breaker) -> None:
        self._shared = shared
        self._votes = shared.votes
        self._breaker = breaker
        self._lock = threading.Lock()  # the breaker's, and that of `_alarmed`
        self._alarmed: set[str] = set()  # zones where the cloud is not believed
        self._named: dict[str, tuple[str, ...]] = {}  # by zone: the Ready nodes with an Event

    def ask(self, key: str, node: V1Node, votes: NodeVotes, asked_at: float) -> Decision:
        """Whether this node may be deleted now, after "gone" to a question of `asked_at`."""
        if not self._breaker.options.enabled or votes.released or is_announced(node):
            return Decision(True)
        now, zone = self._shared.now(), zone_of(node)
        tally = self._shared.witnesses.tally(zone, votes.since, asked_at, now)
        verdict = judge(tally)
        if verdict is Verdict.DELETE:
            return Decision(True)
        if verdict is Verdict.COUNT:
            return self._count(key, node, votes, now)
        if verdict is Verdict.WAIT:
            why = f"the cloud has not answered yet about {tally.missing} Ready nodes of zone {zone!r}"
            if not tally.missing:
                why = f"the cloud calls {tally.gone} Ready nodes of zone {zone!r} gone too; within a minute that shows"
            self._votes.replace(key, votes, evolve(votes, held=votes.held_reported, why=why))
            return Decision(False, waiting=True)
        names = self._shared.witnesses.contradictions(now).get(zone, ())
        why = (
            f"the cloud calls Ready nodes of zone {zone!r} gone too ({_some(names)}), so it is not believed there. "
            "Check the provider's credentials, region and account. If the node is really gone, delete the Node, or "
            "send SIGUSR1 to the controller manager"
        )
        self._votes.replace(key, votes, evolve(votes, held=True, why=why))
        with self._lock:
            new = zone not in self._alarmed
            self._alarmed.add(zone)
        if new:
            self._shared.metrics.alarms.inc()
            log.error(
                "ALARM: zone %r: the cloud calls %d nodes gone that are Ready (%s), and is right about %d. That cannot "
                "be, so no node of that zone is deleted until this ends. Check the provider's credentials, region and "
                "account",
                zone,
                len(names),
                _some(names),
                tally.right,
            )
        return Decision(False)

    def refund(self, decision: Decision) -> None:
        """The deletion did not take place: the node exists, or the API server refused."""
        if decision.counted_at is not None:
            with self._lock:
                self._breaker.refund(decision.counted_at)

    def survey(self, owned: int, calm: bool) -> None:
        """Note the number of nodes before a sweep, and report what has waited for long."""
        now = self._shared.now()
        with self._lock:
            closed = self._breaker.observe(now, owned, calm=calm)
        if closed:
            log.warning("the limit on node deletions is lifted: %s", closed)
        found = self._shared.witnesses.contradictions(now)
        with self._lock:
            over = self._alarmed.difference(found)
            self._alarmed -= over
        for zone in over:
            log.warning("zone %r: the cloud no longer says that a Ready node is gone; deletions continue there", zone)
        for zone, names in found.items():
            if zone not in self._named:
                self._report_ready(zone, names[:_NAMED])
        self._named = {zone: self._named.get(zone, names[:_NAMED]) for zone, names in found.items()}
        for name, votes in self._votes.unreported(now, REPORT_AFTER):
            self._report(name, votes)

    def why(self, votes: NodeVotes) -> str:
        """Why this node, said to be gone, is still there; for people."""
        if votes.state is not InstanceState.GONE:
            return f"the cloud has given no usable answer since: {votes.problem}"
        wanted = self._shared.options.confirmations
        if votes.answers < wanted:
            return f"waits for answer {votes.answers + 1} of {wanted} that its instance is gone"
        return votes.why or "it is about to be deleted, or an Event DeletingNodeFailed says why that failed"

    def release(self) -> int:
        """SIGUSR1: delete what is held back now, if the cloud still says that it is gone."""
        count = self._votes.release_held()
        log.warning(
            "SIGUSR1: %d nodes that were held back are deleted if the cloud still says that they are gone", count
        )
        return count

    def _count(self, key: str, node: V1Node, votes: NodeVotes, now: float) -> Decision:
        held = self._votes.held() - votes.held
        with self._lock:
            admission = self._breaker.admit(now, votes.since, held)
            limit, deletions = self._breaker.limit(now), self._breaker.deletions(now)
        window = self._breaker.options.window
        if admission.released:
            log.warning("the limit on node deletions is lifted: %s", admission.released)
        if admission.allowed:
            return Decision(True, counted_at=now)
        why = (
            f"its zone has no Ready node that shows whether the cloud is right, so at most {limit} such nodes are "
            f"deleted in {window:g} s (--node-deletion-limit), and only a few in the first {window:g} s after a start "
            "of the controller. If it is really gone, delete the Node, or send SIGUSR1 to the controller manager"
        )
        self._votes.replace(
            key, votes, evolve(votes, held=True, why=why, held_reported=votes.held_reported or admission.opened)
        )
        if admission.opened:
            self._shared.metrics.alarms.inc()
            log.error(
                "ALARM: the cloud says that more than %d nodes are gone, %d were deleted within %g s, and their zones "
                "have no Ready node to check its answers. From now on one node is deleted per "
                "--node-deletion-trickle. If the nodes are really gone, send SIGUSR1 to this process: the nodes that "
                "are held back now are deleted then",
                limit,
                deletions,
                window,
            )
            self._event(node, "DeletionBreakerOpened", why)
        return Decision(False)

    def _report(self, name: str, votes: NodeVotes) -> None:
        node = self._shared.node(name, votes)
        if node is None:
            return
        self._votes.replace(name, votes, evolve(votes, held_reported=True))
        self._event(node, "DeletingNodeHeldBack", self.why(votes))

    def _event(self, node: V1Node, reason: str, why: str) -> None:
        message = f"The cloud says that the instance of this node is gone, but the node is not deleted now: {why}"
        self._shared.recorder.event(node, "Warning", reason, message)

    def _report_ready(self, zone: str, names: tuple[str, ...]) -> None:
        for name in names:
            node = self._shared.lister.get(name)
            if node is not None:
                self._shared.recorder.event(
                    node,
                    "Warning",
                    "ReadyNodeSaidToBeGone",
                    "This node is Ready, but the cloud says that its instance is gone. If it says so of more Ready "
                    f"nodes of zone {zone!r}, it is not believed there, and no node is deleted. If the instance is "
                    "really gone, delete the Node; if another instance has its name now, restart the kubelet there "
                    "too, which has gone on with this Node. If it exists, check the provider's credentials, region and "
                    "account",
                )


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
