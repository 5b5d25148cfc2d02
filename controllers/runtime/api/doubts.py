"""Connections that lead nowhere without a sign, as all transports to one API server see them
(stages 1 and 6).

A request that is not answered in its time puts every connection of that time in doubt: idle ones
are closed at once. Once a connection that is newer than that request brings an answer, the server
is well: then all on which nothing came since are interrupted, so that watches are opened anew and
requests tried again. The election renews the Lease all the time and waits for seconds only, so on
the leader such a path is found within seconds."""

from __future__ import annotations

import threading
from typing import Final, Protocol

from controllers.runtime.clock import SYSTEM_CLOCK, Clock

APART: Final = 60.0
"""Seconds between two times that connections are interrupted. A healthy watch may be silent, and a
server that answers late is not helped by many that are opened anew."""


class Doubted(Protocol):
    """Connections, by what came last on them; times are monotonic seconds."""

    def discard_idle(self, since: float) -> None:
        """Close what was idle since then."""

    def interrupt_silent(self, since: float) -> None:
        """End what waits for something since then."""


class Doubts:
    """Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._doubted: list[Doubted] = []
        self._since: float | None = None
        self._not_before = 0.0

    def join(self, doubted: Doubted) -> None:
        """From now on these are closed and interrupted, too."""
        with self._lock:
            self._doubted.append(doubted)

    def unanswered(self, began: float) -> None:
        """A request that began then was not answered in its time."""
        with self._lock:
            if self._clock.monotonic() >= self._not_before:
                self._since = began if self._since is None else max(self._since, began)
        for one in self._joined():
            one.discard_idle(began)

    def answered(self, opened: float) -> None:
        """The server answered on a connection that was opened then."""
        if self._since is None or (since := self._settled(opened)) is None:
            return
        for one in self._joined():
            one.interrupt_silent(since)

    def _settled(self, opened: float) -> float | None:
        with self._lock:
            if self._since is None or opened <= self._since:
                return None  # an older connection says nothing of the others
            since, self._since = self._since, None
            self._not_before = self._clock.monotonic() + APART
            return since

    def _joined(self) -> list[Doubted]:
        with self._lock:
            return list(self._doubted)
