"""What `make cluster` says while it works: each part with the time that it took, and what a part
waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress"]


class Progress:
    """Says one line for each part. `parts` has the seconds of those that are done, in order."""

    def __init__(self, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._began = clock()
        self.parts: dict[str, float] = {}
        self._waited = ""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time the body of a with statement. One that fails is not said to be done."""
        began, self._waited = self._clock(), ""
        yield
        self.parts[name] = self._clock() - began
        self._say(f"{self.parts[name]:7.1f} s  {name}")

    def waiting(self, what: str) -> None:
        """Say what is still lacking, when that has changed."""
        if what != self._waited:
            self._waited = what
            self._say(f"             ... {what}")

    @property
    def total(self) -> float:
        return self._clock() - self._began
