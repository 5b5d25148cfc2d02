"""Taints and conditions of a node: what is there. Pure (stages 3 and 4).

The taint list is atomic in the API: write it whole, in a merge patch with metadata.resourceVersion,
every other taint kept.

Follows: k8s.io/cloud-provider node/helpers/taints.go, k8s.io/component-helpers
node/util/conditions.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_condition import V1NodeCondition
    from kubernetes.client.models.v1_taint import V1Taint

__all__ = [
    "find_taint",
    "get_node_condition",
    "is_ready",
    "needs_initialization",
    "node_taints",
]


def node_taints(node: V1Node) -> tuple[V1Taint, ...]:
    """The node's taints, empty when it has none."""
    return tuple(node.spec.taints or ()) if node.spec is not None else ()


def find_taint(taints: Iterable[V1Taint], key: str, effect: str | None = None) -> V1Taint | None:
    """The first taint with this key, and with this effect where one is given; None when there is
    none."""
    for taint in taints:
        if taint.key == key and effect in (None, taint.effect):
            return taint
    return None


def needs_initialization(node: V1Node) -> bool:
    """Whether a cloud controller has yet to initialise the node."""
    return find_taint(node_taints(node), TAINT_EXTERNAL_CLOUD_PROVIDER) is not None


def get_node_condition(node: V1Node, condition_type: str) -> V1NodeCondition | None:
    """The node's condition of this type; None when it carries none."""
    conditions = node.status.conditions if node.status is not None else None
    for condition in conditions or ():
        if condition.type == condition_type:
            return condition
    return None


def is_ready(node: V1Node) -> bool:
    """Whether the node's condition Ready is True. A node without the condition is not ready."""
    condition = get_node_condition(node, "Ready")
    return condition is not None and condition.status == "True"
