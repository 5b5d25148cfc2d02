"""Taints and conditions of a node: what is there, and what the list becomes. Pure (stages 3 and 4).

Lists in, tuples out; nothing is changed in place. The taint list is atomic in the API: write it whole, in a
merge patch with metadata.resourceVersion, every other taint kept.

Follows: k8s.io/cloud-provider node/helpers/taints.go, k8s.io/component-helpers node/util/conditions.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cloudprovider.wellknown import (
    TAINT_EFFECT_NO_SCHEDULE,
    TAINT_EXTERNAL_CLOUD_PROVIDER,
    TAINT_NODE_SHUTDOWN,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_condition import V1NodeCondition
    from kubernetes.client.models.v1_taint import V1Taint

__all__ = [
    "add_or_update_taint",
    "cloud_taint",
    "find_taint",
    "get_node_condition",
    "is_ready",
    "needs_initialization",
    "node_taints",
    "remove_taint",
    "shutdown_taint",
    "without_taint_key",
]


def node_taints(node: V1Node) -> tuple[V1Taint, ...]:
    """The node's taints, empty when it has none."""
    return tuple(node.spec.taints or ()) if node.spec is not None else ()


def find_taint(taints: Iterable[V1Taint], key: str, effect: str | None = None) -> V1Taint | None:
    """The first taint with this key, and with this effect where one is given; None when there is none."""
    for taint in taints:
        if taint.key == key and effect in (None, taint.effect):
            return taint
    return None


def cloud_taint(node: V1Node) -> V1Taint | None:
    """The taint that says "not initialised yet", whatever its value and effect; None on an initialised
    node."""
    return find_taint(node_taints(node), TAINT_EXTERNAL_CLOUD_PROVIDER)


def needs_initialization(node: V1Node) -> bool:
    """Whether a cloud controller has yet to initialise the node."""
    return cloud_taint(node) is not None


def shutdown_taint() -> V1Taint:
    """A new taint that says "the instance is switched off"."""
    from kubernetes.client.models.v1_taint import V1Taint

    return V1Taint(key=TAINT_NODE_SHUTDOWN, effect=TAINT_EFFECT_NO_SCHEDULE)


def without_taint_key(taints: Iterable[V1Taint], key: str) -> tuple[V1Taint, ...]:
    """The taints with another key, in their order."""
    return tuple(taint for taint in taints if taint.key != key)


def remove_taint(taints: Iterable[V1Taint], taint: V1Taint) -> tuple[V1Taint, ...]:
    """The taints that differ from `taint` in key or effect, in their order. What is absent already stays
    absent."""
    return tuple(one for one in taints if (one.key, one.effect) != (taint.key, taint.effect))


def add_or_update_taint(taints: Iterable[V1Taint], taint: V1Taint) -> tuple[V1Taint, ...]:
    """The taints with `taint` among them: in place of the one with its key and effect, otherwise at the end.

    Where that one equals it already, the result equals the argument, so comparing both tells whether to
    write.
    """
    result: list[V1Taint] = []
    placed = False
    for one in taints:
        if (one.key, one.effect) != (taint.key, taint.effect):
            result.append(one)
        elif not placed:
            result.append(taint)
            placed = True
    return tuple(result) if placed else (*result, taint)


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
