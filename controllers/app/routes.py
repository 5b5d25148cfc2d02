"""The flags of node-route-controller, and what the manager builds from them; its entry is in `catalog.py`.

Stage: before the first one, no I/O. The controller is off unless --allocate-node-cidrs and --configure-cloud-routes
both hold and the provider has routes, as in Go (startRouteController in k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from controllers.app.goflags import BOOL, DURATION, INT, STRING
from controllers.app.options import between, option, positive

if TYPE_CHECKING:
    from cloudprovider.helpers.ips import IPNetwork
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
    node_cidr_mask_size: int = option(
        0,
        INT,
        "node-cidr-mask-size",
        "generic",
        "Mask size of nodes' pod CIDRs, as given to kube-controller-manager. A route of another size is never deleted. "
        "0: the sizes that the nodes have, and where none has any, 24 for IPv4 and 64 for IPv6. For a cluster CIDR of "
        "one family; with two use the flags with -ipv4 and -ipv6.",
        check=between(0, 128),
    )
    node_cidr_mask_size_ipv4: int = option(
        0,
        INT,
        "node-cidr-mask-size-ipv4",
        "generic",
        "As --node-cidr-mask-size, for IPv4.",
        check=between(0, 32),
    )
    node_cidr_mask_size_ipv6: int = option(
        0,
        INT,
        "node-cidr-mask-size-ipv6",
        "generic",
        "As --node-cidr-mask-size, for IPv6.",
        check=between(0, 128),
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
    cluster_cidrs = parse_cluster_cidrs(flags.cluster_cidr)
    options = RouteOptions(
        cluster_cidrs=cluster_cidrs,
        mask_sizes=_mask_sizes(flags, cluster_cidrs),
        cluster_name=context.options.manager.cluster_name,
        route_reconciliation_period=flags.route_reconciliation_period,
        drain_timeout=context.drain,
    )
    return context.build(RouteController, options)


def _mask_sizes(flags: RouteFlags, cluster_cidrs: tuple[IPNetwork, ...]) -> dict[int, int]:
    """Mask sizes by IP version, as far as flags give them. Raises ValueError where they contradict each other."""
    sizes = {
        version: size
        for version, size in ((4, flags.node_cidr_mask_size_ipv4), (6, flags.node_cidr_mask_size_ipv6))
        if size
    }
    if flags.node_cidr_mask_size:
        if sizes or len(cluster_cidrs) != 1:
            raise ValueError(
                "--node-cidr-mask-size is for a --cluster-cidr of one IP family, and not together with "
                "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6: give one flag for each family"
            )
        sizes[cluster_cidrs[0].version] = flags.node_cidr_mask_size
    return sizes
