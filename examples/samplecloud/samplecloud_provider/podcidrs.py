"""PodCIDRs: the ranges of pod addresses that the cloud chose. Asked with
--cidr-allocator-type=CloudAllocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubernetes.client.models.v1_node import V1Node
from typing_extensions import override

from cloudprovider import CloudProviderError, PodCIDRs
from samplecloud_provider.instances import SampleInstances


class SamplePodCIDRs(PodCIDRs):
    """As the machines have them. A node that cannot be answered has its error as its value."""

    max_batch = 100

    def __init__(self, instances: SampleInstances) -> None:
        self._instances = instances

    @override
    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Mapping[str, Sequence[str] | CloudProviderError]:
        found = self._instances.find_all(nodes)  # one listing
        return {name: one if isinstance(one, CloudProviderError) else one.pod_cidrs for name, one in found.items()}
