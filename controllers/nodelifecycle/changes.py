"""Pure: which nodes are looked at, and what is written on them (before stage 3, and between stages 5 and 6).

No I/O, no clock. Nodes come from the cache; what the cloud said comes as arguments; patches go to `reconcile.py`.

The out-of-service taint has the value that the documentation tells people to use, so by itself it does not show
who set it. An annotation does, and only what we set is removed.

Follows: MonitorNodes in k8s.io/cloud-provider controllers/nodelifecycle/node_lifecycle_controller.go, and
https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cloudprovider.helpers.providerid import is_owned
from cloudprovider.helpers.taints import find_taint, get_node_condition, needs_initialization, node_taints
from cloudprovider.wellknown import (
    TAINT_EFFECT_NO_EXECUTE,
    TAINT_EFFECT_NO_SCHEDULE,
    TAINT_NODE_OUT_OF_SERVICE,
    TAINT_NODE_SHUTDOWN,
)
from controllers.runtime.patch import Patch, combined, taints_changed

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

OUT_OF_SERVICE_SET: Final = "kubernetes-cloud-provider/out-of-service"
"""Annotation on nodes: the out-of-service taint is this controller's (value "true"). Must never change."""

SHUTDOWN: Final = {"key": TAINT_NODE_SHUTDOWN, "effect": TAINT_EFFECT_NO_SCHEDULE}
OUT_OF_SERVICE: Final = {
    "key": TAINT_NODE_OUT_OF_SERVICE,
    "value": "nodeshutdown",
    "effect": TAINT_EFFECT_NO_EXECUTE,
}


class Attention(enum.Enum):
    """What a node needs."""

    NONE = enum.auto()
    TIDY = enum.auto()
    """It is ready and still carries a taint of ours: no word from the cloud is needed."""
    ASK = enum.auto()
    """It is not ready: the cloud is asked about its instance."""


def attention(node: V1Node, prefixes: Sequence[str], now: float, grace: float) -> Attention:
    """What this node needs at `now` (unix seconds), if the provider's IDs have these prefixes.

    Nodes of other clouds need nothing, nor do those that are being deleted already, or that were created less than
    `grace` seconds ago and wait for their initialisation.
    """
    if not is_owned(provider_id_of(node), prefixes):
        return Attention.NONE
    if is_ready(node):
        return Attention.TIDY if returned(node) else Attention.NONE
    meta = node.metadata
    if meta is None or meta.deletion_timestamp is not None:
        return Attention.NONE
    if needs_initialization(node):
        created = meta.creation_timestamp
        if created is None or now - created.timestamp() < grace:
            return Attention.NONE
    return Attention.ASK


def is_ready(node: V1Node) -> bool:
    """Whether the condition Ready is True. A node without the condition is not ready."""
    condition = get_node_condition(node, "Ready")
    return condition is not None and condition.status == "True"


def provider_id_of(node: V1Node) -> str:
    """`spec.providerID`, "" where there is none."""
    return (node.spec.provider_id if node.spec is not None else None) or ""


def returned(node: V1Node) -> Patch:
    """The node is ready, or its instance runs: what we wrote when it was shut down goes."""
    ours = _is_marked(node)
    patch = taints_changed(node_taints(node), remove=lambda taint: _is(taint, SHUTDOWN) or (ours and _is_oos(taint)))
    return combined(patch, _mark(None)) if ours else patch


def shut_down(node: V1Node, *, out_of_service: bool) -> Patch:
    """The instance is switched off. `out_of_service`: have its pods evicted and its volumes detached.

    Where somebody else has set the out-of-service taint, or removed ours, that is left as it is.
    """
    wanted: list[Any] = [SHUTDOWN]
    taints = node_taints(node)
    oos = out_of_service and not _is_marked(node) and find_taint(taints, TAINT_NODE_OUT_OF_SERVICE) is None
    if oos:
        wanted.append(OUT_OF_SERVICE)
    patch = taints_changed(taints, add=wanted)
    return combined(patch, _mark("true")) if oos else patch


def without_provider_id(node: V1Node) -> V1Node:
    """The node as it would be if it had just joined: providers then look for its instance by name.

    It has no resourceVersion, because it is no revision of the node that anybody else should be shown.
    """
    assert node.metadata is not None
    assert node.spec is not None
    meta = node.metadata.model_copy(update={"resource_version": None})
    return node.model_copy(update={"metadata": meta, "spec": node.spec.model_copy(update={"provider_id": None})})


def _is(taint: Any, other: dict[str, str]) -> bool:
    return (taint.get("key"), taint.get("effect")) == (other["key"], other["effect"])


def _is_oos(taint: Any) -> bool:
    return _is(taint, OUT_OF_SERVICE) and taint.get("value") == OUT_OF_SERVICE["value"]


def _is_marked(node: V1Node) -> bool:
    annotations = (node.metadata.annotations if node.metadata is not None else None) or {}
    return OUT_OF_SERVICE_SET in annotations


def _mark(value: str | None) -> Patch:
    return Patch({"metadata": {"annotations": {OUT_OF_SERVICE_SET: value}}}, versioned=True)
