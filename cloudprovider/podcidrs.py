"""PodCIDRs: the ranges of pod addresses that the cloud itself chose for its machines (stage 5,
cloud call).

Asked by node-ipam-controller with `--cidr-allocator-type=CloudAllocator`, through the gateway; an
answer becomes a node's `spec.podCIDRs`, once. Where the cluster chooses the ranges itself, nothing
asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.errors import CloudProviderError

__all__ = ["PodCIDRs"]


class PodCIDRs(ABC):
    """The pod CIDRs of many nodes in one call. Optional; for clouds that route a range to each
    machine.

    May be called from many threads at once, and again at any time; changes nothing in the cloud.
    The nodes are read-only. Find a machine by `node.spec.provider_id` first, as
    `InstancesV2` does.

    Ours; in Go a cloud's IPAM controller asks its API itself (CloudCIDRAllocator in
    cloud-provider-gcp).
    """

    max_batch: Any = 100
    """The largest number of nodes that one call may carry, an int of at least 1: the cloud's page
    size is a good value. Set it in the class, in `__init__`, or write a property, as for
    `InstancesBatch`; the host reads it once."""

    @abstractmethod
    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Mapping[str, Sequence[str] | CloudProviderError]:
        """By node name (`node.metadata.name`), the ranges of its pods: one of each IP family, as in
        "10.244.1.0/24".

        Gets up to `max_batch` nodes with distinct names. The first range becomes `spec.podCIDR`;
        the order is that of the cluster's families. **A node's ranges can never be changed once
        they are written**: answer only what is final. An empty sequence means that the cloud has
        not chosen yet; the host asks again later. A missing name means unknown. A value that is an
        error concerns only its node, `InstanceNotFound` for a machine that does not exist; a raised
        exception concerns all nodes of the call, and the host then asks about fewer at once.

        No two machines may have ranges that overlap: the second node that is answered so gets none,
        and gets the reason.
        """
