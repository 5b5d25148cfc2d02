"""A kernel in memory: it keeps what it was told, for tests of the cloud's rules without root."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

from localcloud.kernel import BalancerRule, KernelError, RouteRule
from localcloud.model import Machine

__all__ = ["MemoryKernel"]


class MemoryKernel:
    """A `Kernel` without a kernel.

    Tests read `machines`, `disks`, `routes` and `load_balancers`, set `failure` to make each change
    fail with it, and call `crash` to end a machine behind the cloud's back. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self.is_set_up = False
        self.failure: KernelError | None = None
        self.machines: dict[str, Machine] = {}
        """Those that run, as they were at their start."""
        self.disks: set[str] = set()
        self.routes: tuple[RouteRule, ...] = ()
        self.load_balancers: tuple[BalancerRule, ...] = ()
        self.boots: list[str] = []
        """The IDs of machines, in the order of their starts."""

    def setup(self) -> None:
        self._check(needs_setup=False)
        self.is_set_up = True

    def close(self) -> None:
        self.is_set_up = False

    def destroy(self) -> None:
        with self._lock:
            self.machines.clear()
            self.routes, self.load_balancers, self.is_set_up = (), (), False

    def start_machine(self, machine: Machine) -> None:
        with self._lock:
            self._check()
            if machine.id in self.machines:
                return
            taken = [other.id for other in self.machines.values() if other.address == machine.address]
            if taken:
                raise KernelError(f"{machine.id}: the address {machine.address} belongs to {taken[0]}, which runs")
            self.machines[machine.id] = machine
            self.disks.add(machine.id)
            self.boots.append(machine.id)

    def stop_machine(self, machine_id: str) -> None:
        with self._lock:
            self._check()
            self.machines.pop(machine_id, None)

    def crash(self, machine_id: str) -> None:
        """End a machine as a fault would: nobody asked for it."""
        with self._lock:
            del self.machines[machine_id]

    def delete_disk(self, machine_id: str) -> None:
        with self._lock:
            self._check()
            if machine_id in self.machines:
                raise KernelError(f"{machine_id} runs: stop it before its disk is deleted")
            self.disks.discard(machine_id)

    def is_running(self, machine_id: str) -> bool:
        with self._lock:
            return machine_id in self.machines

    def running_machines(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self.machines)

    def enter_command(self, machine_id: str, command: Sequence[str]) -> list[str]:
        if not self.is_running(machine_id):
            raise KernelError(f"{machine_id} does not run: start it first")
        return ["true", *command]

    def apply_routes(self, routes: Sequence[RouteRule]) -> None:
        with self._lock:
            self._check()
            destinations = [route.destination for route in routes]
            if len(set(destinations)) != len(destinations):
                raise KernelError(f"two routes for one destination: {sorted(destinations)}")
            self.routes = tuple(routes)

    def apply_load_balancers(self, rules: Sequence[BalancerRule]) -> None:
        with self._lock:
            self._check()
            addresses = [rule.address for rule in rules]
            if len(set(addresses)) != len(addresses):
                raise KernelError(f"two load balancers with one address: {sorted(addresses)}")
            self.load_balancers = tuple(rules)

    def _check(self, *, needs_setup: bool = True) -> None:
        if self.failure:
            raise self.failure
        if needs_setup and not self.is_set_up:
            raise KernelError("call setup() first")
