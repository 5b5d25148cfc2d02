"""IP addresses and ranges, read as leniently as Kubernetes reads them. Pure; shared by the other
helpers.

Kubernetes still accepts leading zeros in IPv4 ("010.0.0.1" is 10.0.0.1), which Python's ipaddress
refuses; and it refuses scope IDs ("fe80::1%eth0") and netmasks ("10.0.0.0/255.0.0.0"), which
ipaddress accepts.

Follows: ParseIPSloppy and ParseCIDRSloppy in k8s.io/utils/net.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

__all__ = ["IPAddress", "IPNetwork", "is_inside", "parse_ip", "parse_network"]

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_IPV4 = re.compile(r"(?P<head>.*:)?([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
_PREFIX = re.compile(r"[0-9]{1,9}")
_MAPPED = IPv6Network("::ffff:0:0/96")


def _without_zeros(text: str) -> str:
    """The same text, leading zeros dropped where it is, or ends in, an IPv4 address."""
    match = _IPV4.fullmatch(text)
    if match is None:
        return text
    head, *parts = match.groups()
    # Go's older parsers took 010.0.0.1 as 10.0.0.1, and clouds still write it; Python refuses it.
    return (head or "") + ".".join(str(int(part)) for part in parts)


def parse_ip(text: str) -> IPAddress | None:
    """The address, None when the text is none. An IPv4 address inside IPv6 (::ffff:10.0.0.1) is the
    IPv4 address."""
    # A zone means something on one machine alone, so that no Node can have it.
    if "%" in text:
        return None
    try:
        address = ip_address(_without_zeros(text))
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def parse_network(text: str) -> IPNetwork:
    """The range "address/bits" with host bits cleared; one of IPv4 addresses inside IPv6 is the
    IPv4 range.

    Raises ValueError, whose message quotes the text.
    """
    address, slash, bits = text.partition("/")
    # Python also takes a netmask behind the slash, and an address without one.
    if not slash or "%" in address or not _PREFIX.fullmatch(bits):
        raise ValueError(f"{text!r} is not an IP range like 10.0.0.0/24 or 2001:db8::/64")
    try:
        network = ip_network(f"{_without_zeros(address)}/{int(bits)}", strict=False)
    except ValueError as exc:
        raise ValueError(f"{text!r} is not an IP range like 10.0.0.0/24 or 2001:db8::/64: {exc}") from exc
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - _MAPPED.prefixlen))
    return network


def is_inside(net: IPNetwork, ranges: Iterable[IPNetwork]) -> bool:
    """Whether all of it lies in one of the ranges."""
    return any(
        # As `subnet_of`, but without making two address objects for each comparison.
        net.version == one.version
        and net.prefixlen >= one.prefixlen
        and int(net.network_address) >> (net.max_prefixlen - one.prefixlen)
        == int(one.network_address) >> (net.max_prefixlen - one.prefixlen)
        for one in ranges
    )
