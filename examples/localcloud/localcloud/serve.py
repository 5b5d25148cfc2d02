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
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from attrs import frozen

from localcloud.api import ApiServer
from localcloud.cloud import Cloud
from localcloud.commands import NAMESPACES
from localcloud.kernel import Kernel
from localcloud.layout import Layout
from localcloud.memory import MemoryKernel
from localcloud.ratelimit import RateLimit

__all__ = ["DEFAULT_PORT", "Settings", "StartError", "destroy", "read_token", "serve"]

logger = logging.getLogger(__name__)

DEFAULT_PORT = 8090
RUN = Path("/run")
"""Root's alone, and empty after a boot, as the kernel's side of every cloud is."""


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
    with locked(layout.folder), nullcontext() if settings.memory else named(layout):
        token = read_token(settings.token_file, create=True)
        address = settings.listen or (str(layout.host_address), DEFAULT_PORT)
        cloud = Cloud(layout, kernel_of(layout, f"http://{address[0]}:{address[1]}", memory=settings.memory))
        limit = RateLimit(settings.rate) if settings.rate else None
        # Before the kernel is told anything: if the address is taken, nothing has been changed.
        with ApiServer(address, cloud, token, limit) as server:
            try:
                cloud.start()
                with _stopped_by_signals(server):
                    logger.info("the API listens on %s, the token is in %s", server.url, settings.token_file)
                    ready(server.url)
                    server.serve_forever(poll_interval=0.1)
            finally:
                cloud.close()
    logger.info("stopped; machines, routes and load balancers go on")


def destroy(layout: Layout) -> None:
    """End all machines and remove what the cloud made in the kernel; state and disks stay. Raises
    StartError while a daemon runs, and KernelError."""
    with locked(layout.folder), named(layout):
        kernel_of(layout).destroy()


def read_token(path: Path, *, create: bool = False) -> str:
    """The API's token. Where there is no file and it may be made, a new token. With `create`, as
    the daemon reads it, the file must be the caller's alone. Raises StartError."""
    try:
        if create and not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "x", opener=_private) as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        with open(path, encoding="ascii", opener=_private if create else None) as file:
            if create:
                _check_owner(path, file.fileno(), "the token")
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise StartError(f"the token cannot be read from {path}: {exc}. Give --token-file") from exc
    if not token or any(not "!" <= letter <= "~" for letter in token):
        raise StartError(f"{path} must hold the token: one word of printable ASCII characters")
    return token


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One daemon for one folder, which is made if absent and must be the caller's alone. Raises
    StartError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_owner(folder, opened, "the state's folder")
    finally:
        os.close(opened)
    with _held(folder / "lock", f"another daemon uses {folder}: stop it, or give another --state"):
        yield


@contextmanager
def named(layout: Layout) -> Iterator[None]:
    """One folder for one name in this kernel, where links, routes and namespaces are found by the
    name alone, also while no daemon runs. Raises StartError."""
    taken = f"another daemon runs the cloud {layout.name!r}: stop it, or give another --name"
    with _held(RUN / f"localcloud-{layout.name}", taken) as owner:
        mine, other = str(layout.folder.resolve()), owner.read()
        if other not in ("", mine) and (NAMESPACES / layout.router_namespace).exists():
            raise StartError(
                f"the cloud {layout.name!r} in the kernel belongs to the state in {other}: give --state {other}, or "
                f"another --name, or end it with `localcloud destroy --name {layout.name} --state {other}`"
            )
        owner.truncate(0)
        owner.write(mine)
        owner.flush()
        yield


@contextmanager
def _held(path: Path, taken: str) -> Iterator[TextIO]:
    try:
        file = open(path, "a+", encoding="utf-8", opener=_private)  # noqa: SIM115 closed below
    except OSError as exc:
        raise StartError(f"{path} cannot be opened, and no link is followed: {exc}") from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise StartError(taken) from exc
        file.seek(0)
        yield file


def _private(path: str, flags: int) -> int:
    # A link that somebody else made here would have root open, and truncate, any file.
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _check_owner(path: Path, opened: int, what: str) -> None:
    """Refuse what another user of this host owns or may write: machines run programs as root."""
    found = os.fstat(opened)
    if found.st_uid != os.geteuid():
        raise StartError(f"{what}, {path}, belongs to the user {found.st_uid}, not to you ({os.geteuid()})")
    others = stat.S_IMODE(found.st_mode) & (0o022 if stat.S_ISDIR(found.st_mode) else 0o077)
    if others:
        raise StartError(f"others may use {what}, {path}: look at what is in it, then chmod go= {path}")


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
