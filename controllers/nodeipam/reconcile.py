"""Stage 4: RECONCILE. A node's name in, its ranges written (stage 6): with RangeAllocator a free
one of each family, with CloudAllocator those that the cloud chose (stage 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import evolve

from cloudprovider.ips import IPNetwork
from controllers.cloudcalls import Answer
from controllers.nodeipam.guards import NodeFacts, facts_of_raw, seal
from controllers.runtime.api import MERGE_PATCH, Conflict, NotFound
from controllers.runtime.cache import NODES, uid_of
from controllers.runtime.queue import DONE, AskAgain, Result
from controllers.runtime.write import ObjectReplaced, patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import RetryError
    from controllers.cloudcalls import CloudCalls
    from controllers.nodeipam.assigner import Assigner

START: Final = "*"
"""A key that no node can have: list all nodes before anything is given out."""
Ranges = tuple[IPNetwork, ...]
Chosen = Answer[Ranges] | None
"""None when nothing was asked."""


class NotChosenYet(Exception):
    """The cloud has chosen no ranges for the node; it is asked again later."""


class RangesOverlap(Exception):
    """The cloud chose for the node what overlaps with another node's ranges."""


class NoRangeLeft(Exception):
    """All blocks of a family are taken; the node is served when one returns."""


class RangeReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(self, assigner: Assigner) -> None:
        self._assigner = assigner
        self._allocations = assigner.allocations
        self._barrier = assigner.barrier
        self._pending = assigner.pending

    def reconcile(self, name: str) -> Result:
        """Look at the node, and give it what it lacks. Raises ApiError and NoRangeLeft.

        No node gets a range before all nodes were listed and no write of the last leader can arrive
        any more, nor with proof of another allocator."""
        if name == START:
            if not self._barrier.begun:
                self._assigner.start(seals=True)
                self._pending.bring(self._barrier.names())
            left = self._barrier.wait()
            self._pending.wake()
            return Result(requeue_after=left, routine=True) if left else DONE
        if not self._barrier.begun:
            self._wait(name)
            return DONE
        listed = self._barrier.unsettled(name)
        if listed is not None:
            self._seal(listed)
        facts = self._assigner.look(name)
        if facts is None or self._assigner.detector.verdict:
            return DONE
        # Not this node alone: the range that looks free for it may be on its way to another one.
        if not self._barrier.over:
            self._wait(name)
            return DONE
        ranges = self._allocations.give(name, facts.uid)
        if ranges is None:
            # Pending before it fails: a range that returns right now must find it.
            self._wait(name)
            raise NoRangeLeft(self._exhausted())
        self._assigner.write(facts, ranges)
        return DONE

    def failed(self, name: str, error: Exception) -> None:
        """Report why the node has no ranges; the worker tries again by itself."""
        if isinstance(error, NoRangeLeft):
            self._assigner.report(name, "CIDRNotAvailable", f"{error}. It gets one soon after another node is deleted")
        else:
            self._assigner.report(name, "CIDRAssignmentFailed", f"{error}. It is tried again")

    def _seal(self, listed: NodeFacts) -> None:
        """Change a node that lacked ranges at the start: no older write can give it any then."""
        path = NODES.path(name=listed.name)
        body = seal(self._barrier.token)
        found: NodeFacts | None
        try:
            raw = patch(self._assigner.rest, path, body, MERGE_PATCH, uid=listed.uid, resource_version=listed.version)
        except (Conflict, NotFound, ObjectReplaced):  # it changed since, or it is gone
            found = self._assigner.again(listed)
        else:
            assert raw is not None  # the patch is not empty
            found = evolve(listed, version=facts_of_raw(raw).version, sealed=True)
        if found is not None:
            self._assigner.remember(found)
        elif listed.sealed:  # the last leader's, left on a node that has got its ranges
            with suppress(NotFound, ObjectReplaced):
                patch(self._assigner.rest, path, seal(None), MERGE_PATCH, uid=listed.uid)
        self._barrier.settle(listed.name, listed.uid)
        if self._barrier.over:
            self._pending.wake()

    def _wait(self, name: str) -> None:
        """The node is pending; what it waits for may have happened just now."""
        self._pending.add(name)
        if self._barrier.over and self._allocations.room():
            self._pending.wake()

    def _exhausted(self) -> str:
        full = ", ".join(str(pool.cluster) for pool in self._allocations.exhausted())
        wide = self._allocations.widest()
        taken = f" ({', '.join(wide)})" if wide else ""
        fix = "add a range to --cluster-cidr, or give new nodes a larger mask size"
        return f"no pod CIDR is free in {full}{taken}. Fix: {fix}"


