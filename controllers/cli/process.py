"""The process around a manager: signals in (SIGTERM, SIGINT, SIGUSR1), exit code out.

The manager runs in its own thread, so that the main thread is always free to take signals: the
handler only puts a word into a queue that is safe to use there."""

from __future__ import annotations

import logging
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from attrs import frozen

from cloudprovider import CloudProviderError
from controllers.manager.provider_host import ManagerError, NeverLed, log_failure
from controllers.process.ending import RELEASE, SIGNALS, URGENT_FLUSH, Exit, exit_at_once, finish, within
from controllers.runtime.api import ClientConfigError

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds beyond the drain's own bound before the main thread stops believing in a clean end."""

_WAKE = 0.2  # seconds between two looks for signals that did not wake the main thread
_LINE = 0.5  # seconds for a log line of the main thread: a provider's own handler may hang


@frozen
class Ended:
    """What a `run` returns that ends by itself, and is no failure: the exit code."""

    code: int


Word = int | BaseException | Ended | None
"""A signal, what `run` raised, or what it returned."""


def run_until_signal(
    run: Callable[[threading.Event], Ended | None],
    *,
    drain: float,
    release: Callable[[], object] = lambda: None,
    leave: Exit = exit_at_once,
    grace: float = GRACE,
) -> int:
    """Run `run(stop)` until it ends or a signal comes; returns the exit code.

    The first SIGTERM or SIGINT sets `stop` and gives `run` `drain + grace` seconds: 0 when it ends,
    also by raising NeverLed. The second calls `leave(1)` from the handler. A `run` that returns
    `Ended` says the code. One that ends by itself or raises: 1, and the log says why; of
    ManagerError, CloudProviderError and ClientConfigError the text alone. Threads that would keep
    the interpreter from ending, whatever started them, are not waited for: `leave` is called with
    the code. SIGUSR1 calls `release()` in this thread, each time. To be called in the main thread;
    elsewhere signals are left alone. A log that hangs delays an end by half a second for each line,
    and prevents none.
    """
    stop = threading.Event()
    mail: queue.SimpleQueue[Word] = queue.SimpleQueue()

    def work() -> None:
        try:
            mail.put(run(stop))
        except BaseException as error:  # noqa: BLE001 - a thread's top: handed to the main thread, which reports it
            mail.put(error)

    # A daemon: the interpreter must be able to end while a provider call hangs in it.
    thread = threading.Thread(target=work, name="manager", daemon=True)
    with _handled(mail, leave):
        thread.start()
        while (word := _next(mail)) == RELEASE:
            _release(release)
        asked = isinstance(word, int)
        if isinstance(word, int):
            stop.set()
            _say(
                logging.INFO,
                "%s: draining for at most %g s; a second signal ends the process at once",
                _name(word),
                drain,
            )
            try:
                word = _next(mail, drain + grace)
            except queue.Empty:
                _say(logging.ERROR, "the manager did not end within %g s after the signal", drain + grace)
                leave(1)
                return 1
        code = _code(word, asked)
    _say(logging.INFO, "ended with exit code %d", code)
    return finish(code, leave)


def _say(level: int, text: str, *args: object, error: BaseException | None = None) -> None:
    """A line of the main thread, which has signals to take."""
    within(_LINE, lambda: log.log(level, text, *args, exc_info=error))


def _release(release: Callable[[], object]) -> None:
    _say(logging.INFO, "%s: releasing the deletions that are held back now", RELEASE.name)
    try:
        release()
    except Exception as error:  # noqa: BLE001 - logged, and the program goes on
        _say(logging.ERROR, "releasing them failed; this is a bug", error=error)


def _next(mail: queue.SimpleQueue[Word], seconds: float = math.inf) -> Word:
    """The next word; raises queue.Empty after `seconds`.

    Python runs signal handlers in the main thread alone, but the kernel may deliver the signal to
    any thread, which does not wake the main thread from a wait without end: the signal would be
    lost. So it wakes by itself.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            return mail.get(timeout=max(0.0, min(_WAKE, left)))
        except queue.Empty:
            if left <= _WAKE:
                raise


def _code(word: Word, asked: bool) -> int:
    if isinstance(word, Ended):
        return word.code
    # A standby that is stopped has done its work.
    if isinstance(word, NeverLed) and asked:
        return 0
    if isinstance(word, ManagerError) and word.unexpected:
        _say(logging.ERROR, "%s", word, error=word)
        return 1
    if isinstance(word, ManagerError | CloudProviderError | ClientConfigError):
        within(_LINE, partial(log_failure, word))
        return 1
    if isinstance(word, BaseException):
        _say(logging.ERROR, "the manager failed; this is a bug", error=word)
        return 1
    return 0 if asked else 1


@contextmanager
def _handled(mail: queue.SimpleQueue[Word], leave: Exit) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        # Once the end has begun there is nothing left to release.
        if number == RELEASE:
            if not seen:
                mail.put(number)
            return
        seen += 1
        if seen == 1:
            mail.put(number)
            return
        # Not by a logger, whose lock may be held right now; and standard error may be a pipe that
        # is full.
        within(URGENT_FLUSH, lambda: os.write(2, f"{_name(number)} again: ending at once\n".encode()))
        leave(1)

    old = {number: signal.signal(number, handle) for number in (*SIGNALS, RELEASE)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _name(number: int) -> str:
    return signal.Signals(number).name
