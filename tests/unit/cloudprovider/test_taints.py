"""Taints and conditions: the new list, with every foreign taint kept."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models import V1Node, V1NodeCondition, V1NodeSpec, V1NodeStatus, V1Taint

from cloudprovider import wellknown
from cloudprovider.helpers import (
    add_or_update_taint,
    cloud_taint,
    find_taint,
    get_node_condition,
    is_ready,
    needs_initialization,
    node_taints,
    remove_taint,
    shutdown_taint,
    without_taint_key,
)

TAINTS = st.builds(
    V1Taint,
    key=st.sampled_from(["a", "b", wellknown.TAINT_EXTERNAL_CLOUD_PROVIDER]),
    effect=st.sampled_from(["NoSchedule", "NoExecute"]),
    value=st.none() | st.sampled_from(["true", ""]),
)
LISTS = st.lists(TAINTS, max_size=5, unique_by=lambda taint: (taint.key, taint.effect))


def taint(key: str, effect: str = "NoSchedule", value: str | None = None) -> V1Taint:
    return V1Taint(key=key, effect=effect, value=value)


def node(*taints: V1Taint) -> V1Node:
    return V1Node(spec=V1NodeSpec(taints=list(taints)))


def test_the_cloud_taint_counts_whatever_its_value_and_effect() -> None:
    for value, effect in [("true", "NoSchedule"), (None, "NoExecute"), ("false", "PreferNoSchedule")]:
        tainted = node(taint("a"), taint(wellknown.TAINT_EXTERNAL_CLOUD_PROVIDER, effect, value))
        assert cloud_taint(tainted) is node_taints(tainted)[1]
        assert needs_initialization(tainted)
    for ready in (node(taint("a"), taint(wellknown.TAINT_NODE_SHUTDOWN)), node(), V1Node(spec=V1NodeSpec()), V1Node()):
        assert cloud_taint(ready) is None
        assert not needs_initialization(ready)


def test_finding_by_key_and_by_effect() -> None:
    taints = [taint("a", "NoSchedule"), taint("a", "NoExecute")]
    assert find_taint(taints, "a") is taints[0]
    assert find_taint(taints, "a", "NoExecute") is taints[1]
    assert find_taint(taints, "a", "PreferNoSchedule") is None
    assert find_taint(taints, "b") is None


def test_the_shutdown_taint() -> None:
    assert (shutdown_taint().key, shutdown_taint().effect, shutdown_taint().value) == (
        "node.cloudprovider.kubernetes.io/shutdown",
        "NoSchedule",
        None,
    )


def test_updating_replaces_in_place() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    before = [taint("a"), V1Taint(key="b", effect="NoExecute", value="old", time_added=since), taint("c")]
    changed = taint("b", "NoExecute", "new")
    assert add_or_update_taint(before, changed) == (before[0], changed, before[2])
    assert before[1].value == "old"


def test_a_taint_in_a_list_twice_is_there_once_afterwards() -> None:
    assert add_or_update_taint([taint("a", value="1"), taint("a", value="2")], taint("a")) == (taint("a"),)


@given(LISTS, TAINTS)
def test_adding_and_removing_keep_every_other_taint(taints: list[V1Taint], one: V1Taint) -> None:
    others = [other for other in taints if (other.key, other.effect) != (one.key, one.effect)]
    added = add_or_update_taint(taints, one)
    assert one in added
    assert list(remove_taint(added, one)) == list(remove_taint(taints, one)) == others
    assert add_or_update_taint(added, one) == added
    assert (add_or_update_taint(taints, one) == tuple(taints)) == (one in taints)


@given(LISTS)
def test_removing_by_key_takes_every_effect(taints: list[V1Taint]) -> None:
    key = wellknown.TAINT_EXTERNAL_CLOUD_PROVIDER
    assert list(without_taint_key(taints, key)) == [one for one in taints if one.key != key]


def test_conditions_are_found_by_type() -> None:
    conditions = [
        V1NodeCondition(type="Ready", status="True"),
        V1NodeCondition(type="NetworkUnavailable", status="False"),
    ]
    status = V1Node(status=V1NodeStatus(conditions=conditions))
    found = get_node_condition(status, wellknown.CONDITION_NETWORK_UNAVAILABLE)
    assert found is not None
    assert found.status == "False"
    assert get_node_condition(status, "DiskPressure") is None
    assert get_node_condition(V1Node(status=V1NodeStatus()), "Ready") is None
    assert get_node_condition(V1Node(), "Ready") is None


def test_a_node_is_ready_only_by_its_own_word() -> None:
    def node(status: str) -> V1Node:
        return V1Node(status=V1NodeStatus(conditions=[V1NodeCondition(type="Ready", status=status)]))

    assert is_ready(node("True"))
    assert not is_ready(node("Unknown"))
    assert not is_ready(V1Node())
