"""The service controller's own metrics, under the names that the Go cloud-controller-manager has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controllers.runtime.metrics import Metrics
    from controllers.service.records import Records

SECONDS = tuple(2.0**exponent for exponent in range(15))
"""Buckets of its histograms: 1 s to 4.5 h."""


class Measures:
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
