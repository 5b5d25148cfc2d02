"""Whether another allocator gives nodes their pod CIDRs. With proof of one, this one stops until
the program is started again: two allocators give one range to two nodes."""

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

log = logging.getLogger(__name__)

KUBE_CONTROLLER_MANAGER: Final = "kube-controller-manager"
_ENOUGH = 3  # nodes that are proof, by any client: an operator may write a range by hand
_ENOUGH_KUBE = 2  # ... by a client that calls itself kube-controller-manager
_FIX: Final = (
    "Fix: run one allocator only. Give kube-controller-manager --allocate-node-cidrs=false, or take "
    "node-ipam-controller out of --controllers here; then restart this program"
)


class ConflictDetector:
    """Allocation stops after two nodes that kube-controller-manager served, or three that any other
    client did. Thread-safe. `own` is how this program is named in managedFields.
    """

    def __init__(self, own: str, recorder: EventRecorder, metrics: NodeIPAMMetrics) -> None:
        self._own = own
        self._recorder = recorder
        self._metrics = metrics
        self._lock = threading.Lock()
        self._served: dict[str, bool] = {}
        """By a node's name, whether kube-controller-manager is said to have served it."""
        self.verdict = ""
        """Why nothing is given out any more; "" while all is well."""

    def wrote(self, node: Mapping[str, Any], *, before_us: bool = False) -> None:
        """A node that this controller saw without ranges has got some from another client.

        `node` is the raw object, with its managedFields. `before_us`: maybe the last leader's."""
        writers = writers_of(node)
        if before_us and writers <= {self._own}:
            return
        name, kube = node["metadata"]["name"], KUBE_CONTROLLER_MANAGER in writers
        who = KUBE_CONTROLLER_MANAGER if kube else one_line(", ".join(sorted(writers)), 100) or "an unknown program"
        self._metrics.conflict("other_writer")
        # One node proves nothing: its own kubelet may create it with ranges, or write them later,
        # with any field manager. But a kubelet can write no other node, so nodes are counted by
        # name. managedFields only decide how many are enough. Times are not compared: clocks
        # differ.
        with self._lock:
            self._served[name] = kube
            proved = len(self._served) >= _ENOUGH or sum(self._served.values()) >= _ENOUGH_KUBE
            if self.verdict or not proved:
                log.warning("node %s has pod CIDRs that this controller did not give it: %s did", name, who)
                return
            names = ", ".join(self._served)
            self.verdict = (
                f"another allocator is at work: {who} gave node {name} its pod CIDRs (nodes so far: {names}). Nothing "
                f"is given out here any more. {_FIX}"
            )
        self._metrics.stopped()
        log.error("node-ipam-controller stops: %s", self.verdict)
        self._recorder.event(node, "Warning", "CIDRAllocationStopped", f"node-ipam-controller stops: {self.verdict}")
