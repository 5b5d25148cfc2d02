"""Stage 4: DECIDE which addresses a node gets of what its cloud answers. Pure: no I/O, no clock.

Half an answer is not the truth: a guest agent or a network port that is away for a moment makes a
cloud leave addresses out. At a refresh an answer without any IP erases none, and one that lacks a
type of address which the node has is believed the second time in a row. Nor is an answer in another
order: clouds shuffle, so the order is taken once five answers in a row had it. `Heard` is what is
remembered of the answers for that; a new node takes the first answer as it is.

What the operator leaves out by flag (`AddressChoice`) is no doubtful answer: it goes at once, and
the order of families comes at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from attrs import frozen
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider.helpers.addresses import (
    ALL_ADDRESSES,
    AddressChoice,
    NodeIPMismatch,
    describe_addresses,
    parse_provided_node_ip,
    preferred_addresses,
    provided_node_ip,
)
from cloudprovider.helpers.objects import addresses_of, key_of, needs_initialization
from cloudprovider.ips import parse_ip
from cloudprovider.wellknown import (
    NODE_ADDRESS_EXTERNAL_IP,
    NODE_ADDRESS_HOSTNAME,
    NODE_ADDRESS_INTERNAL_IP,
    NODE_ADDRESS_TYPES,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import InstanceMetadata

SETTLED: Final = 5
"""So many answers in a row make an order of addresses the cloud's own."""

_MOST_RESTLESS: Final = -4 * SETTLED
_IP_TYPES: Final = frozenset({NODE_ADDRESS_INTERNAL_IP, NODE_ADDRESS_EXTERNAL_IP})


class NoIPAddress(Exception):
    """Neither the cloud nor the kubelet knows an IP address of the node. Retried: `retry_after`."""

    retry_after = 1.0

    def __init__(self, metadata: InstanceMetadata) -> None:
        known = describe_addresses(metadata.node_addresses) or "no addresses"
        super().__init__(f"neither the cloud nor the kubelet knows an IP address of this node; the cloud has {known}")


class AddressesExcluded(Exception):
    """The operator's flags leave out an address that the node needs. Nothing is written: addresses
    are never wiped, and a new node stays tainted."""


@frozen
class Heard:
    """What the cloud said of one node's addresses, in answers half a refresh period apart at least:
    a question that is repeated at once proves nothing new."""

    at: float = -math.inf
    """When the last of these answers came."""
    types: frozenset[str] = NODE_ADDRESS_TYPES
    """What types of address it had; before the first one all count as heard."""
    doubted: frozenset[str] = frozenset()
    """The types that the last answer lacks for the first time: the node keeps its own."""
    order: int | None = None
    """A hash of the last answer's addresses in their order."""
    agreed: int = 0
    """Answers in a row with that order. Below 0: it changed before five had agreed."""

    @property
    def settled(self) -> int | None:
        """The order that is the cloud's own; None while that is uncertain."""
        return self.order if self.agreed >= SETTLED else None


UNHEARD: Final = Heard()


@frozen
class Wanted:
    """What `wanted` decides."""

    addresses: tuple[V1NodeAddress, ...]
    """The node's addresses, in their order."""
    kept: frozenset[str] = frozenset()
    """The types among them that the cloud's answer lacks for now."""
    left_out: tuple[V1NodeAddress, ...] = ()
    """What the cloud knows of the IP family that --node-ip leaves out."""


def has_ip(addresses: Iterable[V1NodeAddress]) -> bool:
    """Whether there is an InternalIP or an ExternalIP among them."""
    return any(address.type in _IP_TYPES for address in addresses)


def hear(before: Heard, metadata: InstanceMetadata, *, now: float, period: float, new: bool) -> Heard:
    """What is known after one more answer. `period`: seconds between two refreshes; `new`: the node
    was new and took the answer as it is."""
    # A guest agent that is down, a port that is being attached: it counts as no answer.
    if not has_ip(metadata.node_addresses):
        return before
    types = _types(metadata.node_addresses)
    order = hash(tuple((address.type, address.address) for address in metadata.node_addresses))
    if new:
        return Heard(now, types, order=order, agreed=SETTLED)
    # Asked twice within a second, a cloud repeats itself: that is one answer, and no proof.
    early = now - before.at < period / 2
    doubted = before.types | before.doubted if early else before.types
    if order == before.order:
        agreed = before.agreed + (not early)
    elif before.order is None or before.settled is not None:
        agreed = 1
    else:
        # A cloud that shuffles has five equal answers by chance, too, so every change costs five.
        agreed = max(before.agreed - SETTLED, _MOST_RESTLESS)
    return Heard(
        before.at if early else now,
        _shared(before.types | types) if early else types,
        _shared(doubted - types),
        order,
        agreed,
    )


