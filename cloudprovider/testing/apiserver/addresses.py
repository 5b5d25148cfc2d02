"""IP addresses and CIDRs as the API's legacy fields accept them, strictly, as kube-apiserver 1.36 does by default.

Used by the validation of nodes and services; pure. Follows k8s.io/apimachinery pkg/util/validation/ip.go.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_IP_WRONG: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_CIDR_WRONG: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_ZEROS: Final = re.compile(r"(?<![0-9])0+(?=[0-9])")


def _parse_ip(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address | None, bool]:
    """(address, had leading zeros); zeros matter in IPv4 only."""
    plain = text if ":" in text else _ZEROS.sub("", text)
    try:
        return (None if "%" in text else ipaddress.ip_address(plain)), plain != text
    except ValueError:
        return None, False


def ip_problem(text: str) -> list[str]:
    """Why this is no IP address."""
    parsed, zeros = _parse_ip(text)
    if parsed is None:
        return [_IP_WRONG]
    if zeros:
        return ["must not have leading 0s"]
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        return ["must not be an IPv4-mapped IPv6 address"]
    return []


def cidr_problem(text: str) -> list[str]:
    """Why this is no CIDR block."""
    address, slash, length = text.partition("/")
    parsed, zeros = _parse_ip(address)
    if (
        not slash
        or parsed is None
        or not length.isascii()
        or not length.isdigit()
        or int(length) > parsed.max_prefixlen
    ):
        return [_CIDR_WRONG]
    if zeros or (len(length) > 1 and length.startswith("0")):
        return ["must not have leading 0s in IP or prefix length"]
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        return ["must not have an IPv4-mapped IPv6 address"]
    if ipaddress.ip_interface(text).network.network_address != parsed:
        return ["must not have bits set beyond the prefix length"]
    return []


def ip_warnings(field: str, text: str) -> list[str]:
    """What is odd about a valid address."""
    if ip_problem(text) or ":" not in text or str(ipaddress.ip_address(text)) == text:
        return []
    return [f'{field}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{ipaddress.ip_address(text)}")']


def cidr_warnings(field: str, text: str) -> list[str]:
    """What is odd about a valid block."""
    if cidr_problem(text) or ":" not in text or str(ipaddress.ip_network(text)) == text:
        return []
    return [
        f'{field}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{ipaddress.ip_network(text)}")'
    ]


def is_ipv6(text: str) -> bool:
    """Is this IPv6 address? Anything else counts as IPv4."""
    return ":" in text


def is_ipv6_cidr(text: str) -> bool:
    """Is this an IPv6 block?"""
    return ":" in text
