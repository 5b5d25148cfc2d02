"""Stage 4: DECIDE. Which nodes are looked at, and what is written on them. Pure: no I/O, no clock.

Follows: MonitorNodes in k8s.io/cloud-provider
controllers/nodelifecycle/node_lifecycle_controller.go, and
https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cloudprovider.helpers.objects import find_taint, is_ready, labels_of, needs_initialization, node_taints
from cloudprovider.helpers.providerid import is_owned, provider_id_of
from cloudprovider.wellknown import (
    LABEL_HANDS_OFF,
    LABEL_TOPOLOGY_ZONE,
    LABEL_ZONE_BETA,
    TAINT_EFFECT_NO_EXECUTE,
    TAINT_EFFECT_NO_SCHEDULE,
    TAINT_EXTERNAL_CLOUD_PROVIDER,
    TAINT_NODE_OUT_OF_SERVICE,
    TAINT_NODE_SHUTDOWN,
    TAINT_TO_BE_DELETED,
)
from controllers.runtime.cache import key_of, uid_of
from controllers.runtime.write import Patch, taints_changed

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

SHUTDOWN: Final = {"key": TAINT_NODE_SHUTDOWN, "effect": TAINT_EFFECT_NO_SCHEDULE}
OUT_OF_SERVICE: Final = {
    "key": TAINT_NODE_OUT_OF_SERVICE,
    "value": "cloud-instance-shut-down",
    "effect": TAINT_EFFECT_NO_EXECUTE,
}
"""Ours by its value, which must never change: annotations could be forged, and the documentation
tells administrators to write "nodeshutdown"."""

_NOT_SAMPLED: Final = frozenset({TAINT_TO_BE_DELETED, TAINT_NODE_SHUTDOWN, TAINT_EXTERNAL_CLOUD_PROVIDER})


class Attention(enum.Enum):
    """What a node needs."""

    NONE = enum.auto()
    TIDY = enum.auto()
    """It is ready and still has a taint of ours: the cloud need not be asked."""
    ASK = enum.auto()
    """It is not ready: the cloud is asked about its instance."""


def hands_off(node: V1Node) -> bool:
    """Whether an administrator has told this controller to leave the node alone.

    Any value but "false" counts, the empty one too: the safe way to read a mistake. A kubelet
    cannot set, change or remove the label where the admission plugin NodeRestriction is on. It only
    ever keeps us from doing something.
    """
    return labels_of(node).get(LABEL_HANDS_OFF, "false") != "false"


def attention(
    node: V1Node,
    prefixes: Sequence[str],
    age: float,
    grace: float,
    *,
    moved: bool = False,
    out_of_service: bool = False,
) -> Attention:
    """What this node needs, if the provider's IDs have these prefixes.

    Nodes of other clouds need nothing, nor do those that an administrator keeps us from, that are
    being deleted already, or that have waited for their initialisation for less than `grace`
    seconds. `age` and `moved`: see `Shared`.
    """
    # Without an ID, or with another cloud's, "gone" could be said of a machine that is another one.
    if hands_off(node) or not is_owned(provider_id_of(node), prefixes):
        return Attention.NONE
    stays = node.metadata is not None and node.metadata.deletion_timestamp is None
    if is_ready(node):
        # On another machine its kubelet says nothing about the instance of the Node's ID.
        if moved and stays:
            return Attention.ASK
        return Attention.TIDY if returned(node, out_of_service=out_of_service) else Attention.NONE
    # A cloud may list a machine that joins only after a while, and the node controller has it until
    # it is initialised.
    if not stays or (needs_initialization(node) and age < grace):
        return Attention.NONE
    return Attention.ASK


def returned(node: V1Node, *, out_of_service: bool) -> Patch:
    """The node is ready, or its instance runs: the taints that say that it is shut down go.

    `out_of_service`: also our own out-of-service taint (`--node-out-of-service-taint`).
    """
    return taints_changed(
        node_taints(node), remove=lambda taint: _is(taint, SHUTDOWN) or (out_of_service and _is_ours(taint))
    )


def shut_down(node: V1Node, *, out_of_service: bool) -> Patch:
    """The instance is switched off. `out_of_service`: evict its pods, detach its volumes.

    An out-of-service taint that is there already is enough."""
    wanted: list[Any] = [SHUTDOWN]
    taints = node_taints(node)
    if out_of_service and find_taint(taints, TAINT_NODE_OUT_OF_SERVICE) is None:
        wanted.append(OUT_OF_SERVICE)
    return taints_changed(taints, add=wanted)


def is_announced(node: V1Node) -> bool:
    """Whether the cluster autoscaler has announced that it takes the node away.

    A client that may write the taint may delete Nodes, too. A kubelet can set it only when it
    registers, and on its own Node alone.
    """
    return find_taint(node_taints(node), TAINT_TO_BE_DELETED) is not None


def can_be_sampled(node: V1Node, prefixes: Sequence[str]) -> bool:
    """Whether this node can be in a sample: its kubelet says that its instance runs.

    What the cloud says of a node that is left alone may be known to be wrong."""
    meta = node.metadata
    return (
        is_ready(node)
        and not hands_off(node)
        and is_owned(provider_id_of(node), prefixes)
        and meta is not None
        and meta.deletion_timestamp is None
        and not any(taint.key in _NOT_SAMPLED for taint in node_taints(node))
    )


def zone_of(node: V1Node) -> str:
    """The node's zone by its labels, the GA one first; "" without one."""
    labels = labels_of(node)
    return labels.get(LABEL_TOPOLOGY_ZONE) or labels.get(LABEL_ZONE_BETA) or ""


def identity_of(node: V1Node) -> tuple[str, str, str]:
    """Name, UID and provider ID: which instance the node stands for."""
    return key_of(node), uid_of(node), provider_id_of(node)


def machine_of(node: V1Node) -> tuple[str, str]:
    """The machine that the kubelet runs on, by its own word: machineID and systemUUID, or ""."""
    info = node.status.node_info if node.status else None
    return ("", "") if info is None else (info.machine_id or "", info.system_uuid or "")


def without_provider_id(node: V1Node) -> V1Node:
    """The node as it would be if it had just joined: providers then look for its instance by name.

    It has no resourceVersion: it is no revision of the node.
    """
    assert node.metadata is not None
    assert node.spec is not None
    meta = node.metadata.model_copy(update={"resource_version": None})
    return node.model_copy(update={"metadata": meta, "spec": node.spec.model_copy(update={"provider_id": None})})


def _is(taint: Any, other: dict[str, str]) -> bool:
    return (taint.get("key"), taint.get("effect")) == (other["key"], other["effect"])


def _is_ours(taint: Any) -> bool:
    return _is(taint, OUT_OF_SERVICE) and taint.get("value") == OUT_OF_SERVICE["value"]