def wanted(node: V1Node, metadata: InstanceMetadata, heard: Heard, choice: AddressChoice = ALL_ADDRESSES) -> Wanted:
    """The addresses that the node should have, `heard` with this answer.

    Raises:
        NodeIPError: the cloud does not know the --node-ip of the kubelet.
        AddressesExcluded: `choice` leaves out that one, or every IP address of the cloud's.
    """
    current, offered = addresses_of(node), metadata.node_addresses
    requested, new = provided_node_ip(node), needs_initialization(node)
    if not new:
        offered = _with_own_hostname(key_of(node), current, offered)
    if not (has_ip(offered) or (new and requested is not None)) and (has_ip(current) or not offered):
        # "Nothing" of a cloud that has named addresses before is told, too.
        told = bool(offered) or heard.order is not None
        return Wanted(current, _types(current) & _IP_TYPES if told else frozenset())
    known = offered
    if choice.families or choice.exclude:
        # The node's present addresses, too: they are what orders the others and what is kept of a
        # type that the cloud leaves out for now.
        offered, current = choice.of(offered), choice.of(current)
        if has_ip(known) and not has_ip(offered):
            raise AddressesExcluded(
                f"{choice} leaves out every IP address that the cloud has for this node: {describe_addresses(known)}. "
                "Correct the flag of the controller manager"
            )
    # Not the Hostname: without one in the answer the node's own stays in any case.
    kept = frozenset() if new else heard.doubted & _types(current) - {NODE_ADDRESS_HOSTNAME}
    try:
        addresses = preferred_addresses(
            (*offered, *(address for address in current if address.type in kept)),
            current=current,
            provided_node_ip=requested,
            keep_order=not new and (heard.settled is None or bool(kept)),
        )
    except NodeIPMismatch as error:
        left_out = _excluded(known, choice, error.provided)
        if not left_out:
            raise
        raise AddressesExcluded(
            f"the kubelet's --node-ip={error.provided} asks for {describe_addresses(left_out)}, which the cloud knows "
            f"and {choice} leaves out. Correct the flag of the controller manager, or the kubelet's"
        ) from error
    return Wanted(addresses, kept, _left_out(offered, addresses, requested) if requested is not None else ())


def missing_text(node: V1Node, metadata: InstanceMetadata, kept: frozenset[str]) -> str:
    """For people: what the cloud says, and what the node keeps."""
    own = describe_addresses(address for address in addresses_of(node) if address.type in kept)
    return (
        f"The cloud's answer lacks {' and '.join(sorted(kept))}: it has "
        f"{describe_addresses(metadata.node_addresses) or 'no addresses'}. The node keeps {own}"
    )


def left_out_text(requested: str, left_out: tuple[V1NodeAddress, ...]) -> str:
    """For people: what a --node-ip of one family leaves out, and what to do about it."""
    return (
        f"The kubelet's --node-ip={requested} leaves out {describe_addresses(left_out)}, which the cloud knows too: "
        f"of that type a node has the addresses that --node-ip names. For both IP families: "
        f"--node-ip={requested},{left_out[0].address}"
    )


def put_back_text(node: V1Node, wanted: Wanted) -> str:
    """For people: who fights over the addresses of this node, which it does not have now."""
    return (
        f"Another program changes the addresses of this node again and again. It wrote "
        f"{describe_addresses(addresses_of(node)) or 'none'}; the cloud's are {describe_addresses(wanted.addresses)}. "
        "They were written again, as they will be less and less often. Mostly it is a kubelet without "
        "--cloud-provider=external. To see who writes them: kubectl get node "
        f"{key_of(node)} --show-managed-fields -o yaml"
    )


def _with_own_hostname(
    name: str, current: Iterable[V1NodeAddress], offered: tuple[V1NodeAddress, ...]
) -> tuple[V1NodeAddress, ...]:
    """The cloud's addresses. A Hostname that is the node's name stays where the cloud says another:
    somebody gave the machine another name there, and kube-apiserver asks the kubelet by this one. A
    node that was given another Hostname when it was initialised follows the cloud."""
    if name not in _hostnames(current) or name in _hostnames(offered):
        return offered
    own = V1NodeAddress(type=NODE_ADDRESS_HOSTNAME, address=name)
    return tuple(own if address.type == NODE_ADDRESS_HOSTNAME else address for address in offered)


def _excluded(known: Iterable[V1NodeAddress], choice: AddressChoice, requested: str) -> tuple[V1NodeAddress, ...]:
    """What the kubelet asks for, the cloud knows, and the operator leaves out."""
    ips = parse_provided_node_ip(requested)
    return tuple(one for one in known if not choice.takes(one) and parse_ip(one.address) in ips)


def _hostnames(addresses: Iterable[V1NodeAddress]) -> list[str]:
    return [address.address for address in addresses if address.type == NODE_ADDRESS_HOSTNAME]


def _types(addresses: Iterable[V1NodeAddress]) -> frozenset[str]:
    return _shared(frozenset(address.type for address in addresses))


@lru_cache(maxsize=64)
def _shared(types: frozenset[str]) -> frozenset[str]:
    """One object for all equal sets: there are few, and two are kept for each node."""
    return types


def _left_out(
    offered: Iterable[V1NodeAddress], addresses: tuple[V1NodeAddress, ...], requested: str
) -> tuple[V1NodeAddress, ...]:
    ips = parse_provided_node_ip(requested)
    # A --node-ip of both families leaves nothing out but what the user meant to leave out.
    if len(ips) != 1:
        return ()
    families = ((address, parse_ip(address.address)) for address in offered if address not in addresses)
    return tuple(address for address, ip in families if ip is not None and ip.version != ips[0].version)
