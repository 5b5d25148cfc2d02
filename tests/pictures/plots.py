"""The plots of the benchmarks, from the tables that `make bench` wrote into docs/reference/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tests.pictures.canvas import ACCENT, INK, LINE, MUTED, new_figure

__all__ = ["bars", "speed", "table"]

_CELL = re.compile(r"[\d,.]+")
_OURS = "this program"
_NAMES: Final = {"ours": _OURS, "Go uncapped": "Go, limits off"}
_PLOTS: Final = (
    ("initialise", "1,000 nodes initialised", "nodes initialised, s", ", cloud 50 ms",
     {"the API server's limit": "API server's limit", "ours, batch, cloud 50 ms": _OURS,
      "Go uncapped, cloud 50 ms": "Go, limits off"}),
    ("services", "100 Services get load balancers", "created while it runs, s", "", _NAMES),
    ("routes", "500 routes and node conditions", "routes and conditions, s", "", _NAMES),
    ("joining", "Cloud updates of one Service while 50 nodes join", "cloud updates of one Service, at most", "",
     _NAMES),
)  # fmt: skip
"""(scenario, title, column, what follows "Go default" in a contender's name, contenders with the names shown)"""


def table(page: str, scenario: str) -> dict[str, dict[str, float]]:
    """Contender to column to figure of a scenario's table: the median where there are several runs. Pure."""
    block = page.partition(f"<!-- make bench: {scenario} -->")[2].partition(f"<!-- end of {scenario} -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines() if line.startswith("|")]
    head, _, *rest = rows
    return {
        row[0]: {
            name: float(found[-1].replace(",", ""))
            for name, cell in zip(head[1:], row[1:], strict=True)
            if (found := _CELL.findall(cell))
        }
        for row in rest
    }


def speed(page: str) -> Figure:
    """Four small plots, each on a scale of its own: the page's tables have the exact figures."""
    figure = new_figure(760, 300)
    places = ((0.155, 0.88), (0.64, 0.88), (0.155, 0.38), (0.64, 0.38))
    for (scenario, title, column, suffix, names), (left, top) in zip(_PLOTS, places, strict=True):
        rows = table(page, scenario)
        unit = " s" if column.endswith(", s") else ""
        values = {shown: rows[name][column] for name, shown in names.items()}
        note = f"Go with its default limits: {rows[f'Go default{suffix}'][column]:.3g}{unit}"
        bars(figure, (left, top - 0.08 * len(values), 0.27, 0.08 * len(values)), title, values, unit, note)
    return figure


def bars(
    figure: Figure,
    place: tuple[float, float, float, float],
    title: str,
    values: Mapping[str, float],
    unit: str,
    note: str,
) -> None:
    """Horizontal bars, the first on top, and a note for what would not fit on their scale."""
    axes = figure.add_axes(place)
    names: Sequence[str] = list(values)
    colours = [ACCENT if name == _OURS else LINE for name in names]
    axes.barh(range(len(names)), [values[name] for name in names], height=0.62, color=colours)
    axes.invert_yaxis()
    axes.set_yticks(range(len(names)), names, fontsize=8.5, color=INK)
    axes.xaxis.set_major_locator(NullLocator())
    axes.set_title(title, fontsize=9.5, color=INK, fontweight="bold", loc="left", pad=6, x=-0.47)
    axes.text(-0.47, -0.12, note, fontsize=8, color=MUTED, transform=axes.transAxes, va="top")
    axes.patch.set_alpha(0)
    axes.tick_params(length=0)
    for edge in axes.spines.values():
        edge.set_visible(False)
    for number, name in enumerate(names):
        shown = f"{values[name]:g}{unit}"
        axes.annotate(
            shown, (values[name], number), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5,
            color=MUTED,
        )  # fmt: skip
