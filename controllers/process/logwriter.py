"""Log lines on their way to a stream that may hang: a thread of its own writes them.

A pipe without a reader (a log driver that hangs, a full disk, a terminal with Ctrl-S) would
otherwise stop each thread at its next log line: the one that renews the lease, or the one that ends
the process when it is lost."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final

MOST_CHARACTERS: Final = 4_000_000
"""Kept while there is no reader: about 20,000 lines. Further ones are counted, and lost."""
_AT_ONCE: Final = 64  # lines in one write
_PAUSE: Final = 0.02  # seconds after a write: to wake this thread costs the one that logs more than its line


class LineWriter:
    """Takes lines from any thread, without ever waiting, and writes them in their order.

    `lost(count)` is the line that says how many lines were lost.
    """

    def __init__(self, stream: IO[str], lost: Callable[[int], str], *, most: int = MOST_CHARACTERS) -> None:
        self._stream = stream
        self._lost_line = lost
        self._most = most
        self._news = threading.Condition(threading.Lock())
        self._lines: deque[str] = deque()
        self._characters = 0
        self._writing = 0
        self._lost = 0
        self._idle = False
        self._flushing = 0  # threads that wait for the end of all lines
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Have this line written, or count it where too many wait."""
        with self._news:
            if self._characters + len(line) > self._most:
                self._lost += 1
                return
            self._lines.append(line)
            self._characters += len(line)
            if self._thread is None or not self._thread.is_alive():  # the first line, also of a forked process
                thread = threading.Thread(target=self._run, name="log", daemon=True)
                with suppress(RuntimeError):  # the system has no thread left: the next line tries again
                    thread.start()
                    self._thread = thread
            if self._idle:
                self._idle = False
                self._news.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until all lines are written; False when that takes longer."""
        until = time.monotonic() + seconds
        with self._news:
            self._flushing += 1
            self._news.notify_all()
            try:
                return self._news.wait_for(lambda: not self._lines and not self._writing, until - time.monotonic())
            finally:
                self._flushing -= 1

    def waiting(self) -> str:
        """What is not written yet, as far as that is known without waiting."""
        if not self._news.acquire(timeout=0.01):
            return ""
        try:
            return "".join(self._lines)
        finally:
            self._news.release()

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._news:
                self._writing = 0
                self._news.notify_all()
                self._news.wait_for(lambda: self._flushing > 0 or len(self._lines) >= _AT_ONCE, pause)
                self._idle = not self._lines
                self._news.wait_for(lambda: bool(self._lines))
                pause = _PAUSE
                some = [self._lines.popleft() for _ in range(min(_AT_ONCE, len(self._lines)))]
                self._characters -= sum(map(len, some))
                self._writing = len(some)
            self._put("".join(some))
            with self._news:  # looked at with the lock held: else the line comes before what was kept
                lost = 0 if self._lines else self._lost
                self._lost -= lost
            if lost:
                self._put(self._lost_line(lost))

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the stream is closed or broken: nothing is left to write to
            return
