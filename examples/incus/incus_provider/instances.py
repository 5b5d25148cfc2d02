"""InstancesV2 and InstancesBatch: what a node's instance is, and whether it is still there.

Every question is one listing of the project, also about one instance. The API answers it whole, so
an instance that is not in the answer is gone, if the project is still there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kubernetes.client.models.v1_node import V1Node
from typing_extensions import override

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesBatch,
    InstanceState,
    InstancesV2,
)
from cloudprovider.helpers import node_name, provider_id_of
from incus_provider.client import Client, path_of
from incus_provider.config import Config
from incus_provider.machine import metadata, state, uuid_of
from incus_provider.resources import Instance

T = TypeVar("T")

INSTANCES = path_of("instances")


def listed(client: Client, *, with_state: bool = False, calls: int = 1) -> tuple[Instance, ...]:
    """The project's instances; `with_state` costs the server a look into each one that runs. Raises
    `CloudProviderError`."""
    return client.get(tuple[Instance, ...], INSTANCES, calls=calls, recursion="2" if with_state else "1")


class IncusInstances(InstancesV2, InstancesBatch):
    """Instances, found by UUID, or by name while a node has no provider ID yet."""

    max_batch = 500  # a listing is as large for one node as for all

    def __init__(self, client: Client, config: Config) -> None:
        self._client = client
        self._config = config

    @override
    def instance_exists(self, node: V1Node) -> bool:
        try:
            _only(self._find([node]))
        except InstanceNotFound:
            return False
        return True

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        return state(_only(self._find([node]))) is InstanceState.SHUTDOWN

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return _only(self.instances_metadata([node]))

    @override
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        found = self._find(nodes)
        return {name: one if isinstance(one, CloudProviderError) else state(one) for name, one in found.items()}

    @override
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        found = self._find(nodes, with_state=True)
        return {
            name: one if isinstance(one, CloudProviderError) else self._metadata(name, one)
            for name, one in found.items()
        }

    def _metadata(self, node: str, instance: Instance) -> InstanceMetadata | CloudProviderError:
        config = self._config
        try:
            return metadata(node, config.project, instance, config.region, config.network)
        except CloudProviderError as error:  # of this instance alone
            return error

    def _find(self, nodes: Sequence[V1Node], *, with_state: bool = False) -> dict[str, Instance | CloudProviderError]:
        """The instances by node name. What concerns one node alone is its value; what concerns the
        listing is raised."""
        instances = listed(self._client, with_state=with_state, calls=2)
        by_uuid = {one.uuid: one for one in instances if one.uuid}
        by_name = {one.name: one for one in instances}
        answers: dict[str, Instance | CloudProviderError] = {}
        for node in nodes:
            name, provider_id = node_name(node), provider_id_of(node)
            try:
                found = by_uuid.get(uuid_of(provider_id, self._client.project)) if provider_id else by_name.get(name)
            except CloudProviderError as error:
                answers[name] = error
                continue
            answers[name] = found or InstanceNotFound(
                f"the project {self._client.project} has no instance "
                + (f"with the ID {provider_id}" if provider_id else f"of the name {name}")
            )
        if any(isinstance(answer, InstanceNotFound) for answer in answers.values()):
            self._client.check_project()
        return answers


def _only(answers: Mapping[str, T | CloudProviderError]) -> T:
    [answer] = answers.values()
    if isinstance(answer, CloudProviderError):
        raise answer
    return answer
