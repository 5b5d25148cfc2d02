"""Programs that run beside a test: started with their output in files, ended by their process, never by a name."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Programs"]


class Programs:
    """The programs of one folder, by name; each writes to ``NAME.log`` there. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}

    def spawn(self, name: str, command: Sequence[str]) -> None:
        """Start a program; what it writes is added to its log."""
        self._logs[name] = self._folder / f"{name}.log"
        with self._logs[name].open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._folder, env=_clean_env()
            )

    def end(self, name: str, *, kill: bool = False) -> None:
        """End a program, by force after 20 s; nothing where it does not run."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End all that still run, the last one first. May be called twice."""
        for name in reversed(list(self._processes)):
            self.end(name)

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The process of a program that was started and not ended; it may have ended by itself."""
        return self._processes[name]

    def log_tail(self) -> str:
        """The last lines of every program's log, for the message of a failure."""
        tails = {name: log.read_text(errors="replace").splitlines()[-15:] for name, log in self._logs.items()}
        return "\n".join(line for name, tail in tails.items() for line in (f"--- {name}", *tail))


def _clean_env() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", "/"),
        "TMPDIR": tempfile.gettempdir(),
    }
