"""Routes: how pods on other machines are reached (stage 5, cloud call).

Asked by the route controller through the gateway: it lists what exists, compares with the nodes'
pod CIDRs, and creates or deletes the difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

from cloudprovider.internal import fields

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node_address import V1NodeAddress

__all__ = ["Route", "Routes"]


@fields.documented
@frozen
class Route:
    """One routing rule: traffic for `destination_cidr` goes to the machine of a node. Raises
    TypeError for a value of another type than its field's.

    Follows: Route in k8s.io/cloud-provider cloud.go.
    """

    name: str = field(validator=fields.text)
    """The rule's name in the cloud. Ignored by `create_route`, which may build one from its
    hint."""

    target_node: str = field(validator=fields.text)
    """The name of the node to go to. From `list_routes`: empty where `target_provider_id` says
    where the rule leads, and for a rule whose target the provider cannot match to a node."""

    destination_cidr: str = field(validator=fields.text)
    """The addresses that the rule is for, for example "10.244.3.0/24", without host bits."""

    enable_node_addresses: bool = field(default=False, validator=fields.flag)
    """Whether `target_node_addresses` counts. A provider that does not know where its rules lead
    leaves it False: they then count as leading to the addresses that the node had when they were
    made."""

    target_node_addresses: tuple[V1NodeAddress, ...] = field(
        default=(), converter=fields.as_tuple, validator=fields.node_addresses
    )
    """For `create_route`: the node's addresses. From `list_routes`: where the rule leads, mostly
    one of them. One that is none of the node's means that the rule is deleted and made again,
    once."""

    blackhole: bool = field(default=False, validator=fields.flag)
    """The rule leads nowhere (its instance is gone). Deleted when it lies in the cluster's
    range."""

    owned: bool | None = field(default=None, validator=fields.flag_or_none)
    """What the cloud's own marks (a tag, a description) say. True: `create_route` made it for this
    cluster. False: another program made it; it is never touched. None: the provider cannot tell. A
    name is no such mark."""

    target_provider_id: str = field(default="", validator=fields.text)
    """The provider ID of the machine to go to. For `create_route`: the node's `spec.providerID`,
    empty while it has none; find the machine by it, and by `target_node` only where it is empty.
    From `list_routes`: as `instance_metadata` would give it. The host looks up the node by it, so a
    machine that got another name in the cloud keeps its route. It counts before `target_node`,
    which is then looked at only for a node that has no provider ID. A provider without provider IDs
    leaves it empty and lists names."""


class Routes(ABC):
    """The cluster's routes in the cloud. Called from many threads at once; arguments are read-only.

    Follows: Routes in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        """Every route that this cluster owns, complete: raise when a page of the listing failed.

        Rules of others (VPNs, supernets, rules without a target made by hand) should be left out. A
        destination that is no IP range, or has host bits, makes the whole list unusable, unless
        `owned` is False.
        """

    @abstractmethod
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        """Create the route. `route.name` is ignored; `name_hint` may help to name it.

        Idempotent: when the same rule exists already, return normally. Raises InstanceNotFound for
        a node without a machine, which gets its route when it is back: a rule to nowhere would be
        deleted and created again. Raise `QuotaExceeded` where the table is full, `Pending` while
        the cloud is still making it.
        """

    @abstractmethod
    def delete_route(self, cluster_name: str, route: Route) -> None:
        """Delete the route, given as `list_routes` returned it. Idempotent: absent already is
        success."""
