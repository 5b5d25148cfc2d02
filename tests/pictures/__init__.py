"""The pictures of the docs: small sources in Python, drawn by `make generate` into docs/pictures/ as SVG.

Each SVG ends with a digest of what it was drawn from and of itself. So a test sees that it is current without drawing,
which may differ in a last digit between machines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FOLDER", "current", "names", "outdated", "pictures", "write"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
BENCHMARKS = ROOT / "docs" / "reference" / "benchmarks.md"
_SOURCES = {
    "node-way": "diagrams.py",
    "service-way": "diagrams.py",
    "load-balancer-states": "diagrams.py",
    "lease": "diagrams.py",
    "benchmarks": "plots.py",
}


def names() -> list[str]:
    """The pictures' names."""
    return list(_SOURCES)


def pictures() -> dict[str, Callable[[], Figure]]:
    """What draws each of them. Imports matplotlib."""
    from tests.pictures import diagrams, plots

    return {
        "node-way": diagrams.node_way,
        "service-way": diagrams.service_way,
        "load-balancer-states": diagrams.load_balancer_states,
        "lease": diagrams.lease,
        "benchmarks": lambda: plots.speed(BENCHMARKS.read_text()),
    }


def current(name: str) -> bool:
    """Whether the picture in the repository is the one that its sources give, untouched since it was drawn."""
    path = FOLDER / f"{name}.svg"
    if not path.is_file():
        return False
    body, _, rest = path.read_text().rpartition("<!-- drawn by ")
    return rest == _signature(name, body)


def outdated() -> list[str]:
    """The pictures that are to be drawn again."""
    return [name for name in _SOURCES if not current(name)]


def write(name: str) -> Path:
    """Draw one into its file; returns the path."""
    from tests.pictures.canvas import svg

    body = svg(pictures()[name]())
    path = FOLDER / f"{name}.svg"
    path.write_text(f"{body}<!-- drawn by {_signature(name, body)}")
    return path


def _signature(name: str, body: str) -> str:
    parts = [Path(__file__).with_name(file).read_text() for file in (_SOURCES[name], "canvas.py")]
    if name == "benchmarks":
        parts += [line for line in BENCHMARKS.read_text().splitlines() if line.startswith("|")]
    digest = hashlib.sha256("\n".join([*parts, body]).encode()).hexdigest()
    return f"tests/pictures/{_SOURCES[name]}, {digest[:32]} -->\n"
