"""Threads of stages 4 and 5: as many as the work needs, none of which goes missing unnoticed; and
how long each has been at one thing.

Used by ``worker.py``. The threads are daemons: a call that never returns keeps no process alive."""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from attrs import define
from prometheus_client import Counter

from cloudprovider.internal.backoff import Backoff
from cloudprovider.threads import NoThreadLeft, start
from controllers.runtime.clock import Clock, ClockEvent, wait_for
from controllers.runtime.queue.workqueue import ShutDown

logger = logging.getLogger(__name__)

W = TypeVar("W")

IDLE_SECONDS: Final = 15.0
"""Threads of which none was needed for so long end. They live twice as long at most."""
_PAUSES: Final = Backoff(base=0.01, cap=5.0, at_once=1)
_LAST_CHANCES = 3


class LoopThreads(Generic[W]):
    """Up to `count` threads that each `take` a piece of work and `work` on it, until ShutDown.

    `take(timeout)` waits for the next piece; None says that none came in that time. Threads that
    were one too many for a while end. A thread whose loop raises, be it SystemExit, is logged,
    counted in `restarts` and goes on; should one end all the same, `missing` tells. The methods may
    be called from any thread."""

    def __init__(
        self,
        name: str,
        count: int,
        take: Callable[[float | None], W | None],
        work: Callable[[W], object],
        *,
        clock: Clock,
        restarts: Counter,
    ) -> None:
        if count < 1:
            raise ValueError(f"{name}: at least 1 thread is needed, got {count}")
        self.name = name
        self.count = count
        self._take = take
        self._work = work
        self._clock = clock
        self._restarts = restarts
        self._stopping = ClockEvent(clock)
        self._changed = threading.Condition(threading.Lock())
        self._numbers = itertools.count()
        self._started = False
        self._over = False  # nothing more will come
        self._alive = 0  # those about to start among them
        self._lost = 0  # ended without being allowed to
        self._waiting = 0  # threads in `take`, or on their way there
        self._least = 0  # of them, the fewest since the last look
        self._surplus = 0  # threads that may end
        self._look_at = 0.0
        self._refused = False  # the system had no further thread the last time

    def start(self) -> None:
        """Start the first thread. Raises NoThreadLeft, and RuntimeError when called twice."""
        with self._changed:
            if self._started:
                raise RuntimeError(f"{self.name} was started before")
            self._started = True
            self._look_at = self._clock.monotonic() + IDLE_SECONDS
            self._alive = self._waiting = 1
        try:
            self._begin()
        except NoThreadLeft:
            with self._changed:
                self._alive = self._waiting = 0
                self._lost = self.count
            raise

    def stopping(self) -> None:
        """The work is about to end: a thread that fails now gets few chances."""
        self._stopping.set()

    def wait_ended(self, timeout: float | None) -> bool:
        """Wait until all threads have ended; return whether they have."""
        with self._changed:
            return wait_for(self._clock, self._changed, lambda: self._alive == 0, timeout)

    def missing(self) -> int:
        """Threads that could be running and never will."""
        with self._changed:
            return self._lost

    def threads(self) -> int:
        """Threads that there are."""
        with self._changed:
            return self._alive

    def _begin(self) -> None:
        start(self._run, f"{self.name}-{next(self._numbers)}")

    def _run(self) -> None:
        allowed = False
        failures = 0
        try:
            while True:
                began = self._clock.monotonic()
                try:
                    self._loop()
                    allowed = True
                    return
                except BaseException:
                    self._restarts.inc()
                    logger.critical("%s: a worker thread failed and was restarted", self.name, exc_info=True)
                # At once after a clean time; what fails again and again must not fill the log.
                if self._clock.monotonic() - began >= _PAUSES.cap:
                    failures = 0
                pause = _PAUSES.delay(failures)
                failures += 1
                if self._stopping.wait(pause) and failures > _LAST_CHANCES:
                    return
                with self._changed:
                    self._waiting += 1
        finally:
            with self._changed:
                self._alive -= 1
                self._lost += not allowed
                self._changed.notify_all()

    def _loop(self) -> None:
        """Work until nothing more comes, or this thread is one too many. It counts as waiting."""
        while True:
            with self._changed:
                timeout = None if self._waiting == 1 else IDLE_SECONDS  # the last one has no reason to look up
            try:
                piece = self._take(timeout)
            except ShutDown:
                with self._changed:
                    self._over = True
                    self._waiting -= 1
                return
            except BaseException:
                self._leave_waiting()
                raise
            if piece is not None:
                self._leave_waiting()
                self._work(piece)
                del piece  # a thread that waits holds on to nothing
                with self._changed:
                    self._waiting += 1
            if self._too_many():
                return

    def _leave_waiting(self) -> None:
        """The calling thread no longer waits for work: another one shall, if one may."""
        # One thread always waits, or all are at work. So no piece waits for a thread that is not
        # there, and nothing but the source of the work need ever wake one.
        with self._changed:
            self._waiting -= 1
            self._least = min(self._least, self._waiting)
            if self._waiting or self._over or self._alive >= self.count - self._lost:
                return
            self._alive += 1
            self._waiting += 1
        try:
            self._begin()
            self._refused = False
        except NoThreadLeft as error:  # the next piece of work tries again
            with self._changed:
                self._alive -= 1
                self._waiting -= 1
                first, self._refused = not self._refused, True
            if first:
                logger.error("%s: work waits, as a further thread could not be started: %s", self.name, error)

    def _too_many(self) -> bool:
        """Whether the calling thread, counted as waiting, is to end and no longer counts."""
        with self._changed:
            now = self._clock.monotonic()
            if now >= self._look_at:
                self._surplus = self._least - 1
                self._least = self._waiting
                self._look_at = now + IDLE_SECONDS
            if self._surplus < 1 or self._waiting < 2:
                return False
            self._surplus -= 1
            self._waiting -= 1
            self._least = min(self._least, self._waiting)
            return True


_here = threading.local()


@define(eq=False)
class _Piece:
    """One piece of work of one thread."""

    what: object
    clock: Clock
    started: float
    outside: float = 0.0  # seconds of bounded waits that are over
    since: float | None = None  # of the bounded wait under way

    def busy(self) -> float:
        since = self.since  # once: its thread goes on meanwhile
        until = self.clock.monotonic() if since is None else since
        return until - self.started - self.outside


class Progress:
    """The work under way in the threads of one worker, waits that are `bounded` aside. Thread-safe.

    A thread that waits for the cloud is not stalled, however long that takes: the gateway gives the
    call a deadline, ends the wait and reports to health when it is overdue. So the gateway waits
    inside `bounded`, and a worker's limit counts only the rest: its own work, and API requests,
    which have deadlines far below it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pieces: set[_Piece] = set()

    @contextmanager
    def work(self, what: object) -> Iterator[None]:
        """The with statement's body is work of this thread, about `what` (a key, keys)."""
        piece = _Piece(what, self._clock, self._clock.monotonic())
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
        """(seconds, what) of the piece that kept its thread busy for longest; (0.0, None)."""
        with self._lock:
            pieces = [(piece.busy(), piece.what) for piece in self._pieces]
        return max(pieces, key=lambda each: each[0], default=(0.0, None))

    def active(self) -> bool:
        """Whether some thread is at work, or waits as part of it: then keys have to wait."""
        return bool(self._pieces)


@contextmanager
def bounded() -> Iterator[None]:
    """The wait in this body is ended elsewhere, by a deadline: it is no stall of a worker."""
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
