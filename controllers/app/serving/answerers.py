"""Threads that make answers: a few, which come with work and end when there is none.

Stage: beside all of them. `server.py` has two such crews: one for what is answered at once, and one for what waits
for another machine (who is this, may they?), so that a probe never queues behind a question to an API server that
hangs. No peer can have all of a crew's places.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Answerers"]

Work = Callable[[], None]


class Answerers:
    """Thread-safe. `add` never blocks."""

    def __init__(self, name: str, threads: int, *, places: int, per_peer: int) -> None:
        """At most `threads` work at once; `places` is how much may be under way or wait, `per_peer` of one peer."""
        self._name = name
        self._threads = threads
        self._places = places
        self._per_peer = per_peer
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes, Work]] = deque()
        self._held: dict[bytes, int] = {}
        self._total = 0
        self._running = 0

    def add(self, peer: bytes, work: Work) -> bool:
        """Have this done by a thread; False when there is no place, or no thread can be had. It must not raise."""
        with self._lock:
            if self._total >= self._places or self._held.get(peer, 0) >= self._per_peer:
                return False
            self._waiting.append((peer, work))
            self._total += 1
            self._held[peer] = self._held.get(peer, 0) + 1
            if self._running >= self._threads:
                return True
            self._running += 1
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:  # no thread can be had now
            return self._give_up(peer, work)
        return True

    def _give_up(self, peer: bytes, work: Work) -> bool:
        with self._lock:
            self._running -= 1
            if self._running or (peer, work) not in self._waiting:
                return True  # the others come to it
            self._waiting.remove((peer, work))
            self._leave(peer)
            return False

    def _run(self) -> None:
        """A thread's life: work until there is none."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                peer, work = self._waiting.popleft()
            try:
                work()
            finally:
                with self._lock:
                    self._leave(peer)

    def _leave(self, peer: bytes) -> None:
        self._total -= 1
        left = self._held[peer] - 1
        if left:
            self._held[peer] = left
        else:
            del self._held[peer]
