"""The patch between two objects makes the second one of the first, and touches nothing that is
equal."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cloudprovider.internal.jsonpatch import json_patch, patch_between
from tests.support.anyjson import in_order, json_values

KEYS = st.text("ab/~01 ", max_size=3)
FEW = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5]) | st.text(max_size=3)
OBJECTS = st.dictionaries(KEYS, json_values(FEW, KEYS), max_size=4)


@settings(max_examples=40)
@given(OBJECTS, OBJECTS)
def test_the_patch_makes_the_changed_object_and_equal_ones_make_none(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    made = json_patch(before, list(patch_between(before, after)))
    assert repr(in_order(made)) == repr(in_order(after))  # repr: true is not 1
    assert patch_between(after, dict(after)) == ()


def test_only_what_differs_is_in_the_patch() -> None:
    before = {"metadata": {"name": "a", "labels": {"x/y": "1", "gone": ""}}, "spec": {"list": [1, 2]}}
    after = {"metadata": {"name": "a", "labels": {"x/y": "2", "t~n": "3"}}, "spec": {"list": [1, 2]}}
    assert patch_between(before, after) == (
        {"op": "remove", "path": "/metadata/labels/gone"},
        {"op": "add", "path": "/metadata/labels/t~0n", "value": "3"},
        {"op": "replace", "path": "/metadata/labels/x~1y", "value": "2"},
    )
