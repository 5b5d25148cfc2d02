"""InstancesV2 and InstancesBatch: what a node's EC2 instance is, and whether it is still there.

The batch is the one way to ask; a single node is a batch of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kubernetes.client.models.v1_node import V1Node
from typing_extensions import override

from aws_provider.clients import Clients
from aws_provider.errors import answered
from aws_provider.finder import InstanceFinder
from aws_provider.metadata import metadata, state
from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesBatch,
    InstanceState,
    InstancesV2,
)

T = TypeVar("T")


class ZoneIDs:
    """The IDs of the region's zones, by name. Asked once, and again when a zone is unknown.
    Thread-safe."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._known: Mapping[str, str] = {}

    def load(self) -> None:
        """Ask AWS. Raises what botocore raises."""
        zones = self._clients.ec2.describe_availability_zones()["AvailabilityZones"]
        self._known = {zone.get("ZoneName", ""): zone.get("ZoneId", "") for zone in zones}

    def of(self, zone: str) -> str:
        """The zone's ID, "" where AWS names none. Raises what botocore raises."""
        if zone not in self._known:
            self.load()
        return self._known.get(zone, "")


class AWSInstances(InstancesV2, InstancesBatch):
    """EC2 instances, found by provider ID, or by name while a node has none."""

    max_batch = 200

    def __init__(self, finder: InstanceFinder, zone_ids: ZoneIDs) -> None:
        self._finder = finder
        self._zone_ids = zone_ids

    @override
    def instance_exists(self, node: V1Node) -> bool:
        try:
            return _only(self.instances_state([node])) is not InstanceState.GONE
        except InstanceNotFound:
            return False

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        found = _only(self.instances_state([node]))
        if found is InstanceState.GONE:
            raise InstanceNotFound("EC2 says that the instance is terminated")
        return found is InstanceState.SHUTDOWN

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return _only(self.instances_metadata([node]))

    @override
    @answered()
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        return {
            name: found if isinstance(found, CloudProviderError) else state(found)
            for name, found in self._finder.find(nodes).items()
        }

    @override
    @answered()
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        result: dict[str, InstanceMetadata | CloudProviderError] = {}
        for name, found in self._finder.find(nodes).items():
            if isinstance(found, CloudProviderError):
                result[name] = found
            elif state(found) is InstanceState.GONE:
                result[name] = InstanceNotFound(f"EC2 says that {found.get('InstanceId', '')} is terminated")
            else:
                zone_id = self._zone_ids.of(found.get("Placement", {}).get("AvailabilityZone", ""))
                result[name] = metadata(found, self._finder.clients.region, zone_id)
        return result


def _only(answers: Mapping[str, T | CloudProviderError]) -> T:
    [answer] = answers.values()
    if isinstance(answer, CloudProviderError):
        raise answer
    return answer
