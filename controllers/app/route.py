"""node-route-controller in the manager: when it runs, its rights and its entry. Its other flags:
`controllers/route/options.py`.

Stage: before the first one, no I/O. The controller is off unless --allocate-node-cidrs and --configure-cloud-routes
both hold and the provider has routes, as in Go (startRouteController in k8s.io/cloud-provider's app/core.go).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from controllers.app.entry import Context, Controller, ControllerEntry, Rule
from controllers.options import BOOL, allocate_node_cidrs_option, option
from controllers.route.options import RouteOptions

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource

log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class RouteSwitches:
    """Whether the manager runs the controller."""

    allocate_node_cidrs: bool = allocate_node_cidrs_option()
    configure_cloud_routes: bool = option(
        True,
        BOOL,
        "configure-cloud-routes",
        "generic",
        "Whether routes in the cloud are created for the pod CIDRs of --allocate-node-cidrs.",
    )


def _off(values: Mapping[str, Any]) -> str:
    missing = [f"--{name}" for name in ("allocate-node-cidrs", "configure-cloud-routes") if not values[name]]
    if not missing:
        return ""
    needs = [*missing, *(() if values["cluster-cidr"] else ("--cluster-cidr",))]
    return f"needs {' and '.join(needs)}"


def _construct(context: Context) -> Controller | None:
    from controllers.route import RouteController

    switches = context.options.of(RouteSwitches)
    if not (switches.allocate_node_cidrs and switches.configure_cloud_routes):
        log.info("node-route-controller is off: it needs --allocate-node-cidrs and --configure-cloud-routes")
        return None
    if context.cloud.routes is None:
        log.warning(
            "node-route-controller is off, although --configure-cloud-routes is on: provider %s offers no routes",
            context.cloud.provider_name,
        )
        return None
    return context.build(RouteController, RouteOptions)


def _informers() -> Iterable[Resource[Any]]:
    from controllers.runtime.cache import NODES

    return (NODES,)


ENTRY = ControllerEntry(
    name="node-route-controller",
    aliases=("route",),
    client="route-controller",
    construct=_construct,
    off=_off,
    module="controllers.route.controller",
    informers=_informers,
    options=(RouteSwitches, RouteOptions),
    rules=(
        Rule(resource="nodes", verbs=("get", "list", "watch"), consequence="no route is ever created or deleted"),
        Rule(resource="nodes/status", verbs=("patch",), consequence="nodes keep the condition NetworkUnavailable"),
        Rule(
            resource="events",
            verbs=("create", "patch"),
            consequence="no Event says which routes cannot be created",
            namespace="default",
        ),
    ),
)
