"""The route controller: for every pod CIDR of every node, a route in the cloud to the node.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch
(6). Runs in the manager, or alone in a program of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.route.condition import NetworkCondition
from controllers.route.listing import RouteListing
from controllers.route.metrics import RouteMetrics
from controllers.route.options import RouteOptions
from controllers.route.planning import Planner
from controllers.route.reconcile import RouteConflict, RouteReconciler
from controllers.route.table import RouteTable
from controllers.route.triggers import LIST, LISTING, RouteTriggers
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling

if TYPE_CHECKING:
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics

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
