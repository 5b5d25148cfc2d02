"""A very small cloud, in the memory of this process: it stands for the client library of your own
cloud."""

from __future__ import annotations

import threading
from collections.abc import Collection

from attrs import define, field


@define
class Balancer:
    address: str
    ports: frozenset[tuple[int, int]] = frozenset()
    """(port, node port)"""
    targets: frozenset[str] = frozenset()
    """Provider IDs."""


@define
class Cloud:
    """Load balancers by name. May be used from many threads at once."""

    balancers: dict[str, Balancer] = field(factory=dict)
    _made: int = 0
    _lock: threading.Lock = field(factory=threading.Lock)

    def find(self, name: str) -> Balancer | None:
        with self._lock:
            return self.balancers.get(name)

    def put(self, name: str, ports: Collection[tuple[int, int]]) -> Balancer:
        """Create it with an address of its own, or set the ports of the existing one."""
        with self._lock:
            if name not in self.balancers:
                self._made += 1
                self.balancers[name] = Balancer(address=f"203.0.113.{self._made}")
            self.balancers[name].ports = frozenset(ports)
            return self.balancers[name]

    def set_targets(self, name: str, targets: Collection[str]) -> None:
        """Raises KeyError if there is no such load balancer."""
        with self._lock:
            self.balancers[name].targets = frozenset(targets)

    def delete(self, name: str) -> None:
        """Does nothing if there is no such load balancer."""
        with self._lock:
            self.balancers.pop(name, None)


_clouds: dict[str, Cloud] = {}


def connect(url: str) -> Cloud:
    """The cloud at this URL: the same one whenever it is asked for."""
    return _clouds.setdefault(url, Cloud())
