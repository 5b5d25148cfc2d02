"""The kernel's side of the cloud: the contract between the cloud's rules and what carries them out.

`linux.LinuxKernel` does it with namespaces, routes and nftables; `memory.MemoryKernel` only keeps
what it was told, for tests without root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from attrs import frozen

from localcloud.model import LoadBalancer, Machine, Mode, Port, Route

__all__ = ["BalancerRule", "Kernel", "KernelError", "RouteRule", "TargetRule", "balancer_rule", "route_rules"]


class KernelError(Exception):
    """The kernel, or a program that the cloud needs, refused; the text says what to do.

    `balancers` are the names of the load balancers that could not be carried out, where all else
    was; empty: nothing is certain.
    """

    def __init__(self, message: str, balancers: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.balancers = frozenset(balancers)


@frozen(kw_only=True)
class RouteRule:
    """One route in the router."""

    destination: str
    gateway: str | None
    """An address in the machines' subnet; None: packets are dropped (a blackhole)."""


@frozen(kw_only=True)
class TargetRule:
    """A machine behind a load balancer that may get new connections."""

    machine: str
    address: str
    weight: int = 1


@frozen(kw_only=True)
class BalancerRule:
    """A load balancer as the router carries it out: only targets that may get new connections.

    Open TCP connections to others go on. Without a target all connections are refused.
    """

    name: str
    address: str
    ports: tuple[Port, ...]
    targets: tuple[TargetRule, ...]
    mode: Mode = "nat"
    source_ranges: tuple[str, ...] = ()
    affinity_seconds: int | None = None


class Kernel(Protocol):
    """Machines, routes and load balancers of one cloud. All methods may be called from any thread
    and raise KernelError."""

    def setup(self) -> None:
        """Make the router and the link to it; what is there already is kept. Raises KernelError
        with all that is missing on this host, before anything is made."""

    def close(self) -> None:
        """Let go of files and threads. Machines, routes and balancers stay as they are, for the
        next daemon."""

    def destroy(self) -> None:
        """Stop all machines and remove all that the cloud made in the kernel. Disks stay."""

    def start_machine(self, machine: Machine) -> None:
        """Power a machine on, on its disk, which is made if absent. Returns when its init runs the
        userData. Nothing where it runs."""

    def stop_machine(self, machine_id: str) -> None:
        """Power a machine off; returns when all its processes have ended. Nothing where it does not
        run."""

    def delete_disk(self, machine_id: str) -> None:
        """Remove the disk of a stopped machine. Nothing where there is none."""

    def is_running(self, machine_id: str) -> bool:
        """Whether the machine's init runs, also if another daemon started it."""

    def running_machines(self) -> frozenset[str]:
        """The IDs of all machines whose init runs, also those that another daemon started."""

    def enter_command(self, machine_id: str, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside a machine. Raises KernelError if it does not
        run."""

    def apply_routes(self, routes: Sequence[RouteRule]) -> None:
        """Make these the router's routes: all of them, and no others."""

    def apply_load_balancers(self, rules: Sequence[BalancerRule]) -> None:
        """Make these the router's load balancers: all of them, and no others. Connections of those
        that stay are kept; UDP flows to targets that left are cut."""


def route_rules(routes: Sequence[Route], machines: Mapping[str, Machine]) -> list[RouteRule]:
    """Routes as the router carries them out: one to a machine that is stopped or gone is a
    blackhole. `machines` is by ID."""

    def gateway(route: Route) -> str | None:
        machine = machines.get(route.machine)
        return machine.address if machine and machine.state == "running" else None

    return [RouteRule(destination=route.destination, gateway=gateway(route)) for route in routes]


def balancer_rule(balancer: LoadBalancer, machines: Mapping[str, Machine], healthy: Collection[str]) -> BalancerRule:
    """A load balancer as the router carries it out. `machines` is by ID; `healthy` are the IDs of
    the targets that passed this balancer's health check, or that run if it has none."""
    targets = [
        TargetRule(machine=target, address=machines[target].address, weight=balancer.weights.get(target, 1))
        for target in balancer.targets
        if target in machines and target in healthy and target not in balancer.draining
    ]
    return BalancerRule(
        name=balancer.name,
        address=balancer.address,
        ports=balancer.ports,
        targets=tuple(targets),
        mode=balancer.mode,
        source_ranges=balancer.source_ranges,
        affinity_seconds=balancer.affinity_seconds if balancer.affinity == "clientIP" else None,
    )
