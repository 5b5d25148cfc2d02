"""IP addresses and CIDRs as the API's legacy fields accept them.

Used by the validation of nodes and services; pure. Follows IsValidIPForLegacyField and IsValidCIDRForLegacyField of k8s.io/kubernetes.
"""

from __future__ import annotations

import ipaddress

IP_WRONG = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_WRONG = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def ip_problem(text: str) -> list[str]:
    """Why this is no IP address; leading zeros are refused."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return [IP_WRONG]
    return [IP_WRONG] if "%" in text else []


def cidr_problem(text: str) -> list[str]:
    """Why this is no CIDR block."""
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return [CIDR_WRONG]
    return [] if "/" in text and text.rpartition("/")[2].isdigit() else [CIDR_WRONG]


def is_ipv6(text: str) -> bool:
    """Is this IPv6 address? Anything else counts as IPv4."""
    return ":" in text


def is_ipv6_cidr(text: str) -> bool:
    """Is this an IPv6 block?"""
    return ":" in text
