"""Which addresses a node gets, and in which order: pure logic (stage 4, reconcile).

In come the addresses that the provider answered, the kubelet's wish (the annotation
alpha.kubernetes.io/provided-node-ip) and what the node carries already; out comes the list for
`status.addresses`, to be compared exactly and patched when it differs. Nothing is changed in place;
everything may be called from many threads.

Follows: k8s.io/cloud-provider node/helpers/address.go, k8s.io/component-helpers node/util/ips.go,
and the address part of controllers/node/node_controller.go; the stable order is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.helpers.objects import annotations_of
from cloudprovider.internal import fields
from cloudprovider.ips import IPAddress, IPNetwork, parse_ip
from cloudprovider.wellknown import (
    ANNOTATION_PROVIDED_NODE_IP,
    NODE_ADDRESS_EXTERNAL_IP,
    NODE_ADDRESS_HOSTNAME,
    NODE_ADDRESS_INTERNAL_IP,
    NODE_ADDRESS_TYPES,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_address import V1NodeAddress

__all__ = [
    "ALL_ADDRESSES",
    "AddressChoice",
    "InvalidNodeIP",
    "NodeIPError",
    "NodeIPMismatch",
    "add_to_node_addresses",
    "address_problems",
    "describe_addresses",
    "parse_provided_node_ip",
    "preferred_addresses",
    "provided_node_ip",
    "same_addresses",
]

_IP_TYPES = frozenset({NODE_ADDRESS_INTERNAL_IP, NODE_ADDRESS_EXTERNAL_IP})


class NodeIPError(ValueError):
    """The node IP that the kubelet asks for cannot be honoured. `provided` is the annotation's
    value."""

    def __init__(self, message: str, provided: str) -> None:
        super().__init__(message)
        self.provided = provided


class InvalidNodeIP(NodeIPError):
    """The annotation holds neither one IP address nor one of each family."""


class NodeIPMismatch(NodeIPError):
    """The provider does not know a provided IP. `offered` are its addresses; the message shows both
    lists."""

    def __init__(self, message: str, provided: str, offered: Sequence[V1NodeAddress]) -> None:
        super().__init__(message, provided)
        self.offered = tuple(offered)


@fields.documented
@frozen
class AddressChoice:
    """The operator's word on which of the cloud's IP addresses nodes get: the flags
    `--node-address-families` and `--node-address-exclude`. Names (Hostname, DNS) are never left
    out. Without both, everything stays as it is."""

    families: tuple[str, ...] = ()
    """ "ipv4", "ipv6" or both, the preferred one first. Empty: both, as the cloud orders them."""
    exclude: tuple[IPNetwork, ...] = ()
    """Addresses in these ranges are left out."""

    def of(self, addresses: Iterable[V1NodeAddress]) -> tuple[V1NodeAddress, ...]:
        """Those that are chosen. The places that a type has in the list go to its addresses of the
        preferred family first, each family in the order given. Twice changes nothing more."""
        chosen = tuple(address for address in addresses if self.takes(address))
        # One family has no order, and without any the cloud's own counts.
        if len(self.families) < 2:
            return chosen
        # Types keep their places: who takes the list's first address must not get an ExternalIP.
        by_type = {kind: [one for one in chosen if one.type == kind] for kind in _IP_TYPES}
        preferred = {kind: iter(sorted(found, key=self._rank)) for kind, found in by_type.items()}
        return tuple(next(preferred[one.type]) if one.type in preferred else one for one in chosen)

    def takes(self, address: V1NodeAddress) -> bool:
        """Whether it is not left out."""
        ip = parse_ip(address.address) if address.type in _IP_TYPES else None
        # A name; or no IP although it is said to be one, which the host refuses and explains.
        if ip is None:
            return True
        wanted = not self.families or f"ipv{ip.version}" in self.families
        return wanted and not any(ip in net for net in self.exclude)

    def __str__(self) -> str:
        """The flags, for people."""
        families = f"--node-address-families={','.join(self.families)}" if self.families else ""
        exclude = f"--node-address-exclude={','.join(map(str, self.exclude))}" if self.exclude else ""
        return " and ".join(filter(None, (families, exclude)))

    def _rank(self, address: V1NodeAddress) -> int:
        ip = parse_ip(address.address)
        return self.families.index(f"ipv{ip.version}") if ip is not None else len(self.families)


ALL_ADDRESSES: Final = AddressChoice()
"""Nothing is left out."""


def provided_node_ip(node: V1Node) -> str | None:
    """The value of a node's provided-node-ip annotation, None when it carries none."""
    return annotations_of(node).get(ANNOTATION_PROVIDED_NODE_IP)


def parse_provided_node_ip(value: str) -> tuple[IPAddress, ...]:
    """The one or two addresses in the annotation, in the order given; two are one of each family.

    Raises `InvalidNodeIP`: something is not an IP address, there are more than two or two of a
    family, or a pair has the unspecified address (0.0.0.0 or ::).
    """
    ips: list[IPAddress] = []
    for text in value.split(","):
        ip = parse_ip(text)
        if ip is None:
            raise InvalidNodeIP(f"the annotation {ANNOTATION_PROVIDED_NODE_IP}={value!r}: {text!r} is no IP", value)
        ips.append(ip)
    if len(ips) > 2 or (len(ips) == 2 and ips[0].version == ips[1].version):
        raise InvalidNodeIP(
            f"the annotation {ANNOTATION_PROVIDED_NODE_IP}={value!r} must hold one IP, or one IPv4 and one IPv6", value
        )
    # Alone they mean "any address of this family"; kubelets take no pair with them either.
    if len(ips) == 2 and any(ip.is_unspecified for ip in ips):
        raise InvalidNodeIP(
            f"the annotation {ANNOTATION_PROVIDED_NODE_IP}={value!r}: a pair may not include 0.0.0.0 or ::", value
        )
    return tuple(ips)


