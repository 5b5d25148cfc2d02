"""Names, tags, and whose a load balancer is. Pure. What is not proved to be the Service's is never
touched.

Names and descriptions are the Go manager's, so that what it built is found here, and what is built
here is found by it. None may ever change. They are the same in every cluster of one --cluster-name,
so tags of our own are the proof, which it ignores; they are written in the call that creates a load
balancer. One that carries none was built by the Go manager, of this cluster or of another one of
the same name: it is the Service's where the Service's status shows its address, since only
controllers write a Service's status. Annotations, which users write, prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from attrs import frozen
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError
from cloudprovider.helpers import key_of, uid_of
from openstack_provider.rest import JSON

SERVICE_PREFIX: Final = "kube_service_"
"""What the names of the Go manager's load balancers, and its tags, begin with."""
CLUSTER_TAG: Final = "kubernetes-cluster-uid="
"""With the UID of the namespace kube-system: only load balancers that one cluster built or took
over carry it."""
SERVICE_TAG: Final = "kubernetes-service-uid="
"""With the UID of a Service that uses the load balancer. A shared one has several."""
OPENED_TAG: Final = "kubernetes-node-ports=open"
"""There are rules for it in the nodes' security group."""
ADOPTED_TAG: Final = "kubernetes-adopted=true"
"""The Go manager built it: its security group may be there."""
FLOATING_PREFIX: Final = "Floating IP for Kubernetes external service"
_MOST: Final = 255
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.:-]")


@frozen
class Identity:
    """A Service, as its things are known by."""

    cluster: str
    """The --cluster-name."""
    cluster_uid: str
    """The UID of kube-system; "" where it may not be read."""
    key: str
    """ "namespace/name"."""
    uid: str

    @property
    def balancer(self) -> str:
        """The load balancer's name, and the tag of what belongs to the Service."""
        return f"{SERVICE_PREFIX}{self.cluster}_{self.key.replace('/', '_')}"[:_MOST]

    @property
    def host_name(self) -> str:
        """The name for the host, which must be another one for another UID: a Service that is made
        again has another load balancer, told apart by its tag."""
        name = _NOT_IN_NAME.sub("-", self.balancer)
        return f"{name[: _MOST - 1 - len(self.uid)]}:{self.uid}"

    @property
    def uid_tag(self) -> str:
        return f"{SERVICE_TAG}{self.uid}"

    @property
    def cluster_tag(self) -> str:
        """ "" where the cluster's UID is not known."""
        return f"{CLUSTER_TAG}{self.cluster_uid}" if self.cluster_uid else ""

    @property
    def description(self) -> str:
        return f"Kubernetes external service {self.key} from cluster {self.cluster}"[:_MOST]

    @property
    def floating_description(self) -> str:
        """The Go manager reads only how it begins."""
        told = f"{FLOATING_PREFIX} {self.key} from cluster {self.cluster}"
        end = f" (Service {self.uid})"
        return told[: _MOST - len(end)] + end

    @property
    def go_group(self) -> str:
        """The Go manager's security group for the Service."""
        return f"lb-sg-{self.uid}-{self.key.replace('/', '-')}"[:_MOST]

    @property
    def node_group(self) -> str:
        """The one security group of all nodes of the cluster."""
        return f"kubernetes-node-ports-{self.cluster_uid or self.cluster}"[:_MOST]

    def part(self, kind: str, index: int) -> str:
        """The name of a listener, pool or monitor, by the port's place in the Service."""
        return f"{kind}_{index}_{self.balancer}"[:_MOST]

    def is_part(self, kind: str, name: str) -> bool:
        """Whether a listener, pool or monitor of this name is the Service's."""
        index = name.removeprefix(f"{kind}_").partition("_")[0]
        return index.isdecimal() and name == self.part(kind, int(index))


def identity(cluster: str, cluster_uid: str, service: V1Service) -> Identity:
    """What the Service's things are known by. Raises ValueError for one without a UID."""
    if not uid_of(service):
        raise ValueError("a load balancer needs the Service's metadata.uid, which is empty")
    return Identity(cluster, cluster_uid, key_of(service), uid_of(service))


def service_of(name: str, cluster: str) -> str:
    """ "namespace/name" of the Service that a load balancer of this name is for, in a cluster of
    this name; "" for others."""
    # Neither namespaces nor Services have "_" in their names; the cluster's name may.
    head, namespace, service = (["", "", "", *name.rsplit("_", 2)])[-3:]
    return f"{namespace}/{service}" if namespace and head == f"{SERVICE_PREFIX}{cluster}" else ""


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
