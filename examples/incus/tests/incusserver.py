"""A real Incus or LXD server for the tests: started in namespaces of its own, empty, and ended with
all that it started.

The namespaces (network, mounts, processes) keep its bridge, its DHCP server and its firewall rules
away from this machine, and make its end certain: with the first process of the process namespace
all others end. Its API is on a unix socket, which any namespace reaches.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen
from incus_provider.connection import UnixPool

NETWORK = "br-nodes"
SUBNET = "198.19.240.0/24"
POOL = "198.19.241.8/29"
"""Where the load balancers' addresses come from: outside the subnet, routed to the server."""
CLIENT = "198.19.242.2"
"""A client of the load balancers: in the server's network namespace, outside the bridge."""

DAEMONS = {
    "incus": ("/usr/libexec/incus/incusd", "/opt/incus/bin/incusd"),
    "lxd": ("/usr/bin/lxd", "/snap/lxd/current/bin/lxd"),
}
_TOOLS = ("setpriv", "unshare", "nsenter", "ip", "busybox", "dnsmasq", "nft")

# With the network namespace comes a /sys of its own, or the daemon would look for its bridge among
# this machine's devices. A new /sys has no control groups in it: those are carried over.
_BOOT = """
set -e
ip link set lo up
ip address add {client}/32 dev lo
ip route add {pool} dev lo src {client}
mount -t proc proc /proc
mount --rbind /sys/fs/cgroup "$1/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$1/cgroup" /sys/fs/cgroup
umount -l "$1/cgroup"
exec "$2" --group root --logfile "$1/log"
"""
_UNSHARE = (
    *("setpriv", "--pdeathsig", "KILL"),  # whatever happens to the tests, their server ends
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"),
)
_INIT = """#!/bin/busybox sh
export PATH=/bin
ip link set lo up
ip link set eth0 up
hostname >/tmp/index.html
udhcpc -i eth0 -q -n -s /bin/lease
httpd -p 30080 -h /tmp
trap 'exit 0' PWR TERM INT USR1
while :; do sleep 1000 & wait; done
"""
_LEASE = """#!/bin/busybox sh
[ "$1" = bound ] || exit 0
ip address add $ip/${mask:-24} dev $interface
ip route add default via $router
"""
_APPLETS = ("sh", "ip", "udhcpc", "httpd", "sleep", "hostname", "ping", "wget")


def unavailable(kind: str) -> str:
    """Why there can be no server of this kind ("incus", "lxd") here; "" where there can."""
    if not any(os.access(path, os.X_OK) for path in DAEMONS[kind]):
        return f"{kind} is not installed: README.md says how (section Tests)"
    if os.geteuid() != 0:
        return f"{kind} needs root"
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"{kind} needs {', '.join(lacking)}"
    # In the containers there is nothing else, no dynamic linker either.
    return "busybox is not linked statically" if b"/ld-linux" in _busybox() else ""


