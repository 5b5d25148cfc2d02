"""What a cluster has in the cloud, and what of it is deleted. Pure, but for `Lister.found`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from cloudprovider import OwnedLoadBalancer, OwnedResource, Route
from cloudprovider.ips import IPNetwork, is_inside, parse_network

if TYPE_CHECKING:
    from controllers.cloudcalls import CloudCalls
    from controllers.cloudcalls.capabilities import LoadBalancerCalls, ResourceCalls, RouteCalls

FIRST: Final = 0
"""Load balancers and routes, which use what comes after them."""
THEN: Final = 1


@frozen
class Item:
    """One thing in the cloud."""

    kind: str
    name: str
    what_for: str
    """The Service, or where a route leads."""
    stays: str = field(default="", eq=False)
    """Why it is not deleted; "" for what is."""
    wanted: bool = field(default=False, eq=False)
    """It stays because it is to stay: nothing is left undone."""
    stage: int = field(default=FIRST, eq=False)
    delete: Callable[[], object] = field(default=lambda: None, eq=False, repr=False)
    """Asks the cloud to delete it. Raises as the gateway's calls do."""


@frozen
class Inventory:
    """All that was found."""

    items: tuple[Item, ...]
    unknown: tuple[str, ...]
    """What this provider cannot list."""

    @property
    def to_delete(self) -> tuple[Item, ...]:
        """What is to be deleted."""
        return tuple(one for one in self.items if not one.stays)

    @property
    def left(self) -> tuple[Item, ...]:
        """What is there against the user's will, or without proof whose it is."""
        return tuple(one for one in self.items if not one.wanted)


@frozen
class Lister:
    """Lists what a cluster owns. `cidrs` are its ranges of pod addresses, where they are known."""

    cloud: CloudCalls
    cluster: str
    cidrs: Sequence[IPNetwork] = ()
    also_kept: bool = False

    def found(self) -> Inventory:
        """What there is now. Raises what a listing raised: half of it would pass for all."""
        unknown = []
        items: list[Item] = []
        if (balancers := self.cloud.load_balancers) is not None:
            if balancers.can_list_owned:
                items += [self._balancer(balancers, one) for one in balancers.owned(self.cluster)]
            else:
                # Not "none": the user must look there by hand.
                unknown.append("load balancers: the provider has no OwnedLoadBalancers")
        if (routes := self.cloud.routes) is not None:
            # What the cloud's marks give to another program is none of the cluster's.
            items += [self._route(routes, one) for one in routes.list(self.cluster) if one.owned is not False]
        if (resources := self.cloud.resources) is not None:
            items += [self._resource(resources, one) for one in resources.list(self.cluster)]
        return Inventory(tuple(items), tuple(unknown))

    def _balancer(self, balancers: LoadBalancerCalls, owned: OwnedLoadBalancer) -> Item:
        # Its Service was deleted with the wish to keep it: that wish outlives the cluster.
        kept = owned.kept and not self.also_kept
        return Item(
            "load balancer",
            owned.name,
            f"Service {owned.service or owned.service_uid}",
            stays="kept on purpose; --also-kept deletes it" if kept else "",
            wanted=kept,
            delete=lambda: balancers.delete_owned(self.cluster, owned),
        )

    def _route(self, routes: RouteCalls, route: Route) -> Item:
        return Item(
            "route",
            route.name or route.destination_cidr,
            f"{route.destination_cidr} to {route.target_node or route.target_provider_id or 'nowhere'}",
            stays=(doubt := self._doubt(route)),
            # With --cluster-cidr the operator has said what is the cluster's: the rest is to stay.
            wanted=bool(doubt and self.cidrs),
            delete=lambda: routes.delete(self.cluster, route),
        )

    def _doubt(self, route: Route) -> str:
        """As the route controller: what no mark proves to be the cluster's is deleted only within
        the range that is the cluster's by its operator's word."""
        if route.owned or is_inside(parse_network(route.destination_cidr), self.cidrs):
            return ""
        if self.cidrs:
            return "not this cluster's: no mark says so, and it is outside --cluster-cidr"
        return "no mark says whose it is; --cluster-cidr deletes those within"

    def _resource(self, resources: ResourceCalls, resource: OwnedResource) -> Item:
        return Item(
            resource.kind,
            resource.id,
            resource.name,
            stage=THEN,
            delete=lambda: resources.delete(self.cluster, resource),
        )
