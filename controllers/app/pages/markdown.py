"""Tables in Markdown, for the pages that are generated from the code. Stage: before the first one, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def rows_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with its header, one line for each row; a cell's `|` is escaped. Pure."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
