"""The three kinds of patch, applied to an object: JSON merge (RFC 7386) and strategic merge here,
JSON Patch (RFC 6902) by `jsonpatch.py`. Pure: what a patch leaves alone is shared between the old
and the new object.

Strategic merge follows k8s.io/apimachinery pkg/util/strategicpatch/patch.go; how it treats a field
depends on the type, which `Merging` describes. The embedded API server has the types of the API,
`BUILT_IN` knows fields by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from cloudprovider.internal.jsonpatch import JSON, PatchError, json_patch

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_DIRECTIVE: Final = "$patch"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_SET_ORDER: Final = "$setElementOrder/"
_RETAIN_KEYS: Final = "$retainKeys"


class FieldMerging(NamedTuple):
    """How a strategic merge treats one field: `strategy` is "merge", "replace", or "" for maps that
    merge and lists that are replaced; `merge_key` tells the elements of a list apart; `inside`
    describes the objects in it.
    """

    strategy: str = ""
    merge_key: str = ""
    inside: Merging | None = None


class Merging(Protocol):
    """How a strategic merge treats the fields of one type."""

    def field_merging(self, name: str, /) -> FieldMerging:
        """The rule of a field, of an unknown one too."""


class _ByName:
    """Fields by their names, whatever type they are in: for who has no table of types."""

    _KEYS: Final = {
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

    def field_merging(self, name: str, /) -> FieldMerging:
        return FieldMerging("merge" if name in self._KEYS or name in self._SETS else "", self._KEYS.get(name, ""), self)


BUILT_IN: Final[Merging] = _ByName()
"""The lists that merge in Node, Service, PersistentVolume and other objects of Kubernetes itself;
any other list is replaced, as the API server replaces atomic ones."""


def apply_patch(target: Mapping[str, Any], patch: Any, content_type: str) -> JSON:
    """The object after a patch of this content type. Raises PatchError."""
    kind = content_type.partition(";")[0].strip()
    obj = dict(target)
    if isinstance(patch, list):
        return json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise PatchError("the patch is no JSON object", 400)
    if kind == MERGE_PATCH:
        merged: JSON = merge_patch(obj, patch)
        return merged
    if kind in (STRATEGIC_PATCH, JSON_PATCH):  # the official client sends maps under the second name too
        return strategic_merge(obj, patch)
    raise PatchError(f"cannot apply {kind or 'a patch without a content type'}", 415)


# -- JSON merge patch


def merge_patch(target: Any, patch: Any) -> Any:
    """Maps are merged, null deletes, everything else (lists too) is replaced whole."""
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


# -- strategic merge


def strategic_merge(target: JSON, patch: JSON, types: Merging = BUILT_IN) -> JSON:
    """Merge by the type's strategies and merge keys. Raises PatchError (400, 500)."""
    return _merge_map(target, patch, types)


def _merge_map(original: JSON, patch: JSON, types: Merging | None) -> JSON:
    if _DIRECTIVE in patch:
        if patch[_DIRECTIVE] == "replace":
            return {key: value for key, value in patch.items() if key != _DIRECTIVE}
        if patch[_DIRECTIVE] == "delete":
            return {}
        raise PatchError(f"unknown patch type: {patch[_DIRECTIVE]} in map: {go_print(patch)}")
    result = dict(original)
    patch = _apply_orders(result, _retain_keys(result, patch), types)
    for key, value in patch.items():
        deleting = key.startswith(_DELETE_FROM)
        name = key.removeprefix(_DELETE_FROM)
        if value is None:
            result.pop(name, None)
            continue
        held = result.get(name)
        rule = _rule(types, name)
        if isinstance(held, dict) and isinstance(value, dict):
            result[name] = value if rule.strategy == "replace" else _merge_map(held, value, rule.inside)
        elif isinstance(held, list) and isinstance(value, list):
            merging = rule.strategy == "merge" or deleting
            result[name] = _merge_list(held, value, rule, deleting) if merging else value
        elif not deleting:
            _take(result, name, value)
    return result


def _rule(types: Merging | None, name: str) -> FieldMerging:
    """Nothing is known of the fields of an unknown type, or of a plain map: they merge as maps."""
    return types.field_merging(name) if types is not None else FieldMerging()


def _take(result: JSON, name: str, value: Any) -> None:
    """Set a field that holds nothing to merge with: nulls and directives mean nothing."""
    keep, cleaned = _plain(value)
    if keep:
        result[name] = cleaned
    else:
        result.pop(name, None)


