"""The flags of service-lb-controller, and what the manager builds from them; its entry is in `catalog.py`.

Stage: before the first one, no I/O. A provider without load balancers turns the controller off, as in Go
(startServiceController in k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from controllers.app.goflags import BOOL, DURATION, INT
from controllers.app.options import between, not_negative, option

if TYPE_CHECKING:
    from controllers.app.catalog import Context, Controller

log = logging.getLogger(__name__)

_SECTION = "service-lb-controller"


@attrs.frozen(kw_only=True)
class ServiceFlags:
    """The flags of service-lb-controller."""

    concurrent_service_syncs: int = option(
        40,
        INT,
        "concurrent-service-syncs",
        _SECTION,
        "Workers that build, change and delete load balancers, at most three quarters of them for one namespace (Go's "
        "default is 1).",
        check=between(1, 1000),
    )
    load_balancer_node_window: float = option(
        1.0,
        DURATION,
        "load-balancer-node-window",
        _SECTION,
        "Load balancers get new nodes when none has changed for so long, so that nodes that join together cost each "
        "load balancer one update.",
        check=not_negative,
    )
    load_balancer_node_window_limit: float = option(
        5.0,
        DURATION,
        "load-balancer-node-window-limit",
        _SECTION,
        "They get them after so long although nodes keep changing.",
        check=not_negative,
    )
    load_balancer_drift_check_period: float = option(
        1800.0,
        DURATION,
        "load-balancer-drift-check-period",
        _SECTION,
        "Each load balancer is looked at in the cloud at least so often, and one that is gone or has another address "
        "is repaired. 0: never, as in Go.",
        check=not_negative,
    )
    load_balancer_ensure_period: float = option(
        43200.0,
        DURATION,
        "load-balancer-ensure-period",
        _SECTION,
        "Each load balancer is ensured at least so often although nothing seems amiss, so that what a look does not "
        "show is repaired too. 0: never, as in Go.",
        check=not_negative,
    )
    load_balancer_orphan_check_period: float = option(
        1800.0,
        DURATION,
        "load-balancer-orphan-check-period",
        _SECTION,
        "How often load balancers without a Service are looked for, where the provider can list them. They are "
        "reported, never deleted. 0: never.",
        check=not_negative,
    )
    load_balancer_ready_nodes_only: bool = option(
        False,
        BOOL,
        "load-balancer-ready-nodes-only",
        _SECTION,
        "Leave nodes that are not ready out of load balancers, unless none is. Otherwise the health checks of the load "
        "balancers decide.",
    )


def service_controller(context: Context) -> Controller | None:
    """The controller; None, and the reason in the log, where the provider has no load balancers."""
    from controllers.service import ServiceController, ServiceOptions

    if context.cloud.load_balancers is None:
        log.warning(
            "service-lb-controller is off: provider %s offers no load balancers, so Services of type LoadBalancer get "
            "none from it",
            context.cloud.provider_name,
        )
        return None
    flags = context.options.of(ServiceFlags)
    options = ServiceOptions(
        cluster_name=context.options.manager.cluster_name,
        concurrent_service_syncs=flags.concurrent_service_syncs,
        node_sync_window=flags.load_balancer_node_window,
        node_sync_longest=flags.load_balancer_node_window_limit,
        drift_check_period=flags.load_balancer_drift_check_period,
        ensure_period=flags.load_balancer_ensure_period,
        orphan_check_period=flags.load_balancer_orphan_check_period,
        ready_nodes_only=flags.load_balancer_ready_nodes_only,
        drain_timeout=context.drain,
    )
    return context.build(ServiceController, options)
