"""The kernel of Linux as the cloud's `Kernel`: the router, the machines and the load balancers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from threading import RLock

from localcloud import balancers
from localcloud.commands import in_namespace, missing_programs, run
from localcloud.kernel import BalancerRule, KernelError, RouteRule
from localcloud.layout import Layout
from localcloud.machines import Machines
from localcloud.model import Machine
from localcloud.network import Network
from localcloud.proxy import Proxy

__all__ = ["LinuxKernel"]


class LinuxKernel:
    """A `Kernel` of namespaces, routes and nftables. Takes root.

    Thread-safe: one change of the network at a time, one of each machine's power; machines boot
    side by side. `url` is what machines get as LOCALCLOUD_URL.
    """

    def __init__(self, layout: Layout, url: str) -> None:
        self._layout = layout
        self._lock = RLock()  # for the network; taken inside of those for power
        self._power: defaultdict[str, RLock] = defaultdict(RLock)
        self._network = Network(layout)
        self._machines = Machines(layout, url)
        self._proxy = Proxy(layout)

    def setup(self) -> None:
        problems = missing_programs()
        if not problems:
            problems = self._network.problems()
        if problems:
            raise KernelError("the cloud cannot run here: " + "; ".join(problems))
        with self._lock:
            self._layout.machines_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._network.setup()

    def close(self) -> None:
        self._machines.close()

    def destroy(self) -> None:
        for machine_id in self.running_machines():
            with self._power[machine_id]:
                self._machines.stop(machine_id)
        with self._lock:
            self._proxy.stop()
            self._network.destroy()

    def start_machine(self, machine: Machine) -> None:
        with self._power[machine.id]:
            if self.is_running(machine.id):
                return
            self._machines.stop(machine.id)  # what a fault has left
            with self._lock:
                self._network.add_machine(machine.id, machine.address)
            try:
                self._machines.start(machine)
            except KernelError:
                with self._lock:
                    self._network.remove_machine(machine.id)
                raise

    def stop_machine(self, machine_id: str) -> None:
        with self._power[machine_id]:
            self._machines.stop(machine_id)
            with self._lock:
                self._network.remove_machine(machine_id)

    def delete_disk(self, machine_id: str) -> None:
        with self._power[machine_id]:
            self._machines.delete_disk(machine_id)

    def is_running(self, machine_id: str) -> bool:
        return self._machines.is_running(machine_id)

    def running_machines(self) -> frozenset[str]:
        return self._machines.running()

    def enter_command(self, machine_id: str, command: Sequence[str]) -> list[str]:
        return self._machines.enter_command(machine_id, command)

    def apply_routes(self, routes: Sequence[RouteRule]) -> None:
        with self._lock:
            self._network.apply_routes(routes)

    def apply_load_balancers(self, rules: Sequence[BalancerRule]) -> None:
        """As in `Kernel`. A load balancer that cannot be carried out is named in the KernelError,
        after all others have been."""
        with self._lock:
            # A direct balancer's address is its targets', not the router's.
            self._network.apply_addresses(rule.address for rule in rules if rule.mode != "direct")
            table = self._layout.table
            self._router(["nft", "add", "table", "ip", table])
            present = balancers.parse_present(self._router(["nft", "-j", "list", "table", "ip", table]))
            self._router(["nft", "-f", "-"], balancers.ruleset(table, rules, present))
            for arguments in balancers.stale_flows(self._router(["conntrack", "-L"]), self._layout.pool, rules):
                # 1: the flow has ended by itself meanwhile
                run(in_namespace(self._layout.router_namespace, ["conntrack", *arguments]), accept=(0, 1))
            self._proxy.apply([rule for rule in rules if rule.mode == "proxy"])

    def _router(self, command: Sequence[str], text: str = "") -> str:
        return run(in_namespace(self._layout.router_namespace, command), text=text)
