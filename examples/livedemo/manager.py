"""The real manager as a subprocess: started with flags as in production, watched through its log and its metrics.

Data comes from the process's standard error (JSON lines) and from /metrics; it goes to the scenes. Stopping sends
SIGTERM and waits for the drain; nothing survives the demo.
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

import attrs
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
_SERVING = re.compile(r"serving health and metrics on (http://\S+)")
_IDENTITY = re.compile(r"attempting to acquire leader lease \S+ as (\S+?)\.\.\.")


@attrs.frozen
class LogLine:
    """One line that the manager wrote."""

    level: str
    text: str


@attrs.frozen
class Figures:
    """What the manager did so far, from its own metrics."""

    cloud_calls: int = 0
    writes: int = 0
    """PATCH requests: nodes and their status."""
    events: int = 0


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM that come meanwhile take effect afterwards: what was started is known, and can be stopped."""
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
        self._lines: deque[LogLine] = deque(maxlen=500)
        self._url: str | None = None
        self._ready = False
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it in a session of its own: Ctrl-C reaches the demo, which then stops it in order."""
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

    def lines(self, count: int = 500) -> list[LogLine]:
        """The last lines of its log."""
        return list(self._lines)[-count:]

    def last_words(self) -> str:
        """The end of its log, for a message: warnings and errors, or else whatever there is."""
        lines = [line for line in self.lines() if line.level != "info"] or self.lines()
        return "".join(f"\n    {line.text}" for line in lines[-8:])

    def ready(self) -> bool:
        """Whether /readyz has said so."""
        self._ready = self._ready or self._get("/readyz") is not None
        return self._ready

    def figures(self) -> Figures | None:
        """Read from /metrics; None while it does not answer."""
        text = self._get("/metrics")
        if text is None:
            return None
        calls = writes = events = 0.0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "cloudprovider_api_requests_total":
                    calls += sample.value
                elif sample.name == "rest_client_requests_total" and sample.labels.get("code", "").startswith("2"):
                    writes += sample.value if sample.labels.get("method") == "PATCH" else 0
                elif sample.name == "event_recorder_writes_total":
                    events += sample.value
        return Figures(int(calls), int(writes), int(events))

    def _get(self, path: str) -> str | None:
        if self._url is None:
            return None
        try:
            with urllib.request.urlopen(self._url + path, timeout=2) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return None

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            try:
                line = json.loads(raw)
                found = LogLine(str(line["level"]), str(line["msg"]))
            except (ValueError, KeyError, TypeError):
                found = LogLine("error", raw.rstrip())  # before logging is set up, or the interpreter itself
            serving = _SERVING.search(found.text)
            if serving:
                self._url = serving[1]
            identity = _IDENTITY.search(found.text)
            if identity:
                self.identity = identity[1]
            self._lines.append(found)
