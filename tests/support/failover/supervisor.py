"""Managers as processes that are started, killed, stopped and started anew, as a kubelet does with
a container.

Each start is a candidate of its own: it has a name, a token and a log. A place is what a replica
is: one candidate at a time; when it ends, the next one is started a moment later.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from attrs import define, field

_QUICK: Final = 5.0  # seconds
_PAUSE, _LONGEST_PAUSE = 0.3, 10.0

Command = Callable[[str, Path], Sequence[str]]
"""From a candidate's name and a folder for its files to its command line."""


@define
class Candidate:
    """One process. Times are Unix seconds."""

    name: str
    process: subprocess.Popen[bytes]
    log_file: Path
    started: float
    ended: float | None = None
    code: int | None = None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def signal(self, number: int) -> float:
        """Send it a signal; returns when."""
        at = time.time()
        self.process.send_signal(number)
        return at


@define
class _Place:
    kind: str
    command: Command
    candidates: list[Candidate] = field(factory=list)


class Supervisor:
    """Keeps a candidate running in every place while it is entered."""

    def __init__(self, folder: Path, places: Sequence[tuple[str, Command]]) -> None:
        self._folder = folder
        self._places = [_Place(kind, command) for kind, command in places]
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def __enter__(self) -> Supervisor:
        for place in self._places:
            self._start(place)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        for one in self.running():
            one.process.send_signal(signal.SIGCONT)
            one.process.terminate()
        for one in self.running():
            try:
                one.process.wait(45)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()

    def running(self) -> list[Candidate]:
        """The candidates whose processes have not ended."""
        return [one for one in self.candidates() if one.process.poll() is None]

    def candidates(self) -> list[Candidate]:
        """All that were ever started, in order."""
        with self._lock:
            return sorted((one for place in self._places for one in place.candidates), key=lambda one: one.started)

    def named(self, name: str) -> Candidate:
        """The candidate of this name."""
        (found,) = [one for one in self.candidates() if one.name == name]
        return found

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            for place in self._places:
                last = place.candidates[-1]
                code = last.process.poll()
                if code is not None and last.ended is None:
                    last.ended, last.code = time.time(), code
                if last.ended is not None and time.time() - last.ended >= self._wait(place):
                    self._start(place)

    def _wait(self, place: _Place) -> float:
        """Ever longer, as a kubelet's, for what ends again and again as soon as it is started."""
        lives = [one.ended - one.started for one in place.candidates if one.ended is not None]
        quick = len(list(takewhile(lambda life: life < _QUICK, reversed(lives))))
        return float(min(_PAUSE * 2 ** max(0, quick - 1), _LONGEST_PAUSE))

    def _start(self, place: _Place) -> None:
        number = sum(len(one.candidates) for one in self._places)
        name = f"{place.kind}-{number}"
        folder = self._folder / name
        folder.mkdir()
        log_file = folder / "log"
        with log_file.open("wb") as log:
            started = time.time()
            process = subprocess.Popen(
                list(place.command(name, folder)), cwd=_ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        with self._lock:
            place.candidates.append(Candidate(name, process, log_file, started))


_ROOT = Path(__file__).parents[3]
