"""InstancesV2, InstancesBatch and SSHKeys: what a node's machine is, and who may log in there.

Every question is a listing, also about one machine. The API answers it whole, so a machine that is
not in the answer is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from typing_extensions import override

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceNotFound,
    InstancesBatch,
    InstanceState,
    InstancesV2,
    SSHKeys,
    Taint,
)
from cloudprovider.helpers import (
    format_provider_id,
    label_value,
    node_name,
    parse_provider_id,
    parse_ssh_public_key,
    provider_id_of,
)
from localcloud_provider.client import Client, path_of
from localcloud_provider.resources import Keys, Machine, Machines

PROVIDER = "localcloud"
"""Before "://" in provider IDs: must never change."""

_MACHINES = path_of("machines")
_MACHINE_ID = re.compile(r"m[0-9]{1,6}")


class LocalInstances(InstancesV2, InstancesBatch, SSHKeys):
    """Machines, found by provider ID, or by name while a node has none yet."""

    max_batch = 100

    def __init__(self, client: Client) -> None:
        self._client = client

    @override
    def instance_exists(self, node: V1Node) -> bool:
        try:
            self._find(node)
        except InstanceNotFound:
            return False
        return True

    @override
    def instance_shutdown(self, node: V1Node) -> bool:
        return self._find(node).state == "stopped"

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return metadata(self._find(node), node_name(node))

    @override
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        found = self._find_all(nodes)
        return {
            name: one if isinstance(one, CloudProviderError) else metadata(one, name) for name, one in found.items()
        }

    @override
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        states = {"running": InstanceState.RUNNING, "stopped": InstanceState.SHUTDOWN}
        return {
            name: one if isinstance(one, CloudProviderError) else states[one.state]
            for name, one in self._find_all(nodes).items()
        }

    @override
    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        """The cloud keeps the keys for the whole account and brings them to new machines by
        itself."""
        try:
            key = parse_ssh_public_key(key_data).line.decode()
        except ValueError as exc:
            raise CloudProviderError(f"the SSH key of {user} is refused: {exc}") from exc
        path = path_of("sshkeys", user)
        present = self._client.get(Keys, path, calls=2).keys
        if key not in present:
            self._client.put(Keys, path, {"keys": [*present, key]})

    def _find(self, node: V1Node) -> Machine:
        found = self._find_all([node])[node_name(node)]
        if isinstance(found, CloudProviderError):
            raise found
        return found

    def _find_all(self, nodes: Sequence[V1Node]) -> dict[str, Machine | CloudProviderError]:
        """The machines by node name, from one listing by ID and one by name. What concerns one node
        alone is its value; what concerns the listing is raised."""
        answers: dict[str, Machine | CloudProviderError] = {}
        ids: dict[str, str] = {}
        names: dict[str, str] = {}
        for node in nodes:
            name = node_name(node)
            if not (provider_id := provider_id_of(node)):
                names[name] = name
                continue
            try:
                ids[name] = machine_id(provider_id)
            except CloudProviderError as error:
                answers[name] = error
        # The name says whose question it was; a node with an ID is never looked for by name.
        requests = [(field, asked) for field, asked in (("id", ids), ("name", names)) if asked]
        for number, (field, asked) in enumerate(requests):
            machines = self._list(field, asked.values(), calls=len(requests) - number)
            by_key = {one.id if field == "id" else one.name: one for one in machines}
            for name, key in asked.items():
                answers[name] = by_key.get(key) or InstanceNotFound(f"the cloud has no machine with the {field} {key}")
        return answers

    def _list(self, field: str, values: Iterable[str], *, calls: int) -> Sequence[Machine]:
        return self._client.get(Machines, _MACHINES, {field: ",".join(values)}, calls=calls).machines


def find(client: Client, provider_id: str, name: str, *, calls: int) -> Machine:
    """The machine of a node: by provider ID, or by name while it has none. Raises
    `InstanceNotFound`."""
    field, key = ("id", machine_id(provider_id)) if provider_id else ("name", name)
    machines = client.get(Machines, _MACHINES, {field: key}, calls=calls).machines
    for one in machines:
        if key == (one.id if provider_id else one.name):
            return one
    raise InstanceNotFound(f"the cloud has no machine with the {field} {key}")


def machine_id(provider_id: str) -> str:
    """The cloud's ID of a machine. Raises `CloudProviderError` for what this cloud never gives:
    that is unknown to us, which is not "gone"."""
    try:
        parsed = parse_provider_id(provider_id)
    except ValueError as exc:
        raise CloudProviderError(f"cannot read the provider ID: {exc}") from exc
    if parsed.provider != PROVIDER or not _MACHINE_ID.fullmatch(parsed.instance):
        raise CloudProviderError(f"{provider_id} is no machine of this cloud: {PROVIDER}://m and a number")
    return parsed.instance


def is_ours(provider_id: str) -> bool:
    """Whether this is the provider ID of a machine of this cloud, be it there or not."""
    try:
        machine_id(provider_id)
    except CloudProviderError:
        return False
    return True


def metadata(machine: Machine, node: str) -> InstanceMetadata:
    """What the node of this machine gets; its name is its Hostname."""
    addresses = ((one.type, node if one.type == "Hostname" else one.address) for one in machine.addresses)
    return InstanceMetadata(
        provider_id=format_provider_id(PROVIDER, machine.id),
        instance_type=label_value(machine.type),
        node_addresses=[V1NodeAddress(type=kind, address=address) for kind, address in addresses],
        zone=label_value(machine.zone),
        region=label_value(machine.region),
        taints=[_taint(one) for one in machine.taints],
        annotations=machine.annotations,
    )


def _taint(text: str) -> Taint:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key=key, value=value, effect=effect)
