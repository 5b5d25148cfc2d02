"""Stage 6: says on a node, by its condition NetworkUnavailable, whether its routes are there.

Fed by the reconciler after each node's work. Only the status counts: when somebody else (a network plugin, an older
manager) has written the same status for a reason of its own, nothing is written. When somebody changes ours to the
opposite, ours is restored once at once, and after that ever more rarely: two writers must not fight over a field. A
change of our own (a route was made, or could not be) is written when it happens.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.helpers.taints import get_node_condition
from controllers.runtime.api import NotFound
from controllers.runtime.cache import NODES, key_of, uid_of
from controllers.runtime.write import ObjectReplaced, Patch, apply, condition_set

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.api import RestClient
    from controllers.runtime.clock import Clock

CONDITION: Final = "NetworkUnavailable"
CREATED: Final = ("False", "RouteCreated")
MISSING: Final = ("True", "NoRouteCreated")
"""Status and reason of the condition; they must never change."""
_MESSAGES: Final = {CREATED: "RouteController created a route", MISSING: "RouteController failed to create a route"}

RESTORED_AFTER: Final = 300.0
"""Seconds before the second restoration of what another writer changed; each further one waits twice as long."""
RESTORED_AFTER_AT_MOST: Final = 3600.0


@frozen
class _Said:
    """What we last wrote on a node, and how long it stands before we say the same again."""

    uid: str
    created: bool
    at: float
    stands: float


class NetworkCondition:
    """The condition of all nodes. Thread-safe as long as one node is one thread's at a time."""

    def __init__(self, rest: RestClient, clock: Clock) -> None:
        self._rest = rest
        self._clock = clock
        self._said: dict[str, _Said] = {}

    def say(self, node: V1Node, created: bool) -> None:
        """Write whether the node's routes are there, where the condition says otherwise. Raises ApiError."""
        if status_of(node) == _wanted(created)[0]:
            return
        name, uid, now = key_of(node), uid_of(node), self._clock.monotonic()
        said, stands = self._said.get(name), 0.0
        if said is not None and (said.uid, said.created) == (uid, created):
            if now < said.at + said.stands:
                return  # the slow comparison of all nodes comes back to it
            stands = min(max(said.stands * 2, RESTORED_AFTER), RESTORED_AFTER_AT_MOST)
        written = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with suppress(NotFound, ObjectReplaced):  # deleted or recreated meanwhile: its own event brings the new one
            apply(
                self._rest,
                NODES.key_path(name),
                node,
                lambda fresh: [network_condition(fresh, created, written)],
                NODES.parse,
            )
            self._said[name] = _Said(uid, created, now, stands)

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._said.pop(name, None)


def network_condition(node: V1Node, created: bool, now: str) -> Patch:
    """Pure: the patch that says whether the node's routes are there; nothing when its status says so already.

    `now` is RFC 3339.
    """
    wanted = _wanted(created)
    if status_of(node) == wanted[0]:
        return Patch()
    condition = {
        "type": CONDITION, "status": wanted[0], "reason": wanted[1], "message": _MESSAGES[wanted],
        "lastHeartbeatTime": now,
    }  # fmt: skip
    return condition_set(node.status.conditions if node.status else None, condition, now=now)


def condition_of(node: V1Node) -> tuple[str, str] | None:
    """Status and reason of the node's NetworkUnavailable condition."""
    found = get_node_condition(node, CONDITION)
    return None if found is None else (found.status, found.reason or "")


def status_of(node: V1Node) -> str | None:
    """Status of the node's NetworkUnavailable condition; None without it."""
    condition = condition_of(node)
    return None if condition is None else condition[0]


def _wanted(created: bool) -> tuple[str, str]:
    return CREATED if created else MISSING
