"""The real manager as a subprocess: started with flags as in production, watched through its log.

Stopping sends SIGTERM and waits for the drain; nothing survives the demo.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SERVING = re.compile(r"serving health and metrics on (http://\S+)")
_IDENTITY = re.compile(r"attempting to acquire leader lease \S+ as (\S+?)\.\.\.")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM that come meanwhile take effect afterwards: what was started is known, and
    can be stopped."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        for late in came[:1]:
            signal.raise_signal(late)


class ManagerProcess:
    """The manager. `start` once, `stop` any number of times; readable from any thread."""

    def __init__(self, name: str, flags: Sequence[str]) -> None:
        self.name = name
        self.command = ["python -m controllers.app", *flags]
        self.told_to_end = False
        """Whether the demo has killed it, or asked it to end."""
        self.was_killed = False
        self.identity = ""
        """Its name in the Lease, once it has logged it."""
        self._flags = list(flags)
        self._process: subprocess.Popen[str] | None = None
        self._lines: deque[tuple[str, str]] = deque(maxlen=500)
        self._url: str | None = None
        self._ready = False
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it in a session of its own: Ctrl-C reaches the demo, which then stops it in
        order."""
        with _uninterrupted():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "controllers.app", *self._flags],
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="manager-log", daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """SIGKILL: it ends in the middle of whatever it does."""
        self.told_to_end = self.was_killed = True
        if self._process is not None:
            self._process.kill()

    def terminate(self) -> None:
        """SIGTERM: it finishes its work and ends."""
        self.told_to_end = True
        if self._process is not None:
            self._process.terminate()

    def stop(self, patience: float = 40.0) -> tuple[int, float]:
        """SIGTERM, wait for the drain; returns the exit code and the seconds that it took."""
        process = self._process
        if process is None:
            return 0, 0.0
        began = time.monotonic()
        self.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(5)
        return process.returncode, time.monotonic() - began

    @property
    def pid(self) -> int:
        """The process ID; 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def last_words(self) -> str:
        """The end of its log, for a message: warnings and errors, or else whatever there is."""
        lines = [text for level, text in list(self._lines) if level != "info"] or [text for _, text in self._lines]
        return "".join(f"\n    {text}" for text in lines[-8:])

    def ready(self) -> bool:
        """Whether /readyz has said so."""
        if not self._ready and self._url is not None:
            try:
                urllib.request.urlopen(f"{self._url}/readyz", timeout=2).close()
                self._ready = True
            except OSError:
                return False
        return self._ready

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            try:
                line = json.loads(raw)
                level, text = str(line["level"]), str(line["msg"])
            except (ValueError, KeyError, TypeError):
                level, text = "error", raw.rstrip()  # before logging is set up, or the interpreter itself
            serving = _SERVING.search(text)
            if serving:
                self._url = serving[1]
            identity = _IDENTITY.search(text)
            if identity:
                self.identity = identity[1]
            self._lines.append((level, text))
