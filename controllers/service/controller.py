"""The service controller: for every Service of type LoadBalancer one load balancer in the cloud.

Wires the stages: informers (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch
(6). Runs in the manager, or alone in a program of your own (see examples/service_only.py).

Its triggers turn events of Services into keys, "namespace/name", and give them a priority. Changes
of nodes go another way: see `NodeSync` in `reconcile.py`."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.options.declare import DEFAULT_CLUSTER_NAME
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import (
    ENDPOINT_SLICES,
    NODES,
    SERVICES,
    InformerFactory,
    Lister,
    is_newer,
    key_of,
    service_of,
    uid_of,
    version_of,
)
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import FINE_BUCKETS, Metrics, watch_waiting
from controllers.runtime.queue import FailureHandling, FairQueue, WorkQueue
from controllers.service.calls import CacheBehind, KubeSystemUID, ServiceAPI, ServiceCloud
from controllers.service.changes import WITHOUT_CLASS, Classes, Ownership, ingress, named, status_of
from controllers.service.conditions import Conditions
from controllers.service.execute import Executor
from controllers.service.orphans import CONFIRM_AFTER, KUBE_SYSTEM, Orphans
from controllers.service.reconcile import DRIFT, REFRESH, NodeSync, ServiceReconciler
from controllers.service.records import Record, Records, Schedule
from controllers.service.registration import ServiceOptions
from controllers.service.remove import Remover
from controllers.service.targets import NodeTraits, TargetSet

if TYPE_CHECKING:
    from kubernetes.client.models.v1_endpoint_slice import V1EndpointSlice
    from kubernetes.client.models.v1_service import V1Service

    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder

log = logging.getLogger(__name__)

DELETED: Final = 30
"""Priority of load balancers that are to go."""
NEW: Final = 20
"""Priority of Services without an address."""
CHANGED: Final = 10
"""Priority of Services that were changed."""


_AGAIN: Final = 1.0
"""Seconds for which the provider's wishes to look at a load balancer again are gathered."""

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
        waiting: FairQueue[Any] = FairQueue(lambda key: key.partition("/")[0], max(1, syncs - syncs // 4))
        queue = self._queue("service", backoff=_BACKOFF, min_interval=_MIN_INTERVAL, waiting=waiting)
        node_queue = self._queue("node")
        again = self._queue("second-look", backoff=_BACKOFF)
        self._services = queue
        self._records = records = Records()
        traits = NodeTraits(balancers, self._recorder) if balancers.has_hook("target_traits") else None
        targets = TargetSet(nodes.lister, options.ready_nodes_only, traits)
        sync = NodeSync(
            node_queue,
            queue,
            records,
            targets,
            self._metrics,
            clock,
            quiet=options.node_sync_window,
            longest=options.node_sync_longest,
        )
        self._watch(nodes, sync)
        hooked = balancers.has_hook("depends_on")
        triggers = ServiceTriggers(queue, records, classes, whole=hooked)
        self._watch(services, triggers)
        # Only a provider asks for these, in `set_informers`. Nobody else reads them.
        slices = informers.find(ENDPOINT_SLICES.prefix, ENDPOINT_SLICES.plural)
        # A kind that changes with every Pod: without the hook its events are not even looked at.
        if slices is not None and hooked:
            self._watch(slices, SliceTriggers(queue, records))

        def look_again(key: str) -> bool:
            service = services.lister.get(key)
            # Before the first listing every Service is missing here: then the wish is kept.
            unknown = service is None and services.has_synced() and key not in records
            return not unknown and triggers.look_again(key, service)

        cloud.again.serve("Service", look_again)
        self._watch(services, AddressWatch(self._metrics, services.lister, clock, classes))
        api = ServiceAPI(self._rest, options.ready_nodes_only, clock)
        self._identity = KubeSystemUID(clients.cluster_identity, clock)
        service_cloud = ServiceCloud(balancers, records, self._recorder, options.cluster_name, self._identity, clock)
        # A search that runs more often confirms sooner.
        confirm_after = min(options.orphan_check_period, CONFIRM_AFTER)
        self._orphans = Orphans(again, self._lister, api, service_cloud, self._metrics, clock, confirm_after, classes)
        schedule = Schedule(options.drift_check_period, options.ensure_period)
        conditions = Conditions(api, records, clock) if options.conditions else None
        reconciler = ServiceReconciler(
            services.lister,
            service_cloud,
            Executor(api, service_cloud, sync.current, self._metrics, schedule, clock, conditions),
            Remover(api, service_cloud, self._orphans.deleted, conditions),
            sync,
            schedule,
            clock,
            classes,
            conditions,
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
        missing = self._identity.missing
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


class ServiceTriggers:
    """The handler of Services. Called from the informer's thread, so the provider is not asked
    here: with `whole`, every change that its `depends_on` may read is looked at."""

    def __init__(
        self, queue: WorkQueue[str], records: Records, classes: Classes = WITHOUT_CLASS, *, whole: bool = False
    ) -> None:
        self._queue = queue
        self._records = records
        self._classes = classes
        self._whole = whole

    def on_add(self, service: V1Service, initial: bool) -> None:
        key = key_of(service)
        ownership = self._classes.ownership(service)
        if ownership is Ownership.KEEP:
            self._queue.add(key, CHANGED if ingress(status_of(service)) else NEW)
        elif ownership is not Ownership.NONE or key in self._records:
            self._queue.add(key, DELETED)

    def on_update(self, old: V1Service, new: V1Service) -> None:
        key = key_of(new)
        restored = is_newer(version_of(old), version_of(new)) is True  # the API server, from a backup
        if restored:
            self._records.rewind(key)
        # Our own writes come back here as well, and must not make work of their own.
        relevant = self._classes.relevant
        if not restored and relevant(old, whole=self._whole) == relevant(new, whole=self._whole):
            return
        # The new version may show nothing of what the old one had: its note and status can be gone
        # with its type, and its load balancer stays in the cloud.
        if not self._classes.wants(new) or uid_of(new) != uid_of(old):
            self._leaves(old)
        self.on_add(new, False)

    def on_delete(self, service: V1Service) -> None:
        # Without our finalizer nothing held the Service, and nobody else knows what to delete.
        self._leaves(service)
        if key_of(service) in self._records:
            self._queue.add(key_of(service), DELETED)

    def look_again(self, key: str, service: V1Service | None) -> bool:
        """The provider asks for another look; False where there is no load balancer of ours, nor to
        be. `service` None: the cache does not show it. From any thread."""
        if service is not None and self._classes.ownership(service) is Ownership.NONE and key not in self._records:
            return False
        left = self._records.look_again(key, self._queue.clock.monotonic())
        # The lowest priority: a provider that asks for all of them holds up no user.
        self._queue.add_after(key, max(_AGAIN, left), DRIFT)
        return True

    def _leaves(self, service: V1Service) -> None:
        """A former process may have built for it, so it is remembered now."""
        if self._classes.wants(service) or self._classes.ownership(service) is Ownership.REMOVE:
            self._records.put_if_absent(key_of(service), Record.inherited(service))


class SliceTriggers:
    """The handler of EndpointSlices, where the provider reads them: what it says that a load
    balancer depends on may have changed. It is asked in the Service's run, whose nodes these are,
    so with the priority of changes of nodes. Called from the informer's thread."""

    def __init__(self, queue: WorkQueue[str], records: Records) -> None:
        self._queue = queue
        self._records = records

    def on_add(self, found: V1EndpointSlice, initial: bool) -> None:
        self._changed(service_of(found))

    def on_update(self, old: V1EndpointSlice, new: V1EndpointSlice) -> None:
        before, after = service_of(old), service_of(new)
        # The label that names the Service can be edited: the former one has lost an endpoint.
        if before != after:
            self._changed(before)
        if before != after or (old.endpoints, old.ports) != (new.endpoints, new.ports):
            self._changed(after)

    def on_delete(self, found: V1EndpointSlice) -> None:
        self._changed(service_of(found))

    def _changed(self, key: str) -> None:
        # Only a Service that has been worked on was asked about. The others are still to be.
        if key in self._records:
            self._queue.add(key, REFRESH)


class AddressWatch:
    """Services on their way to an address, as the cache shows them: who waits, and how long it
    took. Thread-safe."""

    def __init__(
        self, metrics: Metrics, lister: Lister[V1Service], clock: Clock, classes: Classes = WITHOUT_CLASS
    ) -> None:
        self._classes = classes
        self._clock = clock
        self._began: dict[str, float] = {}
        """By UID, when a Service that was there already began to wait."""
        self._delay = metrics.histogram(
            "service_controller_load_balancer_address_delay_seconds",
            "Seconds from when a Service is to have a load balancer of ours until its first address.",
            buckets=FINE_BUCKETS,
        )
        watch_waiting(
            metrics,
            ("service_controller_services_without_address", "Services that wait for their load balancer's address."),
            (
                "service_controller_oldest_service_without_address_age_seconds",
                "Seconds that the oldest of these Services has waited, as far as this process saw it; 0 without one.",
            ),
            lister.list,
            self._waits,
            clock,
        )

    def on_update(self, old: V1Service, new: V1Service) -> None:
        """A Service changed: does it begin to wait, or has it its first address?"""
        uid = uid_of(new)
        if self._waits(new):
            if not self._waits(old):
                self._began[uid] = self._clock.monotonic()
            return
        began = self._began.pop(uid, None)
        if not self._waits(old) or not self._classes.keeps(new):
            return
        created = new.metadata.creation_timestamp if new.metadata is not None else None
        if began is not None:
            self._delay.observe(self._clock.monotonic() - began)
        # It waited already when it first came: since it was created.
        elif created is not None:
            self._delay.observe(max(0.0, self._clock.time() - created.timestamp()))

    def on_delete(self, service: V1Service) -> None:
        """A Service is gone."""
        self._began.pop(uid_of(service), None)

    def _waits(self, service: V1Service) -> bool:
        return self._classes.keeps(service) and not ingress(status_of(service))
