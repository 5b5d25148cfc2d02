"""The demo as a table that fills while one watches, on a terminal. Scenes come in, `rich` draws them.

The screen from top to bottom: which act, what to look at, its checks, the managers, nodes, Services, the latest Events.
Nodes get the room that the rest leaves.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence

import attrs
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from livedemo.scene import NodeRow, Role, Scene

_EVENTS = 4
_ROOMY = 32
"""From so many lines on, the screen has blank lines between its parts, and they keep their places."""
_LEVELS = {"warning": "yellow", "error": "bold red", "Warning": "yellow"}
_ROLES = {
    Role.STARTING: ("…", "dim"),
    Role.STANDBY: ("○", "cyan"),
    Role.LEADER: ("●", "bold green"),
    Role.DRAINING: ("◐", "yellow"),
    Role.KILLED: ("✗", "bold red"),
    Role.ENDED: ("✓", "dim"),
}


@attrs.define
class _Point:
    """A check as it is drawn."""

    text: str
    since: float
    took: float | None = None


class LiveView:
    """See `view.View`. `log`: the last lines are the manager's log, in place of Events."""

    def __init__(self, console: Console, title: str, acts: Sequence[str], *, log: bool) -> None:
        self._console = console
        self._title = title
        self._acts = list(acts)
        self._log = log
        self._took: dict[str, float] = {}
        self._act = ""
        self._watch = ""
        self._deeds: list[str] = []
        self._points: list[_Point] = []
        self._began = time.monotonic()
        self._longest = 0
        self._scene = Scene()
        self._open = True
        self._live = Live(self._render(), console=console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def act(self, title: str, watch: str) -> None:
        """See `view.View`."""
        self._act, self._watch = title, watch
        self._deeds, self._points = [], []
        self._began = time.monotonic()

    def deed(self, text: str) -> None:
        """See `view.View`."""
        self._deeds.append(text)

    def expected(self, text: str) -> None:
        """See `view.View`."""
        self._points.append(_Point(text, time.monotonic()))

    def held(self, text: str, took: float) -> None:
        """See `view.View`."""
        for point in self._points:
            if point.text == text:
                point.took = took

    def done(self) -> None:
        """See `view.View`."""
        self._took[self._act] = time.monotonic() - self._began

    def show(self, scene: Scene) -> None:
        """See `view.View`."""
        self._scene = scene
        self._live.update(self._render(), refresh=True)

    def close(self) -> None:
        """See `view.View`."""
        if self._open:
            self._open = False
            self._live.update(self._render(final=True), refresh=True)
            self._live.stop()

    def block(self, title: str, lines: Sequence[str]) -> None:
        """See `view.View`."""
        self._console.print()
        self._console.print(Text(title, style="bold cyan"))
        for line in lines:
            style = "green" if line.endswith(" *") else "yellow" if line.lstrip().startswith("Warning ") else ""
            for part in textwrap.wrap(line, self._console.size.width, subsequent_indent=_indent(line)) or [""]:
                self._console.print(Text(part, style=style))

    # ---- drawing

    def _render(self, final: bool = False) -> RenderableType:
        width, height = self._console.size
        script = [] if final else self._script(width)
        if height >= _ROOMY:
            self._longest = max(self._longest, len(script))
            script += [Text("")] * (self._longest - len(script))  # so that what is below stays where it is
        above: list[RenderableType] = [*self._head(final), *([] if final else script)]
        managers, services = self._managers(width), self._services()
        last = [] if final else self._last_lines()
        blank = [Text("")] if height >= _ROOMY or final else []
        below: list[RenderableType] = [*blank, *services, *blank, *last]
        used = len(above) + len(managers) + 2 * len(blank) + len(blank) * 2 + len(last) + 2
        used += 1 + len(self._scene.services) if services else 0
        nodes = self._nodes(None if final else max(3, height - used))
        return Group(*above, *blank, *managers, *blank, nodes, *below)

    def _head(self, final: bool) -> list[RenderableType]:
        if final and len(self._took) == len(self._acts) > 0:
            return [
                Text(f"✓ {number} {act}", style="green").append(f"  {self._took[act]:.1f} s", style="dim")
                for number, act in enumerate(self._acts, 1)
            ]
        title = f"{self._acts.index(self._act) + 1}/{len(self._acts)}  {self._act}" if self._act else self._title
        first = Table.grid(expand=True)
        first.add_column(no_wrap=True)
        first.add_column(justify="right", no_wrap=True)
        first.add_row(Text(title, style="bold cyan"), Text(f"{self._scene.elapsed:.1f} s", style="dim"))
        if not self._acts:
            return [first]
        steps = Text(no_wrap=True, overflow="ellipsis")
        for number, act in enumerate(self._acts, 1):
            if act in self._took:
                steps.append(f"✓ {number} {self._took[act]:.1f} s   ", style="green")
            else:
                steps.append(
                    f"{'▶' if act == self._act else '·'} {number}   ", style="bold" if act == self._act else "dim"
                )
        return [first, steps]

    def _script(self, width: int) -> list[RenderableType]:
        lines: list[RenderableType] = [Text(part, style="italic") for part in textwrap.wrap(self._watch, width - 1)]
        lines += [Text(f"> {deed}", style="bold yellow", no_wrap=True, overflow="ellipsis") for deed in self._deeds]
        for point in self._points:
            took = time.monotonic() - point.since if point.took is None else point.took
            mark, style = ("○", "") if point.took is None else ("✓", "green")
            lines.append(
                Text(f"{mark} {point.text}", style=style, no_wrap=True, overflow="ellipsis").append(
                    f"  {took:.1f} s", style="dim"
                )
            )
        return lines

    def _managers(self, width: int) -> list[RenderableType]:
        lines: list[RenderableType] = []
        for row in self._scene.managers:
            mark, style = _ROLES[row.role]
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{mark} {row.name:10} {row.role.value:8} ", style=style)
            line.append(f"process {row.pid:<7} cloud changes: {row.changes:<3}", style="dim")
            if row.note:
                line.append(f"   {row.note}", style="yellow")
            lines.append(line)
        return lines

    def _nodes(self, room: int | None) -> Table:
        width = self._console.size.width
        table = _table(2 if width >= 90 else 1)
        with_routes = any(row.pod_cidr for row in self._scene.nodes) and bool(self._acts)
        with_type = width >= 100 or not with_routes
        titles = ["Node", "Initialised", "Provider ID", "Addresses", *(["Type"] if with_type else []), "Zone"]
        for title in titles:
            table.add_column(title, no_wrap=True)
        if with_routes:
            table.add_column("Route to pods", no_wrap=True)
        shown, hidden = _fitting(self._scene.nodes, room)
        for row in shown:
            style = "dim strike" if row.deleted is not None else ""
            facts = [row.provider_id, ", ".join(row.addresses), *([row.type] if with_type else []), row.zone]
            cells = [Text(fact, style=style) if fact else Text("·", style="dim") for fact in facts]
            if with_routes:
                routed = row.routed and row.pod_cidr in self._scene.routes
                there = "✓" if routed else "…" if row.deleted is None else "✗"
                cells.append(Text(f"{there} {row.pod_cidr}", style="green" if routed else style or "yellow"))
            table.add_row(Text(row.name, style=style or "bold"), self._state(row), *cells)
        if hidden:
            table.caption = f"… and {hidden} more"
            table.caption_justify = "left"
        return table

    def _state(self, row: NodeRow) -> Text:
        if row.deleted is not None:
            return Text("✗ deleted", style="red")
        if row.ready is None:
            return Text(f"● {self._scene.elapsed - row.joined:.1f} s", style="yellow")
        if not row.answering:
            return Text("? NotReady", style="bold red")
        return Text(f"✓ {row.took or 0:.1f} s", style="green")

    def _services(self) -> list[RenderableType]:
        if not self._scene.services:
            return []
        table = _table(2)
        for title in ("Service", "Address", "Load balancer in the cloud"):
            table.add_column(title, no_wrap=True)
        for row in self._scene.services:
            style = "dim strike" if row.deleted else "bold"
            balancer = Text("none", style="dim") if row.targets is None else Text(f"{row.targets} targets")
            address = Text("✗ deleted", style="red") if row.deleted else Text(row.address or "·")
            table.add_row(Text(row.name, style=style), address, balancer)
        return [table]

    def _last_lines(self) -> list[RenderableType]:
        if self._log:
            lines = [(level, text) for level, text in self._scene.log]
        else:
            lines = [(event.type, f"{event.reason:22} {event.about}: {event.message}") for event in self._scene.events]
        lines = lines[-_EVENTS:]
        padded = [*lines, *[("", "")] * (_EVENTS - len(lines))]
        title = [] if self._log else [Text("Latest Events", style="bold")]
        return [
            *title,
            *(Text(text, style=_LEVELS.get(kind, "dim"), no_wrap=True, overflow="ellipsis") for kind, text in padded),
        ]


def _table(gap: int) -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))


def _fitting(rows: Sequence[NodeRow], room: int | None) -> tuple[Sequence[NodeRow], int]:
    """As many rows as there is room for: those under way first, then the newest, the deleted ones last."""
    if room is None or len(rows) <= room:
        return rows, 0
    order = sorted(
        rows, key=lambda row: (row.deleted is not None, row.ready is not None and row.answering, -row.joined)
    )
    kept = {row.name for row in order[: room - 1]}
    return [row for row in rows if row.name in kept], len(rows) - len(kept)


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip()) + 4)
