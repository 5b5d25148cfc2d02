"""Syntax of names, labels, label keys and IP addresses: each function says why a text is not what it should be,
in the real server's words.

Used by the validation of every kind; pure. Follows k8s.io/apimachinery pkg/util/validation and
pkg/api/validate/content.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def dns_label(text: str) -> list[str]:
    """Why this is no DNS label (RFC 1123); empty if it is one."""
    found = [] if len(text) <= 63 else ["must be no more than 63 bytes"]
    if not _LABEL.fullmatch(text):
        found.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
            "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )
    return found


def dns_subdomain(text: str) -> list[str]:
    """Why this is no DNS subdomain (RFC 1123)."""
    found = [] if len(text) <= 253 else ["must be no more than 253 bytes"]
    if not _SUBDOMAIN.fullmatch(text):
        found.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    return found


def path_segment(text: str) -> list[str]:
    """Why this cannot be one part of a URL path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{bad}'" for bad in "/%" if bad in text]


def qualified_name(text: str) -> list[str]:
    """Why this is no label key: `name` or `prefix/name`."""
    rule = (
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    )
    parts = text.split("/")
    found: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {why}" for why in dns_subdomain(parts[0])]
    elif len(parts) > 2:
        return [
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
            "an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
            "'example.com/MyName')"
        ]
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        found.append(rule)
    return found


def label_value(text: str) -> list[str]:
    """Why this is no label value."""
    found = [] if len(text) <= 63 else ["must be no more than 63 bytes"]
    if text and not _NAME.fullmatch(text):
        found.append(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    return found


def ip_problem(text: str) -> list[str]:
    """Why this is no IP address."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        parsed = None
    # Python takes a zone, as in fe80::1%eth0, which Go's parser does not.
    if parsed is None or "%" in text:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    # One address in two spellings: rules of firewalls for the one miss the other.
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        return ["must not be an IPv4-mapped IPv6 address"]
    return []


def cidr_problem(text: str) -> list[str]:
    """Why this is no CIDR block."""
    try:
        parsed = ipaddress.ip_interface(text)
    except ValueError:
        parsed = None
    if parsed is None or not re.fullmatch(r"[0-9a-fA-F.:]+/(0|[1-9][0-9]*)", text):
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    if parsed.version == 6 and parsed.ip.ipv4_mapped is not None:
        return ["must not have an IPv4-mapped IPv6 address"]
    return [] if parsed.ip == parsed.network.network_address else ["must not have bits set beyond the prefix length"]
