"""Stage 4: DECIDE. A node and the cloud's answer in, the patches out. Pure: no I/O, no clock. Which
addresses it gets says `addresses.py`.

Two patches at most, in this order: one for the status (addresses, and that there is no route yet),
then one for the object (labels, annotations, provider ID, our records of them, taints). So a node
is never schedulable before its addresses, its taints and, where this process makes routes, its
route are there. Neither is made when it would change nothing.

The provider's taints are set once, with the initialisation: who removes one has decided. Which
labels and annotations are ours says `kept.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from cloudprovider.checks.nodelabels import refused, wanted_taints
from cloudprovider.helpers.addresses import ALL_ADDRESSES, AddressChoice, describe_addresses, provided_node_ip
from cloudprovider.helpers.labels import missing_twins
from cloudprovider.helpers.objects import (
    addresses_of,
    find_taint,
    get_node_condition,
    labels_of,
    node_taints,
    pod_cidrs_of,
)
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.ips import is_inside, parse_ip, parse_network
from cloudprovider.wellknown import (
    CONDITION_NETWORK_UNAVAILABLE,
    REASON_NO_ROUTE_CREATED,
    TAINT_EXTERNAL_CLOUD_PROVIDER,
)
from controllers.node.addresses import UNHEARD, Heard, NoIPAddress, Wanted, has_ip, wanted
from controllers.node.kept import Known, kept
from controllers.runtime.write import Patch, addresses_replaced, combined, condition_set, taints_changed

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import InstanceMetadata
    from cloudprovider.ips import IPNetwork


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
class NodeChanges:
    """What is to be written, in this order."""

    patches: tuple[Patch, ...] = ()
    refused: Mapping[str, tuple[str, ...]] = field(factory=dict)
    """What of the provider's lies in reserved namespaces, by field, for people."""
    known: Known | None = None
    """What is known of the labels once this is written; None where nothing new is."""
    addresses: Wanted | None = None
    """What the node's addresses should be; None where nobody looked."""
    replaced: Mapping[str, tuple[str, str]] = field(factory=dict)
    """Labels that somebody else gave to a new node: their value, and the cloud's."""


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
    if ip_needed and not has_ip(addresses.addresses):
        raise NoIPAddress(metadata)
    ours = kept(node, metadata, known, new=True)
    # Never overwritten: the field is immutable, and the whole write would be refused.
    identity = Patch() if provider_id_of(node) else _identity(metadata)
    rest = combined(ours.patch, identity, _untainted(node, metadata))
    status = addresses_replaced(addresses_of(node), addresses.addresses)
    # Where no routes are made, nobody would ever take the condition back.
    if routed:
        status = combined(status, _unrouted(node, routed, now))
    return NodeChanges(_due(status, rest), refused(metadata), ours.known, addresses, ours.replaced)


def _untainted(node: V1Node, metadata: InstanceMetadata) -> Patch:
    """The uninitialized taint goes, and the provider's come in the same write: between two writes
    pods without tolerations could be scheduled. What the node brings along is left alone."""
    present = node_taints(node)
    asked = wanted_taints(metadata) if metadata.taints else ()
    new = [
        {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
        for taint in asked
        if find_taint(present, taint.key, taint.effect) is None
    ]
    return taints_changed(present, add=new, remove=lambda taint: taint["key"] == TAINT_EXTERNAL_CLOUD_PROVIDER)


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
    ours = kept(node, metadata, known, new=False)
    addresses = wanted(node, metadata, heard, choice)
    status = addresses_replaced(addresses_of(node), addresses.addresses)
    return NodeChanges(_due(status, ours.patch), refused(metadata), ours.known, addresses)


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
    # An old Node and a new machine may share a name; an address that both have is proof.
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


def _same_instance(node: V1Node, metadata: InstanceMetadata) -> None:
    known = provider_id_of(node)
    # Its labels and addresses would be another machine's than the one whose pods run here.
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
        frozenset(metadata.annotations.items()),
        frozenset((address.type, address.address) for address in metadata.node_addresses),
        heard.doubted,
        heard.settled,
        provided_node_ip(node),
    )
    return hash(facts)  # kept for every node, and only compared within this process


def _identity(metadata: InstanceMetadata) -> Patch:
    return Patch({"spec": {"providerID": metadata.provider_id}}, versioned=True) if metadata.provider_id else Patch()


def _due(*patches: Patch) -> tuple[Patch, ...]:
    return tuple(filter(None, patches))  # an empty one is false
