"""Whether another allocator gives nodes their pod CIDRs (beside stage 4). With proof of one, this one stops for good.

Two allocators that do not know of each other give one range to two nodes, and what is written stays. So nobody fights:
at the first write of kube-controller-manager that can only have been made while this controller was at work, or at the
third one of whoever else, nothing is given out any more until the program is started again. Writes come in from the
reconcilers, which know what is their own; a verdict goes to them, to health, to the log and to an Event.

The API server records who wrote which field (managedFields); a program names itself there, so the record is believed
for what it says against writing, never for writing. A server that records nothing leaves the writer unknown. Times are
not compared: clocks differ.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from controllers.nodeipam.changes import writers_of
from controllers.runtime.cleaning import one_line

if TYPE_CHECKING:
    from controllers.nodeipam.metrics import NodeIPAMMetrics
    from controllers.runtime.write import EventRecorder

__all__ = ["KUBE_CONTROLLER_MANAGER", "Rival"]

log = logging.getLogger(__name__)

KUBE_CONTROLLER_MANAGER: Final = "kube-controller-manager"
_MOST = 3  # nodes that unknown writers may serve: an operator may write a range by hand
_FIX: Final = (
    "Fix: run one allocator only. Give kube-controller-manager --allocate-node-cidrs=false, or take "
    "node-ipam-controller out of --controllers here; then restart this program"
)


class Rival:
    """Thread-safe. `own` is how this program is named in managedFields."""

    def __init__(self, own: str, recorder: EventRecorder, metrics: NodeIPAMMetrics) -> None:
        self._own = own
        self._recorder = recorder
        self._metrics = metrics
        self._lock = threading.Lock()
        self._served: dict[str, None] = {}
        self._verdict = ""

    @property
    def verdict(self) -> str:
        """Why nothing is given out any more; "" while all is well."""
        return self._verdict

    def wrote(self, node: Mapping[str, Any], *, seen_without: bool, before_us: bool = False) -> bool:
        """A node has ranges that this controller did not give it; whether that counts as another allocator's work.

        `node` is the raw object, with its managedFields. `seen_without`: it had none when this controller first saw it;
        otherwise it may have been created with them. `before_us`: the write may be the last leader's.
        """
        writers = writers_of(node)
        name, uid = node["metadata"]["name"], node["metadata"].get("uid", "")
        kube = KUBE_CONTROLLER_MANAGER in writers
        if not kube and (not seen_without or (before_us and writers <= {self._own})):
            return False
        who = KUBE_CONTROLLER_MANAGER if kube else one_line(", ".join(sorted(writers)), 100) or "an unknown program"
        self._metrics.conflict("other_writer")
        with self._lock:
            self._served[uid] = None
            if self._verdict or not (kube or len(self._served) >= _MOST):
                log.warning("node %s has pod CIDRs that this controller did not give it: %s did", name, who)
                return True
            self._verdict = (
                f"another allocator is at work: {who} gave node {name} its pod CIDRs. Nothing is given out here any "
                f"more. {_FIX}"
            )
        self._metrics.stopped()
        log.error("node-ipam-controller stops: %s", self._verdict)
        self._recorder.event(node, "Warning", "CIDRAllocationStopped", f"node-ipam-controller stops: {self._verdict}")
        return True
