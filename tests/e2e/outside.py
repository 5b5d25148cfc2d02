"""The place from which the suite reaches load balancers: an address outside the machines' network.

A test that looks whether a client's address is kept takes every address in the /16 of a Node's
address for one of the cluster. The host's own address on the cloud's uplink is one of those. So,
while the suite runs, the host speaks to load balancers from an address of a documentation network.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network

__all__ = ["CLIENT", "outside_client"]

CLIENT = IPv4Address("192.0.2.1")


@contextmanager
def outside_client(link: str, host: IPv4Address, router: IPv4Address, pool: IPv4Network) -> Iterator[None]:
    """While open, packets of this host to `pool` come from `CLIENT`, over `link` and `router`;
    before and after from `host`.

    Raises CalledProcessError where the kernel refuses. Needs root.
    """
    _ip("address", "replace", f"{CLIENT}/32", "dev", link)
    try:
        _route(link, router, pool, CLIENT)
        yield
    finally:
        _route(link, router, pool, host)
        _ip("address", "delete", f"{CLIENT}/32", "dev", link)


def _route(link: str, router: IPv4Address, pool: IPv4Network, source: IPv4Address) -> None:
    _ip("route", "replace", str(pool), "via", str(router), "dev", link, "src", str(source))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
