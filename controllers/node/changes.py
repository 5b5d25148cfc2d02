"""Stage 4: DECIDE. A node and the cloud's answer in, the patches out. Pure: no I/O, no clock. Which
addresses it gets says `addresses.py`.

Two patches at most, in this order: one for the status (addresses, and that there is no route yet),
then one for the object (labels, provider ID, our record of labels, taint). So a node is never
schedulable before its addresses and, where this process makes routes, its route are there. Neither
is made when it would change nothing.

Which labels are ours. The proof is `Known`: what the cloud asked for on this node while this
process ran. The record, an annotation on the node for the next process, is only a hint: its kubelet
may write it, and so may everyone who may annotate the node. It is read once, when a process first
compares the node with the cloud, and only two things follow from it: a label that the cloud asks
for on this very node takes the cloud's present value, or an additional label stays away. A label
known only from the record is never removed, and no label of kubernetes.io or k8s.io is touched but
the six of instance type, zone and region (NodeRestriction lets a kubelet set those itself).

A label is written when it is absent, or when it still has the value that we wrote. Any other value
is kept. Instance type, zone and region are written again after they were removed; an additional
label stays away until the cloud asks for another value. Only while the node carries the
uninitialized taint, instance type, zone and region replace other values, as in the Go controller.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field, frozen

from cloudprovider.checks.nodelabels import wanted_labels
from cloudprovider.helpers.addresses import ALL_ADDRESSES, AddressChoice, describe_addresses, provided_node_ip
from cloudprovider.helpers.labels import LABEL_PAIRS, is_kubernetes_label, missing_twins
from cloudprovider.helpers.objects import addresses_of, annotations_of, labels_of, pod_cidrs_of
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.helpers.taints import get_node_condition, node_taints
from cloudprovider.ips import is_inside, parse_ip, parse_network
from cloudprovider.wellknown import (
    CONDITION_NETWORK_UNAVAILABLE,
    REASON_NO_ROUTE_CREATED,
    TAINT_EXTERNAL_CLOUD_PROVIDER,
)
from controllers.node.addresses import UNHEARD, Heard, NoIPAddress, Wanted, wanted
from controllers.runtime.write import Patch, addresses_replaced, combined, condition_set, taints_changed

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import InstanceMetadata
    from cloudprovider.ips import IPNetwork

APPLIED_LABELS: Final = "kubernetes-cloud-provider/applied-labels"
"""Annotation on nodes: the labels that this controller wrote, as a JSON object. Never changes."""

PAIRED: Final = frozenset(key for pair in LABEL_PAIRS for key in pair)
"""Instance type, zone and region: the stable keys and their deprecated labels."""


class InstanceReplaced(Exception):
    """The cloud answers with another instance than the node's immutable `spec.providerID`."""


class ProviderIDTaken(Exception):
    """Another Node carries this provider ID, and its kubelet is alive. What is written cannot be
    changed, so it is not."""

    def __init__(self, provider_id: str, other: str) -> None:
        self.provider_id = provider_id
        self.other = other
        super().__init__(
            f"the cloud gives provider ID {provider_id}, which Node {other} carries. Fix: if the machine's host name "
            "was changed, delete the Node of the former name; if these are two machines, the provider gives one ID to "
            "both"
        )


class NotAdopted(Exception):
    """The node has no provider ID, and it is uncertain whether the instance of its name is it."""


@frozen
class Known:
    """What this process knows of one node's labels."""

    written: Mapping[str, str]
    """Value of each label that is ours, as the cloud asked for it; the record holds the same."""
    added: frozenset[str] = frozenset()
    """The additional labels among them that the cloud asked for while this process ran. Only those
    may be removed."""


@frozen
class NodeChanges:
    """What is to be written, in this order. False when nothing is."""

    patches: tuple[Patch, ...] = ()
    refused_labels: tuple[str, ...] = ()
    """Additional labels of the provider that lie in namespaces reserved for Kubernetes."""
    known: Known | None = None
    """What is known of the labels once this is written; None where nothing new is."""
    addresses: Wanted | None = None
    """What the node's addresses should be; None where nobody looked."""
    replaced: Mapping[str, tuple[str, str]] = field(factory=dict)
    """Labels that somebody else gave to a new node: their value, and the cloud's."""

    def __bool__(self) -> bool:
        return bool(self.patches)


NOTHING: Final = NodeChanges()


