"""Named groups of running parts: started in order, stopped in reverse, all within one bound of
time. The idea is that of controller-runtime's runnable groups (pkg/manager/runnable_group.go)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs

from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)

SHORTEST = 1.0
"""Seconds that each part may take to stop even when those before it used up the bound."""


def _nothing() -> None:
    pass


@attrs.frozen
class Stoppable:
    """One running thing. `ask` asks it to stop; `wait(seconds)` says whether it has ended."""

    name: str
    wait: Callable[[float], bool]
    ask: Callable[[], None] = _nothing


class ShutdownGroups:
    """What runs. Used by one thread, the manager's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: list[tuple[str, list[Stoppable]]] = []

    def add(self, group: str, part: Stoppable) -> None:
        """A part has been started. Parts of a group are added one by one, and stopped together."""
        if not self._groups or self._groups[-1][0] != group:
            self._groups.append((group, []))
        self._groups[-1][1].append(part)

    def stop(self, seconds: float) -> list[str]:
        """Stop the groups, last one first; in a group all parts are asked, then waited for.

        Returns the names of the parts that had not ended in time; they are left behind. A part
        whose stopping raises counts as one of them. After a call nothing is left to stop, so a
        second one does nothing.
        """
        deadline = self._clock.monotonic() + seconds
        left: list[str] = []
        while self._groups:
            name, parts = self._groups.pop()
            log.debug("stopping %s: %s", name, ", ".join(part.name for part in parts))
            asked = [self._ask(part) for part in parts]
            for part, was_asked in zip(parts, asked, strict=True):
                if not self._wait(part, max(SHORTEST, deadline - self._clock.monotonic())) or not was_asked:
                    left.append(part.name)
        return left

    @staticmethod
    def _ask(part: Stoppable) -> bool:
        try:
            part.ask()
        except Exception:
            log.exception("%s could not be told to stop", part.name)
            return False
        return True

    @staticmethod
    def _wait(part: Stoppable, seconds: float) -> bool:
        try:
            return part.wait(seconds)
        except Exception:
            log.exception("%s could not be stopped", part.name)
            return False
