"""What the API server makes of a patch: JSON merge, strategic merge, JSON patch. Pure; no I/O.

Used by `cluster.py`, which answers writes in the server's place. Of strategic merge the lists are known that built-in
objects merge; any other list is replaced as a whole, as the server replaces atomic ones.

Follows RFC 7386, RFC 6902 and
https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from controllers.runtime.api import MERGE_PATCH, STRATEGIC_PATCH

__all__ = ["Unpatchable", "patched"]

_MERGE_KEYS: Final = {
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "ports": "port",
    "webhooks": "name",
    "containers": "name",
    "volumes": "name",
    "env": "name",
}
_SETS: Final = frozenset({"finalizers", "podCIDRs"})
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"


class Unpatchable(Exception):
    """The patch cannot be applied to this object."""


def patched(obj: Mapping[str, Any], patch: Any, content_type: str) -> dict[str, Any]:
    """The object after the patch; the arguments stay as they are. Raises Unpatchable."""
    kind = content_type.partition(";")[0].strip()
    result: Any = copy.deepcopy(dict(obj))
    if isinstance(patch, list):
        return _by_operations(result, patch)
    if not isinstance(patch, Mapping):
        raise Unpatchable("the patch is no JSON object")
    if kind == MERGE_PATCH:
        merged: dict[str, Any] = _merged(result, patch)
        return merged
    if kind in (STRATEGIC_PATCH, "application/json-patch+json"):  # the official client sends maps under this name too
        return _strategic(result, patch)
    raise Unpatchable(f"no dry run of {kind or 'a patch without a content type'}")


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = value if isinstance(value, dict) else {}
    for key, wanted in patch.items():
        if wanted is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), wanted)
    return result


def _strategic(value: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(wanted) for key, wanted in patch.items() if key != "$patch"}
    for key, wanted in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            left = [item for item in value.get(name) or [] if item not in wanted]
            value[name] = left
            if not left:
                del value[name]
        elif key.startswith("$"):
            continue  # the order of elements, and keys to retain, say nothing that shows here
        elif wanted is None or (isinstance(wanted, Mapping) and wanted.get("$patch") == "delete"):
            value.pop(key, None)
        elif isinstance(wanted, Mapping):
            present = value.get(key)
            value[key] = _strategic(present if isinstance(present, dict) else {}, wanted)
        elif isinstance(wanted, list):
            value[key] = _list(key, value.get(key) or [], wanted)
        else:
            value[key] = wanted
    return value


def _list(name: str, present: list[Any], wanted: list[Any]) -> list[Any]:
    if name in _SETS:
        return [*present, *(item for item in wanted if item not in present)]
    plain = [copy.deepcopy(item) for item in wanted if not _directive(item)]
    if name not in _MERGE_KEYS or any(_directive(item) == "replace" for item in wanted):
        return plain
    merge_key = _MERGE_KEYS[name]
    result = list(present)
    for item in wanted:
        if not isinstance(item, Mapping) or merge_key not in item:
            raise Unpatchable(f"an item of {name} lacks {merge_key!r}")
        same = [place for place, other in enumerate(result) if other.get(merge_key) == item[merge_key]]
        if _directive(item) == "delete":
            result = [other for place, other in enumerate(result) if place not in same]
        elif same:
            result[same[0]] = _strategic(dict(result[same[0]]), item)
        else:
            result.append(_strategic({}, item))
    return result


def _directive(item: Any) -> str:
    return str(item.get("$patch", "")) if isinstance(item, Mapping) else ""


def _by_operations(value: dict[str, Any], operations: list[Any]) -> dict[str, Any]:
    for operation in operations:
        try:
            kind, path = operation["op"], [_unescaped(part) for part in operation["path"].split("/")[1:]]
            target: Any = value
            for part in path[:-1]:
                target = target[int(part)] if isinstance(target, list) else target[part]
            _operate(kind, target, path[-1], operation.get("value"))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise Unpatchable(f"an operation does not fit the object: {operation!r}") from error
    return value


def _operate(kind: str, target: Any, last: str, wanted: Any) -> None:
    if kind not in ("add", "replace", "remove", "test"):
        raise Unpatchable(f"no dry run of the operation {kind!r}")
    place: Any = (len(target) if last == "-" else int(last)) if isinstance(target, list) else last
    if kind == "add" and isinstance(target, list):
        target.insert(place, wanted)
    elif kind == "add":
        target[place] = wanted
    elif kind == "test":
        if target[place] != wanted:
            raise Unpatchable(f"a test of the patch failed at {last!r}")
    elif kind == "replace":
        target[place]  # it must be there
        target[place] = wanted
    else:
        del target[place]


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
