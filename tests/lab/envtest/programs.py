"""Programs that run beside a test: started with their output in files, ended by their process,
never by a name.

Each has a guard, a shell whose input ends with this process, however that dies (kill -9 of pytest
included); then it kills the program, unless another one has its number by then.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_GUARD: Final = """while read -r _; do :; done; case "$(ps -o comm= -p "$0")" in *"$1") kill -9 "$0";; esac"""
_COMM_LENGTH: Final = 15  # of a program's name in Linux's table of processes


class Programs:
    """The programs of one folder, by name; each writes to ``NAME.log`` there. For one thread at a
    time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._guards: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}

    def spawn(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        """Start a program, with a few variables of ours and those of `env`; what it writes is added
        to its log."""
        self._logs[name] = self._folder / f"{name}.log"
        with self._logs[name].open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env={**_clean_env(), **(env or {})},
            )
        program = Path(command[0]).name[:_COMM_LENGTH]
        self._guards[name] = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self._processes[name].pid), program],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def end(self, name: str, *, kill: bool = False) -> None:
        """End a program, by force after 20 s; nothing where it does not run."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        with self._guards.pop(name) as guard:  # before the process is reaped, and its number free
            guard.kill()
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self, *, kill: bool = False) -> None:
        """End all that still run, the last one first; `kill` is for those whose data are thrown
        away. May be called twice."""
        for name in reversed(list(self._processes)):
            self.end(name, kill=kill)

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
