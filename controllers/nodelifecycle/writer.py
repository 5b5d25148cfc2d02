"""Stage 6: writes taints on nodes, and deletes nodes, for `reconcile.py`.

A node is deleted only as it was judged: with its UID and version as preconditions. A taint that somebody else undoes is
written again after growing pauses (`pace.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from cloudprovider.helpers import provider_id_of
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.cases import Cases
from controllers.nodelifecycle.changes import Attention
from controllers.nodelifecycle.pace import Pace
from controllers.runtime.api import ApiError, Conflict, NotFound
from controllers.runtime.cache import NODES, key_of, uid_of, version_of
from controllers.runtime.write import ObjectReplaced, Patch, apply

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
    from controllers.runtime.api import RestClient
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

_ATTEMPTS = 8
_DELETE_ATTEMPTS = 3


class NodeWriter:
    """Thread-safe, as a node is one thread's at a time. `attention(node)` says what a node needs now."""

    def __init__(
        self,
        rest: RestClient,
        recorder: EventRecorder,
        cases: Cases,
        attention: Callable[[V1Node], Attention],
        metrics: NodeLifecycleMetrics,
        clock: Clock,
    ) -> None:
        self._rest = rest
        self._recorder = recorder
        self._cases = cases
        self._attention = attention
        self._metrics = metrics
        self._clock = clock
        self._pace = Pace()

    def write(self, node: V1Node, wish: str, plan: Callable[[V1Node], Patch], *, at_once: bool = False) -> None:
        """Write what `plan` makes of the node, `wish` for short; `at_once` even if somebody has just undone it."""
        key, uid = key_of(node), uid_of(node)
        if not at_once and not self._pace.allows(key, uid, wish, self._clock.monotonic()):
            return  # it was written a short while ago, and somebody has undone it
        try:
            written = apply(
                self._rest,
                NODES.key_path(key),
                node,
                lambda fresh: (plan(fresh),),
                NODES.parse,
                attempts=_ATTEMPTS,
            )
        except (NotFound, ObjectReplaced):
            return  # deleted or recreated meanwhile: its own event brings the new one
        if written is not None:
            self._pace.wrote(key, uid, wish, self._clock.monotonic())

    def delete(self, key: str, node: V1Node) -> bool:
        """Delete this node as it was judged; returns whether it was. Another version is looked at first."""
        path = NODES.key_path(key)
        provider_id, uid = provider_id_of(node), uid_of(node)
        announced = changes.is_announced(node)
        attempts = _DELETE_ATTEMPTS
        try:
            while True:
                preconditions = {"uid": uid, "resourceVersion": version_of(node)}
                try:
                    self._rest.request(
                        "DELETE",
                        path,
                        body={"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions},
                    )
                    break
                except Conflict:
                    attempts -= 1
                    if not attempts:
                        raise
                node = NODES.parse(self._rest.get(path))
                same = (uid_of(node), provider_id_of(node)) == (uid, provider_id)
                same = same and (changes.is_announced(node) or not announced)  # else nobody has vouched for the cloud
                if not same or self._attention(node) is not Attention.ASK:
                    log.info("node %s is not deleted: it has changed since the cloud was asked", key)
                    self._cases.forget(key)
                    return False
        except NotFound:
            self._cases.forget(key)
            return False
        except ApiError as error:
            self._recorder.event(node, "Warning", "DeletingNodeFailed", f"Failed deleting node {key}: {error}")
            raise
        self._cases.forget(key)
        self._metrics.deleted.inc()
        log.info("deleted node %s: its instance %s is gone", key, provider_id or "of that name")
        self._recorder.event(
            node, "Normal", "DeletingNode", f"Deleting node {key} because it does not exist in the cloud provider"
        )
        return True
