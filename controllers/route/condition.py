"""Stage 6: WRITE. A node's condition NetworkUnavailable, which says whether its routes are there.

Only the status counts: one that another program has written for a reason of its own is kept. When
another program changes ours to the opposite, ours is restored once immediately, then ever
more rarely: two writers must not fight over a field.

`RoutesOff` runs while the route controller is off. A node with NetworkUnavailable=True and our
reason NoRouteCreated gets no pods, and nobody but a route controller takes that away. Where the
operator wants no routes, the condition is removed, once from each node: who sets it again means it.
Else it is reported. Conditions with another reason are another program's, and nodes with another
provider's ID may have another manager's."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider.helpers.objects import get_node_condition
from cloudprovider.helpers.providerid import is_owned, provider_id_of
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from cloudprovider.internal.cleaning import few
from cloudprovider.wellknown import CONDITION_NETWORK_UNAVAILABLE, REASON_NO_ROUTE_CREATED, REASON_ROUTE_CREATED
from controllers.runtime.api import STRATEGIC_PATCH, ObjectNotFound, RestClient
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, key_of, uid_of
from controllers.runtime.queue import DONE, FailureHandling, Result
from controllers.runtime.write import ObjectReplaced, Patch, apply, condition_set, timestamp

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.base import HasDrainTimeout
    from controllers.runtime.cache import InformerFactory
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

CONDITION: Final = CONDITION_NETWORK_UNAVAILABLE
CREATED: Final = ("False", REASON_ROUTE_CREATED)
MISSING: Final = ("True", REASON_NO_ROUTE_CREATED)
"""Status and reason of the condition. The cloud-node controller writes the second one, too, on a
node that it initialises."""
_MESSAGES: Final = {CREATED: "RouteController created a route", MISSING: "RouteController failed to create a route"}

_MOST_NAMED: Final = 10
_REMOVING: Final = Backoff(base=1.0, cap=60.0)

RESTORING: Final = Backoff(base=300.0, cap=3600.0, at_once=1)
"""When the same status is written again, because another program changed it."""


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
        # The same write once more is no fight: only what another program undid counts.
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


class RoutesOff(ControllerBase):
    """Runs in the route controller's place. `run` may be called once."""

    NAME = "node-route-controller-off"
    CLIENT = "route-controller"
    EVENT_SOURCE = "route_controller"

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        options: HasDrainTimeout,
        metrics: Metrics | None,
        clock: Clock,
        *,
        why: str,
        removes: bool,
    ) -> None:
        """`why`: why the route controller is off, for people. Not `removes`: the conditions are
        reported alone."""
        super().__init__(clients, options, metrics, clock)
        nodes = informers.informer(NODES)
        self._lister = nodes.lister
        self._prefixes = cloud.provider_id_prefixes
        self._why = why
        self._removes = removes
        self._stale = self._queue("route-conditions", backoff=_REMOVING)
        self._done: set[str] = set()
        """UIDs of the nodes that it was removed from."""
        self._watch(nodes, self)
        failures: FailureHandling[str] = FailureHandling(noun="node", controller=self.NAME)
        self._add_worker(self._stale, self.remove, threads=1, failures=failures)

    def on_add(self, node: V1Node, initial: bool) -> None:
        """The informer's event. `_begin` looks at the nodes of the first listing."""
        # Where another manager may make the routes, the condition may be its own.
        if self._removes and not initial and self._is_ours(node):
            self._stale.add(key_of(node))

    def on_update(self, old: V1Node, new: V1Node) -> None:
        """The informer's event: a node that joined, say, has its provider ID now."""
        # A heartbeat must not bypass the back-off of a write that failed.
        if not self._is_ours(old):
            self.on_add(new, False)

    def _begin(self) -> None:
        stale = sorted(key_of(node) for node in self._lister.list() if self._is_ours(node))
        if not stale:
            return
        what = (
            "Removing the condition: no routes are wanted"
            if self._removes
            else "They get no pods until they have routes. Fix: where no program makes routes, "
            "--configure-cloud-routes=false, which removes the condition"
        )
        log.warning(
            "%d nodes have the condition %s=True with our reason %s from a former run, and the route controller is "
            "off: %s. %s: %s",
            len(stale), CONDITION, MISSING[1], self._why, what, few(stale, _MOST_NAMED),
        )  # fmt: skip
        if self._removes:
            for name in stale:
                self._stale.add(name)

    def remove(self, name: str) -> Result:
        """One unit of work: take the condition off a node, while it is still ours. Raises
        ApiError."""
        node = self._lister.get(name)
        if node is not None:
            try:
                if apply(self._rest, NODES.key_path(name), node, self._removed, NODES.parse) is not None:
                    self._done.add(uid_of(node))
                    log.info("node %s: removed the condition %s=True, %s", name, CONDITION, MISSING[1])
            except (ObjectNotFound, ObjectReplaced) as gone:
                log.debug("node %s: %s", name, gone)
        return DONE

    def _removed(self, node: V1Node) -> list[Patch]:
        if not self._is_ours(node):
            return []
        body = {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}
        # Versioned: another program may put its own condition in the place of ours meanwhile.
        return [Patch(body, STRATEGIC_PATCH, "status", versioned=True)]

    def _is_ours(self, node: V1Node) -> bool:
        owned = is_owned(provider_id_of(node), self._prefixes)
        return owned and condition_of(node) == MISSING and uid_of(node) not in self._done