def initialization(
    node: V1Node,
    metadata: InstanceMetadata,
    known: Known | None = None,
    *,
    ip_needed: bool = True,
    routed: Sequence[IPNetwork] = (),
    choice: AddressChoice = ALL_ADDRESSES,
    now: str = "",
) -> NodeChanges:
    """Everything that a newly joined node gets from its cloud, the taint's removal last.

    `known` is what this process knew of the node before, None when it never compared it with the
    cloud. `routed`: the ranges to which this process makes routes. `choice`: which of the cloud's
    addresses nodes get. `now`: in RFC 3339.

    Raises:
        InstanceReplaced, NodeIPError, AddressesExcluded: the node must stay tainted; the message is
            for users.
        NoIPAddress: the same for a node without any IP address, if `ip_needed`.
    """
    _same_instance(node, metadata)
    addresses = wanted(node, metadata, UNHEARD, choice)
    if ip_needed and not addresses.has_ip:
        raise NoIPAddress(metadata)
    asked, refused = wanted_labels(metadata)
    labels, written = labels_of(node), _written(node, known)
    changed: dict[str, str | None] = {}
    replaced = {}
    ours = {} if known is None else {key: value for key, value in written.items() if key not in asked}
    for key, value in asked.items():
        present = labels.get(key)
        if key in PAIRED or present in (None, written.get(key)):
            ours[key] = value
            if present != value:
                changed[key] = value
                if present not in (None, written.get(key)):
                    replaced[key] = (present, value)
    _pair_up(labels, changed)
    identity = Patch() if provider_id_of(node) else _identity(metadata)
    untainted = taints_changed(node_taints(node), remove=lambda taint: taint["key"] == TAINT_EXTERNAL_CLOUD_PROVIDER)
    rest = combined(_labels_patch(node, changed, ours), identity, untainted)
    status = combined(addresses_replaced(addresses_of(node), addresses.addresses), _unrouted(node, routed, now))
    return NodeChanges(_made(status, rest), refused, _known_after(ours, asked, known), addresses, replaced)


def _unrouted(node: V1Node, routed: Sequence[IPNetwork], now: str) -> Patch:
    """What keeps pods away from a new node until the route controller has made its route, and
    changed this. Nothing where somebody wrote the condition already."""
    if get_node_condition(node, CONDITION_NETWORK_UNAVAILABLE) is not None:
        return Patch()
    if not any(is_inside(net, routed) for net in map(_network, pod_cidrs_of(node)) if net is not None):
        return Patch()
    condition = {
        "type": CONDITION_NETWORK_UNAVAILABLE, "status": "True", "reason": REASON_NO_ROUTE_CREATED,
        "message": "The node is new, and its route is not made yet", "lastHeartbeatTime": now,
    }  # fmt: skip
    return condition_set(None, condition, now=now)


def _network(cidr: str) -> IPNetwork | None:
    try:
        return parse_network(cidr)
    except ValueError:
        return None  # the route controller says so


def refresh(
    node: V1Node,
    metadata: InstanceMetadata,
    known: Known | None = None,
    heard: Heard = UNHEARD,
    choice: AddressChoice = ALL_ADDRESSES,
) -> NodeChanges:
    """What has changed in the cloud since the node was initialised: addresses, and our labels.

    `known` and `choice` as in `initialization`; `heard` with this answer. Raises InstanceReplaced,
    NodeIPError and AddressesExcluded."""
    _same_instance(node, metadata)
    asked, refused = wanted_labels(metadata)
    labels, written = labels_of(node), _written(node, known)
    changed: dict[str, str | None] = {}
    ours: dict[str, str] = {}
    for key, value in asked.items():
        present, last = labels.get(key), written.get(key)
        if present == value:
            if last is not None or key in PAIRED:
                ours[key] = value
        elif present is None:
            ours[key] = value
            if key in PAIRED or last != value:
                changed[key] = value
            # else: an additional label that was removed since stays away
        elif present == last:
            changed[key] = ours[key] = value
        elif last is not None:
            ours[key] = last  # another value is there; should it go, ours counts as removed
    for key, last in written.items():
        if key in asked:
            continue
        if key in PAIRED or not metadata.additional_labels:
            ours[key] = last  # an empty answer erases nothing
        elif known is not None and key in known.added and labels.get(key) == last:
            changed[key] = None  # the cloud asked for it, asks no more, and it still is as we wrote it
    _pair_up(labels, changed)
    addresses = wanted(node, metadata, heard, choice)
    return NodeChanges(
        _made(addresses_replaced(addresses_of(node), addresses.addresses), _labels_patch(node, changed, ours)),
        refused,
        _known_after(ours, asked, known),
        addresses,
    )


