"""Objects in stored form: zero values, unknown fields, types, times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.testing.apiserver.schema import Context, DecodeError, parse_time, struct


def clean(kind: str, value: dict[str, Any], before: Any = None) -> tuple[dict[str, Any], list[str]]:
    context = Context()
    return struct(kind).clean(value, before, "", context), context.unknown


def test_empty_values_go_and_zero_structs_come() -> None:
    node, unknown = clean(
        "Node", {"metadata": {"name": "a", "labels": {}, "uid": ""}, "spec": {"unschedulable": False}}
    )
    assert node["metadata"] == {"name": "a"}
    assert node["spec"] == {}
    assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert node["status"]["nodeInfo"]["osImage"] == ""
    assert unknown == []


def test_pointers_are_kept_though_zero_and_dropped_when_null() -> None:
    lease, _ = clean("Lease", {"spec": {"leaseTransitions": 0, "holderIdentity": "", "leaseDurationSeconds": None}})
    assert lease["spec"] == {"leaseTransitions": 0, "holderIdentity": ""}


def test_unknown_fields_are_reported_with_their_path() -> None:
    node, unknown = clean("Node", {"foo": 1, "spec": {"taints": [{"key": "a", "effect": "NoSchedule", "x": {}}]}})
    assert unknown == ["foo", "spec.taints[0].x"]
    assert "foo" not in node
    assert node["spec"]["taints"] == [{"key": "a", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"spec": {"unschedulable": "x"}}, "string into Go struct field NodeSpec.spec.unschedulable of type bool"),
        ({"spec": {"taints": [{"key": 1}]}}, "number into Go struct field Taint.spec.taints.key of type string"),
        ({"spec": {"taints": {}}}, "object into Go struct field NodeSpec.spec.taints of type []v1.Taint"),
        ({"metadata": {"labels": {"a": 1}}}, "Go struct field ObjectMeta.metadata.labels of type string"),
        ({"metadata": []}, "cannot unmarshal array into Go struct field Node.metadata of type v1.ObjectMeta"),
        ({"status": {"capacity": {"cpu": "x"}}}, "quantities must match"),
        ({"status": {"conditions": [{"lastHeartbeatTime": "yesterday"}]}}, "parsing time"),
        ({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 2**40}}}}, "of type int32"),
    ],
)  # fmt: skip
def test_wrong_types_are_refused_in_the_real_servers_words(value: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodeError, match=None) as caught:
        clean("Node", value)
    assert message in str(caught.value)


def test_a_subtree_that_did_not_change_is_not_looked_at() -> None:
    before, _ = clean("Node", {"metadata": {"name": "a"}, "status": {"images": [{"names": ["x"]}]}})
    after, _ = clean("Node", {**before, "spec": {"unschedulable": True}}, before)
    assert after["status"] is before["status"]
    assert after["spec"] == {"unschedulable": True}


@pytest.mark.parametrize(
    ("given_time", "stored"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.678+01:00", "2026-01-02T02:04:05Z"),
        ("2026-01-02T00:00:00-05:30", "2026-01-02T05:30:00Z"),
    ],
)
def test_times_are_stored_in_utc_and_whole_seconds(given_time: str, stored: str) -> None:
    node, _ = clean("Node", {"spec": {"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": given_time}]}})
    assert node["spec"]["taints"][0]["timeAdded"] == stored


@pytest.mark.parametrize(
    "wrong", ["2026-01-01T00:00:05Z", "2026-01-01T00:00:05.123Z", "2026-01-01T00:00:05.1234567Z", "x"]
)
def test_micro_times_need_six_digits(wrong: str) -> None:
    with pytest.raises(DecodeError):
        clean("Lease", {"spec": {"renewTime": wrong}})
    lease, _ = clean("Lease", {"spec": {"renewTime": "2026-01-01T01:00:05.123456+01:00"}})
    assert lease["spec"]["renewTime"] == "2026-01-01T00:00:05.123456Z"


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
