"""Log lines on their way to a stream that may hang: its own thread writes them.

A pipe without a reader (a log driver that hangs, a full disk, a terminal with Ctrl-S) would
otherwise stop each thread at its next log line: the one that renews the lease, or the one that ends
the process when it is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO, Final

MOST_CHARACTERS: Final = 4_000_000
"""Kept while there is no reader: about 20,000 lines. Further ones are counted, and lost."""
_AT_ONCE: Final = 64  # lines in one write
# Seconds after a write: to wake this thread costs the one that logs more than its line.
_PAUSE: Final = 0.02


class LineWriter:
    """Takes lines from any thread, without ever waiting, and writes them in their order.

    `lost(count)` is the line that says how many lines were lost.
    """

    def __init__(self, stream: IO[str], lost: Callable[[int], str], *, most: int = MOST_CHARACTERS) -> None:
        self._stream = stream
        self._lost_line = lost
        self._most = most
        # Lines, and what is to be set once those before it are written. Whoever logs takes no lock:
        # a finalizer that logs runs in the middle of any step, in the same thread.
        self._queue: SimpleQueue[str | threading.Event] = SimpleQueue()
        self._characters = 0  # about: it and the next are changed without a lock
        self._lost = 0
        self._hurry = threading.Event()  # ends a pause
        self._process = 0  # the one that the thread belongs to
        self._starting = threading.Lock()  # never waited for

    def write(self, line: str) -> None:
        """Have this line written, or count it where too many wait."""
        length = len(line)
        # Nobody reads: a line more or less matters less than the memory.
        if self._characters + length > self._most:
            self._lost += 1
            return
        self._characters += length
        self._queue.put(line)
        if self._process != os.getpid():  # the first line, also of a forked process
            self._start()

    def flush(self, seconds: float) -> bool:
        """Wait until all lines are written; False when that takes longer."""
        if self._process != os.getpid():
            # A forked process has no such thread; it starts one only for lines of its own.
            if self._queue.empty():
                return True
            self._start()
        written = threading.Event()
        self._queue.put(written)
        self._hurry.set()
        return written.wait(seconds)

    def take(self) -> str:
        """What is not written yet, for the caller to write; a flush that waits goes on."""
        lines = []
        with suppress(Empty):
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, str):
                    lines.append(item)
                else:
                    item.set()
        return "".join(lines)

    def _start(self) -> None:
        if not self._starting.acquire(blocking=False):
            return  # by another thread, or by this one, in which a finalizer logs
        try:
            if self._process != os.getpid():
                # The system has no thread left: the next line tries again.
                with suppress(RuntimeError):
                    threading.Thread(target=self._run, name="log", daemon=True).start()
                    self._process = os.getpid()
        finally:
            self._starting.release()

    def _run(self) -> None:
        try:
            while True:
                self._write_some()
        finally:
            self._process = 0

    def _write_some(self) -> None:
        lines, written = self._next()
        text = "".join(lines)
        if text:
            self._put(text)
        self._characters -= len(text)
        lost = self._lost
        if lost and self._queue.empty():  # in this order: what was kept before them is written
            self._lost -= lost
            self._put(self._lost_line(lost))
        if written is not None:
            written.set()
        elif self._queue.empty():
            self._characters = 0  # so that what two threads counted at once does not add up
            self._hurry.wait(_PAUSE)
        self._hurry.clear()

    def _next(self) -> tuple[list[str], threading.Event | None]:
        """The lines for one write, and who waits for them. Waits until there is something."""
        lines: list[str] = []
        item = self._queue.get()
        with suppress(Empty):
            while isinstance(item, str):
                lines.append(item)
                if len(lines) == _AT_ONCE:
                    break
                item = self._queue.get_nowait()
            else:
                return lines, item
        return lines, None

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the stream is closed or broken: nothing is left to write to
            return
