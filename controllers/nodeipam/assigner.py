"""Stages 4 and 6: what both ways of choosing ranges share: who has what, whether a node is gone, and the write.

Reconcilers name a node and, where it lacks ranges, what it shall have. The ledger follows: what is seen on a node
counts at once, and what a node had is free again only when a quorum read says that there is no such node (of that UID)
any more. A write is bound to the node's UID and version; when its answer is lost the ranges stay the node's, and the
next try, of the same ranges, shows what became of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from controllers.nodeipam.changes import NodeFacts, assignment, facts_of, facts_of_raw
from controllers.runtime.api import MERGE_PATCH, Conflict, Invalid, NotFound
from controllers.runtime.cache import NODES, is_newer, quorum_list
from controllers.runtime.write import ObjectReplaced, Reference, patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.helpers.ips import IPNetwork
    from controllers.nodeipam.ledger import Holding, Ledger
    from controllers.nodeipam.metrics import NodeIPAMMetrics
    from controllers.nodeipam.rival import Rival
    from controllers.nodeipam.takeover import Takeover
    from controllers.nodeipam.waiting import Waiting
    from controllers.runtime.api import RestClient
    from controllers.runtime.cache import Lister
    from controllers.runtime.queue import WorkQueue
    from controllers.runtime.write import EventRecorder

__all__ = ["Assigner"]

log = logging.getLogger(__name__)

_ATTEMPTS = 5


class Assigner:
    """Thread-safe: the work queue keeps two threads off one node, and the ledger has a lock of its own."""

    def __init__(
        self,
        rest: RestClient,
        lister: Lister[V1Node],
        ledger: Ledger,
        takeover: Takeover,
        waiting: Waiting,
        rival: Rival,
        recorder: EventRecorder,
        metrics: NodeIPAMMetrics,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._ledger = ledger
        self._takeover = takeover
        self._waiting = waiting
        self._rival = rival
        self._recorder = recorder
        self._metrics = metrics
        self._seals = False
        self._lacked: dict[str, str] = {}
        """By name, the UIDs of nodes that were seen without ranges."""
        self._fresh: dict[str, NodeFacts] = {}
        """By name, a version of a node that lacks ranges, newer than the cache's may be."""

    def start(self, *, seals: bool) -> None:
        """List all nodes by quorum read, and take what they have. `seals`: those that lack ranges are to be sealed."""
        listed = quorum_list(self._rest, NODES, facts_of_raw)
        self._seals = seals
        lacking = [node for node in listed if not node.ranges and not node.problem]
        self._lacked |= {node.name: node.uid for node in lacking}
        overlaps = {node.name: self._ledger.saw(node.name, node.uid, node.ranges) for node in listed if node.ranges}
        self._takeover.begin(lacking if seals else ())
        for name, others in overlaps.items():
            if others:
                self._tell_overlap(name, others)
        log.info("%d nodes have pod CIDRs, %d wait for theirs", len(overlaps), len(lacking))

    def sweep(self, queue: WorkQueue[str]) -> None:
        """Have the nodes looked at of which the ledger and the cache say different things."""
        for name in self._ledger.names():
            node = self._lister.get(name)
            facts = None if node is None else facts_of(node)
            for held in self._ledger.named(name):
                if facts is None or held.uid != facts.uid:
                    queue.add(name)
                elif held.written and facts.waits:
                    self._ledger.doubt(held.uid)  # the cache is behind, or the server was restored from a backup
                    queue.add(name)

    def look(self, name: str) -> NodeFacts | None:
        """The node, if it needs ranges now. Frees what former nodes of that name had, and takes what it has."""
        node = self._lister.get(name)
        facts = None if node is None else facts_of(node)
        for held in self._ledger.named(name):
            if facts is None or held.uid != facts.uid:
                self._look_for(held)
        if facts is None:
            self._drop(name)
            return None
        if facts.problem:
            text = f"Its pod CIDRs cannot be read: {facts.problem}. They are left as they are"
            self._recorder.event(node, "Warning", "InvalidPodCIDR", text)
        if facts.ranges:
            self.saw(facts)
        held_now = self._ledger.get(facts.uid)
        if not facts.waits or (held_now is not None and held_now.written):
            return None
        self._lacked[name] = facts.uid
        fresh = self._fresh.get(name)
        newer = fresh is not None and fresh.uid == facts.uid and is_newer(fresh.version, facts.version)
        return fresh if newer else facts

    def remember(self, facts: NodeFacts) -> None:
        """A version of a node that lacks ranges, newer than the cache's may be."""
        self._fresh[facts.name] = facts

    def saw(self, facts: NodeFacts, raw: Mapping[str, Any] | None = None) -> None:
        """A node has ranges on the API server. `raw` is that node, where it is at hand."""
        held = self._ledger.get(facts.uid)
        if held is not None and held.written and held.ranges == facts.ranges:
            return
        foreign = held is None or not set(facts.ranges) <= set(held.kept)
        before_us = not (self._seals and self._takeover.over)
        others = self._ledger.saw(facts.name, facts.uid, facts.ranges)
        lacked = self._lacked.get(facts.name) == facts.uid
        self._drop(facts.name)
        if others:
            self._tell_overlap(facts.name, others)
        if foreign:
            raw = raw if raw is not None else self.read(facts.name)
            if raw is not None and facts_of_raw(raw).uid == facts.uid:
                self._rival.wrote(raw, seen_without=lacked, before_us=before_us)
            self._waiting.wake(self._room())  # it may have been given others, which are free now

    def write(self, facts: NodeFacts, ranges: Sequence[IPNetwork]) -> bool:
        """Give the node these ranges; False when it is gone, or has others by now. Raises ApiError."""
        node: NodeFacts | None = facts
        for attempt in range(_ATTEMPTS):
            if node is None or not node.waits or self._rival.verdict:
                return False
            try:
                patch(
                    self._rest,
                    NODES.path(name=node.name),
                    assignment(ranges, sealed=node.sealed),
                    MERGE_PATCH,
                    uid=node.uid,
                    resource_version=node.version,
                )
            except (Conflict, Invalid, NotFound, ObjectReplaced) as error:
                node = self.again(facts)
                if node is not None and (isinstance(error, Invalid) or attempt + 1 == _ATTEMPTS):
                    raise
            else:
                self._written(facts, ranges)
                return True
        return False

    def read(self, name: str) -> dict[str, Any] | None:
        """The node by quorum read; None when the API server has none of that name."""
        try:
            found: dict[str, Any] = self._rest.get(NODES.path(name=name))
        except NotFound as error:
            if error.details.get("name") != name:
                raise  # a proxy's 404, say: it proves nothing about the node
            return None
        return found

    def gone(self, uid: str, name: str) -> None:
        """The node with this UID is proved gone: what it had is free."""
        self._takeover.settle(name, uid)
        held = self._ledger.get(uid)
        if self._ledger.release(uid) and held is not None:
            log.info("node %s is gone: %s can be given again", name, _text(held.ranges))
        self._waiting.wake(self._room())

    def _look_for(self, held: Holding) -> None:
        """Free what a node has which the cache does not show, if it is gone indeed."""
        raw = self.read(held.name)
        facts = None if raw is None else facts_of_raw(raw)
        if facts is None or facts.uid != held.uid:
            self.gone(held.uid, held.name)
        elif facts.ranges:
            self.saw(facts, raw)

    def again(self, facts: NodeFacts) -> NodeFacts | None:
        """The node as it is now, by quorum read; None when this one is gone, or has ranges."""
        raw = self.read(facts.name)
        found = None if raw is None else facts_of_raw(raw)
        if found is None or found.uid != facts.uid:
            self.gone(facts.uid, facts.name)
            return None
        if found.ranges:
            self.saw(found, raw)
            return None
        return found

    def _written(self, facts: NodeFacts, ranges: Sequence[IPNetwork]) -> None:
        self._ledger.saw(facts.name, facts.uid, tuple(ranges))
        self._drop(facts.name)
        node = self._lister.get(facts.name)
        if node is not None:
            self._metrics.written(node)
        log.info("node %s has its pod CIDRs: %s", facts.name, _text(ranges), extra={"node": facts.name})

    def _drop(self, name: str) -> None:
        """The node has ranges, which stay, or is gone."""
        self._lacked.pop(name, None)
        self._fresh.pop(name, None)
        self._waiting.discard(name)

    def _room(self) -> int:
        """How many nodes can be served now."""
        return min((pool.free for pool in self._ledger.pools), default=0)

    def _tell_overlap(self, name: str, others: Sequence[str]) -> None:
        self._metrics.conflict("overlap")
        some = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        text = (
            f"Its pod CIDRs overlap with those of {some}: pods of these nodes can have the same addresses. Nothing was "
            "changed. Fix: drain one of them, delete its Node object and restart its kubelet, so that it gets others"
        )
        log.warning("node %s: %s", name, text)
        self._recorder.event(
            self._lister.get(name) or Reference(kind="Node", name=name), "Warning", "PodCIDRConflict", text
        )


def _text(ranges: Sequence[IPNetwork]) -> str:
    return ", ".join(map(str, ranges))
