"""The service controller: for every Service of type LoadBalancer a load balancer in the cloud, and nothing left over.

Wires the stages: informers (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch (6). Runs in the
manager, or alone in a program of your own (see examples/service_only.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from controllers.cloudcalls import CloudCallError
from controllers.options import DEFAULT_CLUSTER_NAME
from controllers.runtime.cache import NODES, SERVICES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Backoff, FailureHandling, TurnLanes, Worker, WorkQueue
from controllers.runtime.run import Periodic, run_until
from controllers.runtime.write import EventRecorder
from controllers.service.apiserver import CacheBehind, ServiceAPI
from controllers.service.changes import Scope
from controllers.service.cloudside import CloudSide
from controllers.service.execute import Executor
from controllers.service.identity import ClusterIdentity
from controllers.service.metrics import AddressWatch, ServiceMetrics
from controllers.service.nodesync import NodeSync, Window
from controllers.service.options import ServiceOptions
from controllers.service.orphans import KUBE_SYSTEM, OrphanReport
from controllers.service.pacing import Schedule
from controllers.service.reconcile import ServiceReconciler
from controllers.service.records import Records
from controllers.service.targets import TargetSet
from controllers.service.triggers import REFRESH, NodeTriggers, ServiceTriggers

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory, Registration

log = logging.getLogger(__name__)

NAME = "service-lb-controller"
COMPONENT = "service-controller"
"""What Events say that they come from, as with Go."""
IDENTITY = "service-controller"
_BACKOFF = Backoff(base=1.0, cap=60.0)
_FLOOR = 0.2
_CONFIRM_AFTER = 60.0


class ServiceController:
    """Keeps the cloud's load balancers as the Services ask for, their status, and our finalizer.

    Takes what every controller takes: clients, shared informers, the gateway to one provider. It does not start the
    informers. `run` may be called once.

    Raises ValueError at construction when the provider offers no load balancers.

    Follows: controllers/service/controller.go of k8s.io/cloud-provider.
    """

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: ServiceOptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        balancers = cloud.load_balancers
        if balancers is None:
            raise ValueError(f"cloud provider {cloud.provider_name!r} offers no load balancers")
        self._options = options = options or ServiceOptions()
        self._clients = clients
        self._clock = clock
        metrics = metrics or Metrics()
        rest = clients.rest(IDENTITY)
        self._services, self._nodes = informers.informer(SERVICES), informers.informer(NODES)
        self._recorder = EventRecorder(rest, COMPONENT, clock=clock, metrics=metrics)
        syncs = options.concurrent_service_syncs
        # Workers are the queue before the gateway's: one namespace must not have all of them.
        turns = TurnLanes(_namespace, max(1, syncs - syncs // 4))
        queue: WorkQueue[str] = WorkQueue(
            "service", clock=clock, metrics=metrics, backoff=_BACKOFF, floor=_FLOOR, lanes=turns
        )
        node_queue: WorkQueue[str] = WorkQueue("node", clock=clock, metrics=metrics)
        records = Records()
        own_metrics = ServiceMetrics(metrics, records)
        self._addresses = AddressWatch(metrics, self._services.lister, clock)
        targets = TargetSet(self._nodes.lister, options.ready_nodes_only)
        sync = NodeSync(
            node_queue,
            queue,
            records,
            targets,
            window=Window(options.node_sync_window, max(options.node_sync_window, options.node_sync_longest)),
            priority=REFRESH,
            latency=own_metrics.nodesync_latency,
            clock=clock,
        )
        self._service_triggers = ServiceTriggers(queue, records)
        self._node_triggers = NodeTriggers(targets, sync)
        api = ServiceAPI(rest, options.ready_nodes_only, clock)
        side = CloudSide(balancers, records, self._recorder, options.cluster_name, clock)
        self._identity = ClusterIdentity(clients.cluster_identity, clock)
        schedule = Schedule(options.drift_check_period, options.ensure_period)
        reconciler = ServiceReconciler(
            self._services.lister,
            records,
            targets.current,
            Executor(api, side, targets.current, records, self._recorder, own_metrics, schedule, clock),
            sync,
            lambda: Scope(options.cluster_name, self._identity.get(), balancers.revision()),
            schedule,
            clock,
        )
        self._workers = (
            Worker(
                queue,
                reconciler.reconcile,
                threads=syncs,
                failures=FailureHandling(
                    expected=(CloudCallError, CacheBehind), noun="service", controller=NAME, recall=cloud.outage
                ),
                metrics=metrics,
                clock=clock,
            ),
            Worker(node_queue, sync.sync, threads=1, metrics=metrics, clock=clock),
        )
        self._periodic: tuple[Periodic, ...] = ()
        if options.orphan_check_period and balancers.can_list_owned:
            period = options.orphan_check_period
            report = OrphanReport(
                self._services.lister,
                balancers,
                self._recorder,
                options.cluster_name,
                own_metrics,
                min(period, _CONFIRM_AFTER),
            )
            self._periodic = (Periodic("orphan-report", period, report.search),)

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then finish what is under way and return. Blocks; to be called once.

        Waits for the informers' first listings before it begins. Keys that still wait when it stops are worked off in
        the drain time; the next manager finds the rest by what is missing on the Services.
        """
        run_until(
            stop,
            component=NAME,
            registrations=self._register,
            workers=self._workers,
            recorder=self._recorder,
            drain_timeout=self._options.drain_timeout,
            clock=self._clock,
            begin=self._begin,
            periodic=self._periodic,
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """One (name, healthy, detail) per worker; see `Worker.health`. Thread-safe."""
        return [worker.health() for worker in self._workers]

    def remarks(self) -> list[tuple[str, bool, str]]:
        """The same about what a restart would not mend. Thread-safe."""
        missing = self._identity.missing()
        return [("cluster-identity", not missing, missing)]

    def _register(self) -> list[Registration[Any]]:
        nodes, services = self._node_triggers, self._service_triggers
        return [
            self._nodes.add_handler(nodes.on_add, nodes.on_update, nodes.on_delete),
            self._services.add_handler(services.on_add, services.on_update, services.on_delete),
            self._services.add_handler(on_update=self._addresses.on_update),
        ]

    def _begin(self) -> None:
        if self._options.cluster_name != DEFAULT_CLUSTER_NAME:
            return
        message = (
            f"The cluster name is the default, {DEFAULT_CLUSTER_NAME!r}: should another cluster in the same cloud "
            "account have it too, each may take the other's load balancers for its own. Give each cluster its own "
            "--cluster-name before it has load balancers"
        )
        log.warning("%s", message)
        self._recorder.event(KUBE_SYSTEM, "Warning", "DefaultClusterName", message)


def _namespace(key: str) -> str:
    return key.partition("/")[0]
