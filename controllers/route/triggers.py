"""Stage 3: TRIGGER. Turns node events into keys of the queue `Routes`.

A key is a node's name, the provider ID of a machine that routes lead to and no node is known to
have, `LIST` (list the cloud's routes and compare them with all nodes), or a destination where a
blackhole is to go, "blackhole/<cidr>"; no node has such a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.helpers.taints import get_node_condition
from controllers.route.changes import node_addresses
from controllers.route.condition import CREATED, MISSING, condition_of, status_of
from controllers.runtime.cache import key_of, uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.runtime.queue import WorkQueue

LIST: Final = "*"
BLACKHOLE: Final = "blackhole/"

LISTING = 20
"""Priority of the listing, for which all others wait."""
NODE = 10
"""Priority of a node, whose pods wait for a route, above that of what is to be cleared away."""


class RouteTriggers:
    """The informer's handler. Called from the informer's thread."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._queue.add(key_of(node), NODE)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        # Heartbeats and our own condition must not bypass a failing node's back-off.
        foreign = status_of(new) != status_of(old) and condition_of(new) not in (CREATED, MISSING)
        back = _is_ready(old) is False and _is_ready(new) is True  # its route may have become a blackhole meanwhile
        if foreign or back or _relevant(old) != _relevant(new):
            self._queue.add(key_of(new), NODE)

    def on_delete(self, node: V1Node) -> None:
        self._queue.forget(key_of(node))
        self._queue.add(key_of(node))


def _is_ready(node: V1Node) -> bool | None:
    """None where the node does not say."""
    ready = get_node_condition(node, "Ready")
    return None if ready is None else ready.status == "True"


def _relevant(node: V1Node) -> tuple[object, ...]:
    spec = node.spec
    return (
        uid_of(node),
        provider_id_of(node),
        spec.pod_cidrs if spec else None,
        spec.pod_cidr if spec else None,
        sorted((address.type, address.address) for address in node_addresses(node)),
    )
