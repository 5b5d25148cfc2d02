"""JSON Patch (RFC 6902): applied to an object, and made of two. Pure; `patching.py` has the other
kinds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

JSON = dict[str, Any]
Operation = dict[str, Any]


class PatchError(ValueError):
    """The patch cannot be applied. `code` is the HTTP status of the API server: 422 where a JSON
    Patch does not fit the object, 400 for a malformed directive, 500 for a strategic merge that
    makes no sense.
    """

    def __init__(self, message: str, code: int = 500) -> None:
        super().__init__(message)
        self.code = code


def json_patch(target: JSON, operations: Sequence[Any]) -> JSON:
    """The operations one after the other, all or none. Raises PatchError (422)."""
    document: Any = dict(target)
    owned: set[str] = set()
    for operation in operations:
        try:
            kind, path = operation["op"], _pointer(operation["path"])
            source = _pointer(operation["from"]) if kind in ("move", "copy") else []
            for part in (*path[:1], *source[:1]):
                if part in document and part not in owned:  # the operations work in place, on a copy
                    document[part] = copy.deepcopy(document[part])
                    owned.add(part)
            _operate(document, kind, path, source, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PatchError(f"an operation does not fit the object: {operation!r}", 422) from error
    result: JSON = document
    return result


def _operate(document: Any, kind: str, path: list[str], source: list[str], operation: Mapping[str, Any]) -> None:
    if not path or (kind in ("move", "copy") and not source):
        raise ValueError("the whole document")
    if kind == "test":
        holder = _at(document, path[:-1])
        # To the API server what is absent is null: a patch can say that nothing may be there.
        absent = isinstance(holder, dict) and path[-1] not in holder
        if not _same(None if absent else _at(holder, path[-1:]), operation["value"]):
            raise ValueError("a test failed")
    elif kind == "remove":
        _remove(document, path)
    elif kind == "replace":
        _remove(document, path)
        _add(document, path, copy.deepcopy(operation["value"]))
    elif kind == "add":
        _add(document, path, copy.deepcopy(operation["value"]))
    elif kind == "copy":
        _add(document, path, copy.deepcopy(_at(document, source)))
    elif kind == "move":
        if path[: len(source)] == source and path != source:
            raise ValueError("a value cannot move into itself")
        _add(document, path, _remove(document, source))
    else:
        raise ValueError("no operation of that name")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError("not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(part: str) -> int:
    if not part.isascii() or not part.isdigit() or (part.startswith("0") and part != "0"):
        raise ValueError("not an index")
    return int(part)


def _at(value: Any, path: Sequence[str]) -> Any:
    for part in path:
        value = value[_index(part)] if isinstance(value, list) else value[part]
    return value


def _add(document: Any, path: Sequence[str], value: Any) -> None:
    holder = _at(document, path[:-1])
    if not isinstance(holder, list):
        holder[path[-1]] = value
        return
    place = len(holder) if path[-1] == "-" else _index(path[-1])
    if place > len(holder):
        raise IndexError("beyond the end")
    holder.insert(place, value)


def _remove(document: Any, path: Sequence[str]) -> Any:
    holder = _at(document, path[:-1])
    return holder.pop(_index(path[-1]) if isinstance(holder, list) else path[-1])


def patch_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Operation, ...]:
    """The JSON Patch (RFC 6902) that turns `before` into `after`, both of JSON values.

    Only what differs is in it, so that two webhooks that change different fields do not undo each
    other's work. Lists are replaced whole.
    """
    return tuple(_between("", before, after))


def _between(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Operation]:
    for key in sorted(before.keys() | after.keys()):
        place = f"{path}/{_pointed(key)}"
        if key not in after:
            yield {"op": "remove", "path": place}
        elif key not in before:
            yield {"op": "add", "path": place, "value": after[key]}
        # Inside, so that what another webhook changes beside it stays.
        elif isinstance(before[key], Mapping) and isinstance(after[key], Mapping):
            yield from _between(place, before[key], after[key])
        elif not _same(before[key], after[key]):
            yield {"op": "replace", "path": place, "value": after[key]}


def _pointed(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values, where true is not 1, and 1 is not 1.0: the API server compares them
    as they are written."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
