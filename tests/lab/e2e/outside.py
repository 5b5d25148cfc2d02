"""The place from which the suite reaches load balancers: an address outside the machines' network.

A test that looks whether a client's address is kept takes every address in the /16 of a Node's
address for one of the cluster. The host's own address on the cloud's uplink is one of those. So,
while the suite runs, the host speaks to load balancers from an address of a network for benchmarks
(RFC 2544), which no other network has.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network

CLIENT = IPv4Address("198.19.255.1")


@contextmanager
def outside_client(link: str, host: IPv4Address, router: IPv4Address, pool: IPv4Network) -> Iterator[None]:
    """While open, packets of this host to `pool` come from `CLIENT`, over `link` and `router`;
    before and after from `host`.

    Raises RuntimeError where this host has a way to that address already, CalledProcessError where
    the kernel refuses. Needs root.
    """
    ways = json.loads(_ip("-json", "route", "show", "match", str(CLIENT)))
    if taken := [way["dst"] for way in ways if way["dst"] != "default"]:
        raise RuntimeError(f"this host has a route to {taken[0]}, where the tests' own address {CLIENT} is")
    _ip("address", "replace", f"{CLIENT}/32", "dev", link)
    try:
        _route(link, router, pool, CLIENT)
        yield
    finally:
        _route(link, router, pool, host)
        _ip("address", "delete", f"{CLIENT}/32", "dev", link)


def _route(link: str, router: IPv4Address, pool: IPv4Network, source: IPv4Address) -> None:
    _ip("route", "replace", str(pool), "via", str(router), "dev", link, "src", str(source))


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout
