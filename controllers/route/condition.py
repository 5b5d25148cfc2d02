"""Stage 6: WRITE. A node's condition NetworkUnavailable, which says whether its routes are there.

Only the status counts: one that another program has written for a reason of its own is kept. When
another program changes ours to the opposite, ours is restored once at once, and after that ever
more rarely: two writers must not fight over a field."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider.helpers.taints import get_node_condition
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from cloudprovider.wellknown import CONDITION_NETWORK_UNAVAILABLE, REASON_NO_ROUTE_CREATED, REASON_ROUTE_CREATED
from controllers.runtime.api import ObjectNotFound, RestClient
from controllers.runtime.cache import NODES, key_of, uid_of
from controllers.runtime.write import ObjectReplaced, Patch, apply, condition_set, timestamp

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.clock import Clock

CONDITION: Final = CONDITION_NETWORK_UNAVAILABLE
CREATED: Final = ("False", REASON_ROUTE_CREATED)
MISSING: Final = ("True", REASON_NO_ROUTE_CREATED)
"""Status and reason of the condition. The cloud-node controller writes the second one, too, on a
node that it initialises."""
_MESSAGES: Final = {CREATED: "RouteController created a route", MISSING: "RouteController failed to create a route"}

RESTORING: Final = Backoff(base=300.0, cap=3600.0, at_once=1)
"""When the same status is written once more, because another program changed it."""


@frozen
class _Written:
    """What we last wrote on a node, and how often in a row."""

    uid: str
    created: bool
    attempts: Attempts
    failed: bool = False
    """The write may not have been applied, so it is repeated."""


class NetworkCondition:
    """The condition of all nodes. Thread-safe as long as one node is one thread's at a time."""

    def __init__(self, rest: RestClient, clock: Clock) -> None:
        self._rest = rest
        self._clock = clock
        self._written: dict[str, _Written] = {}

    def report(self, node: V1Node, created: bool) -> None:
        """Write whether the node's routes are there, if the condition differs. Raises ApiError."""
        name, uid, now = key_of(node), uid_of(node), self._clock.monotonic()
        last = self._written.get(name)
        if last is not None and last.uid != uid:
            last = None
        before = NO_ATTEMPTS
        if last is not None and last.created == created:
            if status_of(node) != _wanted(created)[0] and not last.failed and last.attempts.left(now):
                return  # the slow comparison of all nodes comes back to it
            before = last.attempts
        repeated = last is not None and last.failed and last.created == created
        attempts = evolve(before, last=now) if repeated else RESTORING.next(before, now)
        with suppress(ObjectNotFound, ObjectReplaced):  # its own event brings the new one
            # With another status than we last wrote the cache is behind, or another program wrote.
            if last is not None and status_of(node) != _wanted(last.created)[0]:
                node = self._fresh(name, uid)
            if status_of(node) != _wanted(created)[0]:
                self._write(name, node, _Written(uid, created, attempts))
            elif last is not None and last.created != created:
                del self._written[name]  # another program has written since what we now want

    def _fresh(self, name: str, uid: str) -> V1Node:
        node = NODES.parse(self._rest.get(NODES.key_path(name)))
        if uid_of(node) != uid:
            raise ObjectReplaced(f"node {name} is no longer the one with UID {uid}")
        return node

    def _write(self, name: str, node: V1Node, written: _Written) -> None:
        time = timestamp(self._clock.time())
        self._written[name] = evolve(written, failed=True)  # until the API server has confirmed it
        apply(
            self._rest,
            NODES.key_path(name),
            node,
            lambda fresh: [network_condition(fresh, written.created, time)],
            NODES.parse,
        )
        self._written[name] = written

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._written.pop(name, None)


def network_condition(node: V1Node, created: bool, now: str) -> Patch:
    """Pure: the patch that says whether the node's routes are there; or nothing.

    `now` is RFC 3339."""
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
