"""What runs while the route controller is off: conditions of a former run keep no node unusable.

Stages 2, 4 and 6. A node with NetworkUnavailable=True and our reason NoRouteCreated gets no pods,
and nobody but a route controller takes that away. Where the operator wants no routes, the
condition is removed, once from each node: who sets it again means it. Else it is reported.
Conditions with another reason are another program's, and nodes with another provider's ID may have
another manager's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cloudprovider.helpers import is_owned, provider_id_of
from cloudprovider.internal.backoff import Backoff
from controllers.route.condition import CONDITION, MISSING, condition_of
from controllers.runtime.api import STRATEGIC_PATCH, ObjectNotFound
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, key_of, uid_of
from controllers.runtime.queue import DONE, FailureHandling, Result
from controllers.runtime.write import ObjectReplaced, Patch, apply

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.base import HasDrainTimeout
    from controllers.runtime.cache import InformerFactory
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=1.0, cap=60.0)
_MOST_NAMED: Final = 10


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
        self._stale = self._queue("route-conditions", backoff=_BACKOFF)
        self._done: set[str] = set()
        """UIDs of the nodes that it was removed from."""
        self._watch(nodes, self)
        failures: FailureHandling[str] = FailureHandling(noun="node", controller=self.NAME)
        self._add_worker(self._stale, self.remove, threads=1, failures=failures)

    def on_add(self, node: V1Node, initial: bool) -> None:
        """The informer's event. `_begin` looks at the nodes of the first listing."""
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
        more = f" and {len(stale) - _MOST_NAMED} more" if len(stale) > _MOST_NAMED else ""
        what = (
            "Removing the condition: no routes are wanted"
            if self._removes
            else "They get no pods until they have routes. Fix: where no program makes routes, "
            "--configure-cloud-routes=false, which removes the condition"
        )
        log.warning(
            "%d nodes have the condition %s=True with our reason %s from a former run, and the route controller is "
            "off: %s. %s: %s%s",
            len(stale), CONDITION, MISSING[1], self._why, what, ", ".join(stale[:_MOST_NAMED]), more,
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
