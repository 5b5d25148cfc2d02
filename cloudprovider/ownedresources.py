"""OwnedResources: what else a cluster leaves in the cloud (stage 5, cloud call).

Asked by `cloud-controller-manager teardown` alone, after the load balancers and routes are gone:
security groups, addresses, rules that several load balancers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from attrs import field, frozen

from cloudprovider.internal import fields

__all__ = ["OwnedResource", "OwnedResources"]


@fields.documented
@frozen
class OwnedResource:
    """Something in the cloud that the provider made for a cluster, and that is neither a load
    balancer nor a route. Raises TypeError for fields of a wrong type."""

    kind: str = field(validator=fields.text)
    """What it is, in the cloud's words: "security group"."""
    id: str = field(validator=fields.text)
    """By what it is deleted. Different for each resource of one kind."""
    name: str = field(default="", validator=fields.text)
    """Its name, for people; "" where the ID says all."""


class OwnedResources(ABC):
    """Optional: what the provider made for a cluster besides load balancers and routes, and would
    leave behind.

    What goes with a load balancer needs no entry: `ensure_load_balancer_deleted` deletes it. Nor
    has what others made: machines, networks, volumes.
    """

    @abstractmethod
    def list_owned_resources(self, cluster_name: str) -> Sequence[OwnedResource]:
        """Everything of this cluster that `delete_owned_resource` can delete, by the cloud's own
        marks, in the order in which it is to be deleted. Complete: raise when a page of it failed.
        """

    @abstractmethod
    def delete_owned_resource(self, cluster_name: str, resource: OwnedResource) -> None:
        """Delete one, as it was listed. Idempotent: absent already is success. Raise `Pending`
        while the cloud deletes, and `RetryError` while something else still uses it. Look at the
        marks again: what is not this cluster's any more stays."""
