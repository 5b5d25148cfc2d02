"""Stage 4: RECONCILE, and 6: WRITE. What both ways of choosing ranges share: who has what, whether
a node is gone, and the write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from cloudprovider.internal.cleaning import few
from controllers.nodeipam.guards import NodeFacts, assignment, facts_of, facts_of_raw
from controllers.runtime.api import MERGE_PATCH, Conflict, Invalid, NotFound, ObjectNotFound, RestClient, ServerError
from controllers.runtime.cache import NODES, Lister, is_newer, key_of, quorum_list, uid_of
from controllers.runtime.write import EventRecorder, ObjectReplaced, Reference, patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.ips import IPNetwork
    from controllers.nodeipam.allocations import Allocations, Holding
    from controllers.nodeipam.guards import ConflictDetector, StartupBarrier
    from controllers.nodeipam.metrics import NodeIPAMMetrics
    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue

log = logging.getLogger(__name__)

_ATTEMPTS = 5
WAITING: Final = 10
"""Priority of a node that lacks ranges, above those that only have to be known."""
REST = 10.0
"""Seconds after a Node's deletion until its ranges can go to others: its machine and pods may still
use them, and its route may still be there. Where the cloud chooses, it may give them to another
machine immediately."""


class PendingNodes:
    """Names of nodes that cannot get a range now, in their order, each once. Thread-safe."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._names: dict[str, None] = {}

    def add(self, name: str) -> None:
        """Add it at the end, unless it is there already."""
        with self._lock:
            self._names.setdefault(name)

    def discard(self, name: str) -> None:
        """It needs no range any more."""
        with self._lock:
            self._names.pop(name, None)

    def bring(self, names: Iterable[str]) -> None:
        """Bring these back, pending or not."""
        for name in names:
            self._queue.add(name, WAITING)

    def wake(self, most: int | None = None) -> None:
        """Bring back the first of them; all, when `most` is None."""
        with self._lock:
            names = list(self._names)[:most]
            for name in names:
                del self._names[name]
        self.bring(names)


