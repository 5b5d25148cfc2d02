"""Whose a load balancer is. Pure. What is not proved to be the Service's is never touched.

Tags of ours are written in the call that creates it. One that carries none was built by the Go
manager, of this cluster or of another one of the same name: it is the Service's where the Service's
status shows its address, since only controllers write a Service's status. Annotations, which users
write, prove nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError
from openstack_provider.names import CLUSTER_TAG, SERVICE_PREFIX, SERVICE_TAG, Identity
from openstack_provider.rest import JSON


class NotOurs(CloudProviderError):
    """A load balancer has a name of ours, and is not proved to be the Service's."""


def is_of(balancer: JSON, who: Identity) -> bool:
    """Whether its tags prove that the Service uses it."""
    return who.uid_tag in _tags(balancer) and not is_of_another_cluster(balancer, who)


def is_of_another_cluster(balancer: JSON, who: Identity) -> bool:
    """Whether its tags say that another cluster built it."""
    clusters = [tag for tag in _tags(balancer) if tag.startswith(CLUSTER_TAG)]
    return bool(who.cluster_tag) and any(tag != who.cluster_tag for tag in clusters)


def is_marked(balancer: JSON) -> bool:
    """Whether this program, of any cluster, wrote tags on it."""
    return any(tag.startswith((CLUSTER_TAG, SERVICE_TAG)) for tag in _tags(balancer))


def is_owner(balancer: JSON, who: Identity) -> bool:
    """Whether it was made for this Service, and not for one that shares its own with others."""
    return bool(balancer["name"] == who.balancer)


def sharers(balancer: JSON, who: Identity) -> list[str]:
    """The tags of other Services on it."""
    others = [tag for tag in _tags(balancer) if tag.startswith(SERVICE_PREFIX) and tag != who.balancer]
    return others or [tag for tag in _tags(balancer) if tag.startswith(SERVICE_TAG) and tag != who.uid_tag]


def may_be_deleted(balancer: JSON, who: Identity) -> bool:
    """Whether it goes when this Service, which uses it, goes: one that users made never does."""
    is_the_clusters = who.cluster_tag in _tags(balancer) if who.cluster_tag else is_owner(balancer, who)
    return is_the_clusters and balancer["name"].startswith(SERVICE_PREFIX) and not sharers(balancer, who)


def own(found: Sequence[JSON], who: Identity) -> JSON | None:
    """The Service's among these; None where none is marked as its. Raises `CloudProviderError`
    where two are."""
    ours = [one for one in found if is_of(one, who)]
    if len(ours) > 1:
        raise CloudProviderError(
            f"{len(ours)} load balancers are marked as those of {who.key}: {', '.join(one['id'] for one in ours)}. "
            "Delete all but one in OpenStack"
        )
    return ours[0] if ours else None


def refusal(balancer: JSON, who: Identity) -> NotOurs:
    """Why it is left alone, and what to do."""
    say_so = f"openstack loadbalancer set --no-tag --tag {who.uid_tag} {balancer['id']}"
    if is_of_another_cluster(balancer, who):
        why = f"another cluster made it. Give this cluster another --cluster-name; or, if that one is gone, {say_so}"
    elif is_marked(balancer):
        why = f"it was made for another Service of this name, which is gone. Delete it; or {say_so}"
    else:
        why = f"nothing proves that it is this Service's, as its status does not show its address. If it is, {say_so}"
    return NotOurs(f"the load balancer {balancer['id']} has the name {balancer['name']} and is left alone: {why}")


def shows(service: V1Service, addresses: Collection[str], suffix: str) -> bool:
    """Whether the Service's status shows one of these addresses, as IP address or as the host name
    that is made of it (`enable-ingress-hostname`)."""
    balancer = service.status.load_balancer if service.status is not None else None
    points = (balancer.ingress if balancer is not None else None) or ()
    shown = {one.ip for one in points} | {(one.hostname or "").removesuffix(f".{suffix}") for one in points}
    return bool(shown & set(addresses))


def has_status(service: V1Service) -> bool:
    """Whether an address of the Service was published."""
    balancer = service.status.load_balancer if service.status is not None else None
    return bool(balancer is not None and balancer.ingress)


def _tags(balancer: JSON) -> Sequence[str]:
    return balancer.get("tags") or ()
