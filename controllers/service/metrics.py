"""The service controller's own metrics, under the names of the Go cloud-controller-manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controllers.runtime.cache import Lister, uid_of
from controllers.runtime.metrics import FINE_BUCKETS, Metrics, watch_waiting
from controllers.service import changes
from controllers.service.classes import WITHOUT_CLASS, Classes

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.clock import Clock
    from controllers.service.records import Records
    from controllers.service.targets import Targets

SECONDS = tuple(2.0**exponent for exponent in range(15))
"""Buckets of its histograms: 1 s to 4.5 h."""


class ServiceMetrics:
    """Counters and histograms. Thread-safe."""

    def __init__(self, metrics: Metrics, records: Records) -> None:
        self.syncs = metrics.counter(
            "service_controller_loadbalancer_sync_total",
            "Calls that had the cloud build, repair or retarget a load balancer.",
        )
        self.update_errors = metrics.counter(
            "service_controller_nodesync_error_total", "Updates of a load balancer's targets that failed."
        )
        self.update_latency = metrics.histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "Updating the targets of one load balancer.",
            buckets=SECONDS,
        )
        self.nodesync_latency = metrics.histogram(
            "service_controller_nodesync_latency_seconds",
            "From a change of nodes until the last load balancer has them.",
            buckets=SECONDS,
        )
        metrics.gauge(
            "service_controller_load_balancers", "Load balancers that this process looks after."
        ).set_function(records.__len__)
        self.orphans = metrics.gauge(
            "service_controller_orphaned_load_balancers",
            "Load balancers in the cloud whose Service is gone, as far as the provider can list them.",
        )
        self.orphan_errors = metrics.counter(
            "service_controller_orphan_check_errors_total", "Searches for orphaned load balancers that failed."
        )


def watch_targets(metrics: Metrics, records: Records, targets: Callable[[], Targets | None], clock: Clock) -> None:
    """Add two gauges: of the load balancers whose targets are not the present nodes, and for how
    long. Worked out when /metrics is read. `targets` None: none were worked out yet."""

    def count() -> int:
        present = targets()
        return 0 if present is None else records.lagging(present, clock.monotonic())[0]

    def age() -> float:
        present, now = targets(), clock.monotonic()
        return 0.0 if present is None else now - records.lagging(present, now)[1]

    metrics.gauge(
        "service_controller_load_balancers_with_old_targets",
        "Load balancers whose targets are not the present nodes.",
    ).set_function(count)
    metrics.gauge(
        "service_controller_oldest_targets_lag_seconds",
        "Seconds that a load balancer has waited for the present nodes, as far as this process saw it; 0 without one.",
    ).set_function(age)


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
        elif created is not None:
            self._delay.observe(max(0.0, self._clock.time() - created.timestamp()))

    def on_delete(self, service: V1Service) -> None:
        """A Service is gone."""
        self._began.pop(uid_of(service), None)

    def _waits(self, service: V1Service) -> bool:
        return self._classes.keeps(service) and not changes.ingress(changes.status_of(service))
