"""InstancesV2, InstancesBatch, SSHKeys and Zones: what a node's machine is, who may log in there,
and where it stands.

The foreign errors of the cloud become the contract's in one place, `answered`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from attrs import evolve
from kubernetes.client.models.v1_node_address import V1NodeAddress
from typing_extensions import override

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceState,
    Machines,
    NotImplementedByProvider,
    SSHKeys,
    Zone,
    Zones,  # pyright: ignore[reportDeprecated]
    current_call,
)
from cloudprovider.helpers import label_value, parse_ssh_public_key
from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_IP, NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_IP
from samplecloud_provider.cloud import Cloud, CloudBroken, Instance, NoSuchBalancer, NoSuchCluster, RangeExhausted

PROVIDER = "samplecloud"
"""Before "://" in provider IDs: must never change."""


@contextmanager
def answered() -> Generator[None]:
    """Turns what the cloud raises into what the contract knows."""
    current_call().check()
    try:
        yield
    except (CloudBroken, NoSuchBalancer, NoSuchCluster, RangeExhausted) as exc:
        raise CloudProviderError(str(exc)) from exc


class SampleInstances(Machines[Instance], SSHKeys, Zones):  # pyright: ignore[reportDeprecated]
    """The cloud's machines; `Machines` makes `InstancesV2` and `InstancesBatch` of them."""

    provider = PROVIDER

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @override
    def machine(self, machine_id: str) -> Instance | None:
        with answered(), self._cloud.document() as document:
            return document.instances.get(machine_id)

    @override
    def machines(self, name: str = "") -> Sequence[Instance]:
        with answered(), self._cloud.document() as document:
            return [one for one in document.instances.values() if name in ("", one.name)]

    @override
    def state(self, machine: Instance) -> InstanceState:
        return InstanceState.RUNNING if machine.running else InstanceState.SHUTDOWN

    @override
    def metadata(self, machine: Instance, node: str) -> InstanceMetadata:
        return InstanceMetadata(
            provider_id=self.provider_id(machine.id),
            instance_type=label_value(machine.type),
            node_addresses=_addresses(machine, node),
            zone=label_value(machine.zone),
            region=label_value(machine.region),
            additional_labels={"samplecloud.example/instance": machine.id},
        )

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
        return _zone(self.find(provider_id, ""))

    @override
    def get_zone_by_node_name(self, node_name: str) -> Zone:
        return _zone(self.find("", node_name))


def _addresses(instance: Instance, node: str) -> list[V1NodeAddress]:
    listed = [(NODE_ADDRESS_INTERNAL_IP, address) for address in instance.addresses]
    listed += [(NODE_ADDRESS_EXTERNAL_IP, address) for address in instance.public_addresses]
    listed.append((NODE_ADDRESS_HOSTNAME, node))
    return [V1NodeAddress(type=kind, address=address) for kind, address in listed]


def _zone(instance: Instance) -> Zone:
    return Zone(failure_domain=instance.zone, region=instance.region)
