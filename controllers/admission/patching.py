"""From an object and the changed copy of it to the JSON Patch (RFC 6902) between them. Pure.

Comes in: what a handler was asked about, and what it made of it. Goes out: the operations that the API server applies.
Only what differs is in them, so that two webhooks that change different fields do not undo each other's work. Lists are
replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Operation", "patch_between"]

Operation = dict[str, Any]


def patch_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Operation, ...]:
    """The operations that turn `before` into `after`; none where they are equal. Both hold JSON values."""
    return tuple(_between("", before, after))


def _between(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Operation]:
    for key in sorted(before.keys() | after.keys()):
        place = f"{path}/{_escaped(key)}"
        if key not in after:
            yield {"op": "remove", "path": place}
        elif key not in before:
            yield {"op": "add", "path": place, "value": after[key]}
        elif isinstance(before[key], Mapping) and isinstance(after[key], Mapping):
            yield from _between(place, before[key], after[key])
        elif not _same(before[key], after[key]):
            yield {"op": "replace", "path": place, "value": after[key]}


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values, where true is not 1 and 1 is not 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
