"""What teardown prints: a table of what there is, and what it comes to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cloudprovider.internal.cleaning import one_line
from controllers.teardown.deleting import Trial
from controllers.teardown.items import Inventory, Item

_COLUMNS: Final = ("KIND", "NAME", "FOR", "WHAT HAPPENS")


def before(inventory: Inventory) -> str:
    """What there is, and what would be done."""
    rows = [(one, f"stays: {one.stays}" if one.stays else "is deleted") for one in inventory.items]
    return _table(rows) + _unknown(inventory)


def after(inventory: Inventory, trials: Mapping[Item, Trial]) -> str:
    """What is left, and why."""
    rows = [(one, _why(one, trials.get(one, Trial()))) for one in inventory.items]
    return _table(rows) + _unknown(inventory)


def count(number: int, noun: str) -> str:
    """ "1 item", "2 items"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _why(item: Item, trial: Trial) -> str:
    if item.stays:
        return f"stays: {item.stays}"
    if not trial.times:
        return "not deleted: the time was over"
    if trial.said:
        return f"not deleted: {trial.said}"
    return "deleted, and the cloud still lists it"


def _unknown(inventory: Inventory) -> str:
    return "".join(f"UNKNOWN: {line}; look into the cloud\n" for line in inventory.unknown)


def _table(rows: Sequence[tuple[Item, str]]) -> str:
    if not rows:
        return ""
    # What the cloud says must not pass for a row of its own.
    texts = [(one.kind, one.name, one.what_for, what) for one, what in rows]
    cells = [_COLUMNS, *(tuple(one_line(text, 1000) for text in row) for row in texts)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(_COLUMNS) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in cells
    ]
    return "\n".join(lines) + "\n"
