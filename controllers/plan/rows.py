"""The plan: what a row is, and rows as they are recorded, joined and put in order. Pure, but for a
lock; no I/O.

Several writes that touch one field of one object become one change, from what there was to what
there will be; what ends as it began is no change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from attrs import evolve, frozen

ASSIGNED_LATER: Final = "assigned-by-the-cloud.invalid"
"""The address of a load balancer that is not there yet."""

Value = str | tuple[str, ...] | None


class Kind(StrEnum):
    """What a row is: something to be done, or something that is not done or not known. In the order
    in which they are shown."""

    CHANGE = "change"
    HELD_BACK = "held back"
    UNKNOWN = "unknown"
    WARNING = "warning"


@frozen(order=True)
class Subject:
    """Whom a row is about. The kind as in the API ("Node"), or the cloud's word ("Route")."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{f'{self.namespace}/' if self.namespace else ''}{self.name}"


@frozen
class Change:
    """One field, before and after. A tuple is a set of names; None: nothing, or not known."""

    field: str
    before: Value
    after: Value


@frozen
class Row:
    """One line of the plan."""

    controller: str
    subject: Subject
    action: str
    """"initialise", "create load balancer", ..."""
    changes: tuple[Change, ...] = ()
    note: str = ""
    """What else is to be known: evidence of a deletion, doubts, why it is unknown."""
    kind: Kind = Kind.CHANGE
    certain: bool = True
    """False: the call is made, and may change nothing; then nothing is said to be done."""


NOTHING: Final = 0
FAILED: Final = 1
SOMETHING: Final = 3


@frozen(kw_only=True)
class Outcome:
    """What a plan run found."""

    provider: str
    cluster: str
    controllers: tuple[str, ...]
    rows: tuple[Row, ...]
    left: tuple[str, ...] = ()
    """What was not done when the time was over; empty when the first pass ended."""

    @property
    def complete(self) -> bool:
        """Whether all was asked that there was to ask."""
        return not self.left and not any(row.kind == Kind.UNKNOWN for row in self.rows)

    @property
    def code(self) -> int:
        """The exit code: 0 nothing to do, 3 something (or held back), 1 the plan is incomplete."""
        if not self.complete:
            return FAILED
        due = any(row.certain and row.kind in (Kind.CHANGE, Kind.HELD_BACK) for row in self.rows)
        return SOMETHING if due else NOTHING


class Plan:
    """Rows as they are recorded. Thread-safe."""

    def __init__(self, controllers: Sequence[str] = ()) -> None:
        """`controllers`: their names, in the order in which their rows are shown; others follow."""
        self._order = {name: place for place, name in enumerate(controllers)}
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str, Subject, str], Row] = {}

    def record(self, *rows: Row) -> None:
        """Add rows; one of the same kind, controller, subject and action is joined with it."""
        with self._lock:
            for row in rows:
                key = (row.kind, row.controller, row.subject, row.action)
                known = self._rows.get(key)
                merged = row if known is None else joined(known, row)
                if merged is None:
                    del self._rows[key]
                else:
                    self._rows[key] = merged

    def rows(self) -> list[Row]:
        """What there is to show, in an order that does not depend on time."""
        with self._lock:
            return sorted(self._rows.values(), key=self._place)

    def _place(self, row: Row) -> tuple[object, ...]:
        order = self._order.get(row.controller, len(self._order))
        # In the cloud, for what is created or written then.
        makes_way = row.action.startswith("delete ")
        return list(Kind).index(row.kind), order, row.controller, row.subject, not makes_way, row.action


def joined(known: Row, row: Row) -> Row | None:
    """One row of two, the later one last; None where the second undoes the first."""
    changes = {change.field: change for change in known.changes}
    for change in row.changes:
        former = changes.get(change.field)
        changes[change.field] = change if former is None else evolve(former, after=change.after)
    left = tuple(change for change in changes.values() if change.before != change.after)
    # The second write undid the first one: nothing is to be done.
    if changes and not left:
        return None
    return evolve(row, changes=left, note=row.note or known.note, certain=row.certain or known.certain)
