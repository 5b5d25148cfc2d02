"""The flags of node-route-controller, and what the manager builds from them; its entry is in `catalog.py`.

Stage: before the first one, no I/O. The controller is off unless --allocate-node-cidrs and --configure-cloud-routes
both hold and the provider has routes, as in Go (startRouteController in k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from controllers.app.goflags import BOOL, DURATION, STRING
from controllers.app.options import option, positive

if TYPE_CHECKING:
    from controllers.app.catalog import Context, Controller

log = logging.getLogger(__name__)


def _cluster_cidr(value: str) -> str | None:
    if not value.strip():
        return None
    from controllers.route import parse_cluster_cidrs

    try:
        parse_cluster_cidrs(value)
    except ValueError as error:
        return str(error)
    return None


@attrs.frozen(kw_only=True)
class RouteFlags:
    """The flags of node-route-controller."""

    allocate_node_cidrs: bool = option(
        False,
        BOOL,
        "allocate-node-cidrs",
        "generic",
        "Whether nodes get pod CIDRs (from kube-controller-manager). node-route-controller runs only if they do and "
        "--configure-cloud-routes holds.",
    )
    configure_cloud_routes: bool = option(
        True,
        BOOL,
        "configure-cloud-routes",
        "generic",
        "Whether the pod CIDRs that --allocate-node-cidrs speaks of get routes in the cloud.",
    )
    cluster_cidr: str = option(
        "",
        STRING,
        "cluster-cidr",
        "generic",
        "IP range of the cluster's pods, or two of different families with a comma. node-route-controller needs it, "
        "and deletes nothing outside of it.",
        check=_cluster_cidr,
    )
    route_reconciliation_period: float = option(
        300.0,
        DURATION,
        "route-reconciliation-period",
        "generic",
        "How often the routes in the cloud are listed when no node has changed. Nodes that join, change or leave are "
        "served at once, so this only repairs what was changed by hand (Go's default is 10s, which uses up the cloud's "
        "quota).",
        check=positive,
    )


def route_controller(context: Context) -> Controller | None:
    """The controller; None, and the reason in the log, where it is not wanted or has nothing to work with."""
    from controllers.route import RouteController, RouteOptions, parse_cluster_cidrs

    flags = context.options.of(RouteFlags)
    if not (flags.allocate_node_cidrs and flags.configure_cloud_routes):
        log.info("node-route-controller is off: it takes --allocate-node-cidrs and --configure-cloud-routes")
        return None
    if context.cloud.routes is None:
        log.warning(
            "node-route-controller is off, although --configure-cloud-routes is on: provider %s offers no routes",
            context.cloud.provider_name,
        )
        return None
    options = RouteOptions(
        cluster_cidrs=parse_cluster_cidrs(flags.cluster_cidr),
        cluster_name=context.options.manager.cluster_name,
        route_reconciliation_period=flags.route_reconciliation_period,
        drain_timeout=context.drain,
    )
    return context.build(RouteController, options)
