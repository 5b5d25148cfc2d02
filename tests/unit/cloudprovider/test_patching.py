"""The three kinds of patch: what they change, what they keep, and that they never touch the
object they are applied to."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.internal.jsonpatch import PatchError, json_patch
from cloudprovider.internal.patching import (
    BUILT_IN,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Merging,
    apply_patch,
    merge_patch,
    strategic_merge,
)
from cloudprovider.testing.apiserver.kinds.schema import struct
from tests.support.anyjson import json_values

JSON = dict[str, Any]
NODE = struct("Node")
READY = {"type": "Ready", "status": "True"}
OTHER = {"type": "Other", "status": "False", "reason": "x"}


def status(**fields: Any) -> JSON:
    return {"status": fields}


def strategic(target: JSON, patch: JSON) -> JSON:
    return strategic_merge(target, patch, NODE)


def test_merge_patch_shares_what_it_leaves_alone() -> None:
    target = {"a": {"b": [1]}, "c": {"d": 1}}
    assert merge_patch(target, {"c": {"d": 2}})["a"] is target["a"]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        (status(conditions=[{"status": "True"}]), 500),
        (status(conditions=["x"]), 500),
        (status(conditions=[{"$patch": "merge", "type": "Ready"}]), 500),
        ({"metadata": {"labels": {"$patch": "explode"}}}, 500),
        ({"metadata": {"labels": {"$retainKeys": ["a"], "b": "1"}}}, 400),
        ({"metadata": {"labels": {"$retainKeys": "a"}}}, 400),
        (status(**{"$setElementOrder/conditions": "x"}), 400),
        (status(**{"$setElementOrder/conditions": [{"type": "Other"}], "conditions": [READY]}), 500),
    ],
)
def test_strategic_patches_that_make_no_sense(patch: JSON, code: int) -> None:
    target = {"metadata": {"labels": {"a": "1"}}, "status": {"conditions": [READY]}}
    with pytest.raises(PatchError) as caught:
        strategic(target, patch)
    assert caught.value.code == code


@pytest.mark.parametrize("types", [NODE, BUILT_IN], ids=["types of the API", "names of fields"])
def test_without_a_table_of_types_the_names_of_the_fields_decide(types: Merging) -> None:
    target = {"metadata": {"finalizers": ["a"]}, "spec": {"taints": [1]}, "status": {"conditions": [READY]}}
    patch = {
        "metadata": {"finalizers": ["b"]},
        "spec": {"taints": [2]},
        "status": {"conditions": [OTHER, {"type": "Ready", "reason": None, "status": "False"}]},
    }
    merged = strategic_merge(target, patch, types)
    assert sorted(merged["metadata"]["finalizers"]) == ["a", "b"]
    assert merged["spec"] == {"taints": [2]}
    assert sorted(one["type"] + one["status"] for one in merged["status"]["conditions"]) == ["OtherFalse", "ReadyFalse"]


def test_the_content_type_says_which_kind_of_patch_it_is() -> None:
    target = {"metadata": {"finalizers": ["a"]}}
    patch = {"metadata": {"finalizers": ["b"]}}
    assert apply_patch(target, patch, f"{MERGE_PATCH}; charset=utf-8") == patch
    for strategic_type in (STRATEGIC_PATCH, JSON_PATCH):  # the official client sends maps under that name
        assert sorted(apply_patch(target, patch, strategic_type)["metadata"]["finalizers"]) == ["a", "b"]
    operations = [{"op": "replace", "path": "/metadata/finalizers/0", "value": "b"}]
    assert apply_patch(target, operations, JSON_PATCH) == patch
    for wrong, content_type in ((patch, "application/apply-patch+yaml"), ("text", MERGE_PATCH)):
        with pytest.raises(PatchError):
            apply_patch(target, wrong, content_type)
    assert target == {"metadata": {"finalizers": ["a"]}}


def test_json_patch() -> None:
    target = {"metadata": {"labels": {"a": "1"}}, "spec": {"taints": [{"key": "x"}]}, "status": {"big": [1]}}
    patched = json_patch(
        target,
        [
            {"op": "test", "path": "/metadata/labels/a", "value": "1"},
            {"op": "add", "path": "/metadata/labels/b~1c", "value": "2"},
            {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/d"},
            {"op": "add", "path": "/spec/taints/-", "value": {"key": "y"}},
            {"op": "add", "path": "/spec/taints/0", "value": {"key": "w"}},
            {"op": "copy", "from": "/spec/taints/0", "path": "/spec/taints/3"},
            {"op": "replace", "path": "/spec/taints/0/key", "value": "v"},
        ],
    )
    assert patched["metadata"]["labels"] == {"b/c": "2", "d": "1"}
    assert [taint["key"] for taint in patched["spec"]["taints"]] == ["v", "x", "y", "w"]
    assert patched["status"] is target["status"]
    assert target == {"metadata": {"labels": {"a": "1"}}, "spec": {"taints": [{"key": "x"}]}, "status": {"big": [1]}}


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "test", "path": "/a", "value": True}],
        [{"op": "test", "path": "/none", "value": 1}],
        [{"op": "test", "path": "/none/x", "value": None}],
        [{"op": "test", "path": "/l/2", "value": None}],
        [{"op": "add", "path": "/l/3", "value": 1}],
        [{"op": "add", "path": "/l/01", "value": 1}],
        [{"op": "move", "from": "/l", "path": "/l/0"}],
        [{"op": "remove", "path": "/l/-"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "replace", "path": "", "value": {}}],
        [{"op": "remove", "path": "/none"}],
        [{"op": "replace", "path": "/none/x", "value": 1}],
        [{"op": "fly", "path": "/a"}],
        [{"path": "/a"}],
        ["x"],
        [{"op": "add", "path": 5, "value": 1}],
    ],
)
def test_json_patches_that_do_not_fit(operations: list[Any]) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch({"a": 1, "l": [1, 2]}, operations)
    assert caught.value.code == 422


def test_what_is_absent_is_null_to_a_test_of_json_patch() -> None:
    target = {"a": {"x": None}}
    for path in ("/none", "/a/x", "/a/none"):
        assert json_patch(target, [{"op": "test", "path": path, "value": None}]) == target


@pytest.mark.parametrize("same", [{"x": 1, "y": [True]}, {"y": [True], "x": 1}])
def test_a_test_of_json_patch_compares_whole_values(same: JSON) -> None:
    target = {"a": {"x": 1, "y": [True]}}
    assert json_patch(target, [{"op": "test", "path": "/a", "value": same}]) == target
    for other in ({"x": 1}, {"x": 1, "y": [True], "z": None}, {"x": 1, "y": [1]}, {"x": 1, "y": [True, True]}):
        with pytest.raises(PatchError):
            json_patch(target, [{"op": "test", "path": "/a", "value": other}])


SCALARS = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "b"])
KEYS = st.sampled_from("abc")
OBJECTS: st.SearchStrategy[JSON] = st.dictionaries(KEYS, json_values(SCALARS, KEYS), max_size=3)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


@given(OBJECTS, OBJECTS)
def test_merge_patch_follows_rfc_7386(target: JSON, patch: JSON) -> None:
    before = copy.deepcopy((target, patch))
    merged = merge_patch(target, patch)
    assert (target, patch) == before
    assert merge_patch(merged, patch) == merged
    for key, value in patch.items():
        if value is None:
            assert key not in merged
        elif not isinstance(value, dict):
            assert merged[key] == value
    for key in target.keys() - patch.keys():
        assert merged[key] is target[key]
    assert merge_patch({}, patch) == without_nulls(patch)


CONDITIONS = st.lists(
    st.fixed_dictionaries({"type": st.sampled_from("ABCD"), "status": st.sampled_from(["True", "False"])}),
    max_size=4,
    unique_by=lambda condition: condition["type"],
)
DELETIONS = st.lists(st.builds(lambda kind: {"$patch": "delete", "type": kind}, st.sampled_from("ABCD")), max_size=2)


@given(CONDITIONS, CONDITIONS, DELETIONS)
def test_strategic_merge_by_key_is_a_merge_of_maps(held: list[JSON], changes: list[JSON], gone: list[JSON]) -> None:
    target, patch = status(conditions=held), status(conditions=[*gone, *changes])
    before = copy.deepcopy((target, patch))
    merged = strategic(target, patch)["status"]["conditions"]
    assert (target, patch) == before
    expected = {condition["type"]: condition for condition in held}
    for deletion in gone:
        expected.pop(deletion["type"], None)
    for change in changes:
        expected[change["type"]] = {**expected.get(change["type"], {}), **change}
    assert {condition["type"]: condition for condition in merged} == expected
    assert len(merged) == len(expected)


@given(st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcd"), unique=True))
def test_strategic_merge_of_finalizers_is_a_union_and_its_counterpart_a_difference(
    held: list[str], named: list[str]
) -> None:
    target = {"metadata": {"finalizers": held}}
    union = strategic(target, {"metadata": {"finalizers": named}})["metadata"]["finalizers"]
    assert sorted(union) == sorted({*held, *named})
    left = strategic(target, {"metadata": {"$deleteFromPrimitiveList/finalizers": named}})["metadata"]["finalizers"]
    assert left == [one for one in held if one not in named]
