"""Stage 6: WRITE. Taints on nodes, deletions of nodes, and nodes that are registered again."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from cloudprovider.helpers import is_ready, provider_id_of
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.changes import Attention
from controllers.nodelifecycle.replaced import POD_CIDRS, bearer_of_its_ranges, registration
from controllers.runtime.api import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ObjectNotFound,
    RestClient,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controllers.runtime.cache import NODES, is_newer, key_of, uid_of, version_of
from controllers.runtime.cleaning import text_of
from controllers.runtime.write import ObjectReplaced, Patch, apply

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.nodelifecycle.shared import Shared

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 8
_DELETE_ATTEMPTS: Final = 3
_BACKOFF: Final = Backoff(base=60.0, cap=3600.0, quiet_delays=2.0)
_REVERSALS: Final = 2
_FINISHED_WITHIN: Final = 1800.0
"""Seconds within which a Node that was deleted to be registered again is created: an API server may
be away for many minutes, and no kubelet registers by itself."""

_LAST_TRY: Final = 5.0  # seconds


@frozen
class _Written:
    uid: str
    change: str
    attempts: Attempts
    reversals: int  # how often the change was the opposite of the one before


class _Writeback:
    """How often taints are written on one node, so that two writers who disagree do not fight. In
    memory alone. Times are of one monotonic clock. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: dict[tuple[str, str], _Written] = {}

    def allows(self, name: str, uid: str, reason: str, change: str, now: float) -> bool:
        """Whether this may be written now. Changes for one `reason` share a pause."""
        last = self._written.get((name, reason))
        if last is None or last.uid != uid or not last.attempts.left(now):
            return True
        # Another program undid the write: pause, twice as long each time. A changed answer of the
        # cloud is written at once, twice; a cloud that goes on changing its answer waits, too.
        return change != last.change and last.reversals < _REVERSALS

    def wrote(self, name: str, uid: str, reason: str, change: str, now: float) -> None:
        """It was written. A write that has held for twice its pause is forgotten."""
        with self._lock:
            for other in [key for key, one in self._written.items() if _BACKOFF.is_over(one.attempts, now)]:
                del self._written[other]
            last = self._written.get((name, reason))
            if last is None or last.uid != uid:
                last = _Written(uid, change, NO_ATTEMPTS, 0)
            reversals = last.reversals + (change != last.change)
            self._written[name, reason] = _Written(uid, change, _BACKOFF.next(last.attempts, now), reversals)


@frozen
class _Unfinished:
    """A Node that was deleted, perhaps, to be registered again."""

    began: float
    version: str
    """The one that was deleted, and no other."""
    new: dict[str, Any]


