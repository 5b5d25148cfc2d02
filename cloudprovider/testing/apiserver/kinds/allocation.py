"""Cluster IPs and node ports: what is free, what is taken.

Owned by the services' strategy; used with the store's lock held. Values are chosen while a service
is prepared and become taken only when it is stored, so that a refused write holds nothing.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from cloudprovider.testing.apiserver.errors import JSON, StatusError, invalid, invalid_value

FIRST_PORT: Final = 30000
LAST_PORT: Final = 32767


class Allocator:
    """The cluster IPs of one IPv4 block, and the node ports."""

    def __init__(self, cidr: str) -> None:
        self._block = ipaddress.IPv4Network(cidr)
        size = self._block.num_addresses
        # As the real server it keeps the lower part for those who ask for an address by name.
        self._last_address = min(max(size // 16, 16), 256) if size > 32 else 0
        self._last_port = FIRST_PORT + 85
        self._addresses: set[str] = set()
        self._ports: set[int] = set()

    def take(self, obj: JSON) -> None:
        """A service was stored."""
        self._addresses.update(held_addresses(obj))
        self._ports.update(held_ports(obj))

    def release(self, obj: JSON) -> None:
        """A service is gone, or was replaced."""
        self._addresses.difference_update(held_addresses(obj))
        self._ports.difference_update(held_ports(obj))

    def address(self, obj: JSON, wanted: str) -> str:
        """The address wanted, or a free one where none is. Raises StatusError (422, or 500 where
        there is none)."""
        if not wanted:
            return self._free_address()
        parsed, why = ipaddress.ip_address(wanted), ""
        if parsed not in self._block or parsed in (self._block[0], self._block[-1]):
            why = f"the provided network does not match the current range, expected {self._block}"
        elif wanted in self._addresses:
            why = "provided IP is already allocated"
        if why:
            detail = f"failed to allocate IP {wanted}: {why}"
            cause = invalid_value("spec.clusterIPs", obj["spec"].get("clusterIPs") or [], detail)
            raise invalid("", "Service", obj["metadata"].get("name", ""), [cause])
        return wanted

    def _free_address(self) -> str:
        usable = self._block.num_addresses - 2
        for step in range(1, usable + 1):
            at = (self._last_address + step - 1) % usable + 1
            address = str(self._block[at])
            if at != 1 and address not in self._addresses:
                self._last_address = at
                return address
        raise _exhausted("failed to allocate a serviceIP: range is full")

    def ports(self, obj: JSON, old: JSON | None) -> list[JSON]:
        """The service's ports with their node ports. Raises StatusError (422, 500)."""
        spec = obj["spec"]
        allocate = spec["type"] == "NodePort" or bool(spec.get("allocateLoadBalancerNodePorts", True))
        chosen = set(held_ports(old)) if old is not None else set[int]()
        shared: dict[int, int] = {}  # a new service has one node port for TCP and UDP of a number
        result: list[JSON] = []
        for at, port in enumerate(spec.get("ports") or ()):
            wanted = port.get("nodePort", 0)
            if not wanted and not allocate:
                result.append(port)
                continue
            if not wanted:
                wanted = (shared.get(port["port"]) if old is None else None) or self._free_port(chosen)
            elif wanted not in chosen and (why := self._port_problem(wanted)):
                cause = invalid_value(f"spec.ports[{at}].nodePort", wanted, why)
                raise invalid("", "Service", obj["metadata"].get("name", ""), [cause])
            chosen.add(wanted)
            shared.setdefault(port["port"], wanted)
            result.append({**port, "nodePort": wanted})
        return result

    def health_port(self, obj: JSON, taken: set[int]) -> int:
        """The health check node port wanted, or any. Raises StatusError (500, as the real server
        has it)."""
        wanted: int = obj["spec"].get("healthCheckNodePort", 0)
        if not wanted:
            return self._free_port(taken)
        if why := self._port_problem(wanted):
            raise _exhausted(f"failed to allocate requested HealthCheck NodePort {wanted}: {why}")
        return wanted

    def _free_port(self, besides: set[int]) -> int:
        size = LAST_PORT - FIRST_PORT + 1
        for step in range(1, size + 1):
            port = FIRST_PORT + (self._last_port - FIRST_PORT + step) % size
            if port not in self._ports and port not in besides:
                self._last_port = port
                return port
        raise _exhausted("failed to allocate a nodePort: range is full")

    def _port_problem(self, port: int) -> str:
        if not FIRST_PORT <= port <= LAST_PORT:
            return f"provided port is not in the valid range. The range of valid ports is {FIRST_PORT}-{LAST_PORT}"
        return "provided port is already allocated" if port in self._ports else ""


def _exhausted(why: str) -> StatusError:
    message = f"Internal error occurred: {why}"
    return StatusError(500, "InternalError", message, details={"causes": [{"message": why}]})


def held_addresses(obj: JSON) -> list[str]:
    """The cluster IPs that a service holds."""
    return [address for address in obj["spec"].get("clusterIPs") or () if address and address != "None"]


def held_ports(obj: JSON) -> list[int]:
    """The node ports that a service holds."""
    spec = obj["spec"]
    ports = [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]
    return [*ports, spec["healthCheckNodePort"]] if spec.get("healthCheckNodePort") else ports