def _identity(address: V1NodeAddress) -> tuple[str, str | IPAddress]:
    """Two addresses of one identity are duplicates: same type, and same IP however it is
    spelled."""
    return address.type, parse_ip(address.address) or address.address


def _pair(address: V1NodeAddress) -> tuple[str, str]:
    return address.type, address.address


def add_to_node_addresses(
    addresses: Iterable[V1NodeAddress], more: Iterable[V1NodeAddress] = ()
) -> tuple[V1NodeAddress, ...]:
    """Both lists one after the other, without duplicates; the first of each stays."""
    both = (*addresses, *more)
    if len({address.type for address in both}) == len(both):
        return both  # no IP needs to be read
    unique: dict[tuple[str, str | IPAddress], V1NodeAddress] = {}
    for address in both:
        unique.setdefault(_identity(address), address)
    return tuple(unique.values())


def preferred_addresses(
    offered: Iterable[V1NodeAddress],
    *,
    provided_node_ip: str | None = None,
    current: Sequence[V1NodeAddress] = (),
    keep_order: bool = True,
) -> tuple[V1NodeAddress, ...]:
    """The addresses that the node should carry.

    `offered` is what the provider answered; `provided_node_ip` the annotation's value, None without
    one (an empty value is invalid); `current` is the node's `status.addresses`. In turn:

    1. Duplicates go.
    2. Where the provider offers no Hostname, those that the node carries are kept, at the end.
    3. With provided IPs, the addresses that match the first of them come first, then those that
       match the second. Other addresses of the types that matched are left out; the rest follows.
    4. Where the node carries these very addresses already, they keep their current order within the
       groups of 3, so that a cloud that shuffles its answers causes no write. Otherwise, and with
       `keep_order` False, the provider's order counts.

    Applying it to its own result changes nothing. When the provider offers nothing and no IP is
    asked for, the result is empty: leave the node's addresses alone. Raises `InvalidNodeIP`, and
    `NodeIPMismatch` when a provided IP is not among those offered.
    """
    addresses = known = add_to_node_addresses(offered)
    # kube-apiserver asks the kubelet by its Hostname first: without one kubectl logs could fail.
    if addresses and not any(address.type == NODE_ADDRESS_HOSTNAME for address in addresses):
        kept = (address for address in current if address.type == NODE_ADDRESS_HOSTNAME)
        addresses = add_to_node_addresses(addresses, kept)
    groups: list[Sequence[V1NodeAddress]]
    groups = [addresses] if provided_node_ip is None else _match(addresses, known, provided_node_ip)

    # Clouds answer their lists in any order, and each other order would be a write of every node.
    order = {_pair(address): index for index, address in enumerate(current)}
    if keep_order and {_pair(address) for group in groups for address in group} == order.keys():
        groups = [sorted(group, key=lambda address: order[_pair(address)]) for group in groups]
    return tuple(address for group in groups for address in group)


def _match(
    addresses: Sequence[V1NodeAddress], known: Sequence[V1NodeAddress], provided: str
) -> list[Sequence[V1NodeAddress]]:
    """A group of addresses for each provided IP, and one of the rest. `known`: those of the
    cloud."""
    groups: list[Sequence[V1NodeAddress]] = []
    for ip in parse_provided_node_ip(provided):
        group = [address for address in addresses if parse_ip(address.address) == ip]
        # A Hostname that the kubelet wrote may look like the IP, and proves nothing.
        if not any(address in known for address in group):
            raise NodeIPMismatch(
                f"the cloud does not know the node IP {ip}: the kubelet provided {provided}, the cloud offers "
                f"{describe_addresses(known) or 'no addresses'}",
                provided,
                known,
            )
        groups.append(group)
    # With --node-ip the user has said which address of this type counts: no other one is shown.
    taken = {address.type for group in groups for address in group}
    groups.append([address for address in addresses if address.type not in taken])
    return groups


def same_addresses(
    left: Sequence[V1NodeAddress] | None,
    right: Sequence[V1NodeAddress] | None,
    provided_node_ip: str | None = None,
    *,
    ordered: bool = True,
) -> bool:
    """Whether both lists hold the same types and addresses in the same order; None is the empty
    list.

    With `ordered` False only the places of provided IPs count, and the order among the others does
    not. Raises `InvalidNodeIP` when it has to read a bad annotation.
    """
    one, other = [_pair(address) for address in left or ()], [_pair(address) for address in right or ()]
    if ordered or one == other:
        return one == other
    ips = parse_provided_node_ip(provided_node_ip) if provided_node_ip is not None else ()
    places = [[ips.index(ip) if (ip := parse_ip(text)) in ips else -1 for _, text in pairs] for pairs in (one, other)]
    return sorted(one) == sorted(other) and places[0] == places[1]


def describe_addresses(addresses: Iterable[V1NodeAddress]) -> str:
    """The addresses in one line for a person: "InternalIP 10.0.0.1, Hostname web-1"."""
    return ", ".join(f"{address.type} {address.address}" for address in addresses)


def address_problems(address: V1NodeAddress) -> tuple[str, ...]:
    """What is wrong with an address that a provider returned; empty when it may be written to a
    node."""
    kind, value = address.type, address.address
    problems = []
    if kind not in NODE_ADDRESS_TYPES:
        problems.append(f"unknown address type {kind!r} (known: {', '.join(sorted(NODE_ADDRESS_TYPES))})")
    if not value or value != value.strip():
        problems.append(f"{kind} {value!r} is empty or has blanks around it")
    elif kind in _IP_TYPES and parse_ip(value) is None:
        problems.append(f"{kind} {value!r} is no IP address")
    return tuple(problems)
