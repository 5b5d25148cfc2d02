"""InstancesV2, SSHKeys and Zones: what a node's machine is, who may log in there, and where it
stands.

The foreign errors of the cloud become the contract's in one place, `answered`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from attrs import evolve
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from typing_extensions import override

from cloudprovider import (
    CallInterrupted,
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesV2,
    NotImplementedByProvider,
    SSHKeys,
    Zone,
    Zones,  # pyright: ignore[reportDeprecated]
    current_call,
)
from cloudprovider.helpers import (
    format_provider_id,
    label_value,
    node_name,
    parse_provider_id,
    parse_ssh_public_key,
    provider_id_of,
)
from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_IP, NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_IP
from samplecloud_provider.cloud import (
    Cloud,
    CloudBroken,
    Document,
    Instance,
    NoSuchBalancer,
    NoSuchCluster,
    NoSuchThing,
    RangeExhausted,
)

PROVIDER = "samplecloud"
"""Before "://" in provider IDs: must never change."""


@contextmanager
def answered() -> Generator[None]:
    """Turns what the cloud raises into what the contract knows. Only a clear "no such machine"
    means gone."""
    current_call().check()
    try:
        yield
    except NoSuchThing as exc:
        raise InstanceNotFound(str(exc)) from exc
    except (CloudBroken, NoSuchBalancer, NoSuchCluster, RangeExhausted) as exc:
        raise CloudProviderError(str(exc)) from exc


class SampleInstances(InstancesV2, SSHKeys, Zones):  # pyright: ignore[reportDeprecated]
    """Machines, found by provider ID, or by name while a node has none yet."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @override
    def instance_exists(self, node: V1Node) -> bool:
        try:
            self.find(node)
        except InstanceNotFound:
            return False
        return True

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        return not self.find(node).running

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return metadata(self.find(node), node_name(node))

    @override
    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        try:
            entry = f"{user} {parse_ssh_public_key(key_data).line.decode()}"
        except ValueError as exc:
            raise CloudProviderError(f"the SSH key of {user} is refused: {exc}") from exc
        with answered(), self._cloud.document() as document:
            for key, instance in document.instances.items():
                if entry not in instance.ssh_keys:
                    document.instances[key] = evolve(instance, ssh_keys=[*instance.ssh_keys, entry])

    @override
    def get_zone(self) -> Zone:
        raise NotImplementedByProvider("this program may run anywhere")

    @override
    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        return _zone(self._by_id(provider_id))

    @override
    def get_zone_by_node_name(self, node_name: str) -> Zone:
        with answered():
            return _zone(self._cloud.instance_named(node_name))

    def find(self, node: V1Node) -> Instance:
        """The node's machine. Raises `InstanceNotFound` only when the cloud said that there is
        none."""
        with answered(), self._cloud.document() as document:
            return machine(document, provider_id_of(node), node_name(node))

    def find_all(self, nodes: Sequence[V1Node]) -> dict[str, Instance | CloudProviderError]:
        """The machines of many nodes from one listing, by node name; what concerns one node alone
        is its value."""
        with answered(), self._cloud.document() as document:
            return {node_name(node): _machine_or_error(document, node) for node in nodes}

    def _by_id(self, provider_id: str) -> Instance:
        with answered(), self._cloud.document() as document:
            return document.instance(instance_id(provider_id))


def machine(document: Document, provider_id: str, name: str) -> Instance:
    """The machine of a node: by provider ID, as its name may change, or by name while the node has
    none. Raises `NoSuchThing`."""
    return document.instance(instance_id(provider_id)) if provider_id else document.instance_named(name)


def _machine_or_error(document: Document, node: V1Node) -> Instance | CloudProviderError:
    try:
        with answered():
            return machine(document, provider_id_of(node), node_name(node))
    except CallInterrupted:  # nobody waits for the rest
        raise
    except CloudProviderError as error:
        return error


def instance_id(provider_id: str) -> str:
    """The cloud's ID in a provider ID. Raises `CloudProviderError` for what this cloud never
    gives."""
    try:
        parsed = parse_provider_id(provider_id)
    except ValueError as exc:
        raise CloudProviderError(f"cannot read the provider ID: {exc}") from exc
    if parsed.provider != PROVIDER:
        raise CloudProviderError(f"{provider_id} belongs to another provider")  # unknown to us, which is not "gone"
    return parsed.instance


def metadata(instance: Instance, node: str) -> InstanceMetadata:
    """What the node of this machine gets. Its name is its Hostname, whatever the machine is called
    in the cloud today."""
    return InstanceMetadata(
        provider_id=format_provider_id(PROVIDER, instance.id),
        instance_type=label_value(instance.type),
        node_addresses=_addresses(instance, node),
        zone=label_value(instance.zone),
        region=label_value(instance.region),
        additional_labels={"samplecloud.example/instance": instance.id},
    )


def _addresses(instance: Instance, node: str) -> list[V1NodeAddress]:
    listed = [(NODE_ADDRESS_INTERNAL_IP, address) for address in instance.addresses]
    listed += [(NODE_ADDRESS_EXTERNAL_IP, address) for address in instance.public_addresses]
    listed.append((NODE_ADDRESS_HOSTNAME, node))
    return [V1NodeAddress(type=kind, address=address) for kind, address in listed]


def _zone(instance: Instance) -> Zone:
    return Zone(failure_domain=instance.zone, region=instance.region)
