"""From a host name to a connected socket: every address of the name, in a race (stages 1 and 6).

As Go's dialer and RFC 8305 ("happy eyeballs"): after `HEAD_START` the next address is tried beside
one that does not answer, the families by turns, and the first to connect wins."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from itertools import chain, zip_longest
from typing import Any, Final

from cloudprovider.threads import NoThreadLeft, start
from controllers.runtime.api.wire.cancelscope import CancelScope

KEEPALIVE_SECONDS: Final = 30
"""First TCP keep-alive probe and the interval of the next ones, as client-go's dialer."""

HEAD_START: Final = 0.3
"""Seconds that an address has alone before the next one is tried beside it; the figure is Go's."""

_FORGET: Final = struct.pack("ii", 1, 0)
_LONGEST_MS: Final = 3_600_000


def dial(scope: CancelScope, host: str, port: int) -> socket.socket:
    """Connect to the first address of `host` that answers. Raises OSError or Interrupted."""
    addresses = by_turns(resolve(scope, host, port))
    if not addresses:
        raise OSError(f"{host} has no address")
    until = scope.begin_step()
    racing: dict[int, socket.socket] = {}
    poll = select.poll()
    failure: OSError | None = None
    try:
        while racing or addresses:
            if addresses:
                sock = _start(scope, addresses.pop(0))
                # The first failure is told: it is of the address that the resolver prefers.
                if isinstance(sock, OSError):
                    failure = failure or sock
                    continue
                racing[sock.fileno()] = sock
                poll.register(sock.fileno(), select.POLLOUT)
            for descriptor, _ in scope.wait(poll, until, HEAD_START if addresses else None):
                sock = racing.pop(descriptor)
                poll.unregister(descriptor)
                scope.remaining(until)  # a cancel ends it, too
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    return sock
                scope.remove(sock)
                failure = failure or OSError(code, os.strerror(code))
    finally:
        for loser in racing.values():
            scope.remove(loser)
    assert failure is not None  # no address is left, so each has failed
    try:
        raise failure
    finally:
        del failure  # the traceback holds this frame


def forget_at_close(sock: socket.socket) -> None:
    """Have the kernel drop what is undelivered when the socket is closed, or the process ends.

    It would go on sending it, for many minutes: a write that got stuck in a broken network would be
    applied when that is mended, after another process's. Nothing is lost: who closes a connection
    has read its answers, or gave them up."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FORGET)


def deliver_within(sock: socket.socket, seconds: float) -> None:
    """Have the kernel give the connection up when this write is not acknowledged in time."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        limit = max(1, min(int(seconds * 1000), _LONGEST_MS))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)


def by_turns(addresses: list[Any]) -> list[Any]:
    """The addresses with their families by turns, the first one's first, in order."""
    if not addresses:
        return []
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    return [address for address in chain.from_iterable(zip_longest(first, others)) if address is not None]


def _start(scope: CancelScope, address: Any) -> socket.socket | OSError:
    """Begin to connect to one address, without waiting."""
    family, kind, protocol, _, target = address
    try:
        sock = socket.socket(family, kind, protocol)
    except OSError as error:  # no IPv6 on this machine, say
        return error
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        forget_at_close(sock)
        for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), KEEPALIVE_SECONDS)
        # A cancel is seen either by `add`, right after this call, or, as the shutdown of a
        # connecting socket wakes its poller, in the wait: there is no gap between the two.
        code = sock.connect_ex(target)
    except BaseException:
        sock.close()
        raise
    scope.add(sock)
    if code not in (0, errno.EINPROGRESS):
        scope.remove(sock)
        return OSError(code, os.strerror(code))
    return sock


def resolve(scope: CancelScope, host: str, port: int) -> list[Any]:
    """Look the name up in a thread of its own: the resolver knows no deadline."""
    try:
        # As bytes: for a text Python imports its tables of international names, 2 ms of each start.
        return socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # a name, not an address
    until = scope.begin_step()
    found: list[Any] = []

    def look_up() -> None:
        try:
            answer: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that is empty or too long
            answer = error
        scope.notify(lambda: found.append(answer))

    try:
        # Where it hangs, the thread is left behind, and the caller goes on in time.
        start(look_up, f"resolve-{host}")
    except NoThreadLeft as error:
        raise OSError(errno.EAGAIN, f"cannot look up {host}: {error}") from error
    try:
        scope.wait_for(lambda: bool(found), until)
    except TimeoutError:
        raise TimeoutError(f"timed out while looking up {host}") from None
    if isinstance(found[0], Exception):
        raise OSError(f"cannot look up {host}: {getattr(found[0], 'strerror', None) or found[0]}") from found[0]
    return list(found[0])
