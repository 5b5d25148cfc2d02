"""Stages 2 to 3: turns events of Nodes into keys of the queue `NodeIPAM`.

A key is a node's name, or `START`, which no node can have: list all nodes before anything is given out. Decides whether
there may be work, never what the work is. A node that has its ranges is looked at when they appear or it changes hands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudprovider.helpers.objects import pod_cidrs_of
from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.queue import WorkQueue

__all__ = ["NodeTriggers", "START", "WAITING"]

START: Final = "*"
WAITING: Final = 10
"""Priority of a node that lacks ranges, above those that only have to be known."""


class NodeTriggers:
    """The informer's handler. Called from the informer's thread."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._queue.add(key_of(node), 0 if pod_cidrs_of(node) else WAITING)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        # A heartbeat must not bypass the back-off of a node that waits.
        if old is not new and _relevant(old) != _relevant(new):
            self._queue.add(key_of(new), 0 if pod_cidrs_of(new) else WAITING)

    def on_delete(self, node: V1Node) -> None:
        self._queue.add(key_of(node), WAITING)  # others may wait for its ranges


def _relevant(node: V1Node) -> tuple[object, ...]:
    meta = node.metadata
    return uid_of(node), pod_cidrs_of(node), meta is not None and meta.deletion_timestamp is not None
