"""cloud-node-controller in the manager: its permissions and its entry. Flags: `options.py`."""

from __future__ import annotations

from controllers.node.options import CloudNodeOptions
from controllers.options.podnetwork import ROUTE_CONTROLLER, RouteSwitches
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule, event_rule, informers


def _construct(context: Context) -> Controller:
    from controllers.node.controller import CloudNodeController

    routes = context.options.of(RouteSwitches)
    made = routes.on and context.cloud.routes is not None and ROUTE_CONTROLLER in context.controllers
    return context.build(CloudNodeController, CloudNodeOptions, routed=routes.cluster_cidrs if made else ())


ENTRY = ControllerEntry(
    name="cloud-node-controller",
    aliases=("cloud-node",),
    client="node-controller",
    construct=_construct,
    needs=lambda cloud: cloud.has_instances,
    lacking="offers no instances, so new nodes stay tainted unless another manager initialises them",
    module="controllers.node.controller",
    informers=informers("NODES"),
    options=(CloudNodeOptions,),
    rules=(
        Rule(resource="nodes", verbs=("get", "list", "watch", "patch"), consequence="no node is ever initialised"),
        Rule(resource="nodes/status", verbs=("patch",), consequence="nodes get no addresses and stay tainted"),
        event_rule("no Event says what happens to nodes"),
    ),
)
