"""Taints and conditions of a node, as they are read."""

from __future__ import annotations

from kubernetes.client.models import V1Node, V1NodeCondition, V1NodeSpec, V1NodeStatus, V1Taint

from cloudprovider import wellknown
from cloudprovider.helpers import (
    find_taint,
    get_node_condition,
    is_ready,
    needs_initialization,
)


def taint(key: str, effect: str = "NoSchedule", value: str | None = None) -> V1Taint:
    return V1Taint(key=key, effect=effect, value=value)


def node(*taints: V1Taint) -> V1Node:
    return V1Node(spec=V1NodeSpec(taints=list(taints)))


def test_the_cloud_taint_counts_whatever_its_value_and_effect() -> None:
    for value, effect in [("true", "NoSchedule"), (None, "NoExecute"), ("false", "PreferNoSchedule")]:
        tainted = node(taint("a"), taint(wellknown.TAINT_EXTERNAL_CLOUD_PROVIDER, effect, value))
        assert needs_initialization(tainted)
    for ready in (node(taint("a"), taint(wellknown.TAINT_NODE_SHUTDOWN)), node(), V1Node(spec=V1NodeSpec()), V1Node()):
        assert not needs_initialization(ready)


def test_finding_by_key_and_by_effect() -> None:
    taints = [taint("a", "NoSchedule"), taint("a", "NoExecute")]
    assert find_taint(taints, "a") is taints[0]
    assert find_taint(taints, "a", "NoExecute") is taints[1]
    assert find_taint(taints, "a", "PreferNoSchedule") is None
    assert find_taint(taints, "b") is None


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
