"""Which proxy the environment wants for a server. Pure (stages 1, 5 and 6).

HTTPS_PROXY, HTTP_PROXY and NO_PROXY are read as Go's golang.org/x/net/http/httpproxy does: the
upper-case variable wins; ALL_PROXY is not read; localhost and loopback addresses are never proxied.
The official client's own matching knows no `*.domain`, no port, and takes `.domain` for the domain
itself, too."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

_PORT: Final = re.compile(r"(.*):([0-9]+)")


def proxy_from_environment(host: str, port: int, tls: bool, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable and the URL of the proxy that the environment wants for this server, None:
    direct."""

    def read(name: str) -> tuple[str, str]:
        name = name if environ.get(name) else name.lower()
        return name, environ.get(name) or ""

    found = read("HTTPS_PROXY" if tls else "HTTP_PROXY")
    if not found[1] or is_local(host) or excluded(host, port, read("NO_PROXY")[1]):
        return None
    return found


def is_local(host: str) -> bool:
    """Whether this names the machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def excluded(host: str, port: int, no_proxy: str) -> bool:
    """Whether a NO_PROXY list names this host.

    Entries: `*` (every host), an address, a range (10.0.0.0/8), `name` (it and all below it),
    `.name` or `*.name` (all below it); each but the range may end in `:port`.
    """
    host = host.lower()
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = None
    for entry in (entry.strip().lower() for entry in no_proxy.split(",")):
        if entry == "*":
            return True
        if "/" in entry:
            if address is not None and _in_range(address, entry):
                return True
            continue
        name = entry.strip("[]")
        wanted = ""
        if (match := _PORT.fullmatch(entry)) and ("]" in entry or entry.count(":") == 1):
            name, wanted = match[1].strip("[]"), match[2]
        if name and (not wanted or wanted == str(port)) and _names(name, host, address):
            return True
    return False


def _names(name: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if address is not None:
        try:
            return ipaddress.ip_address(name) == address
        except ValueError:
            return False
    name = name.removeprefix("*") if name.startswith("*.") else name
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _in_range(address: ipaddress.IPv4Address | ipaddress.IPv6Address, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
