"""Nodes that cannot get a range now, and are brought back when they can, in their order (beside stage 4). Pure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

__all__ = ["Waiting"]


class Waiting:
    """Names of nodes, each once. Thread-safe. `bring_back(name)` puts one into the queue again."""

    def __init__(self, bring_back: Callable[[str], object]) -> None:
        self._bring_back = bring_back
        self._lock = threading.Lock()
        self._names: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str) -> None:
        """It waits; at the end of the line unless it stands there already."""
        with self._lock:
            self._names.setdefault(name)

    def discard(self, name: str) -> None:
        """It waits no more."""
        with self._lock:
            self._names.pop(name, None)

    def wake_if(self, now: Callable[[], bool]) -> None:
        """Bring all back if what they wait for has happened meanwhile: to be asked after `add`."""
        if now():
            self.wake()

    def bring(self, names: Iterable[str]) -> None:
        """Bring these back, whether they wait or not."""
        for name in names:
            self._bring_back(name)

    def wake(self, most: int | None = None) -> None:
        """Bring back the first of them; all, when `most` is None."""
        with self._lock:
            names = list(self._names)[:most]
            for name in names:
                del self._names[name]
        self.bring(names)
