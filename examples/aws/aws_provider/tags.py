"""Tags: how the cluster's things are known among everything in an AWS account. Pure.

The keys are those of the Go provider and of AWS's own documentation, so that clusters, subnets and
load balancers that carry them already are understood. None may ever change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import TagTypeDef


CLUSTER_TAG_PREFIX: Final = "kubernetes.io/cluster/"
"""With the cluster's name: the value "owned" or "shared" says that the thing is the cluster's,
alone or with others."""
OWNED: Final = "owned"
SHARED: Final = "shared"
LEGACY_CLUSTER_TAG: Final = "KubernetesCluster"
"""The cluster's tag of old, which the Go provider still reads: its value is the name."""
SERVICE_NAME_TAG: Final = "kubernetes.io/service-name"
""" "namespace/name" of the Service that a load balancer was made for."""
SERVICE_UID_TAG: Final = "kubernetes.io/service-uid"
"""That Service's UID: names are given again, UIDs are not. The Go provider does not set it."""
SUBNET_ROLE_INTERNET_FACING: Final = "kubernetes.io/role/elb"
SUBNET_ROLE_INTERNAL: Final = "kubernetes.io/role/internal-elb"


def is_reserved(key: str) -> bool:
    """Whether a tag of this key means something to AWS, to Kubernetes or to its controllers: a
    Service's owner could give a load balancer away with it, to another cluster, say."""
    domain = f".{key.partition('/')[0]}"
    return (
        key.lower().startswith("aws:")
        or key == LEGACY_CLUSTER_TAG
        or domain.endswith((".kubernetes.io", ".k8s.io", ".k8s.aws"))
    )


def cluster_tag(cluster: str) -> str:
    """The key of the cluster's tag."""
    return CLUSTER_TAG_PREFIX + cluster


def tag_map(tags: Iterable[Mapping[str, object]] | None) -> dict[str, str]:
    """AWS's list of Key and Value as a dict."""
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in tags or ()}


def tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """A dict as AWS's list of Key and Value, ordered by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def belongs_to(tags: Mapping[str, str], cluster: str) -> bool:
    """Whether the thing is the cluster's: the tag is there, with whatever value, as the Go provider
    reads it."""
    return cluster_tag(cluster) in tags


def is_owned(tags: Mapping[str, str], cluster: str) -> bool:
    """Whether the thing is the cluster's alone. Only such a thing is ever deleted."""
    return tags.get(cluster_tag(cluster)) == OWNED
