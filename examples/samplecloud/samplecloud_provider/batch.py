"""InstancesBatch: the machines of many nodes from one listing, so that a thousand nodes cost ten
questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubernetes.client.models.v1_node import V1Node
from typing_extensions import override

from cloudprovider import CloudProviderError, InstanceMetadata, InstancesBatch, InstanceState
from samplecloud_provider.instances import SampleInstances, metadata


class SampleBatch(InstancesBatch):
    """A node that cannot be answered has its error as its value; what concerns the whole listing is
    raised."""

    max_batch = 100

    def __init__(self, instances: SampleInstances) -> None:
        self._instances = instances

    @override
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        found = self._instances.find_all(nodes)
        return {
            name: one if isinstance(one, CloudProviderError) else metadata(one, name) for name, one in found.items()
        }

    @override
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        states = {True: InstanceState.RUNNING, False: InstanceState.SHUTDOWN}
        found = self._instances.find_all(nodes)
        return {
            name: one if isinstance(one, CloudProviderError) else states[one.running] for name, one in found.items()
        }
