"""What counts as one client, and its fair share of what is limited."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable


def group_of(peer: str) -> bytes:
    """What counts as one peer: an IPv4 address, or an IPv6 network of one customer."""
    address = peer.partition("%")[0].removeprefix("::ffff:")
    if ":" in address:
        return socket.inet_pton(socket.AF_INET6, address)[:8]
    return address.encode()


class Shares:
    """An amount of something, of which a peer may hold as much as it leaves free. Thread-safe.

    One peer alone gets half, two get a third each, and so on: however many take all that they can
    have, the next one finds something. `most` is an upper limit for one peer.
    """

    def __init__(self, total: int, most: int | None = None) -> None:
        self._total = total
        self._most = total if most is None else most
        self._lock = threading.Lock()
        self._used = 0
        self._held: dict[bytes, int] = {}

    def take(self, peer: bytes, amount: int = 1) -> Callable[[], None] | None:
        """Hold so much; returns what gives it back, once. None: there is no room now."""
        with self._lock:
            if self._held.get(peer, 0) + amount > min(self._most, self._total - self._used):
                return None
            self._used += amount
            self._held[peer] = self._held.get(peer, 0) + amount
        return lambda: self._give_back(peer, amount)

    def _give_back(self, peer: bytes, amount: int) -> None:
        with self._lock:
            self._used -= amount
            self._held[peer] -= amount
            if not self._held[peer]:
                del self._held[peer]
