"""The three kinds of PATCH: JSON merge (RFC 7386), strategic merge, and JSON Patch (RFC 6902).

Takes the stored object and the client's patch and returns the patched object, before normalisation; pure. The
stored object is never changed: what a patch leaves alone is shared between the old and the new object, which is
what makes small patches to large objects cheap. Strategic merge follows k8s.io/apimachinery
pkg/util/strategicpatch/patch.go.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

from cloudprovider.testing.apiserver.errors import JSON, not_implemented
from cloudprovider.testing.apiserver.schema import Struct

DIRECTIVE: Final = "$patch"
DELETE_FROM: Final = "$deleteFromPrimitiveList/"
SET_ORDER: Final = "$setElementOrder/"
RETAIN_KEYS: Final = "$retainKeys"


class PatchError(ValueError):
    """The patch cannot be applied. `code` is the HTTP status: 422 where a JSON Patch does not fit the object, 400 for a
    malformed directive; any other strategic merge that makes no sense is 500, as the real server calls it.
    """

    def __init__(self, message: str, code: int = 500) -> None:
        super().__init__(message)
        self.code = code


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON merge patch: maps merged, null deletes, everything else (lists too) replaced whole."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def json_patch(target: JSON, operations: Sequence[Any]) -> JSON:
    """JSON Patch. Raises PatchError (422) for a failed test, a missing path, or an operation that is none; StatusError
    (501) where the package `jsonpatch` is not installed.
    """
    try:
        import jsonpatch
        import jsonpointer
    except ImportError as error:
        raise not_implemented("JSON Patch without the package jsonpatch, which the extra `testing` brings") from error
    try:
        touched = {_first_part(one.get(field)) for one in operations for field in ("path", "from")}
        base = {name: copy.deepcopy(value) if name in touched else value for name, value in target.items()}
        patched: JSON = jsonpatch.JsonPatch(operations).apply(base, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise PatchError(str(error), 422) from error
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise PatchError(str(error), 422) from error
    return patched


def _first_part(pointer: Any) -> str:
    """The top-level key that a JSON pointer leads into."""
    parts = str(pointer or "").split("/", 2)
    return parts[1].replace("~1", "/").replace("~0", "~") if len(parts) > 1 else ""


def strategic_merge(target: JSON, patch: JSON, struct: Struct) -> JSON:
    """Strategic merge patch by the type's merge keys. Raises PatchError."""
    return _merge_map(target, patch, struct)


def _merge_map(original: JSON | None, patch: JSON, struct: Struct | None) -> JSON:
    if DIRECTIVE in patch:
        directive = patch[DIRECTIVE]
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != DIRECTIVE}
        if directive == "delete":
            return {}
        raise PatchError(f"unknown patch type: {directive} in map: {go_print(patch)}")
    result = dict(original or {})
    patch = _retain_keys(result, patch)
    patch = _apply_orders(result, patch, struct)
    for key, value in patch.items():
        deleting = key.startswith(DELETE_FROM)
        name = key[len(DELETE_FROM) :] if deleting else key
        if value is None:
            result.pop(name, None)
            continue
        if name not in result:
            if not deleting:
                _take(result, name, value)
            continue
        held = result[name]
        if isinstance(held, dict) and isinstance(value, dict):
            result[name] = _merge_field(held, value, struct, name)
        elif isinstance(held, list) and isinstance(value, list):
            result[name] = _merge_list_field(held, value, struct, name, deleting)
        elif not deleting:
            _take(result, name, value)
    return result


def _field_info(struct: Struct | None, name: str) -> tuple[Struct | None, str, str]:
    """(type inside, strategy without retainKeys, merge key) of a field; nothing known inside maps and unknown
    fields.
    """
    field = struct.fields.get(name) if struct else None
    if field is None:
        return None, "", ""
    strategy = ",".join(part for part in field.strategy.split(",") if part != "retainKeys")
    return field.struct, strategy, field.merge_key


