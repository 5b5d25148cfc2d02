"""Cluster IPs and node ports: what is free, what is taken.

Owned by the services' strategy; used with the store's lock held. Values are chosen while a service is prepared
and become taken only when it is stored, so that a refused write holds nothing. Follows
pkg/registry/core/service of k8s.io/kubernetes.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from cloudprovider.testing.apiserver.errors import JSON, Cause, StatusError, invalid, invalid_value

FIRST_PORT: Final = 30000
LAST_PORT: Final = 32767


class AddressPool:
    """The cluster IPs of one IPv4 block. Like the real server it keeps the lower part for those who ask for one
    by name.
    """

    def __init__(self, cidr: str) -> None:
        self._block = ipaddress.IPv4Network(cidr)
        size = self._block.num_addresses
        self._static = min(max(size // 16, 16), 256) if size > 32 else 0
        self._taken: set[str] = set()
        self._last = self._static

    def free(self) -> str:
        """An address that nobody holds. Raises StatusError (500) when there is none."""
        usable = self._block.num_addresses - 2
        for step in range(1, usable + 1):
            at = (self._last + step - 1) % usable + 1
            address = str(self._block[at])
            if at != 1 and address not in self._taken:
                self._last = at
                return address
        raise StatusError(
            500, "InternalError", "Internal error occurred: failed to allocate a serviceIP: range is full"
        )

    def problem(self, address: str) -> str:
        """Why this address cannot be had, "" if it can."""
        parsed = ipaddress.ip_address(address)
        if parsed not in self._block or parsed in (self._block[0], self._block[-1]):
            return f"the provided network does not match the current range, expected {self._block}"
        return "provided IP is already allocated" if address in self._taken else ""

    def take(self, address: str) -> None:
        """The address is in use now."""
        self._taken.add(address)

    def release(self, address: str) -> None:
        """The address is free again."""
        self._taken.discard(address)


class PortPool:
    """The node ports."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._last = FIRST_PORT + 85

    def free(self, besides: set[int]) -> int:
        """A port that nobody holds and that is not in `besides`. Raises StatusError (500) when there is none."""
        size = LAST_PORT - FIRST_PORT + 1
        for step in range(1, size + 1):
            port = FIRST_PORT + (self._last - FIRST_PORT + step) % size
            if port not in self._taken and port not in besides:
                self._last = port
                return port
        raise StatusError(500, "InternalError", "Internal error occurred: failed to allocate a nodePort: range is full")

    def problem(self, port: int) -> str:
        """Why this port cannot be had, "" if it can."""
        if not FIRST_PORT <= port <= LAST_PORT:
            return f"provided port is not in the valid range. The range of valid ports is {FIRST_PORT}-{LAST_PORT}"
        return "provided port is already allocated" if port in self._taken else ""

    def taken(self) -> set[int]:
        """The ports in use."""
        return set(self._taken)

    def take(self, port: int) -> None:
        """The port is in use now."""
        self._taken.add(port)

    def release(self, port: int) -> None:
        """The port is free again."""
        self._taken.discard(port)


class DryAddresses(AddressPool):
    """The pool of a dry run: as the real server's, it looks at the range only, and gives out a dummy."""

    def free(self) -> str:
        """The block's own address."""
        return str(self._block[0])

    def problem(self, address: str) -> str:
        """Why this address can never be had."""
        parsed = ipaddress.ip_address(address)
        if parsed in self._block and parsed not in (self._block[0], self._block[-1]):
            return ""
        return f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {self._block}"


class DryPorts(PortPool):
    """The node ports in a dry run: a port that is asked for must be free, others are dummies."""

    def __init__(self, taken: set[int]) -> None:
        super().__init__()
        self._taken = taken

    def free(self, besides: set[int]) -> int:
        """A number above all node ports."""
        return max({LAST_PORT + 1, *besides}) + 1


