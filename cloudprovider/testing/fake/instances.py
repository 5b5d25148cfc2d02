"""The fake cloud's machines as the contract asks for them: one by one, in batches, in the older
form, with SSH keys, and the ranges of their pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from cloudprovider.errors import CloudProviderError, InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.objects import node_name
from cloudprovider.helpers.sshkeys import parse_ssh_public_key
from cloudprovider.instances import InstanceMetadata, Instances, InstancesBatch, InstanceState, InstancesV2
from cloudprovider.podcidrs import PodCIDRs
from cloudprovider.sshkeys import SSHKeys
from cloudprovider.testing.fake.faults import Key
from cloudprovider.testing.fake.gate import Part, carried
from cloudprovider.testing.fake.machines import BadRequest, node_addresses, node_key
from cloudprovider.testing.fake.records import Instance, SSHKey

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_address import V1NodeAddress

R = TypeVar("R")


def _node(_: Any, node: V1Node) -> list[Key]:
    return [node_key(node)]


def _nodes(_: Any, nodes: Sequence[V1Node]) -> list[Key]:
    return [node_key(node) for node in nodes]


class FakeInstancesV2(Part, InstancesV2):
    """One node a call."""

    @override
    @carried(_node)
    def instance_exists(self, node: V1Node) -> bool:
        found = self._machines.of_nodes([node])[node_name(node)]
        # "Not found" is this method's answer False; all else leaves the question open.
        if isinstance(found, CloudProviderError) and not isinstance(found, InstanceNotFound):
            raise found
        return isinstance(found, Instance)

    @override
    @carried(_node)
    def instance_shutdown(self, node: V1Node) -> bool:
        return self._existing(node).shutdown

    @override
    @carried(_node)
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return self._machines.metadata(self._existing(node))

    def _existing(self, node: V1Node) -> Instance:
        found = self._machines.of_nodes([node])[node_name(node)]
        if isinstance(found, CloudProviderError):
            raise found
        return found


class _Batch(Part):
    """Many nodes a call; more than the configured number are refused, as clouds do."""

    @property
    def max_batch(self) -> int:
        """The largest batch that is not refused."""
        return self._config.max_batch

    def _each(self, nodes: Sequence[V1Node], answer: Callable[[Instance], R]) -> dict[str, R | CloudProviderError]:
        # Refused as a whole, as by clouds: a host that cuts too late has to see it.
        if len(nodes) > self.max_batch:
            raise BadRequest(f"{len(nodes)} nodes in a batch, and {self.max_batch} are the most")
        found = self._machines.of_nodes(nodes)
        return {name: one if isinstance(one, CloudProviderError) else answer(one) for name, one in found.items()}


class FakeInstancesBatch(_Batch, InstancesBatch):
    """Metadata and state of many nodes."""

    @override
    @carried(_nodes, batch=True)
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        return self._each(nodes, self._machines.metadata)

    @override
    @carried(_nodes, batch=True)
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        return self._each(nodes, lambda one: InstanceState.SHUTDOWN if one.shutdown else InstanceState.RUNNING)


class FakePodCIDRs(_Batch, PodCIDRs):
    """The ranges of machines' pods, which the configuration and the console choose."""

    @override
    @carried(_nodes, batch=True)
    def pod_cidrs(self, nodes: Sequence[V1Node]) -> Mapping[str, Sequence[str] | CloudProviderError]:
        return self._each(nodes, lambda one: one.pod_cidrs)


class FakeSSHKeys(Part, SSHKeys):
    """Installs keys on the machines that there are. Nothing of a key is logged, nor shown in an
    error."""

    @override
    @carried(changes=True)
    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        try:
            line = parse_ssh_public_key(key_data).line.decode()
        except ValueError as error:
            # Not from the error, whose text quotes a part of the key.
            raise BadRequest(f"the SSH key of {user} is refused: {error}") from None
        known = self._world.ssh_keys.get((user, line))
        # By IDs, as a machine that is made again under a name has no keys.
        wanted = SSHKey(user, line, sorted(instance.id for instance in self._world.instances.values()))
        self._gate.calls.effect("unchanged" if wanted == known else "created" if known is None else "updated")
        self._world.ssh_keys[user, line] = wanted


class FakeKeyedInstancesV2(FakeInstancesV2, FakeSSHKeys):
    """The same, with SSH keys."""


class FakeKeyedInstancesBatch(FakeInstancesBatch, FakeSSHKeys):
    """The same, with SSH keys."""


class FakeInstances(FakeSSHKeys, Instances):
    """The older form: by name or by provider ID."""

    @override
    @carried()
    def node_addresses(self, name: str) -> Sequence[V1NodeAddress]:
        return node_addresses(self._machines.by_name(name).addresses)

    @override
    @carried()
    def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[V1NodeAddress]:
        return node_addresses(self._machines.by_provider_id(provider_id).addresses)

    @override
    @carried()
    def instance_id(self, node_name: str) -> str:
        return self._id(node_name)

    @override
    @carried()
    def external_id(self, node_name: str) -> str:
        return self._id(node_name)

    @override
    @carried()
    def instance_type(self, name: str) -> str:
        return self._machines.by_name(name).type

    @override
    @carried()
    def instance_type_by_provider_id(self, provider_id: str) -> str:
        return self._machines.by_provider_id(provider_id).type

    @override
    @carried()
    def current_node_name(self, hostname: str) -> str:
        return hostname

    @override
    @carried()
    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        try:
            self._machines.by_provider_id(provider_id)
        except InstanceNotFound:
            return False
        return True

    @override
    @carried()
    def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        return self._machines.by_provider_id(provider_id).shutdown

    def _id(self, name: str) -> str:
        instance = self._machines.by_name(name)
        # The host would make a provider ID of it, which no question could ever use.
        if not self._config.provider_ids:
            raise NotImplementedByProvider("this cloud has no provider IDs")
        return instance.id