def _merge_field(held: JSON, value: JSON, struct: Struct | None, name: str) -> JSON:
    inner, strategy, _ = _field_info(struct, name)
    return value if strategy == "replace" else _merge_map(held, value, inner)


def _merge_list_field(held: list[Any], value: list[Any], struct: Struct | None, name: str, deleting: bool) -> list[Any]:
    inner, strategy, key = _field_info(struct, name)
    if strategy == "merge" or deleting:
        return _merge_list(held, value, inner, key, deleting)
    return value


def _take(result: JSON, name: str, value: Any) -> None:
    """Set a field that the object does not have yet: nulls and directives inside the patch mean nothing there."""
    keep, cleaned = _without_directives(_without_nulls(value))
    if keep:
        result[name] = cleaned
    else:
        result.pop(name, None)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _without_directives(value: Any) -> tuple[bool, Any]:
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return False, None
        cleaned = {key: _without_directives(item) for key, item in value.items()}
        return True, {key: item for key, (keep, item) in cleaned.items() if keep}
    if isinstance(value, list):
        return True, [item for keep, item in map(_without_directives, value) if keep]
    return True, value


def _retain_keys(result: JSON, patch: JSON) -> JSON:
    if RETAIN_KEYS not in patch:
        return patch
    kept = patch[RETAIN_KEYS]
    rest = {key: value for key, value in patch.items() if key != RETAIN_KEYS}
    if not isinstance(kept, list):
        raise PatchError("invalid patch format of retainKeys", 400)
    for key, value in rest.items():
        if value is not None and not key.startswith((DELETE_FROM, SET_ORDER)) and key not in kept:
            raise PatchError("invalid patch format of retainKeys", 400)
    for key in [key for key in result if key not in kept]:
        del result[key]
    return rest


def _apply_orders(result: JSON, patch: JSON, struct: Struct | None) -> JSON:
    """Handle `$setElementOrder/<list>` with the list's own patch; returns the patch without both."""
    orders = [key for key in patch if key.startswith(SET_ORDER)]
    if not orders:
        return patch
    rest = dict(patch)
    for directive in orders:
        order = rest.pop(directive)
        name = directive[len(SET_ORDER) :]
        if not isinstance(order, list):
            raise PatchError("invalid patch format of setElementOrder list", 400)
        inner, strategy, key = _field_info(struct, name)
        held, change = result.get(name), rest.get(name)
        for present, value in ((name in result, held), (name in rest, change)):
            if present and not isinstance(value, list):
                shown = "%!s(<nil>)" if value is None else f"%!s({go_print(value)})"
                raise PatchError(f"expected a []interface {{}}, but received a {shown}")
        _check_order(change or [], order, key)
        if name in result and name not in rest:
            merged = list(held or [])
        elif name not in result and name in rest:
            merged = _without_directives(change)[1]
        elif name in result:
            merged = (
                _merge_list(held or [], change or [], inner, key, False) if strategy == "merge" else list(change or [])
            )
        else:
            continue
        if not held and not change:
            raise PatchError("no elements in any of the given slices")
        result[name] = _ordered(merged, order, held or [], key)
        rest.pop(name, None)
    return rest


def _identity(item: Any, key: str) -> Any:
    """What tells list elements apart: the merge key's value, or the element itself."""
    if not key:
        return _hashable(item)
    if not isinstance(item, dict) or key not in item:
        raise PatchError(f"map: {go_print(item)} does not contain declared merge key: {key}")
    return _hashable(item[key])


