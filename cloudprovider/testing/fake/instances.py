"""The fake cloud's instances, in all three forms of the contract (stage 5). machines.py finds them in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from cloudprovider.errors import CloudProviderError, InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.objects import node_name
from cloudprovider.helpers.sshkeys import parse_ssh_public_key
from cloudprovider.instances import InstanceMetadata, Instances, InstancesBatch, InstanceState, InstancesV2
from cloudprovider.sshkeys import SSHKeys
from cloudprovider.testing.fake.errors import BadRequest
from cloudprovider.testing.fake.gate import Gate, Work
from cloudprovider.testing.fake.machines import Machines, node_addresses, node_key
from cloudprovider.testing.fake.records import INSTANCES, SSH_KEYS, Instance, SSHKey
from cloudprovider.testing.fake.store import Transaction, View

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_address import V1NodeAddress

__all__ = [
    "FakeInstances",
    "FakeInstancesBatch",
    "FakeInstancesV2",
    "FakeKeyedInstancesBatch",
    "FakeKeyedInstancesV2",
]

R = TypeVar("R")


class FakeInstancesV2(InstancesV2):
    """One node a call."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def instance_exists(self, node: V1Node) -> bool:
        def answer(found: Instance | CloudProviderError) -> bool:
            if isinstance(found, CloudProviderError) and not isinstance(found, InstanceNotFound):
                raise found
            return isinstance(found, Instance)

        return self._ask("instance_exists", node, answer)

    def instance_shutdown(self, node: V1Node) -> bool:
        return self._ask("instance_shutdown", node, lambda found: _existing(found).shutdown)

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return self._ask("instance_metadata", node, lambda found: self._machines.metadata(_existing(found)))

    def _ask(self, method: str, node: V1Node, answer: Callable[[Instance | CloudProviderError], R]) -> R:
        def work(view: View) -> R:
            return answer(self._machines.by_nodes(view, [node_key(node)])[node_name(node)])

        return self._machines.ask(method, [node], work, [node])


def _existing(found: Instance | CloudProviderError) -> Instance:
    if isinstance(found, CloudProviderError):
        raise found
    return found


class FakeInstancesBatch(InstancesBatch):
    """Many nodes a call; more than the configured number are refused, as clouds do."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    @property
    def max_batch(self) -> int:
        """The largest batch that is not refused."""
        return self._machines.config.max_batch

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        return self._ask("instances_metadata", nodes, self._machines.metadata)

    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        return self._ask(
            "instances_state",
            nodes,
            lambda instance: InstanceState.SHUTDOWN if instance.shutdown else InstanceState.RUNNING,
        )

    def _ask(
        self, method: str, nodes: Sequence[V1Node], answer: Callable[[Instance], R]
    ) -> dict[str, R | CloudProviderError]:
        def work(view: View) -> dict[str, R | CloudProviderError]:
            if len(nodes) > self.max_batch:
                raise BadRequest(f"{len(nodes)} nodes in a batch, and {self.max_batch} are the most")
            found = self._machines.by_nodes(view, [node_key(node) for node in nodes])
            return {name: one if isinstance(one, CloudProviderError) else answer(one) for name, one in found.items()}

        return self._machines.ask(method, nodes, work, list(nodes))


class FakeSSHKeys(SSHKeys):
    """Installs keys on the machines that there are. Nothing of a key is logged, nor told in an error."""

    _gate: Gate

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        def work(tx: Transaction, call: Work) -> None:
            try:
                line = parse_ssh_public_key(key_data).line.decode()
            except ValueError as error:
                raise BadRequest(f"the SSH key of {user} is refused: {error}") from None
            key = f"{user} {line}"
            known = tx.get(SSH_KEYS, key)
            wanted = SSHKey(user, line, sorted(instance.id for instance in tx.scan(INSTANCES)))
            if wanted == known:
                call.effect = "unchanged"
                return
            call.effect = "created" if known is None else "updated"
            tx.put(SSH_KEYS, key, wanted)

        self._gate.write("add_ssh_key_to_all_instances", [(user,)], work)


class FakeKeyedInstancesV2(FakeInstancesV2, FakeSSHKeys):
    """The same, with SSH keys."""

    def __init__(self, machines: Machines, gate: Gate) -> None:
        super().__init__(machines)
        self._gate = gate


class FakeKeyedInstancesBatch(FakeInstancesBatch, FakeSSHKeys):
    """The same, with SSH keys."""

    def __init__(self, machines: Machines, gate: Gate) -> None:
        super().__init__(machines)
        self._gate = gate


class FakeInstances(FakeSSHKeys, Instances):
    """The older form: by name or by provider ID."""

    def __init__(self, machines: Machines, gate: Gate) -> None:
        self._machines = machines
        self._gate = gate

    def node_addresses(self, name: str) -> Sequence[V1NodeAddress]:
        return self._machines.ask_name("node_addresses", name, lambda one: node_addresses(one.addresses))

    def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[V1NodeAddress]:
        return self._machines.ask_provider_id(
            "node_addresses_by_provider_id", provider_id, lambda one: node_addresses(one.addresses)
        )

    def instance_id(self, node_name: str) -> str:
        return self._machines.ask_name("instance_id", node_name, self._id)

    def external_id(self, node_name: str) -> str:
        return self._machines.ask_name("external_id", node_name, self._id)

    def instance_type(self, name: str) -> str:
        return self._machines.ask_name("instance_type", name, lambda one: one.type)

    def instance_type_by_provider_id(self, provider_id: str) -> str:
        return self._machines.ask_provider_id("instance_type_by_provider_id", provider_id, lambda one: one.type)

    def current_node_name(self, hostname: str) -> str:
        return self._gate.read("current_node_name", [(hostname,)], lambda _: hostname)

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        return self._machines.ask_provider_id(
            "instance_exists_by_provider_id", provider_id, lambda _: True, absent=False
        )

    def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        return self._machines.ask_provider_id("instance_shutdown_by_provider_id", provider_id, lambda one: one.shutdown)

    def _id(self, instance: Instance) -> str:
        if not self._machines.config.provider_ids:
            raise NotImplementedByProvider("this cloud has no provider IDs")
        return instance.id
