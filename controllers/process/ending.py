"""How the process ends, whatever hangs in it: a provider's thread, a log, a slow start.

Nothing here waits without a bound: what is said on the way out is said in its own thread, and
when its time is over the process ends. Nothing heavy is imported: --help passes here."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from controllers.process import logs

log = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
RELEASE: Final = signal.SIGUSR1
"""Releases the deletions that are held back: who may signal us may do all that we may."""

URGENT_FLUSH: Final = 0.1
"""Seconds for what is said when every moment counts: the lease may be another's already."""
_FLUSH: Final = 2.0  # seconds for the last lines of an orderly end
_JOIN: Final = 0.5  # seconds for threads that are about to end

Exit = Callable[[int], None]


def within(seconds: float, act: Callable[[], object]) -> bool:
    """Do this in its own thread; whether it was done in time. It may go on afterwards.

    Safe in a signal handler: no lock is taken that the interrupted code could hold.
    """
    # A bare lock and thread: `threading` takes locks that the interrupted code may hold.
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            act()
        finally:
            done.release()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # no thread is left: then it stays unsaid
        return False
    return done.acquire(timeout=seconds)


def exit_at_once(code: int) -> None:
    """End the process without waiting for any thread: hung provider calls cannot be joined.

    What was logged is written if that takes no longer than `URGENT_FLUSH`: standard error may be a
    pipe that has no reader, and a provider's own log handler may hang. A credential plugin that
    hangs is a process of its own, which would outlive this one."""

    def say() -> None:
        logs.flush(URGENT_FLUSH)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed or broken: nothing is left to write to
                stream.flush()
        logging.shutdown()  # a provider's own handlers

    try:
        _end_plugins(10 * URGENT_FLUSH)  # only while one is being started
        within(URGENT_FLUSH, say)
    finally:
        os._exit(code)


def _end_plugins(seconds: float = 0.0) -> None:
    # Not imported here: it loads much, and most kubeconfigs have no plugin.
    execplugin = sys.modules.get("controllers.runtime.api.execplugin")
    if execplugin is not None:
        execplugin.end_plugins(seconds)


def exit_now(code: int, *words: str) -> None:
    """End the process before any thread does one thing more: the lease may be another's already.

    The words are written if standard error takes them without waiting, without a logger's lock."""
    try:
        # Each step gives Python's lock away, and would wait 5 ms for each busy thread.
        sys.setswitchinterval(1e-5)
        _end_plugins()
        _write_now(*logs.unwritten(*words))
    finally:  # whatever fails before: a plugin has closed standard error, say
        os._exit(code)


def _write_now(descriptor: int, text: bytes) -> None:
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # a disk may hang, whatever is asked for
            within(URGENT_FLUSH, partial(os.write, descriptor, text))
        else:
            # Opened again: others, a shell's terminal too, have this end open and want it as it is.
            os.write(os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK), text)
    except BlockingIOError:  # it has no reader
        pass
    except OSError:  # a socket cannot be opened again, and not every system has such names
        within(URGENT_FLUSH, partial(os.write, descriptor, text))


def end_at_once(failure: BaseException) -> None:
    """End the process with 1 before any thread does one thing more: the lease is lost, and provider
    calls that are under way would go on sending (seen: load balancers built for Services that the
    next leader had deleted)."""
    exit_now(1, str(failure), "ended with exit code 1")


def finish(code: int, leave: Exit | None = None) -> int:
    """The code, with all log lines written, where the interpreter can end with it; else `leave`
    (`exit_at_once`) is called: threads that are no daemons, a provider's own too, would keep the
    process forever.

    For the main thread; another's end ends nothing, so there only the log is written.
    """
    if threading.current_thread() is threading.main_thread():
        until = time.monotonic() + _JOIN
        left = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
        for thread in left:
            thread.join(max(0.0, until - time.monotonic()))
        # A provider call that hangs cannot be joined; the interpreter would wait for it forever.
        names = [thread.name for thread in left if thread.is_alive()]
        if names:
            shown = (len(names), ", ".join(names[:5]))
            within(_JOIN, lambda: log.warning("%d threads have not ended, the process ends without them: %s", *shown))
            within(_FLUSH, _written)
            (leave or exit_at_once)(code)
            return code
    within(_FLUSH, _written)
    return code


def _written() -> None:
    logs.flush(_FLUSH)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


@contextmanager
def starting(leave: Exit | None = None) -> Iterator[Callable[[], None]]:
    """In the body, which imports and builds, SIGTERM and SIGINT end the process with 0, SIGUSR1
    does nothing; until what it yields is called, by who has taken the signals meanwhile.

    By default they would end it with a signal's code or a traceback, and do nothing where it is the
    container's first process: the kernel keeps those signals from it. Nothing has begun that would
    have to be finished. A thread acts on them, for the main one may be deep in a library that does
    not come back to Python."""
    begun = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield begun.set
        return
    reads, writes = os.pipe()
    # The signal handler writes to it, and must never wait.
    os.set_blocking(writes, False)

    def listen() -> None:
        with open(reads, "rb", buffering=0) as mail:
            while word := mail.read(1):
                if begun.is_set():
                    continue
                if word[0] == RELEASE:
                    log.info("%s: nothing is held back yet, the program starts", RELEASE.name)
                elif word[0] in SIGNALS:
                    text, name = "%s while the program starts: ended with exit code 0", signal.Signals(word[0]).name
                    within(URGENT_FLUSH, partial(log.info, text, name))
                    (leave or exit_at_once)(0)

    threading.Thread(target=listen, name="signals", daemon=True).start()
    old = {number: signal.signal(number, lambda *_: None) for number in (*SIGNALS, RELEASE)}
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    try:
        yield begun.set
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in old.items():
            signal.signal(number, handler)
        os.close(writes)  # and the thread ends
