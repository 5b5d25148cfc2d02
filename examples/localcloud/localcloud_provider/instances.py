"""InstancesV2, InstancesBatch and SSHKeys: what a node's machine is, and who may log in there.

Every question is a listing, also about one machine. The API answers it whole, so a machine that is
not in the answer is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kubernetes.client.models.v1_node_address import V1NodeAddress
from typing_extensions import override

from cloudprovider import (
    CloudProviderError,
    InstanceMetadata,
    InstanceState,
    Machines,
    SSHKeys,
    Taint,
)
from cloudprovider.helpers import format_provider_id, label_value, parse_ssh_public_key
from localcloud_provider import resources
from localcloud_provider.client import Client, path_of
from localcloud_provider.resources import Keys, Machine

PROVIDER = "localcloud"
"""Before "://" in provider IDs: must never change."""

_MACHINES = path_of("machines")
_MACHINE_ID = re.compile(r"m[0-9]{1,6}")


class LocalInstances(Machines[Machine], SSHKeys):
    """The cloud's machines; `Machines` makes `InstancesV2` and `InstancesBatch` of them."""

    provider = PROVIDER

    def __init__(self, client: Client) -> None:
        self._client = client

    @override
    def machine(self, machine_id: str) -> Machine | None:
        found = self._list({"id": machine_id})
        return next((one for one in found if one.id == machine_id), None)

    @override
    def machines(self, name: str = "") -> Sequence[Machine]:
        return self._list({"name": name} if name else {})

    @override
    def state(self, machine: Machine) -> InstanceState:
        return InstanceState.SHUTDOWN if machine.state == "stopped" else InstanceState.RUNNING

    @override
    def metadata(self, machine: Machine, node: str) -> InstanceMetadata:
        return metadata(machine, node)

    @override
    def id_in(self, provider_id: str) -> str:
        found = super().id_in(provider_id)
        if not _MACHINE_ID.fullmatch(found):  # what this cloud never gives is unknown to us, which is not "gone"
            raise CloudProviderError(f"{provider_id} is no machine of this cloud: {PROVIDER}://m and a number")
        return found

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

    def _list(self, fields: Mapping[str, str]) -> Sequence[Machine]:
        # Another request may follow, for the next node or to create a route.
        return self._client.get(resources.Machines, _MACHINES, fields, calls=2).machines


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
