"""The route controller: for every pod CIDR of every node, a route in the cloud to the node.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch
(6). Runs in the manager, or alone in a program of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.helpers.objects import get_node_condition
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.route.changes import node_addresses
from controllers.route.condition import CREATED, MISSING, NetworkCondition, condition_of, status_of
from controllers.route.listing import RouteListing, RouteMetrics
from controllers.route.planning import LIST, LISTING, NODE, Planner
from controllers.route.reconcile import RouteConflict, RouteReconciler
from controllers.route.registration import RouteOptions
from controllers.route.table import RouteTable
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory, key_of, uid_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.queue import WorkQueue

_BACKOFF = Backoff(base=0.2, cap=60.0)


class RouteController(ControllerBase):
    """Keeps the cloud's routes as the nodes' pod CIDRs ask for, and the nodes' conditions.

    Takes what every controller takes: clients, shared informers, the gateway to one provider; and
    `options` with the cluster's CIDRs. It does not start the informers. `run` may be called once.

    Raises ValueError at construction when the provider offers no routes, the options lack the
    cluster's CIDR, or a mask size does not fit it.

    Follows: controllers/route/route_controller.go of k8s.io/cloud-provider, and KEP-5237."""

    NAME = "node-route-controller"
    CLIENT = "route-controller"
    EVENT_SOURCE = "route_controller"  # as with Go

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: RouteOptions,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        routes = cloud.routes
        if routes is None:
            raise ValueError(f"cloud provider {cloud.provider_name!r} offers no routes")
        super().__init__(clients, options, metrics, clock)
        nodes = informers.informer(NODES)
        self._routes = queue = self._queue("Routes", backoff=_BACKOFF)
        own_metrics = RouteMetrics(self._metrics)
        planner = Planner(nodes.lister, RouteTable(clock), options, clock)
        self._listing = RouteListing(routes, planner, queue, options, own_metrics, clock)
        condition = NetworkCondition(self._rest, clock)
        reconciler = RouteReconciler(
            self._rest,
            routes,
            planner,
            self._listing,
            condition,
            self._recorder,
            own_metrics,
            cloud.same_provider_id,
        )
        self._watch(nodes, RouteTriggers(queue))
        self._add_worker(
            queue,
            reconciler.reconcile,
            threads=options.concurrent_route_syncs,
            failures=FailureHandling(
                on_wait=reconciler.waits,
                expected=(CloudCallError, RouteConflict),
                noun="route",
                controller=self.NAME,
            ),
        )

    def _begin(self) -> None:
        self._routes.add(LIST, LISTING)

    def notes(self) -> list[tuple[str, bool, str]]:
        """Whether the provider's list of routes can be used; no restart mends it. Thread-safe."""
        return [("routes", not (problem := self._listing.refused), problem)]


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
        # The back-off of what failed for the node must not hold up the end of its route.
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
