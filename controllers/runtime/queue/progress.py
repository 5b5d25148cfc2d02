"""How long a worker's thread has been at one thing, waits that somebody else bounds aside (stage 4).

A thread that waits for the cloud is not stalled, however long that takes: the gateway gives the call a deadline, ends
the wait and tells health when it is overdue, and waiting for a turn in front of a slow cloud is no fault of the worker.
So the gateway waits inside `bounded`, and a worker's limit counts only the rest: its own work, and API requests, which
have deadlines far below it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from controllers.runtime.clock import Clock

__all__ = ["Progress", "bounded"]

_here = threading.local()


class _Piece:
    """One piece of work of one thread."""

    __slots__ = ("clock", "outside", "since", "started", "what")

    def __init__(self, what: object, clock: Clock) -> None:
        self.what = what
        self.clock = clock
        self.started = clock.monotonic()
        self.outside = 0.0  # seconds of bounded waits that are over
        self.since: float | None = None  # of the bounded wait under way

    def busy(self) -> float:
        until = self.clock.monotonic() if self.since is None else self.since
        return until - self.started - self.outside


class Progress:
    """The work under way in the threads of one worker. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pieces: set[_Piece] = set()

    @contextmanager
    def work(self, what: object) -> Iterator[None]:
        """The body of the with statement is one piece of work of this thread, about `what` (a key, keys)."""
        piece = _Piece(what, self._clock)
        outer, _here.piece = getattr(_here, "piece", None), piece
        with self._lock:
            self._pieces.add(piece)
        try:
            yield
        finally:
            with self._lock:
                self._pieces.discard(piece)
            _here.piece = outer

    def longest(self) -> tuple[float, object]:
        """(seconds, what) of the piece that has kept its own thread busy for the longest time; (0.0, None)."""
        with self._lock:
            pieces = [(piece.busy(), piece.what) for piece in self._pieces]
        return max(pieces, key=lambda each: each[0], default=(0.0, None))

    def active(self) -> bool:
        """Whether some thread is at work, or waits as part of it: then keys that wait for a thread have to."""
        return bool(self._pieces)


@contextmanager
def bounded() -> Iterator[None]:
    """Somebody else ends the wait in this body, and answers for its length: it is no stall of a worker."""
    piece: _Piece | None = getattr(_here, "piece", None)
    if piece is None or piece.since is not None:
        yield
        return
    piece.since = piece.clock.monotonic()
    try:
        yield
    finally:
        piece.outside += piece.clock.monotonic() - piece.since
        piece.since = None
