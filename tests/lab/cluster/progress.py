"""What `make cluster` says while it works: each part with the time that it took, and what a part
waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Progress:
    """Says one line for each part. `parts` has the seconds of those that are done, in order."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._began = time.monotonic()
        self.parts: dict[str, float] = {}
        self._waited = ""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time the body of a with statement. One that fails is not said to be done."""
        began, self._waited = time.monotonic(), ""
        yield
        self.parts[name] = time.monotonic() - began
        self._say(f"{self.parts[name]:7.1f} s  {name}")

    def waiting(self, what: str) -> None:
        """Say what is still lacking, when that has changed."""
        if what != self._waited:
            self._waited = what
            self._say(f"             ... {what}")

    @property
    def total(self) -> float:
        return time.monotonic() - self._began
