"""The real manager as a subprocess: started with flags as in production, watched through its log and its metrics.

Data comes from the process's standard error (JSON lines) and from /metrics; it goes to the views. Stopping sends
SIGTERM and waits for the drain; nothing survives the demo.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import attrs
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
_SERVING = re.compile(r"serving health and metrics on (http://\S+)")


@attrs.frozen
class LogLine:
    """One line that the manager wrote."""

    level: str
    text: str


@attrs.frozen
class Totals:
    """What the manager did so far, from its own metrics."""

    cloud_calls: int = 0
    writes: int = 0
    """PATCH requests: nodes and their status."""
    events: int = 0
    memory_mb: float = 0.0


class ManagerProcess:
    """The manager. `start` once, `stop` any number of times; readable from any thread."""

    def __init__(self, flags: Sequence[str]) -> None:
        self.command = ["python -m controllers.app", *flags]
        self._flags = list(flags)
        self._process: subprocess.Popen[str] | None = None
        self._lines: deque[LogLine] = deque(maxlen=200)
        self._url: str | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it in a session of its own: Ctrl-C reaches the demo, which then stops it in order."""
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

    def stop(self, patience: float = 40.0) -> tuple[int, float]:
        """SIGTERM, wait for the drain; returns the exit code and the seconds that it took."""
        process = self._process
        if process is None:
            return 0, 0.0
        began = time.monotonic()
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(5)
        return process.returncode, time.monotonic() - began

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def lines(self, count: int = 200) -> list[LogLine]:
        """The last lines of its log."""
        return list(self._lines)[-count:]

    def ready(self) -> bool:
        """Whether /readyz says so."""
        return self._get("/readyz") is not None

    def totals(self) -> Totals | None:
        """Read from /metrics; None while it does not answer."""
        text = self._get("/metrics")
        if text is None:
            return None
        calls = writes = events = 0.0
        memory = 0.0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "cloudprovider_api_requests_total":
                    calls += sample.value if "metadata" in sample.labels.get("method", "") else 0
                elif sample.name == "rest_client_requests_total" and sample.labels.get("code", "").startswith("2"):
                    writes += sample.value if sample.labels.get("method") == "PATCH" else 0
                elif sample.name == "event_recorder_writes_total":
                    events += sample.value
                elif sample.name == "process_resident_memory_bytes":
                    memory = sample.value / 1e6
        return Totals(int(calls), int(writes), int(events), memory)

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
            self._lines.append(found)
