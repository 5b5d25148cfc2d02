"""How the capabilities find machines in the world: by provider ID, by name, or by making them
appear.

Shared by instances, zones, load balancers and routes. A node with a provider ID is looked up by
that alone. The caller holds the world's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.errors import CloudProviderError, InstanceNotFound, NotImplementedByProvider
from cloudprovider.helpers.addresses import provided_node_ip
from cloudprovider.helpers.objects import addresses_of, node_name
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.instances import InstanceMetadata, Taint
from cloudprovider.ips import parse_ip
from cloudprovider.testing.fake.config import FakeConfig
from cloudprovider.testing.fake.methods import matches
from cloudprovider.testing.fake.records import Address, Instance, World

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node


def node_key(node: V1Node) -> tuple[str, str]:
    """The node's name and provider ID."""
    return node_name(node), provider_id_of(node)


def node_addresses(addresses: Iterable[Address]) -> tuple[V1NodeAddress, ...]:
    """Addresses as the contract wants them; new objects every time, as the caller may change
    them."""
    return tuple([V1NodeAddress(type=kind, address=address) for kind, address in addresses])


class BadRequest(CloudProviderError):
    """The fake cloud refuses the request as it stands: an unknown load balancer, a CIDR that is none,
    a batch too long. Repeating it unchanged fails again; it never means "gone"."""


class Machines:
    """Finds machines of one cloud."""

    def __init__(self, config: FakeConfig, world: World) -> None:
        self.config = config
        self.world = world
        self._prefix = f"{config.provider}://"

    def provider_id(self, instance: Instance) -> str:
        """The machine's provider ID; empty in a cloud without."""
        return self._prefix + instance.id if self.config.provider_ids else ""

    def metadata(self, instance: Instance) -> InstanceMetadata:
        """What the cloud says of the machine."""
        return InstanceMetadata(
            provider_id=self.provider_id(instance),
            instance_type=instance.type,
            node_addresses=node_addresses(instance.addresses),
            zone=instance.zone,
            region=instance.region,
            additional_labels=instance.labels,
            taints=[Taint(key, effect, value) for key, value, effect in instance.taints],
            annotations=instance.annotations,
        )

    def of_nodes(self, nodes: Sequence[V1Node]) -> dict[str, Instance | CloudProviderError]:
        """By node name, its machine, or why there is none; those that appear when they are asked
        about do so."""
        # All of them first: an answer must not depend on the order of a batch.
        for node in nodes:
            self._appear(*node_key(node), node)
        return {node_name(node): self.by_key(*node_key(node)) for node in nodes}

    def by_key(self, name: str, provider_id: str) -> Instance | CloudProviderError:
        """The machine of a node, or why there is none."""
        try:
            # By the ID alone where there is one: its machine may have got another name.
            if provider_id and self.config.provider_ids:
                return self.by_provider_id(provider_id)
            return self.by_name(name)
        except CloudProviderError as error:
            return error

    def by_name(self, name: str) -> Instance:
        """Raises `InstanceNotFound`."""
        self._appear(name, "", None)
        instance = self.world.instances.get(name)
        if instance is None:
            raise InstanceNotFound(f"no instance {name}")
        return instance

    def by_provider_id(self, provider_id: str) -> Instance:
        """Raises `InstanceNotFound`; `NotImplementedByProvider` in a cloud without provider IDs."""
        if not self.config.provider_ids:
            raise NotImplementedByProvider("this cloud has no provider IDs")
        if not provider_id.startswith(self._prefix):
            raise BadRequest(f"{provider_id} is not of this cloud: whether it exists is unknown here")
        instance_id = provider_id.removeprefix(self._prefix)
        # Of an ID alone, the name is only known where the ID was made from it.
        self._appear(instance_id.removeprefix("i-") if instance_id.startswith("i-") else "", provider_id, None)
        instance = self.world.by_id(instance_id)
        if instance is None:
            raise InstanceNotFound(f"no instance {provider_id}")
        return instance

    def _appear(self, name: str, provider_id: str, node: V1Node | None) -> None:
        """Make a machine that appears because it is asked about.

        A node that has an ID of this cloud already, from a run before this one, keeps it.
        """
        template, world = self.config.on_demand, self.world
        # One that was removed stays away, or no node would ever be deleted in a demonstration.
        if template is None or not matches(template.names, (name,)) or name in world.instances or name in world.removed:
            return
        # Another cloud's machine: "gone" would delete its node.
        if provider_id and not provider_id.startswith(self._prefix):
            return
        instance = template.instance(name, world.appeared, _brought(node) if node is not None else ())
        world.appeared += 1
        world.put_instance(
            evolve(instance, id=provider_id.removeprefix(self._prefix) if self.config.provider_ids else "")
        )


def _brought(node: V1Node) -> tuple[Address, ...]:
    """The IPs that a node brings along: those that its kubelet was given, or else those that it
    has."""
    provided = provided_node_ip(node)
    if provided:
        # The kubelet insists on these: the node would stay tainted without them.
        return tuple(("InternalIP", text.strip()) for text in provided.split(",") if parse_ip(text.strip()) is not None)
    return tuple((one.type, one.address) for one in addresses_of(node) if one.type.endswith("IP"))
