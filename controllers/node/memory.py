"""What this process itself saw and did on each node: the proof that the record on the node is not (beside stage 4).

`reconcile.py` writes here what came of its work, and asks before it writes to a node; `triggers.py` asks whether a
change is worth a question to the cloud. Nothing in here reads the API server or the cloud. An entry belongs to one UID,
so a node that was recreated under its name starts anew, and it goes when the node goes.

It also keeps us from fighting. What the cloud asks for anew is written at once. What we wrote before and somebody else
undid is put back at once the first time, then at most once in a refresh period, and ever less often while it goes on.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from attrs import define, field

from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubernetes.client.models.v1_node import V1Node

    from controllers.node.changes import Known

__all__ = ["NodeMemory", "Patience", "Remembered"]

_LONGEST: Final = 3600.0
_TAINT_FIRST: Final = 10.0
_TAINT_LONGEST: Final = 600.0


@define
class Patience:
    """How often one thing may be put back: at once, then after `first` seconds, each time twice as long, at most
    `longest`. After as much peace as it last had to wait it starts anew."""

    first: float
    longest: float
    _until: float = field(default=float("-inf"), init=False)
    _delay: float = field(default=0.0, init=False)

    def left(self, now: float) -> float:
        """Seconds until it may be done again; 0.0 when it may be done now."""
        return max(0.0, self._until - now)

    def used(self, now: float) -> None:
        """It was done."""
        peace = now >= self._until + self._delay
        self._delay = self.first if peace else min(2 * self._delay, self.longest)
        self._until = now + self._delay


@define(eq=False)
class Remembered:
    """One node, for as long as it has this UID."""

    uid: str
    restore: Patience
    """For labels, addresses and the record, once they were as the cloud has them."""
    twins: Patience
    """For the deprecated twins of labels, which need no word from the cloud."""
    taint: Patience
    """For the uninitialized taint, once it was removed."""
    known: Known | None = None
    """The labels that the cloud asked for; None before this process first compared the node with the cloud."""
    wished: Mapping[str, str] = field(factory=dict)
    """The labels of the last write, from before it: its own event may come first."""
    basis: int | None = None
    """What the node was last brought in line with."""
    put_back: bool = False
    """Somebody gave it the uninitialized taint again; seen by the triggers, not told from a cache that may be late."""
    unsure: bool = False
    """The last patch of its initialisation may have been applied."""
    without_id: bool = False
    """It is initialised, has no provider ID, and cannot be adopted."""
    said: frozenset[str] = frozenset()
    """Reasons of Events that are told once."""

    def say_once(self, reason: str) -> bool:
        """True the first time."""
        if reason in self.said:
            return False
        self.said |= {reason}
        return True


class NodeMemory:
    """All nodes, by name. Thread-safe; the work queues keep two threads off one entry, or nearly so, and none of its
    fields depends on another."""

    def __init__(self, refresh_period: float) -> None:
        self._period = refresh_period
        self._lock = threading.Lock()
        self._nodes: dict[str, Remembered] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def of(self, node: V1Node) -> Remembered:
        """The entry of this node, a new one where another UID had its name."""
        key, uid = key_of(node), uid_of(node)
        with self._lock:
            found = self._nodes.get(key)
            if found is None or found.uid != uid:
                longest = max(self._period, _LONGEST)
                found = self._nodes[key] = Remembered(
                    uid,
                    Patience(self._period, longest),
                    Patience(self._period, longest),
                    Patience(_TAINT_FIRST, _TAINT_LONGEST),
                )
            return found

    def find(self, key: str) -> Remembered | None:
        """The entry of that name, if there is one."""
        return self._nodes.get(key)

    def forget(self, key: str) -> None:
        """The node is gone."""
        with self._lock:
            self._nodes.pop(key, None)

    def forget_gone(self, exists: Callable[[str], bool]) -> None:
        """Forget the nodes that are no more: work that ended after its node went may have left something behind."""
        for key in list(self._nodes):
            if not exists(key):
                self.forget(key)

    def without_id(self) -> int:
        """How many initialised nodes have no provider ID and could not be adopted."""
        with self._lock:
            return sum(entry.without_id for entry in self._nodes.values())
