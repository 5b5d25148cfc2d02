"""The rules of the cloud: what each request of the API means, with whatever kernel.

State first, kernel second, but for routes: a change is checked and saved, then the kernel is told
the whole of what should be. If it refuses, the request fails with `KernelError`, and the same
request again, or the next change, or a restart of the daemon, carries it out.

Locks, in this order: one for each machine's power, one for telling the kernel, one for changes of
the state. A state is never changed in place, so it is read without a lock.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from attrs import evolve, frozen

from localcloud.health import HealthMonitor, Probe, TargetHealth, http_check, probes_of
from localcloud.inputs import REGION, BalancerBody, Invalid, KeysBody, MachineBody, RouteBody, check_name
from localcloud.kernel import Kernel, KernelError, balancer_rule, route_rules
from localcloud.layout import Layout
from localcloud.model import HealthCheck, LoadBalancer, Machine, Route
from localcloud.state import State, StateFile

__all__ = ["Cloud", "Conflict", "MachineStatus", "NotFound"]

logger = logging.getLogger(__name__)


class NotFound(Exception):
    """There is no such machine, route or load balancer."""


class Conflict(Exception):
    """A name, an address or a thing is another's, or nothing is left to give."""


@frozen
class MachineStatus:
    """A machine with what is true of it at this moment."""

    machine: Machine
    running: bool


