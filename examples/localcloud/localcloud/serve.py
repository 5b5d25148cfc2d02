"""The daemon: kernel, cloud and API in one process, until SIGTERM or SIGINT.

What the daemon made goes on without it: machines run, routes and load balancers work. `destroy`
ends all of it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from localcloud.api import ApiServer
from localcloud.cloud import Cloud
from localcloud.kernel import Kernel
from localcloud.layout import Layout
from localcloud.memory import MemoryKernel
from localcloud.ratelimit import RateLimit

__all__ = ["DEFAULT_PORT", "Settings", "StartError", "destroy", "read_token", "serve"]

logger = logging.getLogger(__name__)

DEFAULT_PORT = 8090


class StartError(Exception):
    """The daemon cannot start; the text says what to do."""


@frozen(kw_only=True)
class Settings:
    """What `localcloud serve` is given."""

    layout: Layout
    token_file: Path
    listen: tuple[str, int] | None = None
    """None: the host's address of the layout, port `DEFAULT_PORT`."""
    rate: float = 0.0
    """Requests a second that the API takes; 0: all."""
    memory: bool = False
    """Nothing is made in the kernel: machines are only said to run."""


def kernel_of(layout: Layout, url: str = "", *, memory: bool = False) -> Kernel:
    """The kernel's side; machines are told `url`. Linux's needs root, and says so at its setup."""
    if memory:
        return MemoryKernel()
    from localcloud.linux import LinuxKernel  # needs pyroute2, which the API alone does not

    return LinuxKernel(layout, url)


def serve(settings: Settings, ready: Callable[[str], object] = lambda url: None) -> None:
    """Run until SIGTERM or SIGINT. `ready` gets the URL once the API answers. Main thread only.
    Raises StartError, BadState, KernelError and OSError before anything is served."""
    layout = settings.layout
    layout.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(layout.folder):
        token = read_token(settings.token_file, create=True)
        address = settings.listen or (str(layout.host_address), DEFAULT_PORT)
        cloud = Cloud(layout, kernel_of(layout, f"http://{address[0]}:{address[1]}", memory=settings.memory))
        cloud.start()  # before the API listens: the host's address is on the link that this makes
        try:
            limit = RateLimit(settings.rate) if settings.rate else None
            with ApiServer(address, cloud, token, limit) as server, _stopped_by_signals(server):
                logger.info("the API listens on %s, the token is in %s", server.url, settings.token_file)
                ready(server.url)
                server.serve_forever(poll_interval=0.1)
        finally:
            cloud.close()
    logger.info("stopped; machines, routes and load balancers go on")


def destroy(layout: Layout) -> None:
    """End all machines and remove what the cloud made in the kernel; state and disks stay. Raises
    StartError while a daemon runs, and KernelError."""
    layout.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(layout.folder):
        kernel_of(layout).destroy()


def read_token(path: Path, *, create: bool = False) -> str:
    """The API's token. Where there is no file and it may be made, a new token. Raises
    StartError."""
    try:
        if create and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise StartError(f"the token cannot be read from {path}: {exc}. Give --token-file") from exc
    if not token or any(not "!" <= letter <= "~" for letter in token):
        raise StartError(f"{path} must hold the token: one word of printable ASCII characters")
    return token


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One daemon for one folder. Raises StartError."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise StartError(f"another daemon uses {folder}: stop it, or give another --state") from exc
        yield


@contextmanager
def _stopped_by_signals(server: ApiServer) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        # shutdown() waits for serve_forever, which this very thread is in
        threading.Thread(target=server.shutdown, name="shutdown", daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
