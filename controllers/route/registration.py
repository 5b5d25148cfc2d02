"""node-route-controller in the manager: when it runs, permissions and entry. Other flags:
`options.py`.

The controller is off unless --allocate-node-cidrs and --configure-cloud-routes both hold and the
provider has routes. Go's help says the same, but its code (startRouteController in
k8s.io/cloud-provider's app/core.go) does not ask for --allocate-node-cidrs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import attrs

from controllers.options.podnetwork import ROUTE_CONTROLLER, RouteSwitches
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule, event_rule, informers
from controllers.route.options import RouteOptions

log = logging.getLogger(__name__)


def _off(values: Mapping[str, Any]) -> str:
    missing = [f"--{name}" for name in ("allocate-node-cidrs", "configure-cloud-routes") if not values[name]]
    if not missing:
        return ""
    needs = [*missing, *(() if values["cluster-cidr"] else ("--cluster-cidr",))]
    return f"needs {' and '.join(needs)}"


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
    from controllers.route.controller import RouteController

    return context.build(RouteController, RouteOptions)


def _stand_in(context: Context, enabled: bool) -> Controller | None:
    if not enabled:  # another manager may run the routes
        return None
    from controllers.route.off import RoutesOff

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
    options = attrs.evolve(context.options.of(RouteOptions), drain_timeout=context.drain)
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
