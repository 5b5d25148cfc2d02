"""Stage 3: TRIGGER. Turns events of Nodes into keys of the queue `NodeIPAM`, wakes pending ones.

A key is a node's name, or `START`, which no node can have: list all nodes before anything is given
out. Decides whether there may be work, never what the work is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from cloudprovider.helpers.objects import pod_cidrs_of
from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.queue import WorkQueue

START: Final = "*"
WAITING: Final = 10
"""Priority of a node that lacks ranges, above those that only have to be known."""


class NodeTriggers:
    """The informer's handler. Called from the informer's thread.

    `on_lacking` is called with each node that came without ranges: when its key is worked on, it
    may have some already.
    """

    def __init__(self, queue: WorkQueue[str], on_lacking: Callable[[V1Node], object]) -> None:
        self._queue = queue
        self._on_lacking = on_lacking

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._add(node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        # A heartbeat must not bypass the back-off of a node that waits.
        if _relevant(old) != _relevant(new):
            self._add(new)

    def on_delete(self, node: V1Node) -> None:
        self._queue.add(key_of(node), WAITING)  # others may wait for its ranges

    def _add(self, node: V1Node) -> None:
        lacking = not pod_cidrs_of(node)
        if lacking:
            self._on_lacking(node)
        self._queue.add(key_of(node), WAITING if lacking else 0)


class PendingNodes:
    """Names of nodes that cannot get a range now, in their order, each once. Thread-safe.
    `bring_back(name)` queues one again."""

    def __init__(self, bring_back: Callable[[str], object]) -> None:
        self._bring_back = bring_back
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
            self._bring_back(name)

    def wake(self, most: int | None = None) -> None:
        """Bring back the first of them; all, when `most` is None."""
        with self._lock:
            names = list(self._names)[:most]
            for name in names:
                del self._names[name]
        self.bring(names)


def _relevant(node: V1Node) -> tuple[object, ...]:
    meta = node.metadata
    return uid_of(node), pod_cidrs_of(node), meta is not None and meta.deletion_timestamp is not None
