"""The controllers that move in a leader migration, while they wait for the second lease and when it is held.

Stage: around all of them. Data comes from the configuration (`migration.py`) and the second Lease (`leadership.py`); it
goes to the manager, which starts the controllers, and to every write, which asks the fence. The candidacy begins when
this process leads and its own controllers run, as in Go. Losing either lease ends the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from controllers.app.groups import Part
from controllers.app.leading.leadership import Leadership
from controllers.app.runner import Built
from controllers.runtime.clock import Clock

log = logging.getLogger(__name__)


class Moving:
    """For the manager's thread; `check` and `lost` from any thread."""

    def __init__(self, lease: str, candidate: Callable[[], Leadership], clock: Clock) -> None:
        """`candidate` makes the candidate for the lease of that name, which is not begun yet."""
        self._lease = lease
        self._candidate = candidate
        self._clock = clock
        self._leadership: Leadership | None = None
        self._parts: list[Part] = []
        self._waiting: list[Built] = []
        self.part = Part(f"leader migration on {lease}", self._join, self._stop)
        """To be stopped beside the main lease: both are kept until every controller has ended."""

    def begin(self, built: Sequence[Built], unfinished: Callable[[], str]) -> Leadership | None:
        """Become a candidate for these controllers; None where there are none, and the lease is left alone.

        `unfinished` as for `Leadership.start`.
        """
        if not built:
            log.info("leader migration: nothing here runs under the lease %s, so it is left alone", self._lease)
            return None
        log.info("leader migration: waiting for the lease %s", self._lease)
        self._waiting = list(built)
        self._leadership = self._candidate()
        self._parts = self._leadership.start(unfinished)
        return self._leadership

    @property
    def waits(self) -> bool:
        """Whether controllers wait for the lease."""
        return bool(self._waiting)

    def take(self) -> list[Built]:
        """The controllers to be started now, each once: when the lease is held. From then on the fence asks for it."""
        if self._leadership is None or not self._leadership.leading:
            return []
        taken, self._waiting = self._waiting, []
        if taken:
            names = ", ".join(entry.name for entry, _ in taken)
            log.info("leader migration: running %s under the lease %s", names, self._lease)
        return taken

    def check(self) -> None:
        """Raise LeaseLost where controllers run under the lease and it is not certainly held."""
        if self._leadership is not None and not self._waiting:
            self._leadership.fence.check()

    @property
    def lost(self) -> str:
        """Why the lease was lost; "" while it was not."""
        return self._leadership.lost if self._leadership is not None else ""

    def _stop(self) -> None:
        for part in self._parts:
            part.ask()

    def _join(self, seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        ended = [part.wait(max(0.0, until - self._clock.monotonic())) for part in self._parts]
        return all(ended)
