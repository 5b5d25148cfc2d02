"""A machine that can be cut off: a network namespace whose only way out is a forwarder, and whose
packets get lost.

A process is started in it with `inside`, and reaches the API server at `port` of its own 127.0.0.1.
`cut` takes the namespace's interface down: what its kernel sends is lost, and sent again, until
`heal`. The other side is reached by a Unix socket, so that nothing of the machine's own network is
touched. Takes root and nsenter.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_NEW_NET: Final = 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


def why_not() -> str:
    """Why there can be no islands here; "" where there can."""
    if os.geteuid():
        return "a network namespace takes root"
    if shutil.which("nsenter") is None:
        return "nsenter is not installed"
    tried = subprocess.run([sys.executable, "-c", f"import ctypes, sys; sys.exit({_UNSHARE})"], check=False)
    return "the kernel allows no network namespace here" if tried.returncode else ""


_UNSHARE: Final = f"-ctypes.CDLL(None).unshare({_NEW_NET})"


class Island:
    """Forwards to `upstream`, (host, port). A context manager."""

    def __init__(self, folder: Path, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        path = str(folder / "way-out")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        threading.Thread(target=_accept, args=(self._listener, self._connect), daemon=True).start()
        self._helper = subprocess.Popen(
            [sys.executable, "-m", "tests.support.partition", path],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._helper.stdout is not None
        self.port = int(self._helper.stdout.readline())

    @property
    def inside(self) -> tuple[str, ...]:
        """What a command begins with that is to run there."""
        return ("nsenter", f"--net=/proc/{self._helper.pid}/ns/net", "--")

    def cut(self) -> None:
        self._tell("down")

    def heal(self) -> None:
        self._tell("up")

    def __enter__(self) -> Island:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._helper.kill()
        self._helper.communicate()

    def _tell(self, what: str) -> None:
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        print(what, file=self._helper.stdin, flush=True)
        assert self._helper.stdout.readline().strip() == what

    def _connect(self) -> socket.socket:
        return socket.create_connection(self._upstream)


def _accept(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_join, args=(near, connect), daemon=True).start()


def _join(near: socket.socket, connect: Callable[[], socket.socket]) -> None:
    with near, contextlib.suppress(OSError), connect() as far:
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for sock in (one, other):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _set_loopback(*, up: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        name, flags = struct.unpack("16sH14x", fcntl.ioctl(sock, _GET_FLAGS, request))
        flags = flags | _UP if up else flags & ~_UP
        fcntl.ioctl(sock, _SET_FLAGS, struct.pack("16sH14x", name, flags))


def _main(path: str) -> None:
    """The island's own end of the way out."""
    if ctypes.CDLL(None).unshare(_NEW_NET):
        raise SystemExit("no network namespace")
    _set_loopback(up=True)

    def connect() -> socket.socket:
        out = socket.socket(socket.AF_UNIX)
        out.connect(path)
        return out

    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=_accept, args=(listener, connect), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    for line in sys.stdin:
        _set_loopback(up=line.strip() == "up")
        print(line.strip(), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
