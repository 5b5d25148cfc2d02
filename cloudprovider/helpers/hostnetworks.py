"""Machines that own a whole IPv6 network each, where the cloud answers the network and no address:
pure logic, for `InstancesV2` and `PodCIDRs`. May be called from many threads.

Hetzner gives each server a /64, for example. Go's provider for Hetzner takes the address that ends
in 1, and fails where the kubelet has another one (hcloud-cloud-controller-manager issues 803 and
1338).
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING

from cloudprovider.helpers.addresses import provided_node_ip
from cloudprovider.ips import parse_ip, parse_network

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

__all__ = ["host_address", "pod_range"]


def host_address(network: str, node: V1Node | None = None) -> str:
    """The IPv6 address of the machine that owns this network: "2001:db8:1::1" of "2001:db8:1::/64".

    With `node`, the address that its kubelet uses (`--node-ip`), if the network has it. A kubelet
    writes that itself, so give only a network of which the cloud says that this machine owns all of
    it: then it can take no other machine's address. Whatever else the node says changes nothing.

    Host bits are an address already, which then counts: "2001:db8:1::7" of "2001:db8:1::7/64". Of a
    /128 it is the only one. Raises ValueError, which quotes the text, for what is no IPv6 network.
    """
    net = _ipv6(network)
    given = parse_ip(network.partition("/")[0])
    # Then the cloud has named the address itself, and the kubelet has no say.
    if net.num_addresses == 1 or (isinstance(given, IPv6Address) and given != net.network_address):
        return str(given)
    for text in ((node and provided_node_ip(node)) or "").split(","):
        wished = parse_ip(text)
        # The first one is that of all routers of the network (RFC 4291, 2.6.1): no machine's.
        if wished is not None and wished in net and wished != net.network_address:
            return str(wished)
    return str(net.network_address + 1)


def pod_range(network: str, prefix: int = 80, *, host: str = "") -> str:
    """The part of that network for the machine's pods, to be answered by `PodCIDRs`: of
    "2001:db8:1::/64" the /80 "2001:db8:1:0:1::/80".

    It is the first part of that size that has neither the network's first addresses nor `host`, the
    machine's own address if it is another one. A node's pod CIDRs can never be changed: give the
    same `prefix` always, and route the part to the machine, as the cloud does with the network.
    Raises ValueError for what is no IPv6 network, and where no such part is in it.
    """
    net, own = _ipv6(network), parse_ip(host)
    if host and own is None:
        raise ValueError(f"{host!r} is not an IP address")
    bits = net.max_prefixlen - prefix
    if not net.prefixlen < prefix <= net.max_prefixlen:
        raise ValueError(f"{net} has no part of /{prefix} for pods: its parts are /{net.prefixlen + 1} to /128")
    # Of three parts one may begin the network (small parts do), and one be the machine's own.
    for number in range(1, min(4, 1 << (prefix - net.prefixlen))):
        part = IPv6Network((int(net.network_address) + (number << bits), prefix))
        if part.network_address > net.network_address + 1 and (own is None or own not in part):
            return str(part)
    raise ValueError(f"{net} has no part of /{prefix} without the machine's own address")


def _ipv6(network: str) -> IPv6Network:
    net = parse_network(network)
    if not isinstance(net, IPv6Network):
        raise ValueError(f"{network!r} is not an IPv6 network like 2001:db8:1::/64")
    return net
