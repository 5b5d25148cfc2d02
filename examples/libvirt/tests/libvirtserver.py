"""A real libvirtd for the tests, with libvirt's test driver, which keeps its machines in memory.

Daemon, protocol and driver are libvirt's own; only the hypervisor behind them is none. The daemon
runs in namespaces of its own, so that it finds and changes nothing of this machine's.

Between it and the provider stands a relay, which can fall silent and break.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

_DISTRIBUTION = Path("/usr/lib/python3/dist-packages")
"""Where Debian and Ubuntu have libvirt-python, for the Python of the distribution."""

_BOOT = """
set -e
ip link set lo up
mount -t proc proc /proc
for folder in /run /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /etc/libvirt; do
    mkdir -p $folder
    mount -t tmpfs tmpfs $folder
done
exec libvirtd --config "$1/libvirtd.conf" --pid-file "$1/pid"
"""
_UNSHARE = (
    *("setpriv", "--pdeathsig", "KILL"),  # whatever happens to the tests, their server ends
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"),
)
_CONFIG = """
listen_tls = 0
unix_sock_dir = "{folder}"
auth_unix_ro = "{login}"
auth_unix_rw = "{login}"
log_outputs = "3:stderr"
"""
_DOMAIN = """
<domain type='test'>
  <name>{name}</name>
  <memory unit='MiB'>4096</memory>
  <vcpu>2</vcpu>
  <os><type arch='i686'>hvm</type></os>
  <devices>
    <interface type='network'><source network='default'/></interface>
  </devices>
</domain>
"""


def find_libvirt() -> str:
    """Make `import libvirt` possible, by the distribution's package where this Python has none of
    its own. Returns why it is not, "" where it is.

    Only the module itself is loaded: its neighbours are other versions of what is installed here.
    """
    found = importlib.util.find_spec("libvirt")
    if found is not None and found.origin:
        return ""
    version = f"cpython-{sys.version_info.major}{sys.version_info.minor}"
    built = next(_DISTRIBUTION.glob(f"libvirtmod.{version}-*.so"), None)
    if built is None or not (_DISTRIBUTION / "libvirt.py").exists():
        return "libvirt-python is not installed: README.md says how (section Tests)"
    for name, path in (("libvirtmod", built), ("libvirt", _DISTRIBUTION / "libvirt.py")):
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return ""


def unavailable() -> str:
    """Why there can be no libvirtd here; "" where there can."""
    if shutil.which("libvirtd") is None:
        return "libvirtd is not installed: README.md says how (section Tests)"
    if os.geteuid() != 0:
        return "libvirtd in namespaces of its own needs root"
    lacking = [tool for tool in ("setpriv", "unshare", "ip", "mount") if shutil.which(tool) is None]
    return f"libvirtd needs {', '.join(lacking)}" if lacking else ""


class Relay:
    """Passes bytes between a socket of its own and libvirtd's. A context manager."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._open_sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._passes = threading.Event()
        self._passes.set()
        self._requests_left: int | None = None

    def __enter__(self) -> Self:
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._passes.set()
        self._cut()
        for thread in self._threads:
            thread.join(10)

    @contextmanager
    def outage(self, after: int = 0) -> Iterator[None]:
        """So many more requests pass; then every connection ends, and new ones do at once."""
        self._requests_left = after
        if not after:
            self._cut()
        try:
            yield
        finally:
            self._requests_left = None

    @contextmanager
    def hang(self) -> Iterator[None]:
        """Nothing passes, keep-alive messages included; in the end all does."""
        self._passes.clear()
        try:
            yield
        finally:
            self._passes.set()

    def _start(self, run: Callable[[], object]) -> None:
        thread = threading.Thread(target=run, name="relay", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener's end
            while True:
                client, _ = self._listener.accept()
                self._start(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            server.connect(str(self._target))
            with self._lock:
                self._open_sockets |= {client, server}
            try:
                while all(self._pass(one, client, server) for one in select.select([client, server], [], [])[0]):
                    pass
            finally:
                with self._lock:
                    self._open_sockets -= {client, server}

    def _pass(self, source: socket.socket, client: socket.socket, server: socket.socket) -> bool:
        """Pass on what there is; whether the connection goes on."""
        data = source.recv(1 << 16)
        self._passes.wait()
        if source is client and self._requests_left is not None:
            if self._requests_left <= 0:
                return False
            self._requests_left -= 1
        (server if source is client else client).sendall(data)
        return bool(data)

    def _cut(self) -> None:
        with self._lock:
            for one in self._open_sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


class Server:
    """A daemon that runs, and the way to it that the provider takes."""

    def __init__(self, folder: Path, relay: Relay) -> None:
        import libvirt

        self.relay = relay
        self.uri = f"test+unix:///default?socket={relay.path}"
        # Behind the relay's back. The machines are there as long as somebody is connected.
        self.connection: Any = libvirt.open(f"test+unix:///default?socket={folder / 'libvirt-sock'}")

    def create(self, name: str) -> Any:
        """A machine that runs."""
        domain = self.connection.defineXML(_DOMAIN.format(name=name))
        domain.create()
        return domain

    def stop(self, name: str) -> None:
        """Switch a machine off; it stays defined."""
        self.connection.lookupByName(name).destroy()

    def delete(self, name: str) -> None:
        """Delete a machine, whatever its state; absent already is right."""
        for domain in self.connection.listAllDomains(0):
            if domain.name() == name:
                if domain.isActive():
                    domain.destroy()
                domain.undefine()


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """A daemon. `folder` is empty, and short: a socket's path has 107 characters at most."""
    with daemon(folder) as path, Relay(folder / "relay", path) as relay:
        server = Server(folder, relay)
        yield server
        server.connection.close()


@contextmanager
def daemon(folder: Path, password: str = "") -> Iterator[Path]:
    """A daemon's socket. With a password, only the user "ccm" may come in, with that."""
    (folder / "drivers").mkdir()  # none: the daemon would not start without their users and devices
    (folder / "libvirtd.conf").write_text(_CONFIG.format(folder=folder, login="sasl" if password else "none"))
    if password:
        (folder / "libvirt.conf").write_text(f"mech_list: scram-sha-256\nsasldb_path: {folder / 'sasldb'}\n")
        command = ["saslpasswd2", "-p", "-a", "libvirt", "-f", str(folder / "sasldb"), "ccm"]
        subprocess.run(command, input=password.encode(), check=True, timeout=30)
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _BOOT, "sh", str(folder)],
            env={**os.environ, "LIBVIRT_DRIVER_DIR": str(folder / "drivers"), "SASL_CONF_PATH": str(folder)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + 60
        while not (folder / "libvirt-sock").exists():
            said = (folder / "out").read_text()
            assert process.poll() is None, f"libvirtd ended: {said}"
            assert time.monotonic() < until, f"libvirtd does not answer: {said}"
            time.sleep(0.05)
        yield folder / "libvirt-sock"
    finally:
        process.kill()  # and with it, by --kill-child, the daemon
        process.wait(20)
