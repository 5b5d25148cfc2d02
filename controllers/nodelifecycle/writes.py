"""Stage 6: WRITE. Taints on nodes, and deletions of nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from cloudprovider.helpers import is_ready, provider_id_of
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from controllers.nodelifecycle.changes import Attention, hands_off, identity_of, is_announced, machine_of
from controllers.runtime.api import ApiError, Conflict, ObjectNotFound, RestClient
from controllers.runtime.cache import NODES, key_of, uid_of, version_of
from controllers.runtime.write import ObjectReplaced, Patch, apply

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.memory import Shared
    from controllers.nodelifecycle.reports import NodeLifecycleMetrics

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 8
_DELETE_ATTEMPTS: Final = 3
_BACKOFF: Final = Backoff(base=60.0, cap=3600.0, quiet_delays=2.0)
_REVERSALS: Final = 2


@frozen
class _Written:
    """A write of taints on a node, so that two writers who disagree do not fight. Times are of one
    monotonic clock."""

    uid: str
    change: str
    attempts: Attempts
    reversals: int  # how often the change was the opposite of the one before


class NodeWriter:
    """Thread-safe, as a node is one thread's at a time."""

    def __init__(self, rest: RestClient, shared: Shared, metrics: NodeLifecycleMetrics) -> None:
        self._rest = rest
        self._shared = shared
        self._metrics = metrics
        self._written: dict[tuple[str, str], _Written] = {}  # by name and reason
        self._requested: dict[str, str] = {}  # UIDs of nodes that finalizers hold, by name

    def write(
        self, node: V1Node, reason: str, change: str, plan: Callable[[V1Node], Patch], *, at_once: bool = False
    ) -> None:
        """Write what `plan` makes of the node, `change` for short; `at_once`: even if another
        program has just undone it. `reason`: who reported it, the cloud or the kubelet; changes for
        one share a pause."""
        key, uid, last = key_of(node), uid_of(node), self._last(node, reason)
        # Another program undid the write: pause, twice as long each time. A changed answer of the
        # cloud is written at once, twice; a cloud that goes on changing its answer waits, too.
        fights = last is not None and (change == last.change or last.reversals >= _REVERSALS)
        if last is not None and fights and not at_once and last.attempts.left(self._shared.now()):
            return
        try:
            written = apply(
                self._rest,
                NODES.key_path(key),
                node,
                # The label may have come since the cloud was asked.
                lambda fresh: () if hands_off(fresh) else (plan(fresh),),
                NODES.parse,
                attempts=_ATTEMPTS,
            )
        except (ObjectNotFound, ObjectReplaced):
            return  # deleted or recreated meanwhile: its own event brings the new one
        if written is not None:
            last = self._last(node, reason) or _Written(uid, change, NO_ATTEMPTS, 0)
            attempts = _BACKOFF.next(last.attempts, self._shared.now())
            self._written[key, reason] = _Written(uid, change, attempts, last.reversals + (change != last.change))

    def delete(self, key: str, node: V1Node) -> bool:
        """Delete this node as it was judged, by UID and version; returns whether the API server
        took it. Another version is checked first."""
        try:
            answer = self._delete(key, node, _DELETE_ATTEMPTS)
        except ApiError as error:
            self._shared.recorder.event(node, "Warning", "DeletingNodeFailed", f"Failed deleting node {key}: {error}")
            raise
        self._shared.candidates.forget(key)
        if answer is None:
            return False
        why = "because it does not exist in the cloud provider"
        if held_by := (answer.get("metadata") or {}).get("finalizers"):
            # Not deleted yet: the API server has only noted that it is to be.
            self._requested[key] = uid_of(node)
            held = f"held by finalizer {', '.join(held_by)}"
            log.info("node %s: deletion requested, as its instance is gone; %s", key, held)
            said = f"Deletion of node {key} requested {why}; {held}"
        else:
            self._deleted(node)
            said = f"Deleting node {key} {why}"
        self._shared.recorder.event(node, "Normal", "DeletingNode", said)
        return True

    def gone(self, node: V1Node) -> None:
        """The node is gone from the API server."""
        if self._requested.pop(key_of(node), None) == uid_of(node):
            self._deleted(node)

    def sweep(self) -> None:
        """Forget the writes that have held for twice their pause."""
        now = self._shared.now()
        for what, one in list(self._written.items()):
            if _BACKOFF.is_over(one.attempts, now):
                self._written.pop(what, None)

    def _last(self, node: V1Node, reason: str) -> _Written | None:
        """The last write for this reason, unless it has held for twice its pause."""
        last = self._written.get((key_of(node), reason))
        over = last is None or last.uid != uid_of(node) or _BACKOFF.is_over(last.attempts, self._shared.now())
        return None if over else last

    def _delete(self, key: str, node: V1Node, attempts: int) -> dict[str, Any] | None:
        """What the API server answered; None where the node is gone, or no longer as it was."""
        path = NODES.key_path(key)
        preconditions = {"uid": uid_of(node), "resourceVersion": version_of(node)}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        try:
            answer: dict[str, Any] = self._rest.request("DELETE", path, body=body).json()
            return answer
        except ObjectNotFound:
            return None
        except Conflict:  # a last heartbeat, or a taint of the node lifecycle: neither is a reason to stay
            if attempts == 1:
                raise
        try:
            fresh = NODES.parse(self._rest.get(path))
        except ObjectNotFound:
            return None
        if self._is_same(node, fresh):
            return self._delete(key, fresh, attempts - 1)
        log.info("node %s is not deleted: it has changed since the cloud was asked", key)
        return None

    def _is_same(self, judged: V1Node, now: V1Node) -> bool:
        """Whether this is still what was judged, in all that counts."""
        announced = is_announced(now) or not is_announced(judged)  # the announcement was the only evidence
        # A kubelet that has moved to another machine would not register again.
        same = identity_of(now) == identity_of(judged) and machine_of(now) == machine_of(judged)
        return same and announced and not is_ready(now) and self._shared.attention(now) is Attention.ASK

    def _deleted(self, node: V1Node) -> None:
        self._metrics.deleted.inc()
        log.info("deleted node %s: its instance %s is gone", key_of(node), provider_id_of(node) or "of that name")
