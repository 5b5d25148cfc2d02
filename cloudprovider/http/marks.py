"""Marks and names: what says, in the cloud, that a resource is ours (stage 5, cloud call). Pure.

A resource without our marks is never changed and never deleted, whatever its name is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.errors import CloudProviderError
from cloudprovider.helpers.objects import key_of, uid_of
from cloudprovider.loadbalancer import OwnedLoadBalancer

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

__all__ = ["Marks", "as_tags", "from_tags", "readable_name"]


_KEPT: Final = "true"


@frozen
class Marks:
    """The names of the labels (or tags) that we write on the cloud's resources. They must never
    change."""

    cluster: str = "kubernetes-cluster"
    service: str = "kubernetes-service"
    """For people: "namespace/name", of up to 127 letters; "" where the cloud's labels cannot hold
    that."""
    service_uid: str = "kubernetes-service-uid"
    kept: str = "kubernetes-kept"
    """On a load balancer that stays in the cloud without its Service; see `keeping`."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.cluster, self.service, self.service_uid, self.kept)))

    def of_cluster(self, cluster_name: str) -> dict[str, str]:
        """The labels of what belongs to a cluster: a route."""
        return {self.cluster: cluster_name}

    def of_service(self, cluster_name: str, service: V1Service) -> dict[str, str]:
        """The labels of a Service's load balancer. Raises ValueError for one without a UID."""
        uid = uid_of(service)
        if not uid:
            raise ValueError("the marks of a load balancer need the Service's metadata.uid, which is empty")
        named = {self.service: key_of(service)} if self.service else {}
        return {**self.of_cluster(cluster_name), **named, self.service_uid: uid}

    def fit(self, labels: Mapping[str, str], cluster_name: str, service: V1Service | None = None) -> bool:
        """Whether a resource with these labels is this cluster's, and this Service's."""
        wanted = self.of_cluster(cluster_name)
        if service is not None:
            wanted = self.of_service(cluster_name, service)
            wanted.pop(self.service, None)  # for people; the UID tells
        return wanted.items() <= labels.items()

    def owned(self, cluster_name: str, name: str, labels: Mapping[str, str]) -> OwnedLoadBalancer | None:
        """What `OwnedLoadBalancers` lists of a load balancer; None where it is not this
        cluster's."""
        if not self.fit(labels, cluster_name) or self.service_uid not in labels:
            return None
        kept = labels.get(self.kept)
        namespace = kept if kept is not None and kept != _KEPT else ""
        return OwnedLoadBalancer(
            name, labels.get(self.service, ""), labels[self.service_uid], kept is not None, namespace
        )

    def keeping(self, labels: Mapping[str, str], namespace: str = "") -> dict[str, str]:
        """The labels of a load balancer that is kept (`LoadBalancerKept`), for Services of this
        namespace ("": of the present one's, which `service` tells). It has them until
        `ensure_load_balancer` writes those of `of_service`, for the same Service or for one that
        adopts it: leave the mark of a kept one out then."""
        return {**labels, self.kept: namespace or _KEPT}


def as_tags(labels: Mapping[str, str]) -> list[str]:
    """Labels for a cloud whose tags are words: "name=value"."""
    return sorted(f"{name}={value}" for name, value in labels.items())


def from_tags(tags: Iterable[str], names: Iterable[str] = ()) -> dict[str, str]:
    """The labels in a cloud's tags; with `names`, of these names alone. Raises CloudProviderError
    where a name has two values: whose it is nobody knows. Others' tags may have two: give the names
    that you read, such as `Marks().names`."""
    found: dict[str, str] = {}
    wanted = frozenset(names)
    for tag in tags:
        name, equals, value = tag.partition("=")
        if equals and (not wanted or name in wanted) and found.setdefault(name, value) != value:
            raise CloudProviderError(f"the tag {name} is there twice, with different values")
    return found


def readable_name(cluster_name: str, service: V1Service, *, most: int = 63) -> str:
    """A load balancer's name that people recognise: cluster, namespace and name, as far as they fit
    into `most` letters, and a digest of the UID. Lower-case letters, digits and "-", a letter
    first.

    For `get_load_balancer_name`: the same forever. Raises ValueError without a UID, and for `most`
    under 16."""
    if most < 16:
        raise ValueError(f"most={most}: a name needs 16 letters, or the digest would be cut off")
    digest = hashlib.sha256(Marks().of_service(cluster_name, service)[Marks().service_uid].encode()).hexdigest()[:10]
    words = re.sub(r"[^a-z0-9]+", "-", f"k-{cluster_name}-{key_of(service)}".lower())
    return f"{words[: most - len(digest) - 1].rstrip('-')}-{digest}"