@define(eq=False)
class Assigner:
    """Thread-safe: the work queue keeps two threads off a node, and `Allocations` locks itself."""

    rest: RestClient
    lister: Lister[V1Node]
    allocations: Allocations
    barrier: StartupBarrier
    pending: PendingNodes
    detector: ConflictDetector
    recorder: EventRecorder
    metrics: NodeIPAMMetrics
    clock: Clock
    rests: float
    """Seconds for which the ranges of a node rest that is not to be seen any more."""
    queue: WorkQueue[str]
    _seals: bool = field(default=False, init=False)
    _lacked: dict[str, str] = field(factory=dict, init=False)
    """By name, the UIDs of nodes that were seen without ranges."""
    _fresh: dict[str, NodeFacts] = field(factory=dict, init=False)
    """By name, a version of a node that lacks ranges, newer than the cache's may be."""

    def start(self, *, seals: bool) -> None:
        """List all nodes by quorum read, and take what they have. `seals`: those that lack ranges
        are to be sealed."""
        # Not from the cache: it may lack what the last leader wrote a moment ago.
        listed = quorum_list(self.rest, NODES, facts_of_raw)
        self._seals = seals
        lacking = [node for node in listed if not node.ranges and not node.problem]
        self._lacked |= {node.name: node.uid for node in lacking}
        having = [node for node in listed if node.ranges]
        # All are taken first: which of two is too wide shows only when both are known.
        overlaps = {node.name: self.allocations.saw(node.name, node.uid, node.ranges) for node in having}
        baseless = {node.name: wide for node in having if (wide := self._baseless(node, made_with=False))}
        for node in having:
            if node.name in baseless:
                self.allocations.saw(node.name, node.uid, node.ranges, counts=False)
                self._report_too_wide(node.name, baseless[node.name])
            elif others := [name for name in overlaps[node.name] if name not in baseless]:
                self._report_overlap(node.name, others)
            self._report_lacking_family(node)
        self.barrier.begin(lacking if seals else ())
        log.info("%d nodes have pod CIDRs, %d wait for theirs", len(overlaps), len(lacking))
        if half := self.allocations.lacking_family():
            log.warning(
                "%d nodes have pod CIDRs of one family only, and keep them; each has to be replaced, or deleted and "
                "registered again, to get both: %s",
                len(half),
                ", ".join(half[:10]),
            )

    def lacks(self, node: V1Node) -> None:
        """The cache shows this node without ranges. To be called for each version, before its key
        is worked on: ranges that appear from now on were not there at its creation."""
        self._lacked[key_of(node)] = uid_of(node)

    def sweep(self) -> None:
        """Queue the nodes about which allocations and cache differ."""
        for name in self.allocations.names():
            node = self.lister.get(name)
            facts = None if node is None else facts_of(node)
            for held in self.allocations.named(name):
                if facts is None or held.uid != facts.uid:
                    self.queue.add(name)
                elif held.written and facts.waits:
                    # The cache is behind, or the server was restored from a backup.
                    self.allocations.doubt(held.uid)
                    self.queue.add(name)

    def look(self, name: str) -> NodeFacts | None:
        """The node, if it needs ranges now. Frees what former nodes of that name had, and takes
        what it has."""
        node = self.lister.get(name)
        facts = None if node is None else facts_of(node)
        for held in self.allocations.named(name):
            if facts is None or held.uid != facts.uid:
                now = self.clock.monotonic()
                if (left := self.allocations.rest(held.uid, now + self.rests) - now) > 0:
                    self.queue.add_after(name, left, WAITING)
                else:
                    self.again(held)  # the cache is no proof that it is gone
        if facts is None:
            self._drop(name)
            return None
        # Not overwritten: the API server would refuse it, and pods may have such addresses.
        if facts.problem:
            text = f"Its pod CIDRs cannot be read: {facts.problem}. They are left as they are"
            self.recorder.event(node, "Warning", "InvalidPodCIDR", text)
        if facts.ranges:
            self.saw(facts)
        held_now = self.allocations.get(facts.uid)
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
        held = self.allocations.get(facts.uid)
        if held is not None and held.written and held.ranges == facts.ranges and held.free_from is None:
            return
        foreign = held is None or not set(facts.ranges) <= set(held.kept)
        before_us = not (self._seals and self.barrier.over)
        lacked = self._lacked.get(facts.name) == facts.uid
        # Not where its former self, that is not proved gone yet, had them: it was created again.
        former = any(one.counts and one.ranges == facts.ranges for one in self.allocations.named(facts.name))
        made_with = held is None and not lacked and not former
        wide = self._baseless(facts, made_with=made_with)
        # The cloud decides, not the Node's creator.
        counts = not (wide or (made_with and not self.allocations.pools))
        others = self.allocations.saw(facts.name, facts.uid, facts.ranges, counts=counts)
        self._drop(facts.name)
        self._report_lacking_family(facts)
        if wide:
            self._report_too_wide(facts.name, wide)
        if others:
            self._report_overlap(facts.name, others)
        if foreign:
            if lacked:
                raw = raw if raw is not None else self.read(facts.name)
                if raw is not None and facts_of_raw(raw).uid == facts.uid:
                    self.detector.wrote(raw, before_us=before_us)
            self.pending.wake(self.allocations.room())  # it may have been given others, which are free now

    def _baseless(self, facts: NodeFacts, *, made_with: bool) -> str:
        """Which node's ranges no allocator can have given, "" for none: others may get these."""
        wide = self.allocations.too_wide(facts.ranges)
        # A range of more than one block comes from the Node's creator if it was there at the
        # creation, or if two other nodes have theirs in it. Any other one may be older than the
        # mask size, or an operator's.
        return wide if wide and (made_with or self.allocations.inside(facts.uid, facts.ranges) >= 2) else ""

    def write(self, facts: NodeFacts, ranges: Sequence[IPNetwork]) -> bool:
        """Give the node these ranges; False when it is gone or has others. Raises ApiError."""
        # Bound to UID and version. When the answer is lost the ranges stay the node's, and the next
        # try, of the same ranges, shows what became of it.
        node: NodeFacts | None = facts
        for attempt in range(_ATTEMPTS):
            # Each time again: another allocator may have been found while this one waited.
            if node is None or not node.waits or self.detector.verdict:
                return False
            try:
                patch(
                    self.rest,
                    NODES.path(name=node.name),
                    assignment(ranges, sealed=node.sealed),
                    MERGE_PATCH,
                    uid=node.uid,
                    resource_version=node.version,
                )
            except (Conflict, Invalid, NotFound, ObjectReplaced) as error:
                # Invalid: it may have got ranges meanwhile, which cannot be changed.
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
            found: dict[str, Any] = self.rest.get(NODES.path(name=name))
        except ObjectNotFound:
            return None
        try:
            is_node = found["metadata"]["name"] == name and found["metadata"]["uid"]
        except (KeyError, TypeError):
            is_node = False
        if not is_node:  # a proxy's page must not pass for another node of that name
            raise ServerError("the answer is no Node", status=200, method="GET", path=NODES.path(name=name))
        return found

    def gone(self, uid: str, name: str) -> None:
        """The node with this UID is proved gone: what it had is free, unless another one has it."""
        self.barrier.settle(name, uid)
        held = self.allocations.get(uid)
        if self.allocations.release(uid) and held is not None:
            log.info("node %s is gone, which had %s", name, _text(held.kept) or "nothing")
        self.pending.wake(self.allocations.room())

    def report(self, name: str, reason: str, text: str) -> None:
        """Tell in an Event why the node has no ranges, where the cache has it."""
        node = self.lister.get(name)
        if node is not None:
            self.recorder.event(node, "Warning", reason, text)

    def again(self, node: NodeFacts | Holding) -> NodeFacts | None:
        """The node as it is now, by quorum read; None when this one is gone, which frees what it
        had, or has ranges."""
        raw = self.read(node.name)
        found = None if raw is None else facts_of_raw(raw)
        if found is not None and found.ranges:
            self.saw(found, raw)  # first: a Node that was created again may have its former one's
        if found is None or found.uid != node.uid:  # by UID: a new Node of that name is another one
            self.gone(node.uid, node.name)
            return None
        return None if found.ranges else found

    def _written(self, facts: NodeFacts, ranges: Sequence[IPNetwork]) -> None:
        self.allocations.saw(facts.name, facts.uid, tuple(ranges))
        self._drop(facts.name)
        node = self.lister.get(facts.name)
        if node is not None:
            self.metrics.written(node)
        log.info("node %s has its pod CIDRs: %s", facts.name, _text(ranges), extra={"node": facts.name})

    def _drop(self, name: str) -> None:
        """The node has ranges, which stay, or is gone."""
        self._lacked.pop(name, None)
        self._fresh.pop(name, None)
        self.pending.discard(name)

    def _report_too_wide(self, name: str, wide: str) -> None:
        text = (
            f"Its pod CIDRs are wider than a node gets here ({wide}), and no allocator gave them: it was created with "
            "them, or other nodes have theirs inside. They are not kept from other nodes. Fix: delete the Node object "
            "and restart its kubelet, so that it gets others"
        )
        self._conflict("too_wide", "PodCIDRTooWide", name, text)

    def _report_overlap(self, name: str, others: Sequence[str]) -> None:
        text = (
            f"Its pod CIDRs overlap with those of {few(others, 3)}: pods of these nodes can have the same addresses. "
            "Nothing was changed. Fix: drain one of them, delete its Node object and restart its kubelet, so that it "
            "gets others"
        )
        self._conflict("overlap", "PodCIDRConflict", name, text)

    def _report_lacking_family(self, facts: NodeFacts) -> None:
        families = " and ".join(f"IPv{version}" for version in self.allocations.lacked(facts.ranges))
        node = self.lister.get(facts.name)
        if families and node is not None and uid_of(node) == facts.uid:
            text = (
                f"It has no pod CIDR of {families}, of which the cluster has some, and what it has cannot be changed. "
                "Fix: drain it, delete its Node object and restart its kubelet, so that it gets both"
            )
            self.recorder.event(node, "Warning", "PodCIDRFamilyMissing", text)

    def _conflict(self, kind: str, reason: str, name: str, text: str) -> None:
        self.metrics.conflict(kind)
        log.warning("node %s: %s", name, text)
        # At the start the cache may not have it yet, and this is told once.
        node = self.lister.get(name) or Reference(kind="Node", name=name)
        self.recorder.event(node, "Warning", reason, text)


def _text(ranges: Sequence[IPNetwork]) -> str:
    return ", ".join(map(str, ranges))
