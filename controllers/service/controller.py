"""The service controller: for every Service of type LoadBalancer one load balancer in the cloud.

Wires the stages: informers (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch
(6). Runs in the manager, or alone in a program of your own (see examples/service_only.py)."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.options.declare import DEFAULT_CLUSTER_NAME
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import ENDPOINT_SLICES, NODES, SERVICES, InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling, FairQueue
from controllers.service.changes import Scope
from controllers.service.classes import Classes, named
from controllers.service.cloud import NodeTraits, ServiceCloud
from controllers.service.conditions import Conditions
from controllers.service.execute import Executor
from controllers.service.kube import CacheBehind, KubeSystemUID, ServiceAPI
from controllers.service.metrics import AddressWatch, ServiceMetrics, watch_targets
from controllers.service.options import ServiceOptions
from controllers.service.orphans import CONFIRM_AFTER, KUBE_SYSTEM, Orphans
from controllers.service.reconcile import ServiceReconciler
from controllers.service.records import Records, Schedule
from controllers.service.targets import TargetSet
from controllers.service.triggers import (
    DELETED,
    Gathering,
    NodeSync,
    NodeTriggers,
    ServiceTriggers,
    SliceTriggers,
)

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_BACKOFF = Backoff(base=1.0, cap=60.0)
_MIN_INTERVAL = 0.2


class ServiceController(ControllerBase):
    """Keeps the cloud's load balancers as the Services ask for, their status, and our finalizer.

    Takes what every controller takes: clients, shared informers, the gateway to one provider. It
    does not start the informers. `run` may be called once.

    Raises ValueError at construction when the provider offers no load balancers.

    Follows: controllers/service/controller.go of k8s.io/cloud-provider.
    """

    NAME = "service-lb-controller"
    CLIENT = EVENT_SOURCE = "service-controller"  # as with Go

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
        balancers.slow = self._report_slow
        self._options = options = options or ServiceOptions()
        super().__init__(clients, options, metrics, clock)
        services, nodes = informers.informer(SERVICES), informers.informer(NODES)
        self._lister = services.lister
        self._classes = classes = Classes(options.classes)
        syncs = options.concurrent_service_syncs
        # Workers are the queue before the gateway's: one namespace must not have all of them.
        waiting: FairQueue[Any] = FairQueue(_namespace, max(1, syncs - syncs // 4))
        queue = self._queue("service", backoff=_BACKOFF, min_interval=_MIN_INTERVAL, waiting=waiting)
        node_queue = self._queue("node")
        again = self._queue("second-look", backoff=_BACKOFF)
        self._services = queue
        self._records = records = Records()
        own_metrics = ServiceMetrics(self._metrics, records)
        traits = NodeTraits(balancers, self._recorder).of if balancers.has_hook("target_traits") else None
        targets = TargetSet(nodes.lister, options.ready_nodes_only, traits)
        sync = NodeSync(
            node_queue,
            queue,
            records,
            targets,
            Gathering(options.node_sync_window, options.node_sync_longest),
            latency=own_metrics.nodesync_latency,
            clock=clock,
        )
        watch_targets(self._metrics, records, targets.latest, clock)
        self._watch(nodes, NodeTriggers(targets, sync))
        hooked = balancers.has_hook("depends_on")
        triggers = ServiceTriggers(queue, records, classes, whole=hooked)
        self._watch(services, triggers)
        # Only a provider asks for these, in `set_informers`. Nobody else reads them.
        slices = informers.find(ENDPOINT_SLICES.prefix, ENDPOINT_SLICES.plural)
        if slices is not None and hooked:
            self._watch(slices, SliceTriggers(queue, records))

        def look_again(key: str) -> bool:
            service = services.lister.get(key)
            unknown = service is None and services.has_synced() and key not in records
            return not unknown and triggers.look_again(key, service)

        cloud.again.serve("Service", look_again)
        self._watch(services, AddressWatch(self._metrics, services.lister, clock, classes))
        api = ServiceAPI(self._rest, options.ready_nodes_only, clock)
        service_cloud = ServiceCloud(balancers, records, self._recorder, options.cluster_name, clock)
        confirm_after = min(options.orphan_check_period, CONFIRM_AFTER)
        self._orphans = Orphans(again, self._lister, api, service_cloud, own_metrics, clock, confirm_after, classes)
        self._identity = KubeSystemUID(clients.cluster_identity, clock)
        schedule = Schedule(options.drift_check_period, options.ensure_period)
        reconciler = ServiceReconciler(
            services.lister,
            records,
            Executor(
                api,
                service_cloud,
                sync.current,
                self._orphans.deleted,
                own_metrics,
                schedule,
                clock,
                Conditions(clock) if options.conditions else None,
            ),
            sync,
            lambda: Scope(options.cluster_name, self._identity.get(), balancers.revision()),
            service_cloud.depends_on,
            schedule,
            clock,
            classes,
        )
        failures: FailureHandling[str] = FailureHandling(
            on_wait=lambda key, error, long: service_cloud.waiting(key, self._lister.get(key), error, long),
            expected=(CloudCallError, CacheBehind),
            noun="service",
            controller=self.NAME,
        )
        self._add_worker(queue, reconciler.reconcile, threads=syncs, failures=failures)
        self._add_worker(node_queue, sync.sync, threads=1)
        self._add_worker(again, self._orphans.delete_again, threads=1, failures=failures)
        if options.orphan_check_period and balancers.can_list_owned:
            self._every(options.orphan_check_period, "orphan-report", self._orphans.search)

    def notes(self) -> list[tuple[str, bool, str]]:
        """As `health`, about what a restart would not repair. Thread-safe."""
        missing = self._identity.missing()
        return [("cluster-identity", not missing, missing)]

    def _report_slow(self, key: str, text: str) -> None:
        """Report on the Service that a call about it takes long, while it is still under way."""
        service = self._lister.get(key.removeprefix("service/"))
        if service is not None:
            self._recorder.event(service, "Warning", "CloudCallOverdue", text)

    def _begin(self) -> None:
        self._orphans.begin()
        self._tell_handed_over()
        if self._options.cluster_name != DEFAULT_CLUSTER_NAME:
            return
        message = (
            f"The cluster name is the default, {DEFAULT_CLUSTER_NAME!r}: should another cluster in the same cloud "
            "account have it too, each may take the other's load balancers for its own. Give each cluster its own "
            "--cluster-name before it has load balancers"
        )
        log.warning("%s", message)
        self._recorder.event(KUBE_SYSTEM, "Warning", "DefaultClusterName", message)

    def _tell_handed_over(self) -> None:
        """A class that was taken off the flag leaves load balancers behind: nothing tears them
        down, and their Services cannot go before a manager serves them."""
        found = map(self._classes.handed_over, self._lister.list())
        counts = Counter(one for one in found if one is not None)
        for lb_class, count in sorted(counts.items()):
            log.info(
                "%d Services have a load balancer that a manager of %s built. They are left to that manager: this one "
                "serves %s (--load-balancer-classes)",
                count, named([lb_class]), self._classes,
            )  # fmt: skip

    def _finish(self) -> None:
        # No finalizer keeps them for the next process: it was removed by hand, or the API server
        # deleted the Service at the same moment in which it was added.
        for key in self._records.vanished(self._lister):
            self._services.add(key, DELETED)

    def run(self, stop: StopSignal) -> None:
        super().run(stop)
        for key in self._records.vanished(self._lister):
            log.error(
                "Service %s is gone, and its load balancer may still be in the cloud: no other process deletes it. "
                "Delete it there",
                key,
            )


def _namespace(key: str) -> str:
    return key.partition("/")[0]
