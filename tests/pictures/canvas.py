"""What pictures are drawn with: boxes, arrows and texts, in colours that follow the reader's light or dark mode.

matplotlib draws; text becomes outlines, so that no font is needed. Colours are roles (`INK`, `ACCENT` ...): in the SVG
they are CSS variables, whose values depend on the mode.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, Final

import matplotlib as mpl
from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

__all__ = [
    "ACCENT",
    "BAD",
    "GOOD",
    "INK",
    "LINE",
    "MUTED",
    "PANEL",
    "SOFT",
    "Box",
    "Canvas",
    "new_figure",
    "png",
    "svg",
]

INK: Final = "#0a0001"
MUTED: Final = "#0a0002"
LINE: Final = "#0a0003"
PANEL: Final = "#0a0004"
ACCENT: Final = "#0a0005"
SOFT: Final = "#0a0006"
GOOD: Final = "#0a0007"
BAD: Final = "#0a0008"

_NAMES = {
    INK: "ink", MUTED: "muted", LINE: "line", PANEL: "panel", ACCENT: "accent", SOFT: "soft", GOOD: "good", BAD: "bad",
}  # fmt: skip
LIGHT: Final = {
    "ink": "#1f2328", "muted": "#59636e", "line": "#8c959f", "panel": "#f3f5f8", "accent": "#0b6bcb", "soft": "#dcebfb",
    "good": "#1a7f4b", "bad": "#b4452c",
}  # fmt: skip
DARK: Final = {
    "ink": "#e6edf3", "muted": "#9aa4af", "line": "#6b7580", "panel": "#262c34", "accent": "#5aaefa", "soft": "#173a5e",
    "good": "#4cc38a", "bad": "#f0836a",
}  # fmt: skip
_BACKGROUND = {"light": "#ffffff", "dark": "#131416"}
_STYLE: dict[Any, Any] = {"svg.hashsalt": "docs", "font.family": "DejaVu Sans", "svg.fonttype": "path"}


@frozen
class Box:
    """A rectangle's place: its lower left corner and size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    def side(self, name: str, share: float = 0.5) -> tuple[float, float]:
        """A point on the "left", "right", "top" or "bottom" edge; `share` of the way along it."""
        return {
            "left": (self.x, self.y + self.height * share),
            "right": (self.x + self.width, self.y + self.height * share),
            "top": (self.x + self.width * share, self.y + self.height),
            "bottom": (self.x + self.width * share, self.y),
        }[name]


class Canvas:
    """A drawing of `width` by `height` points; the origin is at the lower left."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = new_figure(width, height)
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(0, height)
        self.axes.set_axis_off()

    def box(
        self, x: float, y: float, width: float, height: float, title: str, lines: Sequence[str] = (), *,
        edge: str = LINE, fill: str = PANEL, dashed: bool = False, size: float = 10,
    ) -> Box:  # fmt: skip
        """A rounded box with a title and smaller lines below it, centred."""
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle="round,pad=0,rounding_size=6", facecolor=fill, edgecolor=edge,
                linewidth=1.2, linestyle=(0, (4, 3)) if dashed else "solid",
            )
        )  # fmt: skip
        box = Box(x, y, width, height)
        centre, middle = box.middle
        top = middle + len(lines) * 6.5
        if title:
            self.text(centre, top, title, size=size, weight="bold")
        for number, line in enumerate(lines, 1):
            self.text(centre, top - 1.5 - 13 * number, line, size=8, colour=MUTED)
        return box

    def text(
        self, x: float, y: float, text: str, *, size: float = 8.5, colour: str = INK, weight: str = "normal",
        align: str = "center", turn: float = 0,
    ) -> None:  # fmt: skip
        """Text with its middle, or its left or right end, at the point."""
        self.axes.text(
            x, y, text, fontsize=size, color=colour, fontweight=weight, ha=align, va="center", rotation=turn,
            linespacing=1.35,
        )  # fmt: skip

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], *, colour: str = LINE, bend: float = 0,
        dashed: bool = False, width: float = 1.4,
    ) -> None:  # fmt: skip
        """An arrow; `bend` is the curve's height as a share of its length."""
        self.axes.add_patch(
            FancyArrowPatch(
                start, end, arrowstyle="-|>,head_length=5,head_width=2.6", connectionstyle=f"arc3,rad={bend}",
                color=colour, linewidth=width, linestyle=(0, (4, 3)) if dashed else "solid", shrinkA=1, shrinkB=1,
                mutation_scale=1,
            )
        )  # fmt: skip

    def line(
        self, xs: Sequence[float], ys: Sequence[float], *, colour: str = LINE, dashed: bool = False, width: float = 1.2
    ) -> None:  # fmt: skip
        """A line through these points."""
        self.axes.plot(xs, ys, color=colour, linewidth=width, linestyle=(0, (4, 3)) if dashed else "solid")


def new_figure(width: float, height: float) -> Figure:
    """An empty, transparent figure of that size in points."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width / 72, height / 72))
    figure.patch.set_alpha(0)
    return figure


def svg(figure: Figure) -> str:
    """The figure as SVG, the same for the same figure; colours are CSS variables."""
    out = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    for colour, name in _NAMES.items():
        text = text.replace(colour, f"var(--{name})")
    return re.sub(r"<svg ", '<svg class="picture" ', text, count=1).replace("<defs>", f"{_css()}\n <defs>", 1)


def png(figure: Figure, mode: str) -> bytes:
    """The figure as it looks in "light" or "dark" mode, to be looked at while drawing. Recolours the figure."""
    values = {placeholder: (LIGHT if mode == "light" else DARK)[name] for placeholder, name in _NAMES.items()}
    for artist in figure.findobj(lambda one: hasattr(one, "get_alpha")):
        for part in ("color", "facecolor", "edgecolor"):
            if not (get := getattr(artist, f"get_{part}", None)):
                continue
            found = get()
            try:
                colour = values.get(to_hex(found))
            except ValueError:  # several colours, or none
                continue
            if colour:
                getattr(artist, f"set_{part}")(colour)
    figure.patch.set_alpha(1)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, facecolor=_BACKGROUND[mode])
    return out.getvalue()


def _css() -> str:
    def rule(selector: str, values: dict[str, str]) -> str:
        return f"{selector} {{ {' '.join(f'--{name}: {value};' for name, value in values.items())} }}"

    return "\n".join(
        [
            " <style>",
            rule("svg.picture", LIGHT),
            f"@media (prefers-color-scheme: dark) {{ {rule('svg.picture', DARK)} }}",
            rule('body[data-theme="light"] svg.picture', LIGHT),
            rule('body[data-theme="dark"] svg.picture', DARK),
            " </style>",
        ]
    )
