"""Which proxy leads to a server, by the environment's word: HTTPS_PROXY, HTTP_PROXY, NO_PROXY (before stage 1).

`kubeconfig.py` asks once, at the start, so that our connections and the official client's go the same way.

Follows Go's golang.org/x/net/http/httpproxy, which is what client-go does: the upper-case variable wins; ALL_PROXY is
not read; localhost and loopback addresses are never proxied. The official client's own matching knows no `*.domain`, no
port, and takes `.domain` for the domain itself, too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from controllers.runtime.api.wire import Endpoint

_PORT: Final = re.compile(r"(.*):([0-9]+)")


def from_environment(endpoint: Endpoint, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy that the environment wants for this server, None for a direct connection."""

    def read(name: str) -> str:
        return environ.get(name) or environ.get(name.lower()) or ""

    url = read("HTTPS_PROXY" if endpoint.tls else "HTTP_PROXY")
    if not url or is_local(endpoint.host) or excluded(endpoint.host, endpoint.port, read("NO_PROXY")):
        return None
    return url


def is_local(host: str) -> bool:
    """Whether this names the machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def excluded(host: str, port: int, no_proxy: str) -> bool:
    """Whether a NO_PROXY list names this host.

    Entries: `*` (every host), an address, a range (10.0.0.0/8), `name` (it and all below it), `.name` or `*.name` (all
    below it); each but the range may end in `:port`.
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