class Cloud:
    """Thread-safe. Every method raises `NotFound`, `Conflict`, `Invalid`, `KernelError`, or OSError
    where the state cannot be saved."""

    def __init__(
        self,
        layout: Layout,
        kernel: Kernel,
        *,
        check: Callable[[str, HealthCheck], bool] = http_check,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Raises `BadState` where the state file cannot be read."""
        self.layout = layout
        self._kernel = kernel
        self._now = now
        self._file = StateFile(layout.state_file)
        self._state = self._file.load()
        self._lock = threading.RLock()
        self._telling = threading.RLock()
        self._power: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self.health = HealthMonitor(self._tell_balancers, kernel.is_running, check=check)

    def start(self) -> None:
        """Set up the kernel's side and bring it in line with the state. Machines that run are taken
        over; those that should run and do not are started. Then the health checks begin."""
        self._kernel.setup()
        known = self._state.machines
        for stray in sorted(self._kernel.running_machines() - known.keys()):
            logger.warning("%s runs, and the state does not know it: stopped", stray)
            self._kernel.stop_machine(stray)
        for machine in known.values():
            try:
                self._settle(machine.id)
            except KernelError:
                logger.exception("%s could not be brought into the state %r", machine.id, machine.state)
        self._tell_routes()
        self.health.watch(self._probes())
        self.health.round()  # before the first word to the kernel, or all targets would be out for a moment
        self._tell_balancers()
        self.health.start()

    def close(self) -> None:
        """End the health checks. What runs goes on running."""
        self.health.close()
        self._kernel.close()

    # Machines

    def machines(self, *, ids: Sequence[str] | None = None, names: Sequence[str] | None = None) -> list[MachineStatus]:
        """The machines, all or those with these IDs and names, in the order of their making."""
        found = list(self._state.machines.values())
        running = self._kernel.running_machines()
        return [
            MachineStatus(one, one.id in running and one.state == "running")
            for one in found
            if (ids is None or one.id in ids) and (names is None or one.name in names)
        ]

    def machine(self, machine_id: str) -> MachineStatus:
        machine = self._machine(machine_id)
        return MachineStatus(machine, machine.state == "running" and self._kernel.is_running(machine_id))

    def machine_at(self, address: str) -> MachineStatus:
        """The machine with this address. Raises NotFound."""
        for one in self.machines():
            if one.machine.address == address:
                return one
        raise NotFound(f"{address} is no machine's address")

    def create_machine(self, body: MachineBody) -> MachineStatus:
        """A new machine, which runs when this returns."""
        with self._lock:
            if twin := [one.id for one in self._state.machines.values() if one.name == body.name]:
                raise Conflict(f"the name {body.name} belongs to {twin[0]}: two machines cannot have one name")
            number = self._state.last_machine + 1
            machine = Machine(
                id=f"m{number}",
                name=body.name,
                type=body.type,
                region=REGION,
                zone=body.zone,
                address=self._free_address(),
                labels=dict(body.labels),
                taints=tuple(body.taints),
                annotations=dict(body.annotations),
                user_data=body.user_data,
                created_at=self._now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            self._save(machines={**self._state.machines, machine.id: machine}, last_machine=number)
        try:
            self._power_changed(machine.id)
        except KernelError:
            try:  # its name and address are free again
                self.delete_machine(machine.id)
            except KernelError as error:
                logger.warning("machine %s does not boot, and is not gone either; delete it: %s", machine.id, error)
            raise
        return self.machine(machine.id)

    def start_machine(self, machine_id: str) -> MachineStatus:
        """Power on; nothing where it runs."""
        self._change(machine_id, state="running")
        self._power_changed(machine_id)
        return self.machine(machine_id)

    def stop_machine(self, machine_id: str) -> MachineStatus:
        """Power off; nothing where it is off."""
        self._change(machine_id, state="stopped")
        self._power_changed(machine_id)
        return self.machine(machine_id)

    def reboot_machine(self, machine_id: str, *, new_address: bool = False) -> MachineStatus:
        """Off and on again, with another address if asked for."""
        with self._power[machine_id]:
            self._change(machine_id, state="stopped")
            self._power_changed(machine_id)
            with self._lock:
                address = self._free_address() if new_address else self._machine(machine_id).address
                self._change(machine_id, state="running", address=address)
            self._power_changed(machine_id)
        return self.machine(machine_id)

    def delete_machine(self, machine_id: str) -> None:
        """End the machine and its disk. Routes to it stay, as blackholes, and load balancers keep
        its ID: their owners know best when to let go."""
        with self._power[machine_id]:
            self._change(machine_id, state="stopped")
            self._power_changed(machine_id)
            self._kernel.delete_disk(machine_id)
            with self._lock:  # last, so that an interrupted deletion can be repeated
                self._save(machines={key: one for key, one in self._state.machines.items() if key != machine_id})
            try:  # once more: SSH keys may have come meanwhile
                self._kernel.delete_disk(machine_id)
            except KernelError as error:
                logger.warning("machine %s is gone, but its disk was not removed: %s", machine_id, error)

    def console(self, machine_id: str, most: int = 1 << 16) -> str:
        """The end of the machine's console, at most so many bytes of it."""
        path = self.layout.machine_disk(self._machine(machine_id).id) / "console.log"
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - most))
                return file.read(most).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def enter_command(self, machine_id: str) -> list[str]:
        """The beginning of a command line, as root on the host, that runs a program in the
        machine."""
        return self._kernel.enter_command(self._machine(machine_id).id, [])

    # Routes

    def routes(self, owner: str | None = None) -> list[Route]:
        return [one for one in self._state.routes.values() if owner is None or one.owner == owner]

    def put_route(self, name: str, body: RouteBody) -> Route:
        """Make the route, or change it where it is the same owner's."""
        check_name("route", name)
        route = Route(name=name, destination=body.destination, machine=body.machine, owner=body.owner)
        with self._telling:
            self._check_route(route)
            self._tell_routes(route, but=name)  # first: one that is listed counts as done
            with self._lock:
                self._save(routes={**self._state.routes, name: route})
        return route

    def delete_route(self, name: str, owner: str | None = None) -> None:
        with self._telling:
            found = self._state.routes.get(name)
            if found is None:
                raise NotFound(f"there is no route {name}")
            _check_owner("route", name, found.owner, owner)
            self._tell_routes(but=name)  # first, so that a deletion that failed can be repeated
            with self._lock:
                self._save(routes={key: one for key, one in self._state.routes.items() if key != name})

    def gateway(self, route: Route) -> str | None:
        """Where the route leads; None for a blackhole."""
        return route_rules([route], self._state.machines)[0].gateway

    # Load balancers

    def load_balancers(self, owner: str | None = None) -> list[LoadBalancer]:
        return [one for one in self._state.balancers.values() if owner is None or one.owner == owner]

    def load_balancer(self, name: str) -> LoadBalancer:
        found = self._state.balancers.get(name)
        if found is None:
            raise NotFound(f"there is no load balancer {name}")
        return found

    def put_load_balancer(self, name: str, body: BalancerBody) -> LoadBalancer:
        """Build the load balancer, or bring it in line: the body is all of it. The address stays,
        unless another one is asked for."""
        check_name("load balancer", name)
        with self._lock:
            found = self._state.balancers.get(name)
            if found is not None:
                _check_owner("load balancer", name, found.owner, body.owner)
            made = body.balancer(name, self._balancer_address(name, found, body.requested_address))
            if made != found:
                self._save(balancers={**self._state.balancers, name: made})
        self.health.watch(self._probes())
        self._tell_balancers(asked=name)
        return made

    def delete_load_balancer(self, name: str, owner: str | None = None) -> None:
        with self._telling:
            _check_owner("load balancer", name, self.load_balancer(name).owner, owner)
            self._tell_balancers(but=name)  # first, so that a deletion that failed can be repeated
            with self._lock:
                self._save(balancers={key: one for key, one in self._state.balancers.items() if key != name})
        self.health.watch(self._probes())

    def target_health(self, balancer: LoadBalancer) -> list[TargetHealth]:
        """What is known of each target, in their order; one that was not asked yet, or has no
        running machine, is unhealthy."""
        known = {one.machine: one for one in self.health.status(balancer.name)}
        return [known.get(one) or TargetHealth(machine=one, healthy=False, since=0.0) for one in balancer.targets]

    # SSH keys

    def ssh_keys(self, user: str) -> tuple[str, ...]:
        return self._state.ssh_keys.get(user, ())

    def put_ssh_keys(self, user: str, body: KeysBody) -> tuple[str, ...]:
        """These keys, and no others, are the user's on every machine, also on those to come."""
        keys = tuple(dict.fromkeys(body.keys))
        with self._lock:
            if keys != self._state.ssh_keys.get(check_name("user", user)):
                self._save(ssh_keys={**self._state.ssh_keys, user: keys})
            for machine_id in self._state.machines:
                self._write_keys(machine_id)
        return keys

    def _write_keys(self, machine_id: str) -> None:
        with self._lock:
            lines = [f"{key} {user}\n" for user, keys in sorted(self._state.ssh_keys.items()) for key in keys]
            path = self.layout.machine_disk(machine_id) / "ssh" / "authorized_keys"
            for folder in (path.parents[1], path.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_name("authorized_keys.new")
            fresh.write_text("".join(lines))
            fresh.chmod(0o600)
            fresh.replace(path)

    # What the kernel is told

    def _power_changed(self, machine_id: str) -> None:
        """Start or stop the machine as the state says, then everything that depends on it."""
        self._settle(machine_id)
        self._tell_routes()
        self.health.watch(self._probes())
        self._tell_balancers()

    def _settle(self, machine_id: str) -> None:
        with self._power[machine_id]:
            machine = self._machine(machine_id)  # read inside: the last word counts
            if machine.state == "running":
                self._write_keys(machine_id)
                self._kernel.start_machine(machine)
            else:
                self._kernel.stop_machine(machine_id)

    def _tell_routes(self, *more: Route, but: str = "") -> None:
        with self._telling:
            state = self._state
            routes = [*more, *(one for one in state.routes.values() if one.name != but)]
            self._kernel.apply_routes(route_rules(routes, state.machines))

    def _tell_balancers(self, *, but: str = "", asked: str = "") -> None:
        """All load balancers but one. `asked` is the one that a request is about: others that alone
        cannot be carried out are logged, and do not fail it."""
        with self._telling:
            state = self._state
            balancers = [one for one in state.balancers.values() if one.name != but]
            rules = [balancer_rule(one, state.machines, self.health.healthy(one.name)) for one in balancers]
            try:
                self._kernel.apply_load_balancers(rules)
            except KernelError as exc:
                if not exc.balancers or asked in exc.balancers:
                    raise
                logger.warning("%s", exc)

    def _probes(self) -> Sequence[Probe]:
        state = self._state
        return probes_of([*state.balancers.values()], state.machines)

    # The state

    def _save(self, **changes: Any) -> None:
        """Must be called with the lock held. Where the file cannot be written, nothing has
        changed."""
        state: State = evolve(self._state, **changes)
        self._file.save(state)
        self._state = state

    def _machine(self, machine_id: str) -> Machine:
        found = self._state.machines.get(machine_id)
        if found is None:
            raise NotFound(f"there is no machine {machine_id}")
        return found

    def _change(self, machine_id: str, **changes: Any) -> None:
        with self._lock:
            found = self._machine(machine_id)
            machine: Machine = evolve(found, **changes)
            if machine != found:
                self._save(machines={**self._state.machines, machine_id: machine})

    def _free_address(self) -> str:
        taken = {one.address for one in self._state.machines.values()}
        return _first_free(self.layout.machine_addresses(), taken, "the machines' subnet")

    def _balancer_address(self, name: str, found: LoadBalancer | None, requested: str | None) -> str:
        taken = {one.address: one.name for one in self._state.balancers.values() if one.name != name}
        if requested is None:
            return found.address if found else _first_free(self.layout.balancer_addresses(), taken, "the pool")
        if IPv4Address(requested) not in self.layout.balancer_addresses():
            raise Invalid(f"requestedAddress: {requested} is not in the pool {self.layout.pool}")
        if requested in taken:
            raise Conflict(f"the address {requested} belongs to the load balancer {taken[requested]}")
        return requested

    def _check_route(self, route: Route) -> None:
        wanted = IPv4Network(route.destination)
        for network in (self.layout.own_network, self.layout.pool):
            if network.overlaps(wanted):
                raise Invalid(f"destination: {wanted} overlaps {network}, which is the cloud's own")
        found = self._state.routes.get(route.name)
        if found is not None:
            _check_owner("route", route.name, found.owner, route.owner)
        if route.machine not in self._state.machines:
            raise Invalid(f"machine: there is no machine {route.machine}")
        for other in self._state.routes.values():
            if other.destination == route.destination and other.name != route.name:
                raise Conflict(f"the route {other.name} has the destination {route.destination} already")


def _check_owner(kind: str, name: str, owner: str, asking: str | None) -> None:
    """`asking` is None where nobody is named: the cloud's own command line."""
    if asking is not None and asking != owner:
        raise Conflict(f"the {kind} {name} belongs to {owner!r}, not to {asking!r}")


def _first_free(addresses: Sequence[IPv4Address], taken: Mapping[str, str] | set[str], where: str) -> str:
    for address in addresses:
        if str(address) not in taken:
            return str(address)
    raise Conflict(f"all {len(addresses)} addresses of {where} are taken")