def adoption(
    node: V1Node,
    metadata: InstanceMetadata,
    known: Known | None = None,
    heard: Heard = UNHEARD,
    choice: AddressChoice = ALL_ADDRESSES,
) -> NodeChanges:
    """An initialised node without a provider ID gets its name's instance's ID, and what `refresh`
    gives.

    The name alone is no proof: an IP address of the node must be one of the instance's too.

    Raises `NotAdopted`, with the reason for users, and what `refresh` raises."""
    if provider_id_of(node):
        return refresh(node, metadata, known, heard, choice)  # another program was faster
    own = (node.status.addresses if node.status else None) or ()
    if not {parse_ip(a.address) for a in own} & {parse_ip(a.address) for a in metadata.node_addresses} - {None}:
        raise NotAdopted(
            f"the cloud has instance {metadata.provider_id} of this name, but no IP address in common with the node: "
            f"the node has {describe_addresses(own) or 'none'}, the instance "
            f"{describe_addresses(metadata.node_addresses) or 'none'}"
        )
    planned = refresh(node, metadata, known, heard, choice)
    addresses = [patch for patch in planned.patches if patch.subresource]
    rest = [patch for patch in planned.patches if not patch.subresource]
    return evolve(planned, patches=(*addresses, combined(*rest, _identity(metadata))))


def pairing(node: V1Node) -> NodeChanges:
    """Bring the deprecated labels in line with their GA labels, which win; without the cloud."""
    changed = missing_twins(labels_of(node))
    return NodeChanges((Patch({"metadata": {"labels": changed}}, versioned=True),)) if changed else NOTHING


def recorded_labels(node: V1Node) -> dict[str, str]:
    """The labels that we wrote on this node, from its annotation; {} if missing or spoilt."""
    raw = annotations_of(node).get(APPLIED_LABELS)
    try:
        record = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):  # brackets nest as deep as a kubelet likes
        return {}
    if not isinstance(record, dict):
        return {}
    return {str(key): value for key, value in record.items() if isinstance(value, str)}


def _same_instance(node: V1Node, metadata: InstanceMetadata) -> None:
    known = provider_id_of(node)
    if known and metadata.provider_id and known != metadata.provider_id:
        raise InstanceReplaced(
            f"the cloud answers with instance {metadata.provider_id}, but spec.providerID is {known} and cannot "
            "change: delete the Node object, so that the new instance's kubelet registers it again"
        )


def inputs(node: V1Node, metadata: InstanceMetadata, heard: Heard) -> int:
    """The inputs of a plan, as a hash: the cloud's answer, what is believed of it, and the node's
    requested IP.

    While they stay the same, whatever a plan writes was changed by another program.
    """
    facts = (
        metadata.provider_id,
        metadata.instance_type,
        metadata.zone,
        metadata.region,
        frozenset(metadata.additional_labels.items()),
        frozenset((address.type, address.address) for address in metadata.node_addresses),
        heard.doubted,
        heard.settled,
        provided_node_ip(node),
    )
    return hash(facts)  # kept for every node, and only compared within this process


def _written(node: V1Node, known: Known | None) -> Mapping[str, str]:
    """What we wrote, from this process's memory; from the record if it never compared the node."""
    if known is not None:
        return known.written
    return {key: value for key, value in recorded_labels(node).items() if key in PAIRED or not is_kubernetes_label(key)}


def _known_after(ours: Mapping[str, str], asked: Mapping[str, str], known: Known | None) -> Known:
    before = known.added if known is not None else frozenset()
    return Known(ours, frozenset(key for key in ours if key not in PAIRED and (key in asked or key in before)))


def _identity(metadata: InstanceMetadata) -> Patch:
    return Patch({"spec": {"providerID": metadata.provider_id}}, versioned=True) if metadata.provider_id else Patch()


def _made(*patches: Patch) -> tuple[Patch, ...]:
    return tuple(patch for patch in patches if patch)


def _labels_patch(node: V1Node, changed: Mapping[str, str | None], ours: Mapping[str, str]) -> Patch:
    # Versioned: what is written depends on the present labels, which may just have been changed.
    meta: dict[str, Any] = {}
    if changed:
        meta["labels"] = dict(changed)
    if dict(ours) != recorded_labels(node):
        record = json.dumps(ours, sort_keys=True, separators=(",", ":"))
        meta["annotations"] = {APPLIED_LABELS: record if ours else None}
    return Patch({"metadata": meta}, versioned=True) if meta else Patch()


def _pair_up(labels: Mapping[str, str], changed: dict[str, str | None]) -> None:
    """Add to `changed` what makes the labels of every pair agree once it is written."""
    after = {key: value for key, value in {**labels, **changed}.items() if value is not None}
    changed.update(missing_twins(after))
