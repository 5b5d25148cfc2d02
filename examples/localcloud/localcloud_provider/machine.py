"""LocalInstance: the machine that the program runs on, for `node-info` as it boots.

The cloud knows who asks by the source address, so no token is needed.
"""

from __future__ import annotations

from typing_extensions import override

from cloudprovider import InstanceMetadata, InstanceNotFound, LocalInstance
from localcloud_provider.client import Client, NotFound, path_of
from localcloud_provider.instances import metadata
from localcloud_provider.resources import Machine

_SELF = path_of("self")


class LocalMachine(LocalInstance):
    """What `GET /v1/self` answers."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @override
    def local_metadata(self) -> InstanceMetadata:
        machine = self._machine()
        return metadata(machine, machine.name)

    @override
    def local_node_name(self, hostname: str) -> str:
        return self._machine().name

    def _machine(self) -> Machine:
        try:
            return self._client.get(Machine, _SELF)
        except NotFound as exc:
            raise InstanceNotFound(f"this machine is none of the cloud's: {exc}") from exc
