"""Stage 4, RangeAllocator: takes a node's name, and gives the node a free range of each cluster CIDR (stage 6).

Nobody gets a range before all nodes were listed, and before it is certain that no write of the last leader can arrive
any more (`takeover.py`); with proof of another allocator (`rival.py`) nobody does at all. A node for which none is free
waits, is told so, and gets the first one that returns.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import evolve

from controllers.nodeipam.changes import NodeFacts, facts_of_raw, seal, unsealed
from controllers.nodeipam.triggers import START
from controllers.runtime.api import MERGE_PATCH, Conflict, NotFound
from controllers.runtime.cache import NODES
from controllers.runtime.queue import DONE, Result
from controllers.runtime.write import ObjectReplaced, patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodeipam.assigner import Assigner
    from controllers.nodeipam.ledger import Ledger
    from controllers.nodeipam.rival import Rival
    from controllers.nodeipam.takeover import Takeover
    from controllers.nodeipam.waiting import Waiting
    from controllers.runtime.api import RestClient
    from controllers.runtime.cache import Lister
    from controllers.runtime.write import EventRecorder

__all__ = ["NoRangeLeft", "RangeReconciler"]


class NoRangeLeft(Exception):
    """All blocks of a cluster CIDR are taken; the node is served when one returns."""


class RangeReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        rest: RestClient,
        lister: Lister[V1Node],
        assigner: Assigner,
        ledger: Ledger,
        takeover: Takeover,
        waiting: Waiting,
        rival: Rival,
        recorder: EventRecorder,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._assigner = assigner
        self._ledger = ledger
        self._takeover = takeover
        self._waiting = waiting
        self._rival = rival
        self._recorder = recorder

    def reconcile(self, name: str) -> Result:
        """Look at the node, and give it what it lacks. Raises what the API server answered."""
        if name == START:
            self._assigner.start(seals=True)
            self._waiting.bring(self._takeover.names())
            self._waiting.wake()
            return DONE
        if not self._takeover.begun:
            self._wait(name)
            return DONE
        listed = self._takeover.unsettled(name)
        if listed is not None:
            self._seal(listed)
        facts = self._assigner.look(name)
        if facts is None or self._rival.verdict:
            return DONE
        if not self._takeover.over:
            self._wait(name)
            return DONE
        ranges = self._ledger.give(name, facts.uid)
        if ranges is None:
            self._wait(name)
            raise NoRangeLeft(self._exhausted())
        self._assigner.write(facts, ranges)
        return DONE

    def failed(self, name: str, error: Exception) -> None:
        """Tell the node's owner why it has no ranges; the worker tries again by itself."""
        node = None if name == START else self._lister.get(name)
        if node is None:
            return
        reason = "CIDRNotAvailable" if isinstance(error, NoRangeLeft) else "CIDRAssignmentFailed"
        rest = "It gets one as soon as another node is deleted" if reason == "CIDRNotAvailable" else "It is tried again"
        self._recorder.event(node, "Warning", reason, f"{error}. {rest}")

    def _seal(self, listed: NodeFacts) -> None:
        """Have a node changed that lacked ranges at the start, so that no older write can give it any."""
        path = NODES.path(name=listed.name)
        body = seal(self._takeover.token)
        found: NodeFacts | None
        try:
            raw = patch(self._rest, path, body, MERGE_PATCH, uid=listed.uid, resource_version=listed.version)
        except (Conflict, NotFound, ObjectReplaced):  # it changed since, or it is gone
            found = self._assigner.again(listed)
        else:
            assert raw is not None  # the patch is not empty
            found = evolve(listed, version=facts_of_raw(raw).version, sealed=True)
        if found is not None:
            self._assigner.remember(found)
        elif listed.sealed:
            self._unseal(listed)
        self._takeover.settle(listed.name, listed.uid)
        if self._takeover.over:
            self._waiting.wake()

    def _unseal(self, listed: NodeFacts) -> None:
        """Take away what the last leader left on a node that has got its ranges."""
        with suppress(NotFound, ObjectReplaced):
            patch(self._rest, NODES.path(name=listed.name), unsealed(), MERGE_PATCH, uid=listed.uid)

    def _wait(self, name: str) -> None:
        """It waits for what others are about to do, which may have been done just now."""
        self._waiting.add(name)
        self._waiting.wake_if(lambda: self._takeover.over and all(pool.free for pool in self._ledger.pools))

    def _exhausted(self) -> str:
        full = ", ".join(str(pool.cluster) for pool in self._ledger.pools if not pool.free)
        return f"no pod CIDR is free in {full}. Fix: a wider --cluster-cidr, or a larger mask size for new nodes"