@frozen
class Server:
    """A server that runs."""

    kind: str
    folder: Path
    process: subprocess.Popen[bytes] = field(repr=False)
    pool: UnixPool = field(repr=False)

    @property
    def socket(self) -> Path:
        """Where the API is."""
        return self.folder / "data" / "unix.socket"

    def ask(self, method: str, path: str, body: object = None, *, data: bytes | None = None) -> Any:
        """What the API answers; operations are waited for. Raises AssertionError for an error."""
        content = json.dumps(body).encode() if data is None and body is not None else data
        kind = "application/octet-stream" if data is not None else "application/json"
        headers = {"Content-Type": kind}
        failure, found = "", {}
        for _ in range(100):
            answer = self.pool.request(method, path, body=content, headers=headers, timeout=60, retries=False)
            found = json.loads(answer.data)
            if found["type"] == "async":
                wait = f"{found['operation']}/wait?timeout=60"
                found = json.loads(self.pool.request("GET", wait, timeout=70, retries=False).data)
            failure = _failure(found)
            if "is busy" not in failure:  # with a change of the provider's, which ends soon
                break
            time.sleep(0.1)
        assert not failure, f"{method} {path}: {failure}"
        return found["metadata"]

    def create(self, name: str, **config: str) -> None:
        """A container that runs."""
        source = {"type": "image", "alias": "busybox"}
        self.ask("POST", "/1.0/instances", {"name": name, "source": source, "config": config})
        self.state(name, "start")

    def state(self, name: str, action: str) -> None:
        """Start or stop a container."""
        self.ask("PUT", f"/1.0/instances/{name}/state", {"action": action, "force": True, "timeout": 30})

    def delete(self, name: str) -> None:
        """Delete a container, whatever its state; absent already is right."""
        for one in self.ask("GET", "/1.0/instances?recursion=1"):
            if one["name"] == name:
                if one["status"] != "Stopped":
                    self.state(name, "stop")
                self.ask("DELETE", f"/1.0/instances/{name}")

    def address(self, name: str) -> str:
        """The IPv4 address that a container got by DHCP, once it has one."""
        for _ in range(200):
            network = self.ask("GET", f"/1.0/instances/{name}/state")["network"] or {}
            for one in network.get("eth0", {}).get("addresses", ()):
                if one["family"] == "inet":
                    return str(one["address"])
            time.sleep(0.05)
        raise AssertionError(f"{name} got no address")

    def run(self, name: str, *command: str) -> tuple[int, str]:
        """Run a command in a container: its exit code and its output."""
        done = self.ask(
            "POST", f"/1.0/instances/{name}/exec", {"command": command, "record-output": True, "interactive": False}
        )["metadata"]
        output = self.pool.request("GET", done["output"]["1"], timeout=10, retries=False).data
        return done["return"], output.decode()

    def as_client(self, *command: str, input: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in the server's network, outside the containers."""
        [daemon] = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        enter = ["nsenter", "--net", "--target", daemon, *command]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(enter, input=input, env=environ, capture_output=True, text=True, timeout=60, check=False)


def _busybox() -> bytes:
    return Path(str(shutil.which("busybox"))).read_bytes()


def _failure(answer: dict[str, Any]) -> str:
    """What the server says went wrong, with the request or with its operation."""
    operation = answer["metadata"] if isinstance(answer["metadata"], dict) else {}
    return str(answer.get("error") or operation.get("err") or "")


def image() -> bytes:
    """A system of one program, busybox: it asks for an address and serves its name over HTTP."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:

        def add(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "") -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.size, entry.linkname = kind, 0o755, len(content), target
            archive.addfile(entry, io.BytesIO(content))

        add("metadata.yaml", b'{"architecture": "x86_64", "creation_date": 1700000000, "properties": {}}')
        for folder in ("", "/bin", "/sbin", "/etc", "/proc", "/sys", "/dev", "/tmp", "/run"):
            add(f"rootfs{folder}", kind=tarfile.DIRTYPE)
        add("rootfs/bin/busybox", _busybox())
        for applet in _APPLETS:
            add(f"rootfs/bin/{applet}", kind=tarfile.SYMTYPE, target="busybox")
        add("rootfs/sbin/init", _INIT.encode())
        add("rootfs/bin/lease", _LEASE.encode())
    return buffer.getvalue()


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Server]:
    """A server with a storage pool, a bridge and an image. `folder` is short: a socket's path has
    107 characters at most."""
    [daemon, *_] = [path for path in DAEMONS[kind] if os.access(path, os.X_OK)]
    for name in ("cgroup", "data", "var"):
        (folder / name).mkdir()
    boot = _BOOT.format(client=CLIENT, pool=POOL)
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", boot, "sh", str(folder), daemon],
            env={**os.environ, "LXD_DIR": str(folder / "data"), "INCUS_DIR": str(folder / "data")},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    server = Server(kind, folder, process, UnixPool(str(folder / "data" / "unix.socket")))
    try:
        _wait(server)
        _furnish(server)
        try:
            yield server
        finally:  # with a container goes its control group, which has no namespace
            for one in server.ask("GET", "/1.0/instances?recursion=1"):
                server.delete(one["name"])
    finally:
        server.pool.close()
        process.kill()  # and with it, by --kill-child, the first process of the namespace
        process.wait(20)
        for left in Path("/sys/fs/cgroup").glob("*/lxc.pivot"):  # lxc leaves it behind, empty
            with contextlib.suppress(OSError):
                left.rmdir()


def _wait(server: Server) -> None:
    for _ in range(300):
        assert server.process.poll() is None, f"{server.kind} ended: {(server.folder / 'out').read_text()}"
        try:
            if server.ask("GET", "/1.0")["auth"] == "trusted":
                return
        except Exception:  # noqa: BLE001 - whatever it is, it does not answer yet
            time.sleep(0.05)
    raise AssertionError(f"{server.kind} does not answer: {(server.folder / 'out').read_text()}")


def _furnish(server: Server) -> None:
    server.ask("POST", "/1.0/storage-pools", {"name": "default", "driver": "dir"})
    gateway = SUBNET.replace(".0/", ".1/")
    bridge = {"ipv4.address": gateway, "ipv4.nat": "false", "ipv6.address": "none"}
    server.ask("POST", "/1.0/networks", {"name": NETWORK, "type": "bridge", "config": bridge})
    devices = {
        "root": {"type": "disk", "path": "/", "pool": "default"},
        "eth0": {"type": "nic", "network": NETWORK, "name": "eth0"},
    }
    # Privileged: the file system needs no mapping of users, which takes a second each time.
    profile = {"devices": devices, "config": {"security.privileged": "true"}}
    server.ask("PUT", "/1.0/profiles/default", profile)
    found = server.ask("POST", "/1.0/images", data=image())
    alias = {"name": "busybox", "target": found["metadata"]["fingerprint"]}
    server.ask("POST", "/1.0/images/aliases", alias)
