"""The way to libvirt: one connection for each host, all asked at once, with a time limit.

libvirt's calls have no time limits of their own. So each runs in a thread, which is left behind
when the time is up; libvirt's keep-alive messages end it soon after. All that can go wrong becomes
a `CloudProviderError` here, and nowhere else. Nothing is tried twice: the host does that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeVar

import libvirt

from cloudprovider import CloudProviderError
from cloudprovider.helpers import time_limit
from cloudprovider.threads import Task, start
from libvirt_provider.config import Config
from libvirt_provider.shapes import Connection

MARGIN = 0.25
"""Seconds that are kept of each call for its end."""
LEAST = 0.1
"""A question that would get less than this many seconds is not asked."""
KEEPALIVE_SECONDS, KEEPALIVE_COUNT = 5, 2
"""A host that answers no keep-alive message for 15 s is taken for dead, and its calls end."""
MOST_LOST = 16
"""While so many threads wait for a host that does not answer, it is asked nothing more."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Host:
    """One libvirt daemon. Thread-safe; its connection is made when it is needed."""

    def __init__(self, name: str, uri: str, *, read_only: bool = False) -> None:
        self.name = name
        self.uri = uri
        self._flags = libvirt.VIR_CONNECT_RO if read_only else 0
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._lost: list[Task[Any]] = []

    def ask(self, question: Callable[[Connection], T]) -> T:
        """The answer, however long it takes. Raises `CloudProviderError`."""
        connection: Connection | None = None
        try:
            connection = self._connected()
            return question(connection)
        except libvirt.libvirtError as exc:
            if connection is not None and not _is_alive(connection):
                self.drop(connection)
            raise CloudProviderError(
                f"libvirt on host {self.name} ({self.uri}): {exc}. Check `hosts` and the credentials in the cloud "
                "config, and that its daemon runs"
            ) from exc

    def drop(self, connection: Connection | None = None) -> None:
        """Make a new connection for the next question; with `connection`, only if it is that
        one."""
        with self._lock:
            if connection is None or self._connection is connection:
                self._connection = None

    def lose(self, task: Task[Any]) -> None:
        """Remember a thread that did not end in time."""
        with self._lock:
            self._lost.append(task)

    def check(self) -> None:
        """Raises `CloudProviderError` while too many threads wait for this host."""
        with self._lock:
            self._lost = [task for task in self._lost if not task.wait(0)]
            if len(self._lost) >= MOST_LOST:
                raise CloudProviderError(f"libvirt on host {self.name}: {len(self._lost)} questions are unanswered")

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is not None:
                return self._connection
        # Without the lock: this may hang, and others shall find out for themselves.
        _prepare()
        # With somebody to ask, libvirt looks for names and passwords in the file first.
        asks = [[libvirt.VIR_CRED_AUTHNAME, libvirt.VIR_CRED_PASSPHRASE], _refuse, None]
        made: Connection = libvirt.openAuth(self.uri, asks, self._flags)
        try:
            made.setKeepAlive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT)
        except libvirt.libvirtError as exc:
            if exc.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:  # a driver in this process
                raise
        with self._lock:
            if self._connection is None:
                self._connection = made
            return self._connection


class Hosts:
    """All hosts, asked at once. Thread-safe."""

    def __init__(self, config: Config) -> None:
        read_only = "agent" not in config.address_sources  # the only question that needs more
        self._hosts = [Host(name, config.uri(name), read_only=read_only) for name in config.hosts]

    def ask(self, question: Callable[[Connection], T]) -> Mapping[str, T | CloudProviderError]:
        """Each host's answer by its name, an error where it gave none in time. Raises
        `CallInterrupted` where the call under way has too little time left."""
        limit = time_limit(margin=MARGIN, least=LEAST)
        until = time.monotonic() + limit
        answers: dict[str, T | CloudProviderError] = {}
        tasks: list[tuple[Host, Task[T]]] = []
        for host in self._hosts:
            try:
                host.check()
                tasks.append((host, Task(partial(host.ask, question), f"libvirt-{host.name}")))
            except CloudProviderError as error:
                answers[host.name] = error
        for host, task in tasks:
            if task.wait(max(0.0, until - time.monotonic())):
                try:
                    answers[host.name] = task.result()
                except CloudProviderError as error:
                    answers[host.name] = error
            else:
                host.drop()
                host.lose(task)
                answers[host.name] = CloudProviderError(
                    f"libvirt on host {host.name} ({host.uri}) did not answer within {limit:.3g} s"
                )
        return answers


def _refuse(credentials: object, data: object) -> int:
    """Nobody can be asked for a password."""
    return -1


def _is_alive(connection: Connection) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


@cache
def _prepare() -> None:
    """What libvirt wants once, before the first connection: the loop that sends keep-alive
    messages. And its errors are raised, not printed, too."""
    libvirt.registerErrorHandler(lambda context, error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    start(_run_events, "libvirt-events")


def _run_events() -> None:
    while True:
        if libvirt.virEventRunDefaultImpl() < 0:
            logger.warning("libvirt's event loop failed: hosts that do not answer are noticed later")
            time.sleep(1)  # not a busy loop, whatever is wrong
