"""How the demo is shown: a live table on a terminal, plain lines anywhere else.

Data comes from the board and from the manager's log and totals; it goes to standard output. Nothing here decides
anything.
"""

from __future__ import annotations

import os
import sys
import textwrap
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from livedemo.board import Board, Row
from livedemo.manager import ManagerProcess, Totals

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

_LOG_LINES = 4
_AROUND = 13  # lines of the screen that are not rows: title, bar, table head and foot, totals, log
_LEVELS = {"warning": "yellow", "error": "bold red"}


class View(Protocol):
    """What the demo does with a view."""

    def say(self, text: str) -> None:
        """A line about what happens, outside of the table."""

    def row(self, row: Row) -> None:
        """A row changed. From any thread."""

    def refresh(self) -> None:
        """Called several times a second."""

    def close(self) -> None:
        """The table is complete; what is said from now on stands below it."""

    def block(self, title: str, lines: Sequence[str]) -> None:
        """A titled block of text, at the end."""


def choose(board: Board, manager: ManagerProcess, title: str, total: int | None) -> View:
    """The live table where a person watches and `rich` is installed, else plain lines."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and not os.environ.get("CI"):
        try:
            from rich.console import Console
        except ImportError:
            print("(install the extra `demo` for a live table)")
        else:
            return LiveView(Console(), board, manager, title, total)
    return PlainView(board)


class PlainView:
    """One line for each thing that happens, with the seconds since the start."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._told: dict[str, bool] = {}

    def say(self, text: str) -> None:
        self._line(text)

    def row(self, row: Row) -> None:
        done = row.ready is not None
        with self._lock:
            if self._told.get(row.name) == done:
                return
            self._told[row.name] = done
        if done:
            facts = (row.provider_id, ",".join(row.addresses), row.type, row.zone)
            self._line(f"{row.name:12} initialised in {row.took or 0:.2f} s: {'  '.join(facts)}")
        else:
            self._line(f"{row.name:12} joined, with the uninitialized taint")

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        pass

    def block(self, title: str, lines: Sequence[str]) -> None:
        with self._lock:
            print("\n".join(["", title, *lines]), flush=True)

    def _line(self, text: str) -> None:
        with self._lock:
            print(f"{self._board.elapsed():6.2f} s  {text}", flush=True)


class LiveView:
    """A table that fills while one watches."""

    def __init__(self, console: Console, board: Board, manager: ManagerProcess, title: str, total: int | None) -> None:
        from rich.live import Live

        self._console = console
        self._board = board
        self._manager = manager
        self._title = title
        self._total = total
        self._totals = Totals()
        self._asked = 0.0
        self._open = True
        self._live = Live(self._render(), console=console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def row(self, row: Row) -> None:
        pass  # the next refresh shows it

    def refresh(self) -> None:
        if self._board.elapsed() - self._asked > 0.25:
            self._asked = self._board.elapsed()
            self._totals = self._manager.totals() or self._totals
        self._live.update(self._render(), refresh=True)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._asked = 0.0
            self._totals = self._manager.totals() or self._totals
            self._live.update(self._render(final=True), refresh=True)
            self._live.stop()

    def block(self, title: str, lines: Sequence[str]) -> None:
        from rich.text import Text

        self._console.print()
        self._console.print(Text(title, style="bold cyan"))
        for line in lines:
            style = "green" if line.endswith(" *") else "yellow" if line.lstrip().startswith("Warning ") else ""
            for part in textwrap.wrap(line, self._console.size.width, subsequent_indent=_indent(line)) or [""]:
                self._console.print(Text(part, style=style))

    def _render(self, final: bool = False) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        rows = self._board.rows()
        ready = sum(row.ready is not None for row in rows)
        blank = Text("")
        head, table, foot = self._head(ready, len(rows)), self._table(rows, final), self._foot()
        parts: list[RenderableType] = [head, blank, table, blank, foot]
        if not final:
            lines = self._manager.lines(_LOG_LINES)
            for number in range(_LOG_LINES):
                line = lines[number] if number < len(lines) else None
                style = _LEVELS.get(line.level, "dim") if line else "dim"
                parts.append(Text(line.text if line else "", style=style, no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _head(self, ready: int, seen: int) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        total = max(self._total or seen, seen)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            Text(self._title, style="bold cyan"),
            ProgressBar(total=max(1, total), completed=ready, width=24, complete_style="green", finished_style="green"),
            Text(f"{ready} of {total} nodes", style="bold green" if ready == total and total else "bold"),
            Text(f"{self._board.elapsed():.1f} s", style="dim"),
        )
        return grid

    def _table(self, rows: Sequence[Row], final: bool) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        gap = 2 if self._console.size.width >= 90 else 1
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))
        for title in ("Node", "Taint", "Provider ID", "Addresses", "Type", "Zone"):
            table.add_column(title, no_wrap=True)
        table.add_column("Time", justify="right", no_wrap=True)
        shown, hidden = self._fitting(rows, final)
        for row in shown:
            if row.ready is None:
                waited = self._board.elapsed() - row.joined
                state, style, seconds = "● set", "yellow", Text(f"{waited:.1f} s", style="yellow")
            else:
                state, style, seconds = "✓ gone", "green", Text(f"{row.took or 0:.2f} s", style="bold")
            facts = [row.provider_id, ", ".join(row.addresses), row.type, row.zone]
            cells = [Text(fact) if fact else Text("·", style="dim") for fact in facts]
            table.add_row(Text(row.name, style="bold"), Text(state, style=style), *cells, seconds)
        if hidden:
            table.caption = f"… and {hidden} more"
            table.caption_justify = "left"
        return table

    def _fitting(self, rows: Sequence[Row], final: bool) -> tuple[Sequence[Row], int]:
        """As many rows as the screen holds: those under way first, then the newest."""
        room = max(4, self._console.size.height - _AROUND)
        if final or len(rows) <= room:
            return rows, 0
        order = sorted(rows, key=lambda row: (row.ready is not None, -row.joined))
        kept = {row.name for row in order[: room - 1]}
        return [row for row in rows if row.name in kept], len(rows) - len(kept)

    def _foot(self) -> RenderableType:
        from rich.text import Text

        totals = self._totals
        times = self._board.times()
        text = Text("")
        figures: list[tuple[str, str]] = [
            ("cloud calls", str(totals.cloud_calls)),
            ("writes", str(totals.writes)),
            ("events", str(totals.events)),
        ]
        if times is not None:
            figures.append(("median", f"{times[0]:.2f} s"))
            figures.append(("longest", f"{times[1]:.2f} s"))
        if totals.memory_mb:
            figures.append(("memory", f"{totals.memory_mb:.0f} MB"))
        for name, value in figures:
            text.append(f"{name} ", style="dim").append(value, style="bold").append("   ")
        return text


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip()) + 4)
