"""Whether a write of the last leader can still arrive (beside stage 4): until that is ruled out, nobody gets a range.

A leader that was killed or cut off may have a write under way: "node A gets range X", sent before its lease ended, and
applied by the API server after this leader listed the nodes. X looks free meanwhile, and could go to node B. Such a
write holds only for the version of A that the last leader saw. So every node that lacks a range at the start is
changed once (`changes.seal`): after that any older write to it is refused, or it came before and the answer shows it.
Nodes that were created after the start cannot be known to another leader.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping

__all__ = ["Takeover"]


class Takeover:
    """Thread-safe. Closed until `begin`, and then until every node is settled."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(4)
        """What this leader writes on the nodes: another value than any leader before."""
        self._lock = threading.Lock()
        self._begun = False
        self._unsettled: dict[str, str] = {}

    def begin(self, lacking: Mapping[str, str]) -> None:
        """Name the nodes that lack ranges at the start, UID to name."""
        with self._lock:
            self._unsettled = dict(lacking)
            self._begun = True

    @property
    def begun(self) -> bool:
        """Whether the nodes were listed."""
        return self._begun

    @property
    def over(self) -> bool:
        """Whether ranges can be given out."""
        return self._begun and not self._unsettled

    def unsettled(self, name: str = "") -> list[str]:
        """The UIDs of the nodes of this name, or of all, to which a write of the last leader may be under way."""
        with self._lock:
            return [uid for uid, other in self._unsettled.items() if not name or other == name]

    def names(self) -> list[str]:
        """Their names."""
        with self._lock:
            return list(self._unsettled.values())

    def settle(self, uid: str) -> None:
        """No older write can reach this node."""
        with self._lock:
            self._unsettled.pop(uid, None)
