"""Whether the API server answers, as all requests of one program see it (stages 1 and 6).

`transport.py` reports every exchange, watches' openings included; those who wait before they try again (`watch.py`)
subscribe, and health checks read `down_since`. So the first answer after an outage ends every back-off to that server,
instead of each waiting for its own turn.

An answer is a status line of the server itself. 502, 503 and 504 count as none: in front of a server that is down, a
load balancer says them. What happens after the status line (a watch that breaks off, say) changes nothing here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

NO_ANSWERS: Final = frozenset((502, 503, 504))
"""Statuses that a proxy or load balancer gives for a server that it cannot reach."""


class Reachability:
    """The last thing that was heard of one API server. Thread-safe; reporting an answer costs one comparison."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._down_since: float | None = None
        self._error = ""
        self._returns = 0

    @property
    def down_since(self) -> float | None:
        """When the first request since the last answer failed (monotonic seconds); None while the server answers."""
        return self._down_since

    @property
    def error(self) -> str:
        """Why the last request failed; "" while the server answers."""
        return self._error

    @property
    def returns(self) -> int:
        """How many times the server has answered again after a failure; it grows before the listeners are called."""
        return self._returns

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called whenever the server answers again after a failure; returns what ends that.

        The thread whose request was answered calls it, so it must neither block nor send a request; one that raises is
        logged. It says only that waiting longer makes no sense: who tries again and fails waits as before.
        """
        with self._lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe

    def answered(self, status: int) -> None:
        """An answer with this status came."""
        if status in NO_ANSWERS:
            self.failed(f"status {status}")
        elif self._down_since is not None:
            self._returned()

    def failed(self, error: str) -> None:
        """No answer came."""
        with self._lock:
            if self._down_since is None:
                self._down_since = self._clock.monotonic()
            self._error = error

    def _returned(self) -> None:
        with self._lock:
            if self._down_since is None:
                return  # another thread was first
            self._down_since, self._error = None, ""
            self._returns += 1
            listeners = tuple(self._listeners)
        for listener in listeners:
            try:
                listener()
            except Exception:
                log.exception("a listener for the API server's return failed")
