"""Stage 4, CloudAllocator: asks the cloud which ranges it chose (stage 5), for many nodes at once, and writes them.

What the cloud says is final, so nothing has to be kept from other nodes but what overlaps: where two nodes are answered
with ranges that do, the first one has them, and the other one is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cloudprovider.helpers.ips import IPNetwork
from controllers.nodeipam.triggers import START
from controllers.runtime.queue import DONE, Result

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.nodeipam.assigner import Assigner
    from controllers.nodeipam.ledger import Ledger
    from controllers.nodeipam.rival import Rival
    from controllers.nodeipam.takeover import Takeover
    from controllers.nodeipam.waiting import Waiting
    from controllers.runtime.cache import Lister
    from controllers.runtime.write import EventRecorder

__all__ = ["Answer", "CloudReconciler", "NotChosenYet", "RangesOverlap"]

Ranges = tuple[IPNetwork, ...]
Answer = Ranges | None
"""None when nothing was asked."""


class NotChosenYet(Exception):
    """The cloud has chosen no ranges for the node; it is asked again later."""


class RangesOverlap(Exception):
    """The cloud chose for the node what overlaps with another node's ranges."""


class CloudReconciler:
    """A fetch for many keys and one unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        cloud: CloudCalls,
        lister: Lister[V1Node],
        assigner: Assigner,
        ledger: Ledger,
        takeover: Takeover,
        waiting: Waiting,
        rival: Rival,
        recorder: EventRecorder,
    ) -> None:
        self._cloud = cloud
        self._lister = lister
        self._assigner = assigner
        self._ledger = ledger
        self._takeover = takeover
        self._waiting = waiting
        self._rival = rival
        self._recorder = recorder

    def fetch(self, keys: Sequence[str], deliver: Callable[[str, Answer | Exception], None]) -> None:
        """Ask the cloud about those of the nodes that lack ranges; the others are delivered None.

        Before all nodes were listed nothing is asked: the keys come back then.
        """
        asked: list[V1Node] = []
        for key in keys:
            if key == START or not self._takeover.begun:
                if key != START:
                    self._waiting.add(key)
                    self._waiting.wake_if(lambda: self._takeover.begun)
                deliver(key, None)
                continue
            try:
                facts = self._assigner.look(key)
            except Exception as error:  # noqa: BLE001 - it is this node's answer
                deliver(key, error)
                continue
            node = None if facts is None or self._rival.verdict else self._lister.get(key)
            if node is None:
                deliver(key, None)
            else:
                asked.append(node)
        if asked:
            self._cloud.fetch_pod_cidrs(asked, deliver)

    def reconcile(self, name: str, answer: Answer | Exception) -> Result:
        """Write what the cloud chose. Raises what the cloud or the API server answered, NotChosenYet, RangesOverlap."""
        if name == START:
            self._assigner.start(seals=False)
            self._waiting.wake()
            return DONE
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return DONE
        if not answer:
            raise NotChosenYet("the cloud has chosen no pod CIDRs for it yet")
        facts = self._assigner.look(name)
        if facts is None or self._rival.verdict:
            return DONE
        others = self._ledger.claim(name, facts.uid, answer)
        if others:
            shown = ", ".join(map(str, answer))
            raise RangesOverlap(f"the cloud chose {shown}, which overlaps with the pod CIDRs of {', '.join(others)}")
        self._assigner.write(facts, answer)
        return DONE

    def failed(self, name: str, error: Exception) -> None:
        """Tell the node's owner why it has no ranges; the worker tries again by itself."""
        node = None if name == START else self._lister.get(name)
        if node is None:
            return
        if isinstance(error, NotChosenYet):
            reason = "CIDRNotAvailable"
        elif isinstance(error, RangesOverlap):
            reason = "PodCIDRConflict"
        else:
            reason = "CIDRAssignmentFailed"
        self._recorder.event(node, "Warning", reason, f"{error}. It is tried again")
