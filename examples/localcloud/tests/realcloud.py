"""A real cloud for tests, of two machines: its addresses and names are in no other cloud's way.

Runs of tests take turns by locks on slots, each with a name, a base and a pool of its own. What a
killed run has left in a slot is removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcloud.commands import missing_programs
from localcloud.kernel import BalancerRule, KernelError, TargetRule
from localcloud.layout import Layout
from localcloud.linux import LinuxKernel
from localcloud.model import Machine, Mode, Port
from pyroute2 import IPRoute

__all__ = ["Cloud", "ask", "connect", "eventually", "slot", "why_not"]

_SLOTS = 12
SERVER = """
import os, pathlib, socketserver, sys, threading
name, disk = os.environ["MACHINE_NAME"], pathlib.Path(os.environ["MACHINE_DISK"])
class Tcp(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(f"{name} {self.client_address[0]}\\n".encode())
        for line in self.rfile:
            self.wfile.write(line)
class Udp(socketserver.DatagramRequestHandler):
    def handle(self):
        self.wfile.write(f"{name} {self.client_address[0]}\\n".encode())
class Health(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        code = "503 Broken" if (disk / "broken").exists() else "200 OK"
        self.wfile.write(f"HTTP/1.1 {code}\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n".encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer.request_queue_size = 64
threads = []
for kind, port, handler in (
    (socketserver.ThreadingTCPServer, 8080, Tcp),
    (socketserver.ThreadingTCPServer, 10256, Health),
    (socketserver.UDPServer, 5353, Udp),
):
    threads.append(threading.Thread(target=kind(("0.0.0.0", port), handler).serve_forever))
    threads[-1].start()
(disk / "serving").write_text("yes")
threads[0].join()  # from Python 3.12 on no thread can be started once the main one has ended
"""


_OF_THE_MACHINE = ("/tmp", "/run", "/var/lib", "/var/log")


def why_not() -> str:
    """Why there can be no real cloud here; "" where there can."""
    problems = missing_programs()
    if not problems and subprocess.run(["unshare", "--net", "--mount", "--cgroup", "true"], check=False).returncode:
        problems = ["namespaces are not allowed here (a container needs --privileged)"]
    if not problems and shutil.which("ip") is None:
        problems = ["ip not found (Debian, Ubuntu: apt-get install iproute2)"]
    for used in (Path(sys.executable), Path(__file__).resolve()):  # a machine's userData runs them
        for own in _OF_THE_MACHINE:
            if used.is_relative_to(own):
                problems.append(f"a machine has a {own} of its own and does not see {used}: put the clone elsewhere")
    return "; ".join(problems)


@contextmanager
def slot() -> Iterator[Layout]:
    """A layout that nobody else uses; what was made under its name is removed at the end."""
    for number in range(_SLOTS):
        with open(Path(tempfile.gettempdir()) / f"localcloud-tests-{number}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            folder = Path("/var/tmp") / f"localcloud-tests-{number}"
            layout = Layout(name=f"t{number}", base=f"10.{130 + 3 * number}", pool=_pool(number), folder=folder)
            _clean(layout)
            try:
                yield layout
            finally:
                _clean(layout)
            return
    raise RuntimeError(f"all {_SLOTS} slots for real clouds are in use: end the other runs of these tests")


def _pool(number: int) -> str:
    return f"198.18.{number}.0/28"


def _clean(layout: Layout) -> None:
    LinuxKernel(layout, "").destroy()
    shutil.rmtree(layout.folder, ignore_errors=True)


class Cloud:
    """A kernel with two machines, which answer on 8080 (TCP: a line with the machine's name and the
    client's address, then an echo), 5353 (UDP: the same line) and 10256 (health)."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.kernel = LinuxKernel(layout, f"http://{layout.host_address}:8090")
        self.address = str(layout.balancer_addresses()[0])
        self.other_address = str(layout.balancer_addresses()[1])
        self.clients = [f"{layout.base}.254.{number}" for number in range(1, 9)]
        """Addresses of the host that a client may use as its own."""

    def start(self) -> None:
        self.kernel.setup()
        with IPRoute() as host:
            for client in self.clients:
                host.addr("add", index=host.link_lookup(ifname=self.layout.uplink)[0], address=client, prefixlen=32)
        for number in (1, 2):
            self.boot(number)

    def machine(self, number: int, *, address: str | None = None) -> Machine:
        pod = f"ip address add {self.pod(number)}/32 dev lo"
        return Machine(
            id=f"m{number}", name=f"node-{number}", type="small", region="here", zone="here-1",
            address=address or f"{self.layout.base}.0.{9 + number}",
            user_data=f"{pod}\nexec {sys.executable} -I -S -c '{SERVER}'\n",
        )  # fmt: skip

    def pod(self, number: int) -> str:
        """An address in the range of that machine's pods."""
        return f"{self.layout.pods_network.network_address + 256 * number + 5}"

    def pods(self, number: int) -> str:
        return f"{self.layout.pods_network.network_address + 256 * number}/24"

    def boot(self, number: int, *, address: str | None = None) -> Machine:
        """Start a machine and wait until it serves."""
        machine = self.machine(number, address=address)
        serving = self.layout.machine_disk(machine.id) / "serving"
        serving.unlink(missing_ok=True)
        self.kernel.start_machine(machine)
        eventually(serving.exists, f"{machine.name} serves")
        return machine

    def rule(self, *numbers: int, mode: Mode = "nat", **changes: Any) -> BalancerRule:
        """TCP 80 to 8080 and UDP 53 to 5353 of those machines."""
        targets = [TargetRule(machine=f"m{n}", address=self.machine(n).address) for n in numbers]
        udp = [Port(protocol="UDP", port=53, target_port=5353)] if mode == "nat" else []
        values: dict[str, Any] = {
            "name": "web", "address": self.address, "mode": mode, "targets": tuple(targets),
            "ports": (Port(protocol="TCP", port=80, target_port=8080), *udp),
        }  # fmt: skip
        return BalancerRule(**(values | changes))

    def apply(self, *rules: BalancerRule) -> None:
        self.kernel.apply_load_balancers(rules)

    def run(self, number: int, script: str) -> str:
        """What a shell script writes, run inside a machine."""
        command = self.kernel.enter_command(f"m{number}", ["sh", "-c", script])
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        if done.returncode:
            raise KernelError(f"{script} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def log(self, number: int) -> str:
        return (self.layout.machine_disk(f"m{number}") / "console.log").read_text()


def connect(address: str, port: int = 80, *, source: str | None = None, timeout: float = 5) -> socket.socket:
    return socket.create_connection((address, port), timeout, (source, 0) if source else None)


def ask(address: str, port: int = 80, *, source: str | None = None, timeout: float = 5) -> tuple[str, str]:
    """The name of the machine that answers over TCP, and the client's address as it sees it."""
    with connect(address, port, source=source, timeout=timeout) as connection, connection.makefile("r") as lines:
        machine, client = lines.readline().split()
    return machine, client


def eventually(condition: Callable[[], object], what: str, seconds: float = 15) -> None:
    """Wait until the condition holds: for what processes and packets do by themselves."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def udp_client(source: str) -> socket.socket:
    """A socket for `ask_udp`, whose port stays the same."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(2)
    made.bind((source, 0))
    return made


def ask_udp(client: socket.socket, address: str, port: int = 53) -> tuple[str, str]:
    client.sendto(b"who?", (address, port))
    machine, seen = client.recv(100).decode().split()
    return machine, seen


if __name__ == "__main__":  # a daemon's process, to be killed: boots both machines and waits
    number, _ = sys.argv[1:], os.getpid()
    made = Cloud(Layout(name=number[0], base=number[1], pool=number[2], folder=Path(number[3])))
    made.start()
    made.apply(made.rule(1, 2))
    print("up", flush=True)
    time.sleep(600)
