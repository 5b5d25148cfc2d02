"""cloud-node-controller in the manager: flags, permissions and entry."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.kinds import CIDR, Kind, ListOf, OneOf
from controllers.options import DURATION, INT, between, drain_timeout_option, option, positive
from controllers.options.podnetwork import ROUTE_CONTROLLER, RouteSwitches
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule, event_rule, informers

if TYPE_CHECKING:
    from cloudprovider.ips import IPNetwork

_SECTION: Final = "cloud-node-controller"
_FAMILIES: Final[Kind[tuple[str, ...]]] = ListOf(OneOf("ipv4", "ipv6"), least=0, repeated=False)
_RANGES: Final[Kind[tuple[IPNetwork, ...]]] = ListOf(CIDR, least=0)


def _no_family_twice(families: tuple[str, ...]) -> str | None:
    return "names a family twice" if len(set(families)) < len(families) else None


@frozen(kw_only=True)
class CloudNodeOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    concurrent_node_syncs: int = option(
        32,
        INT,
        "concurrent-node-syncs",
        _SECTION,
        "Workers that initialise and update nodes (Go's default is 1).",
        check=between(1, 1000),
        configz="NodeController.ConcurrentNodeSyncs",
    )
    concurrent_node_status_updates: int = option(
        0,
        INT,
        "concurrent-node-status-updates",
        _SECTION,
        "Workers that refresh the addresses and labels of nodes. 0: as many as --concurrent-node-syncs.",
        check=between(0, 1000),
        configz="NodeController.ConcurrentNodeStatusUpdates",
    )
    node_status_update_frequency: float = option(
        300.0,
        DURATION,
        "node-status-update-frequency",
        "misc",
        "How often the addresses and labels of every node are compared with the cloud.",
        check=positive,
        configz="NodeStatusUpdateFrequency",
    )
    node_address_families: tuple[str, ...] = option(
        (),
        _FAMILIES,
        "node-address-families",
        _SECTION,
        "IP families of the addresses that nodes get, the preferred one first, such as ipv6,ipv4. The cloud's "
        "addresses of another family are left out. Default: both, in the cloud's order.",
        check=_no_family_twice,
    )
    node_address_exclude: tuple[IPNetwork, ...] = option(
        (),
        _RANGES,
        "node-address-exclude",
        _SECTION,
        "IP ranges, separated by commas, whose addresses nodes do not get although the cloud has them.",
    )
    drain_timeout: float = drain_timeout_option()
    routed: tuple[IPNetwork, ...] = ()
    """The ranges of pods to which this process makes routes: a new node with a part of them begins
    with NetworkUnavailable=True, until the route controller has made its route."""


def _construct(context: Context) -> Controller:
    routes = context.options.of(RouteSwitches)
    made = routes.on and context.cloud.routes is not None and ROUTE_CONTROLLER in context.controllers
    kind = pkgutil.resolve_name("controllers.node.controller:CloudNodeController")
    return context.build(kind, CloudNodeOptions, routed=routes.cluster_cidrs if made else ())


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
