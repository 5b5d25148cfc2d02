"""Objects in stored form: zero values, unknown fields, types, times."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.apiserver.kinds.schema import DecodeError, parse_time, struct


def clean(kind: str, value: dict[str, Any], before: Any = None) -> tuple[dict[str, Any], list[str]]:
    unknown: list[str] = []
    return struct(kind).clean(value, before, "", unknown), unknown


def test_empty_values_go_and_zero_structs_come() -> None:
    node, unknown = clean(
        "Node", {"metadata": {"name": "a", "labels": {}, "uid": ""}, "spec": {"unschedulable": False}}
    )
    assert node["metadata"] == {"name": "a"}
    assert node["spec"] == {}
    assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert node["status"]["nodeInfo"]["osImage"] == ""
    assert unknown == []


def test_pointers_are_kept_though_zero_and_unknown_fields_are_reported_with_their_path() -> None:
    lease, _ = clean("Lease", {"spec": {"leaseTransitions": 0, "holderIdentity": "", "leaseDurationSeconds": None}})
    assert lease["spec"] == {"leaseTransitions": 0, "holderIdentity": ""}, "a null is dropped"
    node, unknown = clean("Node", {"foo": 1, "spec": {"taints": [{"key": "a", "effect": "NoSchedule", "x": {}}]}})
    assert unknown == ["foo", "spec.taints[0].x"]
    assert "foo" not in node
    assert node["spec"]["taints"] == [{"key": "a", "effect": "NoSchedule"}]


def test_a_subtree_that_did_not_change_is_not_looked_at() -> None:
    before, _ = clean("Node", {"metadata": {"name": "a"}, "status": {"images": [{"names": ["x"]}]}})
    after, _ = clean("Node", {**before, "spec": {"unschedulable": True}}, before)
    assert after["status"] is before["status"]
    assert after["spec"] == {"unschedulable": True}


@given(st.datetimes())
def test_every_rfc_3339_time_is_read(moment: Any) -> None:
    text = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)
    assert parse_time(text).replace(tzinfo=None) == moment


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "status", "taints", "key", "labels", "name", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), TREES, max_size=4))
def test_whatever_comes_is_cleaned_or_refused_and_cleaning_again_changes_nothing(value: dict[str, Any]) -> None:
    try:
        once, _ = clean("Node", value)
    except DecodeError:
        return
    twice, unknown = clean("Node", once)
    assert twice == once
    assert unknown == []