def _hashable(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise PatchError("list element types are not identical")
    return (value.__class__, value)


def go_print(item: Any) -> str:
    """A JSON value as Go's %v prints it: map[a:1 b:[x y]]."""
    if isinstance(item, dict):
        return "map[" + " ".join(f"{key}:{go_print(value)}" for key, value in sorted(item.items())) + "]"
    if isinstance(item, list):
        return "[" + " ".join(map(go_print, item)) + "]"
    if isinstance(item, bool):
        return "true" if item else "false"
    return "<nil>" if item is None else str(item)


def _check_order(change: list[Any], order: list[Any], key: str) -> None:
    """The patch's list must be in the order that the directive sets. Raises PatchError."""
    left = [item for item in change if not (isinstance(item, dict) and item.get(DIRECTIVE) == "delete")]
    if not order or not left:
        return
    position = place = 0
    while position < len(left) and place < len(order):
        item = left[position]
        if isinstance(item, dict) and DIRECTIVE in item:
            position += 1
            continue
        if _identity(item, key) == _identity(order[place], key):
            position += 1
        place += 1
    if position < len(left) and place >= len(order):
        raise PatchError(
            f"The order in patch list:\n{go_print(change)}\n doesn't match {SET_ORDER[:-1]} list:\n{go_print(order)}\n"
        )


def _merge_list(original: list[Any], patch: list[Any], struct: Struct | None, key: str, deleting: bool) -> list[Any]:
    if not original and not patch:
        return original
    kinds = {item.__class__ for item in (*original, *patch)}
    if len(kinds) > 1 or list in kinds:
        raise PatchError(f"list element types are not identical: {go_print([original, patch])}")
    if kinds != {dict}:
        if deleting:
            gone = {_hashable(item) for item in patch}
            return [item for item in original if _hashable(item) not in gone]
        merged = _without_duplicates([*original, *patch])
        return _ordered(merged, patch, original, "")
    if not key:
        raise PatchError("cannot merge lists without merge key")
    base, changes = _special_elements(original, patch, key)
    merged = list(base)
    places = {_identity(item, key): at for at, item in reversed(list(enumerate(merged)))}
    for item in changes:
        wanted = _identity(item, key)
        at = places.get(wanted)
        if at is None:
            places[wanted] = len(merged)
            merged.append(item)
        else:
            merged[at] = _merge_map(merged[at], item, struct)
    return _ordered(merged, changes, base, key)


def _special_elements(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Carry out `$patch: delete` and `$patch: replace` elements; returns (list to merge into, plain elements)."""
    plain: list[Any] = []
    replaced = False
    for item in patch:
        directive = item.get(DIRECTIVE)
        if DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            wanted = _identity(item, key)
            original = [held for held in original if _hashable(held.get(key)) != wanted]
        elif directive == "replace":
            replaced = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise PatchError(f"unknown patch type: {directive}")
    return (plain, []) if replaced else (original, plain)


def _without_duplicates(items: list[Any]) -> list[Any]:
    seen: dict[Any, Any] = {}
    for item in items:
        seen.setdefault(_hashable(item), item)
    return list(seen.values())


def _ordered(merged: list[Any], order: list[Any], live: list[Any], key: str) -> list[Any]:
    """Order a merged list: elements of the patch as `order` has them, the server's own as they were,
    interleaved by the live order.
    """
    rank = {_identity(item, key): at for at, item in reversed(list(enumerate(order)))}
    place = {_identity(item, key): at for at, item in reversed(list(enumerate(live)))}

    ours = _insertion_sorted([item for item in merged if _identity(item, key) in rank], rank, key)
    theirs = _insertion_sorted([item for item in merged if _identity(item, key) not in rank], place, key)
    result: list[Any] = []
    left = right = 0
    while left < len(theirs) and right < len(ours):
        here, there = place.get(_identity(theirs[left], key)), place.get(_identity(ours[right], key))
        if here is not None and there is not None and here < there:
            result.append(theirs[left])
            left += 1
        else:
            result.append(ours[right])
            right += 1
    return result + theirs[left:] + ours[right:]


def _insertion_sorted(items: list[Any], rank: dict[Any, int], key: str) -> list[Any]:
    """Sort as the real server does: its comparison puts an element without a rank in front of what precedes it."""
    result: list[Any] = []
    for item in items:
        mine = rank.get(_identity(item, key))
        at = len(result)
        while at > 0:
            theirs = rank.get(_identity(result[at - 1], key))
            if mine is not None and theirs is not None and mine >= theirs:
                break
            at -= 1
        result.insert(at, item)
    return result
