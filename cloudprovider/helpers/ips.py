"""IP addresses and ranges, read as leniently as Kubernetes reads them. Pure; shared by the other helpers.

Kubernetes still accepts leading zeros in IPv4 ("010.0.0.1" is 10.0.0.1), which Python's ipaddress refuses;
and it refuses scope IDs ("fe80::1%eth0") and netmasks ("10.0.0.0/255.0.0.0"), which ipaddress accepts.

Follows: ParseIPSloppy and ParseCIDRSloppy in k8s.io/utils/net.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

__all__ = ["IPAddress", "IPNetwork", "parse_ip", "parse_network"]

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_IPV4 = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
_PREFIX = re.compile(r"[0-9]{1,9}")


def _strict_ipv4(text: str) -> str:
    """The same text, leading zeros dropped when it is an IPv4 address."""
    match = _IPV4.fullmatch(text)
    return ".".join(str(int(part)) for part in match.groups()) if match else text


def parse_ip(text: str) -> IPAddress | None:
    """The address, None when the text is none. An IPv4 address inside IPv6 (::ffff:10.0.0.1) is the IPv4
    address."""
    if "%" in text:
        return None
    if ":" not in text:
        try:
            return IPv4Address(_strict_ipv4(text))
        except ValueError:
            return None
    try:
        address = IPv6Address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address


def parse_network(text: str) -> IPNetwork:
    """The range "address/bits" with host bits cleared. Raises ValueError, whose message quotes the text."""
    address, slash, bits = text.partition("/")
    if not slash or "%" in address or not _PREFIX.fullmatch(bits):
        raise ValueError(f"{text!r} is not an IP range like 10.0.0.0/24 or 2001:db8::/64")
    try:
        if ":" in address:
            return IPv6Network((address, int(bits)), strict=False)
        return IPv4Network((_strict_ipv4(address), int(bits)), strict=False)
    except ValueError as exc:
        raise ValueError(f"{text!r} is not an IP range like 10.0.0.0/24 or 2001:db8::/64: {exc}") from exc
