"""Answers of AWS that several Services' calls ask for in the same moment: asked for once, and kept
for a second.

A node that joins changes the targets of every load balancer: without this each of them would list
the same instances and security groups again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from attrs import define, field

from cloudprovider import CallDeadlineExceeded, current_call

SECONDS = 1.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@define(eq=False)
class _Slot(Generic[V]):
    lock: threading.Lock = field(factory=threading.Lock)
    until: float = 0.0
    value: V | None = None


class Shared(Generic[K, V]):
    """Answers by question. Thread-safe: of those that ask the same, one asks AWS and the others
    wait for its answer. A failure is nobody else's."""

    def __init__(self, load: Callable[[K], V], clock: Callable[[], float] = time.monotonic) -> None:
        """`load` asks AWS."""
        self._load = load
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: dict[K, _Slot[V]] = {}

    def get(self, key: K) -> V:
        """The answer, at most a second old. Raises what `load` raises, and `CallInterrupted` when
        the call under way ends before another thread's answer came."""
        with self._lock:
            now = self._clock()
            # Questions differ (each set of nodes is one): what is over goes.
            for old in [one for one, slot in self._slots.items() if slot.until < now and not slot.lock.locked()]:
                del self._slots[old]
            slot = self._slots.setdefault(key, _Slot())
        call = current_call()
        left = call.remaining()
        if not slot.lock.acquire(timeout=-1 if left is None else left):
            raise CallDeadlineExceeded("another thread's request to AWS took as long as this call may")
        try:
            if slot.value is None or slot.until < self._clock():
                asked = self._clock()
                slot.value = self._load(key)
                slot.until = asked + SECONDS
            return slot.value
        finally:
            slot.lock.release()

    def forget(self) -> None:
        """Ask again: something was changed."""
        with self._lock:
            self._slots.clear()
