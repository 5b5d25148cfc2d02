"""InstancesV2 and InstancesBatch: what a node's server is, and whether it is still there.

The batch is the one way to ask; a single node is a batch of one. A refresh of any number of nodes
costs a page of servers and a page of ports for each 1,000 of them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

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
)
from cloudprovider.helpers import IPNetwork, label_value, node_name, provider_id_of
from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_IP, NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_IP
from openstack_provider.config import Networking
from openstack_provider.rest import JSON, answered
from openstack_provider.servers import PROVIDER, Interfaces, Located, Servers

INTERNAL, EXTERNAL = NODE_ADDRESS_INTERNAL_IP, NODE_ADDRESS_EXTERNAL_IP


def addresses(server: JSON, interfaces: Interfaces, config: Networking) -> list[V1NodeAddress]:
    """The node's addresses, the most preferred first.

    Order and types are those of the Go manager, with one difference: a server with several ports
    has them in the order of its network interfaces, as Nova lists them, and not in that of their
    IDs.

        1. fixed IPs of ACTIVE ports       InternalIP
        2. accessIPv4, accessIPv6          ExternalIP
        3. metadata "hostname"             Hostname
        4. by network name: floating IPs and public-network-name ExternalIP, all others InternalIP,
           or with internal-network-name only those of its networks
        5. address-sort-order: those in the first range first
    """
    networks: dict[str, list[tuple[str, str]]] = {
        name: [(str(one["addr"]), str(one.get("OS-EXT-IPS:type", "fixed"))) for one in listed]
        for name, listed in server.get("addresses", {}).items()
    }
    for network, ip in interfaces.subports:
        networks.setdefault(network, []).append((ip, "fixed"))
    found: dict[tuple[str, str], None] = dict.fromkeys((INTERNAL, ip) for ip in _fixed(server, interfaces.ports))
    found[EXTERNAL, server.get("accessIPv4") or ""] = None
    found[EXTERNAL, server.get("accessIPv6") or ""] = None
    for network in sorted(networks):
        for ip, kind in networks[network]:
            public = network in config.public_network_name
            hidden = bool(config.internal_network_name) and network not in config.internal_network_name
            if kind != "floating" and (public or hidden):
                found.pop((INTERNAL, ip), None)  # what its port says counts less than its network's name
            if kind == "floating" or public:
                found[EXTERNAL, ip] = None
            elif not hidden:
                found[INTERNAL, ip] = None
    ips = [(kind, ip) for kind, ip in found if ip and not (config.ipv6_support_disabled and ":" in ip)]
    names = [(NODE_ADDRESS_HOSTNAME, name)] if (name := server.get("metadata", {}).get("hostname")) else []
    return [V1NodeAddress(type=kind, address=text) for kind, text in (*_sorted(ips, config.address_sort_order), *names)]


def _fixed(server: JSON, ports: Iterable[JSON]) -> list[str]:
    """The addresses of the ports that are in use, in the order of the server's interfaces."""
    macs: Mapping[str, None] = dict.fromkeys(
        str(one.get("OS-EXT-IPS-MAC:mac_addr", "")) for listed in server.get("addresses", {}).values() for one in listed
    )
    order = {mac: place for place, mac in enumerate(macs)}
    active = [port for port in ports if port["status"] == "ACTIVE"]
    active.sort(key=lambda port: (order.get(port["mac_address"], len(order)), port["id"]))
    return [str(one["ip_address"]) for port in active for one in port["fixed_ips"]]


def _sorted(found: Sequence[tuple[str, str]], order: Sequence[IPNetwork]) -> list[tuple[str, str]]:
    def place(one: tuple[str, str]) -> int:
        ip = ipaddress.ip_address(one[1])
        return next((number for number, net in enumerate(order) if ip in net), len(order))

    return sorted(found, key=place)


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
