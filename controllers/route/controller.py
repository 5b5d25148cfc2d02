"""The route controller: for every pod CIDR of every node, a route in the cloud that leads to the node.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch (6). Runs in the
manager, or alone in a program of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.cloudcalls import CloudCallError
from controllers.route.options import RouteOptions
from controllers.route.reconcile import RouteConflict, RouteReconciler
from controllers.route.table import RouteTable
from controllers.route.triggers import LIST, LISTING, RouteTriggers
from controllers.runtime.cache import NODES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Backoff, FailureHandling, Worker, WorkQueue
from controllers.runtime.run import run_until
from controllers.runtime.write import EventRecorder

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory

NAME = "node-route-controller"
COMPONENT = "route_controller"
"""What Events say that they come from, as with Go."""
IDENTITY = "route-controller"
_BACKOFF = Backoff(base=0.2, cap=60.0)


class RouteController:
    """Keeps the cloud's routes as the nodes' pod CIDRs ask for, and each node's NetworkUnavailable condition.

    Takes what every controller takes: clients, shared informers, the gateway to one provider; and `options`, which name
    the cluster's CIDRs. It does not start the informers. `run` may be called once.

    Raises ValueError at construction when the provider offers no routes, the options lack the cluster's CIDR, or a mask
    size does not fit it.

    Follows: controllers/route/route_controller.go of k8s.io/cloud-provider, and KEP-5237.
    """

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
        self._options = options
        self._clock = clock
        metrics = metrics or Metrics()
        rest = clients.rest(IDENTITY)
        self._informer = informers.informer(NODES)
        self._recorder = EventRecorder(rest, COMPONENT, clock=clock, metrics=metrics)
        self._queue: WorkQueue[str] = WorkQueue("Routes", clock=clock, metrics=metrics, backoff=_BACKOFF)
        self._triggers = RouteTriggers(self._queue)
        reconciler = RouteReconciler(
            rest,
            self._informer.lister,
            routes,
            RouteTable(clock),
            self._queue,
            self._recorder,
            options=options,
            metrics=metrics,
            clock=clock,
        )
        self._worker = Worker(
            self._queue,
            reconciler.reconcile,
            threads=options.concurrent_route_syncs,
            failures=FailureHandling(
                expected=(CloudCallError, RouteConflict), noun="route", controller=NAME, recall=cloud.outage
            ),
            metrics=metrics,
            clock=clock,
        )

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then finish what is under way and return. Blocks; to be called once.

        Waits for the informer's first listing before it begins. Keys that still wait when it stops are worked off in
        the drain time; the next manager finds the rest by listing.
        """
        triggers = self._triggers
        run_until(
            stop,
            component=NAME,
            registrations=lambda: [self._informer.add_handler(triggers.on_add, triggers.on_update, triggers.on_delete)],
            workers=[self._worker],
            recorder=self._recorder,
            drain_timeout=self._options.drain_timeout,
            clock=self._clock,
            begin=lambda: self._queue.add(LIST, LISTING),
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """(name, healthy, detail) of the worker; see `Worker.health`. Thread-safe."""
        return [self._worker.health()]
