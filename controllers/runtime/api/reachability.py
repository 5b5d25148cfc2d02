"""Whether the API server answers, as all requests of one program see it (stages 1 and 6).

Errors without an answer carry the `Recovery` to come: the first answer after an outage ends every
back-off to that server, of watches, queues' keys and Events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from controllers.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

NO_ANSWERS: Final = frozenset((502, 503, 504))
"""Statuses that a proxy or load balancer gives for a server that it cannot reach."""

OUTAGE: Final = 3.0
"""Seconds between the first failure and the next answer that make an outage."""


class Recovery:
    """The end of an outage, present or to come. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._done = False

    def done(self) -> bool:
        """Whether the server has answered since."""
        return self._done

    def then(self, listener: Callable[[], None]) -> None:
        """Have `listener` called once, however often it is given, when the server answers again;
        now, if it has.

        The thread whose request was answered calls it, so it must neither block nor send a request;
        one that raises is logged. It says only that waiting longer makes no sense: who tries again
        and fails waits as before.
        """
        with self._lock:
            if not self._done:
                # A watch fails many times in an outage and asks each time: it is woken once.
                if listener not in self._listeners:
                    self._listeners.append(listener)
                return
        listener()

    def _happen(self) -> None:
        with self._lock:
            self._done = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            try:
                listener()
            except Exception:
                log.exception("a callback after the API server's return failed")


class Reachability:
    """Whether one API server answers. Thread-safe; reporting an answer costs one comparison."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._recovery = Recovery()
        self._down_since: float | None = None
        self._error = ""
        self._forbidden = 0

    @property
    def down_since(self) -> float | None:
        """When the first request since the last answer failed (monotonic seconds); or None."""
        return self._down_since

    @property
    def error(self) -> str:
        """Why the last request failed; "" while the server answers."""
        return self._error

    @property
    def recovery(self) -> Recovery:
        """The end of the outage under way, or of the next one."""
        return self._recovery

    @property
    def forbidden(self) -> int:
        """How many requests the server has answered with 403: rights may be missing then."""
        return self._forbidden

    def answered(self, status: int) -> None:
        """An answer with this status came."""
        # In front of a server that is down, a load balancer answers with these.
        if status in NO_ANSWERS:
            self.failed(f"status {status}")
        # Without the lock: every answer passes here, and almost none ends an outage.
        elif self._down_since is not None:
            self._returned()
        if status == 403:
            with self._lock:
                self._forbidden += 1

    def failed(self, error: str) -> Recovery:
        """No answer came; returns `recovery`."""
        with self._lock:
            if self._down_since is None:
                self._down_since = self._clock.monotonic()
            self._error = error
            return self._recovery

    def _returned(self) -> None:
        with self._lock:
            if self._down_since is None:
                return  # another thread was first
            lasted = self._clock.monotonic() - self._down_since
            self._down_since, self._error = None, ""
            # One broken connection is no outage; what failed backs off by itself.
            if lasted < OUTAGE:
                return
            recovery, self._recovery = self._recovery, Recovery()
        # Without the lock: listeners take locks of their own, and may ask us something.
        recovery._happen()
