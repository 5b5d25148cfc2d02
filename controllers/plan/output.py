"""The plan on standard output: a table for people, JSON for machines. Pure.

Data comes from `run.py`, which prints it. The same rows in the same order in both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cloudprovider.internal.cleaning import one_line
from cloudprovider.internal.output import aligned, counted
from controllers.plan.rows import ASSIGNED_LATER, Change, Kind, Outcome, Row, Value

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
