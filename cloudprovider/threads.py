"""Threads for code that may never return: a vendor's method, a handler, the system's resolver.

The one place that starts them, so that there is one message where the system has no thread left
(`NoThreadLeft`), one way to wait until a deadline (`within`, `Task`), and one bounded pool of
threads (`ThreadPool`). All are daemons, and nothing in here waits for a thread to end: a caller
that has waited long enough goes on, and the thread stays with its call until that returns."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, Protocol, TypeVar

from cloudprovider.call import Call, call_scope

__all__ = ["Clock", "ThreadPool", "NoThreadLeft", "Task", "TooLate", "start", "within"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class NoThreadLeft(RuntimeError):
    """The system cannot start another thread now. A later try may succeed."""


class TooLate(Exception):
    """The call has not returned by its deadline; it still runs."""


class Clock(Protocol):
    """What is needed of a clock here. `controllers.runtime.clock.Clock` is one."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """As `Condition.wait`."""


class _SystemClock:
    monotonic = staticmethod(time.monotonic)

    @staticmethod
    def wait(condition: threading.Condition, timeout: float | None) -> bool:
        return condition.wait(timeout)


_SYSTEM_CLOCK: Clock = _SystemClock()


def start(
    run: Callable[..., object], name: str, *args: Any, kind: type[threading.Thread] = threading.Thread
) -> threading.Thread:
    """Start a daemon thread that calls `run(*args)`. Raises NoThreadLeft."""
    try:
        thread = kind(target=run, args=args, name=name, daemon=True)
        # Python says RuntimeError where the limit of processes or a cgroup's pids is reached.
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise NoThreadLeft(f"the system has no thread left: {str(error) or type(error).__name__}") from None
    return thread


class _Caller(threading.Thread):
    """A daemon thread whose own threads are no daemons by default, although a thread inherits that
    from the one that makes it."""

    heirs_wait = False

    @property
    def daemon(self) -> bool:
        return not self.heirs_wait

    @daemon.setter
    def daemon(self, value: bool) -> None:
        # `Thread` would take it, and the process would then wait for a call that hangs.
        raise RuntimeError("a caller is a daemon until it begins")

    def run(self) -> None:
        self.heirs_wait = True
        super().run()


class Task(Generic[T]):
    """A call in a thread of its own, which starts at once; it may never return. Thread-safe.

    `call` is what `current_call()` returns meanwhile. `on_end()` is called by the thread when the
    call has ended, before anyone who waits learns of it. The context is that of the maker.

    With `as_main`, threads that the call starts are daemons only if they say so, as if the main
    thread had started them: the process waits for them.
    """

    def __init__(
        self,
        function: Callable[[], T],
        name: str,
        *,
        call: Call | None = None,
        clock: Clock = _SYSTEM_CLOCK,
        on_end: Callable[[], object] | None = None,
        as_main: bool = False,
    ) -> None:
        """Raises NoThreadLeft; then `on_end` is not called."""
        self.name = name
        self.began = clock.monotonic()
        self._function = function
        self._call = call or Call()
        self._clock = clock
        self._on_end = on_end
        self._changed = threading.Condition(threading.Lock())
        self._ended = False
        self._answer: T | None = None
        self._error: BaseException | None = None
        # The maker's context: log fields and the current call of who asked are seen in the thread.
        self._thread = start(copy_context().run, name, self._run, kind=_Caller if as_main else threading.Thread)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the call has ended, at most so long (None: without end); whether it has."""
        until = None if seconds is None else self._clock.monotonic() + seconds
        with self._changed:
            while not self._ended:
                left = None if until is None else until - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self._clock.wait(self._changed, left)
            return True

    def result(self) -> T:
        """What the call returned. Raises what it raised, SystemExit included, and TooLate while it
        runs."""
        with self._changed:
            if not self._ended:
                raise TooLate(f"{self.name} has not returned")
            error, self._error = self._error, None  # its traceback would lead back here
        if error is not None:
            try:
                raise error
            finally:
                del error
        return self._answer  # type: ignore[return-value]  # without an error there is an answer

    def abandon(self) -> None:
        """The answer is not awaited any more: threads that the call starts from now on are
        daemons."""
        if isinstance(self._thread, _Caller):
            self._thread.heirs_wait = False

    def _run(self) -> None:
        try:
            with call_scope(self._call):
                self._answer = self._function()
        except BaseException as error:  # noqa: BLE001 - a thread's top: raised again in `result`
            self._error = error
        finally:
            if self._on_end is not None:
                # Before anyone is told: who learns of the end finds the place free.
                self._on_end()
            with self._changed:
                self._ended = True
                self._changed.notify_all()


def within(seconds: float, function: Callable[[], T], *, name: str, as_main: bool = False) -> T:
    """What the call returns or raises, if it ends in time. Raises TooLate, and NoThreadLeft.

    The call finds the deadline in `current_call()`, and is cancelled when the time is up.
    """
    cancelled = threading.Event()
    task = Task(function, name, call=Call(time.monotonic() + seconds, cancelled), as_main=as_main)
    if not task.wait(seconds):
        # First: a thread that it starts from now on must not keep the process.
        task.abandon()
        cancelled.set()
        raise TooLate(f"{name} has not returned within {seconds:g} s")
    return task.result()


Work = Callable[[], Callable[[], object] | None]
"""A piece of work; what it raises is logged. What it returns is called as soon as its thread is
free for other work: that is where the answer is handed over, so that a caller that asks again at
once finds this thread free."""


