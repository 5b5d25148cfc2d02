"""Where everything of one cloud is: addresses, names of links and namespaces, folders. Pure.

All follows from a name, a base such as 10.90 and a pool for load balancers, so that two clouds with
different ones live on one host.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from attrs import field, frozen

__all__ = ["BadLayout", "Layout"]

_NAME = re.compile(r"[a-z][a-z0-9]{0,5}")  # a link's name has 15 characters: NAME-m123456
_MACHINE_ID = re.compile(r"m[0-9]{1,6}")


class BadLayout(ValueError):
    """The name, base or pool of a cloud cannot be used; the text lists all problems."""


@frozen(kw_only=True)
class Layout:
    """The addresses and names of one cloud.

    Raises BadLayout with all problems when the values do not fit together. IDs of machines are
    ``m`` and up to six digits.
    """

    name: str = "lc"
    base: str = "10.90"
    """The first two numbers of the cloud's addresses. The next two /16 (base + 1 and + 2) are for
    pods and services."""
    pool: IPv4Network = field(default=IPv4Network("198.51.100.0/24"), converter=IPv4Network)
    """The addresses of load balancers."""
    folder: Path = field(default=Path("/var/lib/localcloud"), converter=Path)
    """The cloud's state and the disks of its machines."""

    def __attrs_post_init__(self) -> None:
        problems = [*_problems_of_name(self.name), *_problems_of_base(self.base)]
        if not problems:
            used = (self.own_network, self.pods_network, self.services_network)
            problems = [f"the pool {self.pool} overlaps {net}" for net in used if net.overlaps(self.pool)]
        if not 2 <= self.pool.prefixlen <= 29:
            problems.append(f"the pool {self.pool} must be a /29 or larger")
        if problems:
            raise BadLayout("; ".join(problems))

    # Networks

    @property
    def own_network(self) -> IPv4Network:
        """The /16 of the cloud itself: machines and uplink."""
        return IPv4Network(f"{self.base}.0.0/16")

    @property
    def pods_network(self) -> IPv4Network:
        """The /16 that the host sends to the router; inside it only routes of the API lead on."""
        return IPv4Network(f"{_next(self.base, 1)}.0.0/16")

    @property
    def services_network(self) -> IPv4Network:
        """The /16 left free for addresses that are internal to a cluster."""
        return IPv4Network(f"{_next(self.base, 2)}.0.0/16")

    @property
    def machines_network(self) -> IPv4Network:
        """The subnet of the machines, a /24."""
        return IPv4Network(f"{self.base}.0.0/24")

    @property
    def uplink_network(self) -> IPv4Network:
        return IPv4Network(f"{self.base}.255.0/30")

    # Addresses

    @property
    def host_address(self) -> IPv4Address:
        """The host, as the cloud's machines see it; the API listens here."""
        return IPv4Address(f"{self.base}.255.1")

    @property
    def uplink_router_address(self) -> IPv4Address:
        """The router, as the host sees it."""
        return IPv4Address(f"{self.base}.255.2")

    @property
    def router_address(self) -> IPv4Address:
        """The router, as the machines see it: their gateway."""
        return IPv4Address(f"{self.base}.0.1")

    def machine_addresses(self) -> list[IPv4Address]:
        """The addresses that machines may have, in the order in which they are given out."""
        return [address for address in self.machines_network.hosts() if int(address) & 0xFF >= 10]

    def balancer_addresses(self) -> list[IPv4Address]:
        """The addresses that load balancers may have, in the order in which they are given out."""
        return list(self.pool.hosts())

    # Names in the kernel

    @property
    def router_namespace(self) -> str:
        return f"{self.name}-router"

    @property
    def uplink(self) -> str:
        """The link on the host to the router."""
        return f"{self.name}-up"

    @property
    def table(self) -> str:
        """The nftables table in the router."""
        return self.name

    def machine_namespace(self, machine_id: str) -> str:
        """The network namespace of a machine. Raises ValueError for what is no ID."""
        return f"{self.name}-{_checked(machine_id)}"

    def machine_link(self, machine_id: str) -> str:
        """The router's end of a machine's link. Raises ValueError for what is no ID."""
        return f"{self.name}-{_checked(machine_id)}"

    # Folders and files

    @property
    def state_file(self) -> Path:
        return self.folder / "state.json"

    @property
    def machines_folder(self) -> Path:
        return self.folder / "machines"

    def machine_disk(self, machine_id: str) -> Path:
        """The folder that is the machine's disk. Raises ValueError for what is no ID."""
        return self.machines_folder / _checked(machine_id)


def _checked(machine_id: str) -> str:
    if not _MACHINE_ID.fullmatch(machine_id):  # it becomes part of paths and of names in the kernel
        raise ValueError(f"{machine_id!r} is no ID of a machine: m and up to six digits")
    return machine_id


def _next(base: str, step: int) -> str:
    first, second = base.split(".")
    return f"{first}.{int(second) + step}"


def _problems_of_name(name: str) -> list[str]:
    if _NAME.fullmatch(name):
        return []
    return [f"the name {name!r} must be 1 to 6 lower-case letters and digits, a letter first"]


def _problems_of_base(base: str) -> list[str]:
    numbers = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})", base)
    if not numbers or int(numbers[1]) > 223 or int(numbers[1]) in (0, 127) or int(numbers[2]) > 253:
        return [f"the base {base!r} must be the first two numbers of an address, such as 10.90; the second up to 253"]
    return []
