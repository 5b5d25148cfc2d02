"""What the API server makes of a patch."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.app.dryrun.patching import Unpatchable, patched
from controllers.runtime.api import MERGE_PATCH, STRATEGIC_PATCH

OPERATIONS = "application/json-patch+json"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


@pytest.mark.parametrize(
    ("kind", "before", "patch", "after"),
    [
        (MERGE_PATCH, {"a": {"b": "1", "c": "2"}}, {"a": {"b": None, "d": "3"}}, {"a": {"c": "2", "d": "3"}}),
        (MERGE_PATCH, {"l": [1, 2]}, {"l": [3]}, {"l": [3]}),
        (MERGE_PATCH, {"a": "x"}, {"a": {"b": "1"}}, {"a": {"b": "1"}}),
        (MERGE_PATCH, {}, {"a": {"b": None, "c": "1"}}, {"a": {"c": "1"}}),
        (STRATEGIC_PATCH, {"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        (STRATEGIC_PATCH, {"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]},
         {"finalizers": ["b"]}),
        (STRATEGIC_PATCH, {"finalizers": ["a"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {}),
        (STRATEGIC_PATCH, {"conditions": [READY]}, {"conditions": [{"type": "Ready", "status": "False"}]},
         {"conditions": [{**READY, "status": "False"}]}),
        (STRATEGIC_PATCH, {"conditions": [READY]}, {"conditions": [{"type": "Ready", "reason": None}]},
         {"conditions": [{"type": "Ready", "status": "True"}]}),
        (STRATEGIC_PATCH, {"conditions": [READY]}, {"conditions": [{"type": "New", "status": "True"}]},
         {"conditions": [READY, {"type": "New", "status": "True"}]}),
        (STRATEGIC_PATCH, {"conditions": [READY]}, {"conditions": [{"$patch": "delete", "type": "Ready"}]},
         {"conditions": []}),
        (STRATEGIC_PATCH, {"addresses": [{"type": "InternalIP", "address": "1"}]},
         {"addresses": [{"$patch": "replace"}, {"type": "Hostname", "address": "n"}]},
         {"addresses": [{"type": "Hostname", "address": "n"}]}),
        (STRATEGIC_PATCH, {"taints": [{"key": "a"}]}, {"taints": [{"key": "b"}]}, {"taints": [{"key": "b"}]}),
        (STRATEGIC_PATCH, {"m": {"a": "1"}}, {"m": {"b": "2", "a": None}}, {"m": {"b": "2"}}),
        (STRATEGIC_PATCH, {"m": {"a": "1"}}, {"m": {"$patch": "replace", "b": "2"}}, {"m": {"b": "2"}}),
        (STRATEGIC_PATCH, {"m": {"a": "1"}}, {"m": {"$patch": "delete"}}, {}),
        (OPERATIONS, {"m": {}, "l": ["x"]},
         [{"op": "add", "path": "/m/a~1b", "value": 1}, {"op": "add", "path": "/l/-", "value": "y"}],
         {"m": {"a/b": 1}, "l": ["x", "y"]}),
        (OPERATIONS, {"a": 1, "b": 2},
         [{"op": "test", "path": "/a", "value": 1}, {"op": "replace", "path": "/a", "value": 3},
          {"op": "remove", "path": "/b"}], {"a": 3}),
        (OPERATIONS, {"m": {}}, {"m": {"a": "1"}}, {"m": {"a": "1"}}),  # a map under this name is a strategic merge
    ],
)  # fmt: skip
def test_a_patch(kind: str, before: dict[str, Any], patch: Any, after: dict[str, Any]) -> None:
    untouched = repr(before)
    assert patched(before, patch, kind) == after
    assert repr(before) == untouched


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("application/apply-patch+yaml", {"a": 1}),
        (MERGE_PATCH, "text"),
        (STRATEGIC_PATCH, {"conditions": [{"status": "True"}]}),
        (OPERATIONS, [{"op": "remove", "path": "/nothing/there"}]),
        (OPERATIONS, [{"op": "test", "path": "/a", "value": 2}]),
        (OPERATIONS, [{"op": "copy", "path": "/b", "from": "/a"}]),
    ],
)
def test_what_cannot_be_applied_is_said(kind: str, patch: Any) -> None:
    with pytest.raises(Unpatchable):
        patched({"a": 1}, patch, kind)
