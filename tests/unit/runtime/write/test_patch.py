"""Patches say what changes and nothing else: what others wrote stays."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_taint import V1Taint

from controllers.runtime.api import MERGE_PATCH, STRATEGIC_PATCH
from controllers.runtime.write import (
    Patch,
    addresses_replaced,
    changed,
    combined,
    condition_set,
    finalizer_added,
    finalizer_removed,
    taints_changed,
)
from controllers.runtime.write.patches import merge_patch
from tests.support.anyjson import in_order, json_values
from tests.support.there import there

NOW = "2026-11-21T00:00:00Z"
BEFORE = "2026-01-01T00:00:00Z"

SCALARS = st.booleans() | st.integers(-2, 2) | st.floats(-2, 2).map(lambda f: f + 0.0) | st.text(max_size=3)
KEYS = st.sampled_from(["a", "b", "c", "$patch", ""])


def without_nulls_in_maps(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls_in_maps(inner) for key, inner in value.items() if inner is not None}
    return value


OLD = st.dictionaries(KEYS, json_values(SCALARS | st.none(), KEYS), max_size=4)
NEW = OLD.map(without_nulls_in_maps)


def rfc7386(target: Any, patch: Any) -> Any:
    """MergePatch as the RFC's section 2 has it in pseudocode."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = rfc7386(result.get(name), value)
    return result


def same_json(one: Any, other: Any) -> bool:
    """Equality in which true is not 1, nor 1 the same text as 1.0."""
    return repr(in_order(one)) == repr(in_order(other))


class TestMergePatch:
    @given(OLD, NEW)
    def test_applied_to_the_old_it_gives_the_new_and_names_only_what_differs(self, old: Any, new: Any) -> None:
        before = copy.deepcopy((old, new))
        patch = merge_patch(old, new)
        assert same_json(rfc7386(old, patch), new)
        assert (old, new) == before
        for key in patch:
            assert key not in new or key not in old or not same_json(old[key], new[key])
        assert merge_patch(new, copy.deepcopy(new)) == {}

    @given(NEW, NEW, NEW)
    def test_foreign_keys_survive(self, old: Any, new: Any, foreign: Any) -> None:
        """What somebody else added meanwhile, under keys that neither side knew, is still there
        afterwards."""
        added = {f"foreign-{key}": value for key, value in foreign.items()}
        assert same_json(rfc7386({**old, **added}, merge_patch(old, new)), {**new, **added})

    def test_an_example(self) -> None:
        old = {"labels": {"gone": "1", "kept": "2", "new": "3"}, "spec": {"x": [1, 2]}}
        new = {"labels": {"kept": "2", "new": "4"}, "spec": {"x": [2]}, "more": {}}
        assert merge_patch(old, new) == {
            "labels": {"gone": None, "new": "4"},
            "spec": {"x": [2]},
            "more": {},
        }

    def test_a_null_cannot_be_said_but_in_a_list(self) -> None:
        for new in ({"a": None}, {"a": {"b": None}}):
            with pytest.raises(ValueError, match="null"):
                merge_patch({}, new)
        assert merge_patch({}, {"a": [None]}) == {"a": [None]}

    def test_as_a_patch(self) -> None:
        patch = changed({"a": 1}, {"a": 2}, subresource="status")
        assert patch == Patch({"a": 2}, MERGE_PATCH, "status")
        assert not changed({"a": 1}, {"a": 1})


def address(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "address": value}


class TestAddresses:
    def test_they_are_replaced_not_merged_by_type(self) -> None:
        """A strategic merge alone would keep one address per type: dual-stack nodes would lose
        one."""
        old = [address("InternalIP", "10.0.0.1")]
        new = [address("InternalIP", "10.0.0.2"), address("InternalIP", "fd00::2")]
        patch = addresses_replaced(old, new)
        assert patch.body == {"status": {"addresses": [{"$patch": "replace"}, *new]}}
        assert (patch.content_type, patch.subresource) == (STRATEGIC_PATCH, "status")

    def test_typed_ones(self) -> None:
        old = [V1NodeAddress(type="Hostname", address="n1")]
        assert not addresses_replaced(old, [address("Hostname", "n1")])
        body = addresses_replaced(old, [V1NodeAddress(type="Hostname", address="n2")]).body
        assert body == {"status": {"addresses": [{"$patch": "replace"}, address("Hostname", "n2")]}}

    def test_order_counts_and_there_may_be_none_at_all(self) -> None:
        two = [address("InternalIP", "10.0.0.1"), address("InternalIP", "fd00::1")]
        assert addresses_replaced(two, two[::-1])
        assert not addresses_replaced(two, list(two))
        assert not addresses_replaced(None, [])
        assert addresses_replaced(two, []).body == {"status": {"addresses": [{"$patch": "replace"}]}}


