"""The manager as a process of its own: started with flags, asked over HTTP, stopped by signals, its
log kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from cloudprovider.testing.waiting import eventually

EXAMPLE = (sys.executable, str(Path(__file__).parents[2] / "examples" / "main.py"))
"""The vendor's ten-line main; its provider is the fake cloud."""
MODULE = (sys.executable, "-m", "controllers.app")
"""Our own program, without a default provider."""


class Process:
    """A program with some flags; its output is kept."""

    def __init__(self, flags: Sequence[str], cwd: Path, command: Sequence[str] = EXAMPLE) -> None:
        if not any(flag.startswith(("--secure-port", "--secure_port")) for flag in flags):
            flags = [*flags, "--secure-port=0"]  # many run at once, and 10258 is one port
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        self._process = subprocess.Popen(
            [*command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=environment,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        self._lines.extend(iter(self._process.stderr.readline, ""))

    @property
    def log(self) -> str:
        return "".join(self._lines)

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def ended(self, timeout: float = 45) -> int:
        """Its exit code."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running:\n{self.log}") from None
        self._reader.join(5)
        return code

    def output(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of its health endpoint; for one started with
        ``--health-bind-address=127.0.0.1:0``."""
        [url] = eventually(lambda: re.findall(r"on (http://127\.0\.0\.1:\d+)", self.log), 60, lambda: self.log)
        try:
            with urllib.request.urlopen(url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, sample: str, **labels: str) -> float:
        """The sum of /metrics' samples of this name that carry these labels; 0 when there is
        none."""
        status, text = self.ask("/metrics")
        assert status == 200
        lines = "\n".join(line for line in text.splitlines() if line.startswith(sample))  # all would take a while
        return sum(
            one.value
            for family in text_string_to_metric_families(f"{lines}\n")
            for one in family.samples
            if one.name == sample and labels.items() <= one.labels.items()
        )

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


class Start:
    """Starts processes in one directory, and ends them with the test."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._made: list[Process] = []

    def __call__(self, *flags: str, command: Sequence[str] = EXAMPLE) -> Process:
        self._made.append(Process(flags, self._cwd, command))
        return self._made[-1]

    def manager(self, kubeconfig: Path, *flags: str) -> Process:
        """Our own program over the fake cloud of the folder's cloud.json, or over an empty one; it
        takes part in no election, and its health endpoint can be asked."""
        config = self._cwd / "cloud.json"
        return self(
            "--cloud-provider=fake",
            *([f"--cloud-config={config}"] if config.exists() else []),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--health-bind-address=127.0.0.1:0",
            *flags,
            command=MODULE,
        )

    def close(self) -> None:
        for process in self._made:
            process.close()
