"""The plan: what a row is, rows as they are recorded, joined and put in order, and the same rows on
standard output: a table for people, JSON for machines. Pure, but for a lock; no I/O.

Several writes that touch one field of one object become one change, from what there was to what
there will be; what ends as it began is no change."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import evolve, frozen

from cloudprovider.internal.cleaning import one_line
from cloudprovider.internal.output import aligned, counted

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
        # What is not known may be something to do.
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


# ---- shown


_HEADS: Final = {
    Kind.CHANGE: "TO DO",
    Kind.HELD_BACK: "HELD BACK (would not be done now)",
    Kind.UNKNOWN: "UNKNOWN (the plan is incomplete)",
    Kind.WARNING: "WARNINGS (Events that would be written, permissions that are missing, nodes that are left alone)",
}
_COLUMNS: Final = ("CONTROLLER", "OBJECT", "ACTION", "DETAILS")
_LONGEST: Final = 120  # characters of a value in the table
_LATER: Final = "(assigned by the cloud)"


def shown(outcome: Outcome, form: str) -> str:
    """The plan in this form: "table" or "json"; ends with a line break."""
    return as_json(outcome) if form == "json" else as_table(outcome)


def as_table(outcome: Outcome) -> str:
    """A section for each kind of row, then what it comes to."""
    sections = []
    for kind, head in _HEADS.items():
        rows = [row for row in outcome.rows if row.kind == kind]
        if rows:
            cells = [_COLUMNS, *((r.controller, str(r.subject), r.action, _details(r)) for r in rows)]
            sections.append(f"{head}\n{aligned(cells)}")
    return "\n\n".join([*sections, _summary(outcome)]) + "\n"


def as_json(outcome: Outcome) -> str:
    """One object; its keys never change their meaning."""
    content: dict[str, Any] = {
        "provider": outcome.provider,
        "cluster": outcome.cluster,
        "controllers": list(outcome.controllers),
        "complete": outcome.complete,
        "exitCode": outcome.code,
        "waitingFor": list(outcome.left),
        "rows": [_row(row) for row in outcome.rows],
    }
    return json.dumps(content, indent=2) + "\n"


def _row(row: Row) -> Mapping[str, Any]:
    subject = row.subject
    return {
        "kind": row.kind,
        "controller": row.controller,
        "object": {"kind": subject.kind, "namespace": subject.namespace, "name": subject.name},
        "action": row.action,
        "changes": [
            {"field": change.field, "before": _plain(change.before), "after": _plain(change.after)}
            for change in row.changes
        ],
        "note": row.note,
        "certain": row.certain,
    }


def _plain(value: Value) -> Any:
    value = _later(value)
    return list(value) if isinstance(value, tuple) else value


def _details(row: Row) -> str:
    parts = [_change(change) for change in row.changes]
    if row.note:
        parts.append(row.note)
    return one_line("; ".join(parts), 2000)


def _change(change: Change) -> str:
    before, after = _later(change.before), _later(change.after)
    if isinstance(before, tuple) and isinstance(after, tuple):
        added, removed = [x for x in after if x not in before], [x for x in before if x not in after]
        moved = " ".join([*(f"+{x}" for x in added), *(f"-{x}" for x in removed)])
        return f"{change.field}: {moved or 'in another order'}"
    if _is_long(before) and _is_long(after):
        return f"{change.field}: changed (--dry-run-output=json shows how)"
    old, new = _words(before), _words(after)
    return f"{change.field}: {new}" if before is None else f"{change.field}: {old} -> {new}"


def _is_long(value: Value) -> bool:
    return isinstance(value, str) and len(value) > _LONGEST


def _words(value: Value) -> str:
    if value is None:
        return "(none)"
    text = ", ".join(value) if isinstance(value, tuple) else value or '""'
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _later(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_LATER if item == ASSIGNED_LATER else item for item in value)
    return value


def _summary(outcome: Outcome) -> str:
    rows = [row for row in outcome.rows if row.kind == Kind.CHANGE and row.certain]
    maybe = sum(row.kind == Kind.CHANGE and not row.certain for row in outcome.rows)
    objects = len({row.subject for row in rows})
    held = sum(row.kind == Kind.HELD_BACK for row in outcome.rows)
    text = f"Plan: {counted(len(rows), 'change')} to {counted(objects, 'object')}" if rows else "Nothing to do"
    if maybe:
        text += f", {counted(maybe, 'call')} that may change nothing"
    if held:
        text += f", {held} held back"
    if not outcome.complete:
        reasons = "; ".join(outcome.left) or "see the rows above"
        text += f". INCOMPLETE: {reasons}"
    return f"{text}. Nothing was written."
