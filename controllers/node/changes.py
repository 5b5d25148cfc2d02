"""Pure: a node and what the cloud says of it in, the patches out (between stages 4 and 6). No I/O, no clock.

Two patches at most, in this order: one for `status.addresses`, then one for the object (labels, provider ID, our record
of labels, taint). So a node is never schedulable before its addresses are there. Neither is made when it would change
nothing.

Which labels are ours is recorded in an annotation on the node. A label is written when it is absent, or when it still
has the value that we wrote; a value that somebody else gave is left alone. Only the first time, while the node carries
the uninitialized taint, instance type, zone and region are written whatever stands there, as the Go controller does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from cloudprovider.helpers.addresses import preferred_addresses, provided_node_ip
from cloudprovider.helpers.labels import LABEL_PAIRS, instance_labels, is_kubernetes_label, missing_twins
from cloudprovider.helpers.taints import needs_initialization, node_taints
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.runtime.patch import Patch, addresses_replaced, combined, taints_changed

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import InstanceMetadata

APPLIED_LABELS: Final = "kubernetes-cloud-provider/applied-labels"
"""Annotation on nodes: the labels that this controller wrote, as a JSON object. Must never change."""

_PAIRED: Final = frozenset(key for pair in LABEL_PAIRS for key in pair)


class InstanceReplaced(Exception):
    """The cloud answers with another instance than the one in the node's immutable `spec.providerID`."""


@frozen
class NodeChanges:
    """What is to be written, in this order. False when nothing is."""

    patches: tuple[Patch, ...] = ()
    refused_labels: tuple[str, ...] = ()
    """Additional labels of the provider that lie in namespaces reserved for Kubernetes."""

    def __bool__(self) -> bool:
        return bool(self.patches)


NOTHING: Final = NodeChanges()


def initialization(node: V1Node, metadata: InstanceMetadata) -> NodeChanges:
    """Everything that a newly joined node gets from its cloud, the taint's removal last.

    Raises:
        InstanceReplaced, NodeIPError: the node must stay tainted; the message is for the user's eyes.
    """
    _same_instance(node, metadata)
    wanted, refused = wanted_labels(metadata)
    labels, record = _labels(node), recorded_labels(node)
    changed: dict[str, str | None] = {}
    ours: dict[str, str] = {}
    for key, value in wanted.items():
        if key in _PAIRED or labels.get(key) in (None, record.get(key)):
            ours[key] = value
            if labels.get(key) != value:
                changed[key] = value
    _pair_up(labels, changed)
    identity = Patch()
    if not _provider_id(node) and metadata.provider_id:
        identity = Patch({"spec": {"providerID": metadata.provider_id}})
    untainted = taints_changed(node_taints(node), remove=lambda taint: taint["key"] == TAINT_EXTERNAL_CLOUD_PROVIDER)
    rest = combined(_labels_patch(node, changed, ours), identity, untainted)
    return _changes(_addresses_patch(node, metadata), rest, refused=refused)


def refresh(node: V1Node, metadata: InstanceMetadata) -> NodeChanges:
    """What has changed in the cloud since the node was initialised: addresses, and the labels recorded as ours.

    Raises the same errors as `initialization`.
    """
    _same_instance(node, metadata)
    wanted, refused = wanted_labels(metadata)
    labels, record = _labels(node), recorded_labels(node)
    changed: dict[str, str | None] = {}
    ours: dict[str, str] = {}
    for key, value in wanted.items():
        present = labels.get(key)
        if present == value:
            if key in record or key in _PAIRED:
                ours[key] = value
        elif present is None or present == record.get(key):
            changed[key] = ours[key] = value
    for key, value in record.items():
        if key in wanted or labels.get(key) != value:
            continue
        if metadata.additional_labels and key not in _PAIRED:
            changed[key] = None  # the cloud dropped this one, and it still is as we wrote it
        else:
            ours[key] = value  # an empty answer erases nothing
    _pair_up(labels, changed)
    return _changes(_addresses_patch(node, metadata), _labels_patch(node, changed, ours), refused=refused)


def pairing(node: V1Node) -> NodeChanges:
    """Bring the deprecated label twins in line with their GA labels, which win; no word from the cloud is needed."""
    changed = missing_twins(_labels(node))
    return _changes(Patch({"metadata": {"labels": changed}}, versioned=True)) if changed else NOTHING


def wanted_labels(metadata: InstanceMetadata) -> tuple[dict[str, str], tuple[str, ...]]:
    """The labels that this answer asks for, and the keys that are refused for lying in a reserved namespace."""
    wanted = instance_labels(metadata.instance_type, metadata.zone, metadata.region)
    refused = tuple(sorted(key for key in metadata.additional_labels if is_kubernetes_label(key)))
    wanted.update({key: value for key, value in metadata.additional_labels.items() if key not in refused})
    return wanted, refused


def recorded_labels(node: V1Node) -> dict[str, str]:
    """The labels that we wrote on this node, from its annotation; {} where that is missing or spoilt."""
    raw = _annotations(node).get(APPLIED_LABELS)
    try:
        record = json.loads(raw) if raw else {}
    except ValueError:
        return {}
    if not isinstance(record, dict):
        return {}
    return {str(key): value for key, value in record.items() if isinstance(value, str)}


def _same_instance(node: V1Node, metadata: InstanceMetadata) -> None:
    known = _provider_id(node)
    if known and metadata.provider_id and known != metadata.provider_id:
        raise InstanceReplaced(
            f"the cloud answers with instance {metadata.provider_id}, but spec.providerID is {known} and cannot "
            "change: delete the Node object, so that the new instance's kubelet registers it again"
        )


def _changes(*patches: Patch, refused: tuple[str, ...] = ()) -> NodeChanges:
    return NodeChanges(tuple(patch for patch in patches if patch), refused)


def _addresses_patch(node: V1Node, metadata: InstanceMetadata) -> Patch:
    if not metadata.node_addresses:
        return Patch()
    current = (node.status.addresses if node.status else None) or ()
    wanted = preferred_addresses(
        metadata.node_addresses,
        current=current,
        provided_node_ip=provided_node_ip(node),
        keep_order=not needs_initialization(node),
    )
    return addresses_replaced(current, wanted)


def _labels_patch(node: V1Node, changed: Mapping[str, str | None], ours: Mapping[str, str]) -> Patch:
    """Versioned: what is written depends on what stands there, which somebody may just have changed."""
    meta: dict[str, Any] = {}
    if changed:
        meta["labels"] = dict(changed)
    if dict(ours) != recorded_labels(node):
        record = json.dumps(ours, sort_keys=True, separators=(",", ":"))
        meta["annotations"] = {APPLIED_LABELS: record if ours else None}
    return Patch({"metadata": meta}, versioned=True) if meta else Patch()


def _pair_up(labels: Mapping[str, str], changed: dict[str, str | None]) -> None:
    """Add to `changed` what makes the twins of every pair agree once it is written."""
    after = {key: value for key, value in {**labels, **changed}.items() if value is not None}
    changed.update(missing_twins(after))


def _labels(node: V1Node) -> Mapping[str, str]:
    return (node.metadata.labels if node.metadata else None) or {}


def _annotations(node: V1Node) -> Mapping[str, str]:
    return (node.metadata.annotations if node.metadata else None) or {}


def _provider_id(node: V1Node) -> str:
    return (node.spec.provider_id if node.spec else None) or ""