class CloudReconciler:
    """A fetch for many keys and one unit of work per key. Thread-safe: the work queue keeps two
    threads off one key."""

    def __init__(self, cloud: CloudCalls, assigner: Assigner) -> None:
        self._cloud = cloud
        self._assigner = assigner
        self._barrier = assigner.barrier
        self._pending = assigner.pending

    def fetch(self, keys: Sequence[str], deliver: Callable[[str, Chosen | Exception], None]) -> None:
        """Ask the cloud about those of the nodes that lack ranges; the others are delivered None.

        Before all nodes were listed nothing is asked: the keys come back later.
        """
        asked: list[V1Node] = []
        for key in keys:
            if key == START or not self._barrier.begun:
                if key != START:
                    self._pending.add(key)
                    if self._barrier.begun:  # meanwhile
                        self._pending.wake()
                deliver(key, None)
                continue
            # One node that cannot be read costs its own answer, and not the batch.
            try:
                facts = self._assigner.look(key)
            except Exception as error:  # noqa: BLE001 - it is this node's answer
                deliver(key, error)
                continue
            node = None if facts is None or self._assigner.detector.verdict else self._assigner.lister.get(key)
            if node is None:
                deliver(key, None)
            else:
                asked.append(node)
        if asked:
            self._cloud.fetch_pod_cidrs(asked, deliver)

    def reconcile(self, name: str, answer: Chosen | Exception) -> Result:
        """Write what the cloud chose. Raises what the cloud or the API server answered,
        NotChosenYet, RangesOverlap."""
        if name == START:
            self._assigner.start(seals=False)
            self._pending.wake()
            return DONE
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return DONE
        node = self._assigner.lister.get(name)
        facts = self._assigner.look(name)
        if node is None or facts is None or self._assigner.detector.verdict:
            return DONE
        ranges = answer.of(node)
        if facts.uid != uid_of(answer.node):  # the cache went on between the two looks
            raise AskAgain(f"node {name} was made again a moment ago")
        # The contract: an empty answer is "later", and never "none at all".
        if not ranges:
            raise NotChosenYet("the cloud has chosen no pod CIDRs for it yet")
        # Two nodes with one range lose packets without a word: rather none than that.
        others = self._assigner.allocations.claim(name, facts.uid, ranges)
        if others:
            shown = ", ".join(map(str, ranges))
            raise RangesOverlap(f"the cloud chose {shown}, which overlaps with the pod CIDRs of {', '.join(others)}")
        self._assigner.write(facts, ranges)
        return DONE

    def waits(self, name: str, error: RetryError, long: bool) -> None:
        """Report that the cloud has not chosen them yet."""
        self._assigner.report(name, "CIDRNotAvailable", f"{error}. It is asked again")

    def failed(self, name: str, error: Exception) -> None:
        """Report why the node has no ranges; the worker tries again by itself."""
        if isinstance(error, NotChosenYet):
            reason = "CIDRNotAvailable"
        elif isinstance(error, RangesOverlap):
            reason = "PodCIDRConflict"
        else:
            reason = "CIDRAssignmentFailed"
        self._assigner.report(name, reason, f"{error}. It is tried again")