UP = {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated", "message": "made"}


class TestConditions:
    def test_a_new_one(self) -> None:
        patch = condition_set([{"type": "Ready", "status": "True"}], UP, now=NOW)
        assert patch.body == {"status": {"conditions": [{**UP, "lastTransitionTime": NOW}]}}
        assert (patch.content_type, patch.subresource) == (STRATEGIC_PATCH, "status")

    @pytest.mark.parametrize(
        ("old", "new", "patch"),
        [
            ({"status": "True"}, UP, {**UP, "lastTransitionTime": NOW}),
            ({}, {**UP, "message": "other"}, {**UP, "message": "other"}),
            ({"lastHeartbeatTime": BEFORE}, {**UP, "lastTransitionTime": NOW, "lastHeartbeatTime": NOW}, None),
            (
                {},
                {"type": UP["type"], "status": "True"},
                {"type": UP["type"], "status": "True", "reason": None, "message": None, "lastTransitionTime": NOW},
            ),
        ],
        ids=[
            "a changed status has a new time",
            "a changed message keeps the time",
            "only times differ",
            "a former reason does not outlive its status",
        ],
    )
    def test_what_there_is(self, old: dict[str, str], new: dict[str, str], patch: dict[str, Any] | None) -> None:
        there = [{**UP, "lastTransitionTime": BEFORE, **old}]
        made = condition_set(there, new, now=NOW)
        assert made.body == ({"status": {"conditions": [patch]}} if patch else {})
        typed = V1Node.from_dict({"status": {"conditions": there}})
        assert typed is not None
        assert typed.status is not None
        assert condition_set(typed.status.conditions, new, now=NOW) == made


class TestFinalizers:
    OURS = "service.kubernetes.io/load-balancer-cleanup"

    def test_added_and_removed_without_naming_others(self) -> None:
        for change, key in (
            (finalizer_added, "finalizers"),
            (finalizer_removed, "$deleteFromPrimitiveList/finalizers"),
        ):
            there, absent = ["foreign/x", self.OURS], ["foreign/x"]
            before, after = (absent, there) if change is finalizer_added else (there, absent)
            assert change(before, self.OURS) == Patch({"metadata": {key: [self.OURS]}}, STRATEGIC_PATCH)
            assert not change(after, self.OURS)
        assert finalizer_added(None, self.OURS)
        assert not finalizer_removed(None, self.OURS)


UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
FOREIGN = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": BEFORE, "unknownField": 1}


class TestTaints:
    @pytest.mark.parametrize(
        ("old", "add", "remove", "new"),
        [
            ([UNINITIALIZED, FOREIGN], [], UNINITIALIZED["key"], [FOREIGN]),
            ([SHUTDOWN], [], SHUTDOWN["key"], None),
            ([FOREIGN], [SHUTDOWN, SHUTDOWN], "", [FOREIGN, SHUTDOWN]),
            ([{**UNINITIALIZED, "value": "no"}, FOREIGN], [UNINITIALIZED], "", [UNINITIALIZED, FOREIGN]),
            ([SHUTDOWN], [{**SHUTDOWN, "effect": "NoExecute"}], "", [SHUTDOWN, {**SHUTDOWN, "effect": "NoExecute"}]),
        ],
        ids=[
            "every other taint is kept as it is",
            "the last one gone",
            "added once",
            "another value replaces in place",
            "the same key with another effect is another taint",
        ],
    )
    def test_the_whole_list_is_written(self, old: Any, add: Any, remove: str, new: Any) -> None:
        patch = taints_changed(old, add=add, remove=lambda taint: taint["key"] == remove)
        assert patch.body == {"spec": {"taints": new}}
        assert patch.content_type == MERGE_PATCH
        assert patch.versioned

    def test_nothing_to_do(self) -> None:
        assert not taints_changed(None)
        assert not taints_changed([FOREIGN], remove=lambda taint: taint["key"] == "x")
        assert not taints_changed([SHUTDOWN], add=[SHUTDOWN])

    def test_typed_ones_with_their_time(self) -> None:
        node = there(V1Node.from_dict({"spec": {"taints": [UNINITIALIZED, {**FOREIGN, "timeAdded": BEFORE}]}}))
        assert node.spec is not None
        patch = taints_changed(
            node.spec.taints,
            add=[V1Taint(key="k", effect="NoSchedule")],
            remove=lambda taint: taint["key"] == UNINITIALIZED["key"],
        )
        known = {key: value for key, value in FOREIGN.items() if key != "unknownField"}
        assert patch.body == {"spec": {"taints": [known, {"key": "k", "effect": "NoSchedule"}]}}


class TestCombined:
    def test_one_write_for_labels_provider_id_and_taint(self) -> None:
        patch = combined(
            changed({}, {"metadata": {"labels": {"a": "1"}}}),
            Patch(),
            changed({}, {"spec": {"providerID": "x://1"}}),
            taints_changed([UNINITIALIZED], remove=lambda _: True),
        )
        assert patch.body == {
            "metadata": {"labels": {"a": "1"}},
            "spec": {"providerID": "x://1", "taints": None},
        }
        assert patch.versioned

    def test_the_parts_stay_as_they_are_and_may_be_nothing(self) -> None:
        one, two = Patch({"a": {"b": 1}}), Patch({"a": {"c": 2}})
        assert combined(one, two).body == {"a": {"b": 1, "c": 2}}
        assert (one.body, two.body) == ({"a": {"b": 1}}, {"a": {"c": 2}})
        assert not combined()
        assert not combined(Patch(), Patch())

    def test_contradictions(self) -> None:
        with pytest.raises(ValueError, match=r"different things of spec\.x"):
            combined(Patch({"spec": {"x": 1}}), Patch({"spec": {"x": 2}}))
        with pytest.raises(ValueError, match="cannot combine"):
            combined(Patch({"a": 1}), finalizer_added([], "x"))