def _plain(value: Any) -> tuple[bool, Any]:
    """A value of the patch without its nulls; False for a map that is a directive."""
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return False, None
        cleaned = {key: _plain(item) for key, item in value.items() if item is not None}
        return True, {key: item for key, (keep, item) in cleaned.items() if keep}
    if isinstance(value, list):
        return True, [item for keep, item in map(_plain, value) if keep]
    return True, value


def _retain_keys(result: JSON, patch: JSON) -> JSON:
    if _RETAIN_KEYS not in patch:
        return patch
    rest = dict(patch)
    kept = rest.pop(_RETAIN_KEYS)
    named = [key for key, value in rest.items() if value is not None and not key.startswith((_DELETE_FROM, _SET_ORDER))]
    if not isinstance(kept, list) or any(key not in kept for key in named):
        raise PatchError("invalid patch format of retainKeys", 400)
    for key in [key for key in result if key not in kept]:
        del result[key]
    return rest


def _apply_orders(result: JSON, patch: JSON, types: Merging | None) -> JSON:
    """Merge the lists that have an order given for them (`$setElementOrder/<list>`); returns the
    patch without both."""
    orders = {key: value for key, value in patch.items() if key.startswith(_SET_ORDER)}
    if not orders:
        return patch
    rest = {key: value for key, value in patch.items() if key not in orders}
    for directive, order in orders.items():
        name = directive.removeprefix(_SET_ORDER)
        held, change = result.get(name), rest.pop(name, None)
        if not isinstance(order, list):
            raise PatchError("invalid patch format of setElementOrder list", 400)
        if not isinstance(held or [], list) or not isinstance(change or [], list):
            raise PatchError(f"expected lists for {name}: {go_print([held, change])}")
        if name not in result and not change:
            continue
        rule = _rule(types, name)
        _check_order(change or [], order, rule.merge_key)
        if held and change:
            merged = _merge_list(held, change, rule, False) if rule.strategy == "merge" else change
        else:
            merged = held or _plain(change)[1]
        if not merged:
            raise PatchError("no elements in any of the given slices")
        result[name] = _ordered(merged, order, held or [], rule.merge_key)
    return rest


def _check_order(change: list[Any], order: list[Any], key: str) -> None:
    """The elements of the patch must stand in the order that it sets."""
    places = iter([_identity(item, key) for item in order])
    wanted = [_identity(item, key) for item in change if not (isinstance(item, dict) and _DIRECTIVE in item)]
    if order and not all(one in places for one in wanted):
        raise PatchError(
            f"The order in patch list:\n{go_print(change)}\n doesn't match {_SET_ORDER[:-1]} list:\n{go_print(order)}\n"
        )


def _merge_list(held: list[Any], patch: list[Any], rule: FieldMerging, deleting: bool) -> list[Any]:
    kinds = {item.__class__ for item in (*held, *patch)}
    if len(kinds) > 1 or list in kinds:
        raise PatchError(f"list element types are not identical: {go_print([held, patch])}")
    if kinds != {dict}:
        if deleting:
            gone = {_hashable(item) for item in patch}
            return [item for item in held if _hashable(item) not in gone]
        union = list({_hashable(item): item for item in (*held, *patch)}.values())
        return _ordered(union, patch, held, "")
    key = rule.merge_key
    if not key:
        raise PatchError("cannot merge lists without merge key")
    held, changes = _element_directives(held, patch, key)
    merged = list(held)
    places = {_identity(item, key): at for at, item in reversed(list(enumerate(merged)))}
    for item in changes:
        at = places.setdefault(_identity(item, key), len(merged))
        if at == len(merged):
            merged.append(_plain(item)[1])
        else:
            merged[at] = _merge_map(merged[at], item, rule.inside)
    return _ordered(merged, changes, held, key)


def _element_directives(held: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Carry out elements with `$patch: delete` or `$patch: replace`; returns (the list to merge
    into, the other elements)."""
    plain = [item for item in patch if _DIRECTIVE not in item]
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if directive == "delete":
            gone = _identity(item, key)
            held = [one for one in held if _hashable(one.get(key)) != gone]
        elif directive not in (None, "replace"):
            raise PatchError(f"unknown patch type: {directive}")
    return (plain, []) if any(item.get(_DIRECTIVE) == "replace" for item in patch) else (held, plain)


def _ordered(merged: list[Any], order: list[Any], live: list[Any], key: str) -> list[Any]:
    """Elements of the patch as `order` has them, the server's own as they were, interleaved by
    their places in the live list."""
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
    """Sort as the real server does: an element without a rank goes in front of its predecessor."""
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
