"""node-route-controller in the manager: its flags, when it runs, its permissions and its entry.

The controller is off unless --allocate-node-cidrs and --configure-cloud-routes both hold and the
provider has routes. Go's help says the same, but its code (startRouteController in
k8s.io/cloud-provider's app/core.go) does not ask for --allocate-node-cidrs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, frozen

from controllers.options import (
    DURATION,
    INT,
    between,
    cluster_name_option,
    drain_timeout_option,
    not_negative,
    option,
    positive,
)
from controllers.options.podnetwork import DEFAULT_MASK_SIZES, ROUTE_CONTROLLER, PodNetworkOptions, RouteSwitches
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule, built, event_rule, informers

log = logging.getLogger(__name__)


_SECTION: Final = "generic"


@frozen(kw_only=True)
class RouteOptions(PodNetworkOptions):
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    cluster_name: str = cluster_name_option()
    route_reconciliation_period: float = option(
        300.0,
        DURATION,
        "route-reconciliation-period",
        _SECTION,
        "How often the routes in the cloud are listed when no node has changed. Changes of nodes are handled at "
        "once, so this only repairs routes that were changed by hand (Go's default of 10s can use up the cloud's "
        "quota).",
        check=positive,
        configz="KubeCloudShared.RouteReconciliationPeriod",
    )
    list_interval: float = option(10.0, DURATION, check=not_negative)
    """Seconds between two listings that events ask for, at least; and the age of a listing on which
    routes are still deleted. Creating needs no new listing."""
    concurrent_route_syncs: int = option(64, INT, check=between(1, 1000))
    """Nodes worked on at once. The calls to the cloud among them are bounded by the gateway."""
    drain_timeout: float = drain_timeout_option()

    def mask_sizes(self) -> Mapping[int, int]:
        """Prefix length of nodes' pod CIDRs by IP version, as far as the flags say it. Raises
        ValueError where the cluster CIDR is missing, the mask sizes contradict each other, or one
        does not fit the cluster CIDR."""
        if not self.cluster_cidrs:
            raise ValueError(
                "--cluster-cidr is missing. Fix: give --cluster-cidr=RANGE, the range of the pods that "
                "kube-controller-manager has too (10.244.0.0/16, say), or --configure-cloud-routes=false for no routes"
            )
        sizes, problems = self.given_mask_sizes()
        if problems:
            raise ValueError("; ".join(problems))
        return sizes

    def usual_sizes(self) -> Mapping[int, int]:
        """As `mask_sizes`, and what kube-controller-manager gives where its flags say nothing; but
        for the cloud's own choice, which has no such size."""
        return self.mask_sizes() if self.cloud_chooses else {**DEFAULT_MASK_SIZES, **self.mask_sizes()}


def _off(values: Mapping[str, Any]) -> str:
    missing = [f"--{name}" for name in ("allocate-node-cidrs", "configure-cloud-routes") if not values[name]]
    if not missing:
        return ""
    needs = [*missing, *(() if values["cluster-cidr"] else ("--cluster-cidr",))]
    return f"needs {' and '.join(needs)}"


_build = built("controllers.route.controller:RouteController", RouteOptions)


def _construct(context: Context) -> Controller | None:
    switches = context.options.of(RouteSwitches)
    if not switches.on:
        log.info("node-route-controller is off: it needs --allocate-node-cidrs and --configure-cloud-routes")
        if switches.configure_cloud_routes and switches.cluster_cidrs and context.cloud.routes:
            log.warning(
                "no routes are made, although --cluster-cidr is given: new nodes get none. Go's manager makes them "
                "without --allocate-node-cidrs too. Fix: give --allocate-node-cidrs (nodes may still get their pod "
                "CIDRs from kube-controller-manager), or --configure-cloud-routes=false if no routes are wanted"
            )
        return None
    if context.cloud.routes is None:
        log.warning(
            "node-route-controller is off, although --configure-cloud-routes is on: provider %s offers no routes",
            context.cloud.provider_name,
        )
        return None
    return _build(context)


def _stand_in(context: Context, enabled: bool) -> Controller | None:
    if not enabled:  # another manager may run the routes
        return None
    from controllers.route.condition import RoutesOff

    switches, provider = context.options.of(RouteSwitches), context.cloud.provider_name
    # Only the operator's word says that nobody makes routes: another manager may make them for the
    # same nodes, as where a Go manager was kept for them.
    removes = not switches.configure_cloud_routes
    if removes:
        why = "--configure-cloud-routes=false"
    elif context.cloud.routes is None:
        why = f"provider {provider} offers no routes"
    else:
        why = "--allocate-node-cidrs is not given"
    options = evolve(context.options.of(RouteOptions), drain_timeout=context.drain)
    return RoutesOff(
        context.clients,
        context.informers,
        context.cloud,
        options,
        context.metrics,
        context.clock,
        why=why,
        removes=removes,
    )


ENTRY = ControllerEntry(
    name=ROUTE_CONTROLLER,
    aliases=("route",),
    client="route-controller",
    construct=_construct,
    off=_off,
    stand_in=_stand_in,
    module="controllers.route.controller",
    informers=informers("NODES"),
    options=(RouteSwitches, RouteOptions),
    rules=(
        Rule(resource="nodes", verbs=("get", "list", "watch"), consequence="no route is ever created or deleted"),
        Rule(resource="nodes/status", verbs=("patch",), consequence="nodes keep the condition NetworkUnavailable"),
        event_rule("no Event says which routes cannot be created"),
    ),
)
