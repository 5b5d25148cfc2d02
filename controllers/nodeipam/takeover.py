"""Whether a write of the last leader can still arrive (beside stage 4): until that is ruled out, nobody gets a range.

A leader that was killed or cut off may have a write under way: "node A gets range X", sent before its lease ended, and
applied by the API server after this leader listed the nodes. X looks free meanwhile, and could go to node B. Such a
write holds only for the version of A that the last leader saw. So every node that lacks a range at the start has to
change once: after that any older write to it is refused. Where nobody else changes it this leader does
(`changes.seal`). Nodes that were created after the start cannot be known to another leader.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controllers.nodeipam.changes import NodeFacts

__all__ = ["Takeover"]


class Takeover:
    """Thread-safe. Closed until `begin`, and then until every node is settled."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(4)
        """What this leader writes on the nodes: another value than any leader before."""
        self._lock = threading.Lock()
        self._begun = False
        self._unsettled: dict[str, NodeFacts] = {}

    def begin(self, lacking: Iterable[NodeFacts]) -> None:
        """Name the nodes that lack ranges at the start, as they were listed."""
        with self._lock:
            self._unsettled = {node.name: node for node in lacking}
            self._begun = True

    @property
    def begun(self) -> bool:
        """Whether the nodes were listed."""
        return self._begun

    @property
    def over(self) -> bool:
        """Whether ranges can be given out."""
        return self._begun and not self._unsettled

    def unsettled(self, name: str) -> NodeFacts | None:
        """The node of this name, as it was listed, if a write of the last leader to it may be under way."""
        return self._unsettled.get(name)

    def names(self) -> list[str]:
        """The names of all such nodes."""
        with self._lock:
            return list(self._unsettled)

    def settle(self, name: str, uid: str) -> None:
        """No older write can reach this node."""
        with self._lock:
            listed = self._unsettled.get(name)
            if listed is not None and listed.uid == uid:
                del self._unsettled[name]
