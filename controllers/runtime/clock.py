"""Time for every stage: how the runtime and the controllers read clocks and wait. Production passes
:data:`SYSTEM_CLOCK`; tests pass a clock that they move by hand, so that no test sleeps.

Some modules use the machine's clock directly, because they wait for threads, processes and sockets
and schedule nothing; a test keeps the list: `cache/informer.py`, `controllers/process/ending.py`,
`controllers/process/logwriter.py`, `controllers/cli/process.py`, `api/execplugin.py`. Waits for
sockets are the kernel's, for as long as the Clock says is left (`api/wire/cancelscope.py`)."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, Protocol, TypeVar

from attrs import define

P = ParamSpec("P")
R = TypeVar("R")


class Clock(Protocol):
    """Reads time and waits. Every method may be called from many threads at once."""

    def monotonic(self) -> float:
        """Seconds that never go back and whose zero means nothing. For durations and deadlines."""
        ...

    def time(self) -> float:
        """Seconds since the Unix epoch. For timestamps that people or other machines read."""
        ...

    def boottime(self) -> float:
        """As `monotonic`, but the time for which the machine was suspended counts too. For promises
        to other machines: a lease runs out while we sleep."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition whose lock the caller holds, at most `timeout` seconds or for ever.

        Like ``Condition.wait``: the lock is given up meanwhile and held again at return; False says
        that the time ran out. It may return True without a cause, so callers check their predicate
        again in a loop, and after False once more, because a notification may have raced with the
        end of the time."""
        ...


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # where there is none: macOS, say


class SystemClock:
    """The machine's clock."""

    # C functions as they are: the work queue reads the clock on every call.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    @staticmethod
    def boottime() -> float:
        return time.clock_gettime(_BOOTTIME)

    @staticmethod
    def wait(condition: threading.Condition, timeout: float | None) -> bool:
        return condition.wait(timeout)


SYSTEM_CLOCK: Clock = SystemClock()


def wait_for(
    clock: Clock, condition: threading.Condition, predicate: Callable[[], bool], timeout: float | None
) -> bool:
    """Wait until `predicate()` holds, at most `timeout` seconds (or None); its last value.

    The caller holds the condition's lock, and the predicate is only called with it held."""
    deadline = None if timeout is None else clock.monotonic() + timeout
    while not predicate():
        left = None if deadline is None else deadline - clock.monotonic()
        if left is not None and left <= 0:
            return False
        # It may wake without a cause, so the predicate is asked again.
        clock.wait(condition, left)
    return True


class ClockEvent:
    """``threading.Event`` with its timed wait on a :class:`Clock`. It serves as a
    ``cloudprovider.host.StopSignal``.

    ``stop.wait(delay)`` is the interruptible sleep of watches and retries. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._condition = threading.Condition(threading.Lock())
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Set the event and wake everyone who waits. Calling it again does nothing."""
        with self._condition:
            self._set = True
            self._condition.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, at most `timeout` seconds; return whether it is set."""
        with self._condition:
            return wait_for(self._clock, self._condition, self.is_set, timeout)


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
    """The work under way in the threads of one worker (stage 4), waits that are `bounded` aside.
    Thread-safe.

    A thread that waits for the cloud is not stalled, however long that takes: the gateway gives the
    call a deadline, ends the wait and reports to health when it is overdue. So the gateway waits
    inside `bounded`, and a worker's limit counts only the rest: its own work, and API requests,
    which have deadlines far below it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._pieces: set[_Piece] = set()

    def run(self, what: object, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function: until it has returned that is work of this thread, about `what` (a
        key, keys)."""
        piece = _Piece(what, self._clock, self._clock.monotonic())
        outer, _here.piece = getattr(_here, "piece", None), piece
        with self._changed:
            self._pieces.add(piece)
        try:
            return function(*args, **kwargs)
        finally:
            with self._changed:
                self._pieces.discard(piece)
                if not self._pieces:
                    self._changed.notify_all()
            _here.piece = outer

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no thread is at work, at most so many seconds; whether that is so."""
        with self._changed:
            return wait_for(self._clock, self._changed, lambda: not self._pieces, timeout)

    def longest(self) -> tuple[float, object]:
        """(seconds, what) of the piece that kept its thread busy for longest; (0.0, None) while no
        thread is at work."""
        with self._changed:
            pieces = [(piece.busy(), piece.what) for piece in self._pieces]
        return max(pieces, key=lambda each: each[0], default=(0.0, None))


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
