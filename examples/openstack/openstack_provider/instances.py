"""InstancesV2 and InstancesBatch: what a node's server is, and whether it is still there.

The batch is the one way to ask; a single node is a batch of one. A refresh of any number of nodes
costs a page of servers and a page of ports for each 1,000 of them.
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
from cloudprovider.helpers import label_value, node_name, provider_id_of
from openstack_provider.addresses import Interfaces, addresses
from openstack_provider.errors import answered
from openstack_provider.rest import JSON
from openstack_provider.servers import PROVIDER, Located, Servers

T = TypeVar("T")

_STATES = {
    # Whoever deleted it may restore it for some time, and its kubelet then makes its node again.
    "DELETED": InstanceState.GONE,
    "SOFT_DELETED": InstanceState.GONE,
    # Switched off: no process of the node can go on from where it was.
    "SHUTOFF": InstanceState.SHUTDOWN,
    "SHELVED": InstanceState.SHUTDOWN,
    "SHELVED_OFFLOADED": InstanceState.SHUTDOWN,
}
"""All others run, or may go on running at any moment with what is in their memory: PAUSED and
SUSPENDED do, RESCUE has its disks in use, and of ERROR and UNKNOWN nothing is known."""


class OpenStackInstances(InstancesV2, InstancesBatch):
    """Nova's servers."""

    max_batch = 1000

    def __init__(self, servers: Servers, *, regional: bool) -> None:
        """`regional`: provider IDs name the region, as with the Go manager's OS_CCM_REGIONAL."""
        self._servers = servers
        self._regional = regional

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
            raise InstanceNotFound(f"Nova says that the server of {node_name(node)} is deleted")
        return found is InstanceState.SHUTDOWN

    @override
    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        return _only(self.instances_metadata([node]))

    @override
    @answered()
    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        found = self._servers.find(nodes)
        return {name: state(one.server) if isinstance(one, Located) else one for name, one in found.items()}

    @override
    @answered()
    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        found = self._servers.find(nodes)
        interfaces = self._servers.interfaces([one for one in found.values() if isinstance(one, Located)])
        ids = {node_name(node): provider_id_of(node) for node in nodes}
        result: dict[str, InstanceMetadata | CloudProviderError] = {}
        for name, one in found.items():
            if not isinstance(one, Located):
                result[name] = one
            elif state(one.server) is InstanceState.GONE:
                result[name] = InstanceNotFound(f"Nova says that the server {one.server['id']} is deleted")
            elif "addresses" not in one.server:
                result[name] = CloudProviderError(
                    f"Nova knows that the server {one.server['id']} is there, and no more: its cell is down"
                )
            else:
                result[name] = self._metadata(one, interfaces[one.server["id"]], ids[name])
        return result

    def provider_id(self, server: str, region: str) -> str:
        """ "openstack:///<id>", or "openstack://<region>/<id>"."""
        return f"{PROVIDER}://{region if self._regional else ''}/{server}"

    def _metadata(self, found: Located, interfaces: Interfaces, provider_id: str) -> InstanceMetadata:
        region = found.cloud.region
        own = self.provider_id(found.server["id"], region)
        return InstanceMetadata(
            # As the node spells it, for it can never change.
            provider_id=provider_id if "://" in provider_id else own,
            instance_type=label_value(_flavor(found.server)),
            node_addresses=addresses(found.server, interfaces, found.cloud.config.networking),
            zone=label_value(found.server.get("OS-EXT-AZ:availability_zone") or ""),
            region=label_value(region),
        )


def state(server: JSON) -> InstanceState:
    """What its status means for the node."""
    return _STATES.get(server["status"], InstanceState.RUNNING)


def _flavor(server: JSON) -> str:
    """The flavour's name, or its ID where Nova is older than Pike."""
    flavor = server.get("flavor", {})
    return str(flavor.get("original_name") or flavor.get("id") or "")


def _only(answers: Mapping[str, T | CloudProviderError]) -> T:
    [answer] = answers.values()
    if isinstance(answer, CloudProviderError):
        raise answer
    return answer
