"""From a server and its ports to the addresses of its node. Pure.

Order and types are those of the Go manager, with one difference: a server with several ports has
them in the order of its network interfaces, as Nova lists them, and not in that of their IDs.

    1. fixed IPs of ACTIVE ports       InternalIP
    2. accessIPv4, accessIPv6          ExternalIP
    3. metadata "hostname"             Hostname
    4. by network name: floating IPs and public-network-name ExternalIP, all others InternalIP,
       or with internal-network-name only those of its networks
    5. address-sort-order: those in the first range first
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_IP, NODE_ADDRESS_HOSTNAME, NODE_ADDRESS_INTERNAL_IP
from openstack_provider.config import Networking
from openstack_provider.rest import JSON

INTERNAL, EXTERNAL = NODE_ADDRESS_INTERNAL_IP, NODE_ADDRESS_EXTERNAL_IP


@frozen
class Interfaces:
    """What Neutron knows of a server: its ports, and the addresses of their trunks' subports as
    (network name, IP address)."""

    ports: Sequence[JSON] = ()
    subports: Sequence[tuple[str, str]] = ()


def addresses(server: JSON, interfaces: Interfaces, config: Networking) -> list[V1NodeAddress]:
    """The node's addresses, the most preferred first."""
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


def _sorted(found: Sequence[tuple[str, str]], order: Sequence[str]) -> list[tuple[str, str]]:
    ranges = [ipaddress.ip_network(text) for text in order]

    def place(one: tuple[str, str]) -> int:
        ip = ipaddress.ip_address(one[1])
        return next((number for number, net in enumerate(ranges) if ip in net), len(ranges))

    return sorted(found, key=place)
