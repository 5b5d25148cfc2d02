"""What the viewer reads: acts, deeds, what came true, and a line for each thing that happens."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Hashable, Mapping

from rich.console import Console
from rich.text import Text

__all__ = ["PATIENCE", "Failed", "Screen"]

PATIENCE = 30.0
"""Seconds after which what must come true and does not is a failure."""
_LOOK = 0.1  # seconds between two looks


class Failed(Exception):
    """The demo did not reach its end; the message says why."""


class Screen:
    """Standard output, in colour where it is a terminal. `look` looks at everything and tells what
    is new; `excuse` is what may explain that something does not come true."""

    def __init__(self, look: Callable[[], None], excuse: Callable[[], str]) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._look = look
        self._excuse = excuse
        self._began = time.monotonic()
        self._told: set[Hashable] = set()
        self.checks = 0
        """How many came true."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def reading_seconds(self) -> float:
        """Before an act's first deed; only where a person watches."""
        return 2.0 if self._console.is_terminal else 0.0

    def act(self, number: str, title: str, watch: str) -> None:
        """The beginning of an act."""
        self.write(f"\n{number}  {title}", "bold")
        self.write(textwrap.fill(watch, 118, initial_indent="     ", subsequent_indent="     "), "dim")
        self.pause(self.reading_seconds)

    def deed(self, text: str) -> None:
        """Something that a kubelet, a person or an accident does."""
        self._line(f"> {text}", "bold cyan")

    def tell(self, key: Hashable, text: str, style: str = "") -> None:
        """A line, the first time that this key is told."""
        if key not in self._told:
            self._told.add(key)
            self._line(text, style)

    def until(self, checks: Mapping[str, Callable[[], object]]) -> None:
        """Wait until each of these has held once. Raises Failed."""
        began, missing = time.monotonic(), dict(checks)
        while True:
            self._look()
            for text in [text for text, holds in missing.items() if holds()]:
                del missing[text]
                self.checks += 1
                self._line(f"OK {text}", "green")
            if not missing:
                return
            if time.monotonic() - began > PATIENCE:
                raise Failed(f"after {PATIENCE:g} s this is not so: {'; '.join(missing)}{self._excuse()}")
            time.sleep(_LOOK)

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._look()
            time.sleep(min(_LOOK, left))

    def write(self, text: str, style: str = "") -> None:
        """A line without a time."""
        self._console.print(Text(text, style))

    def _line(self, text: str, style: str) -> None:
        self.write(f"{self.elapsed:7.2f} s  {text}", style)