class NodeWriter:
    """Thread-safe, as a node is one thread's at a time. `attention(node)`: what it needs now."""

    def __init__(self, rest: RestClient, shared: Shared, attention: Callable[[V1Node], Attention]) -> None:
        self._rest = rest
        self._shared = shared
        self._attention = attention
        self._writeback = _Writeback()
        self._unfinished: dict[str, _Unfinished] = {}

    def write(
        self, node: V1Node, reason: str, change: str, plan: Callable[[V1Node], Patch], *, at_once: bool = False
    ) -> None:
        """Write what `plan` makes of the node, `change` for short; `at_once`: even if another
        program has just undone it. `reason`: who reported it, the cloud or the kubelet."""
        key, uid = key_of(node), uid_of(node)
        if not at_once and not self._writeback.allows(key, uid, reason, change, self._shared.now()):
            return
        try:
            written = apply(
                self._rest,
                NODES.key_path(key),
                node,
                lambda fresh: (plan(fresh),),
                NODES.parse,
                attempts=_ATTEMPTS,
            )
        except (ObjectNotFound, ObjectReplaced):
            return  # deleted or recreated meanwhile: its own event brings the new one
        if written is not None:
            self._writeback.wrote(key, uid, reason, change, self._shared.now())

    def delete(self, key: str, node: V1Node) -> bool:
        """Delete this node as it was judged, by UID and version; returns whether it was. Another
        version is checked first."""
        path = NODES.key_path(key)
        provider_id, uid = provider_id_of(node), uid_of(node)
        announced, moved = changes.is_announced(node), self._shared.machines.moved(node)
        attempts = _DELETE_ATTEMPTS
        try:
            while True:
                preconditions = {"uid": uid, "resourceVersion": version_of(node)}
                try:
                    self._rest.request("DELETE", path, body=_delete_options(preconditions))
                    break
                except Conflict:
                    attempts -= 1
                    if not attempts:
                        raise
                node = NODES.parse(self._rest.get(path))
                same = (uid_of(node), provider_id_of(node)) == (uid, provider_id)
                same = same and (changes.is_announced(node) or not announced)  # the announcement was the only evidence
                # A kubelet that is on another machine by now would not register again.
                same = same and not is_ready(node) and self._shared.machines.moved(node) == moved
                if not same or self._attention(node) is not Attention.ASK:
                    log.info("node %s is not deleted: it has changed since the cloud was asked", key)
                    self._shared.votes.forget(key)
                    return False
        except ObjectNotFound:
            self._shared.votes.forget(key)
            return False
        except ApiError as error:
            self._shared.recorder.event(node, "Warning", "DeletingNodeFailed", f"Failed deleting node {key}: {error}")
            raise
        self._shared.votes.forget(key)
        self._shared.metrics.deleted.inc()
        log.info("deleted node %s: its instance %s is gone", key, provider_id or "of that name")
        self._shared.recorder.event(
            node, "Normal", "DeletingNode", f"Deleting node {key} because it does not exist in the cloud provider"
        )
        return True

    def register_again(self, key: str, node: V1Node, successor: str) -> str:
        """Delete this node and create it anew, for its name's instance now; returns why not, or "".

        Its kubelet goes on with the new one as with the old one. Nothing is deleted before the API
        server has said that it would take the new one: a dry run finds out whether a permission or
        an admission policy is in the way. Raises ApiError; then `finish` creates it."""
        attempts = _DELETE_ATTEMPTS
        try:
            while True:
                raw = self._rest.get(NODES.key_path(key))
                fresh = NODES.parse(copy.deepcopy(raw))
                same = (uid_of(fresh), provider_id_of(fresh)) == (uid_of(node), provider_id_of(node))
                if not same or self._attention(fresh) is not Attention.ASK or not self._shared.machines.moved(fresh):
                    self._shared.votes.forget(key)
                    return ""
                new = registration(raw, keep_pod_cidrs=not self._shared.options.cloud_chooses)
                why = "it has finalizers" if raw["metadata"].get("finalizers") else self._refused(new)
                if why:
                    return f"its machine was replaced by {successor}, but it cannot be created anew: {why}"
                preconditions = {"uid": uid_of(fresh), "resourceVersion": version_of(fresh)}
                # The answer to the deletion may get lost.
                self._unfinished[key] = _Unfinished(self._shared.now(), version_of(fresh), new)
                try:
                    self._rest.request("DELETE", NODES.key_path(key), body=_delete_options(preconditions))
                    break
                except (Unreachable, ServerError):
                    raise
                except ApiError as error:
                    del self._unfinished[key]
                    attempts -= 1
                    if not isinstance(error, Conflict) or not attempts:
                        raise
        except ObjectNotFound:
            self._shared.votes.forget(key)
            return ""
        self._shared.votes.forget(key)
        self.finish(key)
        log.info(
            "node %s was created anew: its instance %s is gone, and its kubelet runs on %s",
            key,
            provider_id_of(node),
            successor,
        )
        return ""

    def _refused(self, new: dict[str, Any]) -> str:
        """Why the API server would not take this node, "" if it would."""
        try:
            self._rest.request("POST", NODES.path(), query={"dryRun": "All"}, body=new)
        except AlreadyExists:
            return ""  # the last thing that it checks
        except (Unreachable, ServerError, TooManyRequests, Unauthorized, NotFound):
            raise  # NotFound is a proxy's
        except ApiError as error:
            missing = "missing permission: create on nodes: " if isinstance(error, Forbidden) else ""
            return f"{missing}{error}"
        return ""

    def finish(self, key: str, *, timeout: float | None = None) -> None:
        """Create the node that was deleted to be registered again, if any. Raises ApiError: then it
        is tried again, by the queue and by each sweep."""
        unfinished = self._unfinished.get(key)
        if unfinished is None:
            return
        new = unfinished.new
        # While there is no Node, its ranges are free: an allocator may have given them to another.
        if bearer := bearer_of_its_ranges(new, self._shared.lister.list()):
            log.warning("node %s is created anew without its pod CIDRs: node %s has got them meanwhile", key, bearer)
            new = {**new, "spec": {name: value for name, value in new["spec"].items() if name not in POD_CIDRS}}
        try:
            made = NODES.parse(self._rest.request("POST", NODES.path(), body=new, timeout=timeout).json())
        except AlreadyExists:  # its kubelet was faster, or the answer got lost
            self._unfinished.pop(key, None)
            return
        self._unfinished.pop(key, None)  # a sweep may have seen the new node already
        self._shared.recorder.event(
            made,
            "Normal",
            "NodeCreatedAnew",
            "The instance of this node was replaced by another of its name, on which its kubelet runs: the Node was "
            "deleted and created anew, so that it gets the provider ID and addresses of the new instance. If it uses "
            "volumes of CSI drivers, restart the kubelet: its CSINode belongs to the former Node, and goes with it",
        )

    def end(self) -> None:
        """The process ends, and no other one knows what is to be created anew: try once more."""
        for key in self.unfinished():
            try:
                self.finish(key, timeout=_LAST_TRY)
            except Exception as error:  # noqa: BLE001 - the others have their turn
                log.error("node %s was deleted and not created anew: restart its kubelet: %s", key, text_of(error))

    def unfinished(self) -> list[str]:
        """The nodes that were deleted, perhaps, and are to be created anew."""
        now = self._shared.now()
        for key, one in list(self._unfinished.items()):
            cached = self._shared.lister.get(key)
            if cached is not None and is_newer(version_of(cached), one.version):
                # The deletion was of an earlier version, so it was not applied and cannot be any
                # more: if somebody deletes the node from now on, it is meant.
                self._unfinished.pop(key, None)
                continue
            if now - one.began <= _FINISHED_WITHIN:
                continue
            self._unfinished.pop(key, None)
            if cached is None:
                log.error("node %s was deleted and not created anew in time: restart its kubelet", key)
        return list(self._unfinished)


def _delete_options(preconditions: dict[str, str]) -> dict[str, Any]:
    return {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
