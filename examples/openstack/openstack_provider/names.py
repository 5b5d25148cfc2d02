"""Names, tags and descriptions: how a Service's things are known in OpenStack. Pure.

They are the Go manager's, so that what it built is found here, and what is built here is found by
it. None may ever change. The tags of our own, which it ignores, are the proof of whose a thing is:
names are the same in every cluster of one --cluster-name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import Final

from attrs import frozen
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.helpers import key_of, uid_of

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


def subnet_matches(name: str, tags: Sequence[str], pattern: str = "", wanted_tags: str = "") -> bool:
    """Whether a subnet fits a pattern and tags as the Go manager reads them."""
    return _name_matches(name, pattern) and _tags_match(tags, wanted_tags)


def _name_matches(name: str, pattern: str) -> bool:
    if not pattern:
        return True
    negated, pattern = pattern.startswith("!"), pattern.removeprefix("!")
    regexp = pattern[1:] if pattern.startswith("~") else translate(pattern)
    return (re.fullmatch(regexp, name) is not None) is not negated


def _tags_match(tags: Iterable[str], wanted: str) -> bool:
    if not wanted:
        return True
    negated, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    every, wanted = wanted.startswith("&"), wanted.removeprefix("&")
    asked, there = {one.strip() for one in wanted.split(",")}, set(tags)
    return (asked <= there if every else bool(asked & there)) is not negated