class ThreadPool:
    """At most `limit` threads, which come with work. Thread-safe; no method blocks.

    Work beyond the limit waits in its order, and with `patient` also work for which the system has
    no further thread, as long as there is one to wait for. A thread without work ends after
    `idle_seconds`; with `keep_one`, the last idle one stays. A thread whose work hangs can be given
    up with `lose`: it no longer counts, another one may come in its place, and it is taken back
    with `find` when its work has ended after all.
    """

    def __init__(
        self,
        name: str,
        limit: int,
        *,
        idle_seconds: float = 0.0,
        keep_one: bool = False,
        patient: bool = False,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        """Raises ValueError for a limit below 1."""
        if limit < 1:
            raise ValueError(f"{name}: at least 1 thread is needed, got {limit}")
        self._name = name
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._keep_one = keep_one
        self._patient = patient
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: deque[Work] = deque()
        self._idle: list[_Worker] = []  # the last to come is the first to go, so that those below may end
        self._woken = 0  # threads on their way to what waits: woken while idle, or just started
        self._threads = 0
        self._lost = 0
        self._closed = False
        self._refused = False  # the system had no further thread the last time

    def run(self, work: Work) -> None:
        """Have this done by a thread: an idle one, a new one, or the next to be free.

        Raises NoThreadLeft where a new one is needed and cannot be had: then it will not be done.
        """
        with self._lock:
            self._waiting.append(work)
            # Each that is on its way takes one, and a thread that is free sooner takes it first: so
            # short work of one thread, piece after piece, wakes another once and not each time.
            if len(self._waiting) <= self._woken:
                return
            if self._idle:
                worker = self._idle.pop()
                worker.woken = True
                self._woken += 1
                worker.changed.notify()
                return
            # A hung call has its thread for itself: others must not wait for it.
            if self._threads - self._lost >= self._limit:
                return
            try:
                start(self._serve, f"{self._name}-{next(self._numbers)}", _Worker(self._lock))
            except (NoThreadLeft, MemoryError) as error:
                if not self._patient or self._threads <= self._lost:
                    self._waiting.pop()
                    raise
                first, self._refused, why = not self._refused, True, str(error)
            else:
                # Only once it runs: where the system has none left, none is missing afterwards.
                self._threads += 1
                self._woken += 1
                self._refused = False
                return
        # Once, and not with each piece of a burst.
        if first:
            log.error("%s: work waits, as a further thread could not be started: %s", self._name, why)

    def threads(self) -> int:
        """Threads that exist, idle and lost ones included."""
        return self._threads

    def lose(self) -> None:
        """Count one of the threads no longer: its work hangs."""
        with self._lock:
            self._lost += 1

    def find(self) -> None:
        """Count it again: its work is about to end."""
        with self._lock:
            self._lost -= 1

    def close(self) -> None:
        """Threads end as soon as they have no work, idle ones now. May be called twice."""
        with self._lock:
            self._closed = True
            # Those that work see `_closed` when they are done.
            self._threads -= len(self._idle)
            while self._idle:
                self._idle.pop().changed.notify()

    def _serve(self, worker: _Worker) -> None:
        """The life of a thread."""
        stays = True
        while stays:
            if worker.work is None:
                with self._lock:
                    self._rest(worker)
            work, worker.work = worker.work, None
            if work is None:
                return
            tell = self._done(work)
            del work  # an idle thread holds on to nothing of its last work
            with self._lock:
                stays = self._next(worker)
            if tell is not None:
                self._done(tell)
            del tell

    def _done(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BaseException:  # a thread's top: SystemExit of a vendor's code must not cost the pool a thread
            with suppress(Exception):  # nor must a log that has no memory for its line
                log.exception("%s: a piece of work failed", self._name)
            return None

    def _next(self, worker: _Worker) -> bool:
        """Give the thread its next work, or make it idle; False when it is to end."""
        # Not beyond the limit: a lost thread that comes back may be one too many.
        if self._waiting and self._threads - self._lost <= self._limit:
            worker.work = self._waiting.popleft()
            return True
        one_too_many = self._threads - self._lost > self._limit  # its place was filled while it was lost
        if self._closed or one_too_many or not (self._idle_seconds or self._keep_one):
            self._threads -= 1
            return False
        self._idle.append(worker)
        return True

    def _rest(self, worker: _Worker) -> None:
        """Wait for work; returns without any when the thread is to end."""
        until = self._clock.monotonic() + self._idle_seconds
        while True:
            if worker.woken:
                worker.woken = False
                self._woken -= 1
                # Nothing waits where a thread that was free sooner has taken it: it rests again.
                if not self._next(worker) or worker.work is not None:
                    return
            if self._closed:
                return
            # The lowest one, which is asked last: the others end by their time.
            stays = self._keep_one and self._idle[0] is worker
            left = until - self._clock.monotonic()
            if left <= 0 and not stays:
                self._idle.remove(worker)
                self._threads -= 1
                return
            self._clock.wait(worker.changed, None if stays else left)


class _Worker:
    """One thread of a pool, as the pool knows it."""

    __slots__ = ("changed", "woken", "work")

    def __init__(self, lock: threading.Lock) -> None:
        self.work: Work | None = None
        self.woken = True  # it has been started for something
        self.changed = threading.Condition(lock)