class Allocator:
    """Both pools, and what one service holds of them."""

    def __init__(self, cidr: str) -> None:
        self._cidr = cidr
        self.addresses = AddressPool(cidr)
        self.ports = PortPool()

    def for_dry_run(self) -> Allocator:
        """An allocator that knows what is taken now and takes nothing."""
        dry = Allocator(self._cidr)
        dry.addresses, dry.ports = DryAddresses(self._cidr), DryPorts(self.ports.taken())
        return dry

    def take(self, obj: JSON) -> None:
        """A service was stored."""
        for address in held_addresses(obj):
            self.addresses.take(address)
        for port in held_ports(obj):
            self.ports.take(port)

    def release(self, obj: JSON) -> None:
        """A service is gone, or was replaced."""
        for address in held_addresses(obj):
            self.addresses.release(address)
        for port in held_ports(obj):
            self.ports.release(port)

    def choose_address(self, obj: JSON, wanted: str) -> str:
        """The address wanted, or any where none is. Raises StatusError (422) when it cannot be had."""
        if not wanted:
            return self.addresses.free()
        why = self.addresses.problem(wanted)
        if why:
            detail = f"failed to allocate IP {wanted}: {why}"
            raise refused(obj, invalid_value("spec.clusterIPs", obj["spec"].get("clusterIPs") or [], detail))
        return wanted

    def choose_ports(self, obj: JSON, old: JSON | None) -> list[JSON]:
        """The service's ports with their node ports. Raises StatusError (422)."""
        spec = obj["spec"]
        allocate = spec["type"] == "NodePort" or bool(spec.get("allocateLoadBalancerNodePorts", True))
        mine = set(held_ports(old)) if old is not None else set()
        chosen: set[int] = set(mine)
        by_port: dict[int, int] = {}
        result: list[JSON] = []
        for at, port in enumerate(spec.get("ports") or ()):
            wanted = port.get("nodePort", 0)
            if not wanted and not allocate:
                result.append(port)
                continue
            if not wanted and old is None:
                wanted = by_port.get(port["port"], 0) or _wanted_elsewhere(spec["ports"], port["port"])
            if not wanted:
                wanted = self.ports.free(chosen)
            elif wanted not in chosen:
                why = self.ports.problem(wanted)
                if why:
                    raise refused(obj, invalid_value(f"spec.ports[{at}].nodePort", wanted, why))
            chosen.add(wanted)
            by_port.setdefault(port["port"], wanted)
            result.append({**port, "nodePort": wanted})
        return result

    def choose_health_port(self, obj: JSON, taken: set[int]) -> int:
        """The health check node port wanted, or any. Raises StatusError (500, as the real server has it)."""
        wanted: int = obj["spec"].get("healthCheckNodePort", 0)
        if not wanted:
            return self.ports.free(taken)
        why = self.ports.problem(wanted)
        if why:
            raise StatusError(
                500,
                "InternalError",
                f"Internal error occurred: failed to allocate requested HealthCheck NodePort {wanted}: {why}",
                details={"causes": [{"message": f"failed to allocate requested HealthCheck NodePort {wanted}: {why}"}]},
            )
        return wanted


def _wanted_elsewhere(ports: list[JSON], number: int) -> int:
    """Ports of one number and several protocols share a node port that one of them asks for."""
    for port in ports:
        if port["port"] == number and port.get("nodePort"):
            return int(port["nodePort"])
    return 0


def held_addresses(obj: JSON) -> list[str]:
    """The cluster IPs that a service holds."""
    return [address for address in obj["spec"].get("clusterIPs") or () if address and address != "None"]


def held_ports(obj: JSON) -> list[int]:
    """The node ports that a service holds."""
    spec = obj["spec"]
    ports = [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]
    return [*ports, spec["healthCheckNodePort"]] if spec.get("healthCheckNodePort") else ports


def refused(obj: JSON, *causes: Cause) -> StatusError:
    """422 for a service whose wishes cannot be met."""
    return invalid("", "Service", obj["metadata"].get("name", ""), list(causes))
