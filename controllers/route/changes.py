"""Pure: a node, what the cloud has at a destination, and what we may touch in; one step out (stage 4).

No I/O, no clock. A destination is a network; the node whose pod CIDR it is should have the one route to it. Whether a
route may be deleted is decided here: it must lie wholly inside a cluster CIDR, have the prefix length of the nodes' pod
CIDRs, be a blackhole or lead to what could be a node, and the provider must not call it another's. So supernets, VPNs
and rules without a target stay, whoever lists them. That its target is no node of this cluster, or one without that
pod CIDR, is proved elsewhere, by a quorum read. Names of routes prove nothing: clouds cut and rewrite them.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from cloudprovider.helpers.ips import IPNetwork, parse_network
from cloudprovider.helpers.objects import pod_cidrs_of
from controllers.options import DEFAULT_MASK_SIZES

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_address import V1NodeAddress

    from cloudprovider import Route

_NODE_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class State(enum.Enum):
    """Where the knowledge of a route comes from."""

    LISTED = "listed"
    CREATED = "created"
    """We made it, and no listing has shown it since: its name in the cloud is not known."""
    DOUBTFUL = "doubtful"
    """Its deletion was tried and failed: it may be there or not."""


@frozen
class Entry:
    """One route as far as we know."""

    route: Route
    state: State = State.LISTED
    since: float = field(default=-math.inf, eq=False)
    """When the first of the listings began that have shown it without a break."""


@frozen
class Scope:
    """What is ours, for the rules of deletion."""

    cluster_cidrs: tuple[IPNetwork, ...]
    mask_sizes: Mapping[int, Set[int]]
    """Prefix lengths of nodes' pod CIDRs by IP version: those of the flags, and those seen on nodes."""
    known: Container[str]
    """The names of nodes seen by this process."""
    contested: Container[tuple[IPNetwork, str]] = ()
    """Destinations and targets of routes that we deleted of late: one that is back has another maker, or the provider
    names our node in another way. Either way it stays, for deleting it again would be a fight."""

    def inside(self, net: IPNetwork) -> bool:
        """Whether all of it lies in one of the cluster CIDRs."""
        return any(_within(net, cluster) for cluster in self.cluster_cidrs)

    def shaped(self, net: IPNetwork) -> bool:
        """Whether it could be a node's pod CIDR: inside, and of that size."""
        sizes = self.mask_sizes.get(net.version) or (DEFAULT_MASK_SIZES[net.version],)
        return net.prefixlen in sizes and self.inside(net)

    def removable(self, net: IPNetwork, route: Route) -> bool:
        """Whether we may delete it, should nothing need it. A target that cannot be a node's name was never a node."""
        if route.owned is False or not self.shaped(net) or (net, route.target_node) in self.contested:
            return False
        return route.blackhole or _NODE_NAME.fullmatch(route.target_node) is not None

    def proven(self, route: Route) -> bool:
        """Whether more than its place says that it was made for this cluster."""
        return route.owned is True or route.blackhole or route.target_node in self.known


@frozen
class Step:
    """What is to be done at one destination, deletions first. False when nothing is."""

    destination: IPNetwork
    cidr: str = ""
    """The destination as the node has it in its spec; "" when the node has no claim to it."""
    delete: tuple[Entry, ...] = ()
    create: bool = False
    rival: str = ""
    """Another node with the same pod CIDR, to which the route leads."""

    def __bool__(self) -> bool:
        return bool(self.delete or self.create or self.rival)


def step(
    net: IPNetwork,
    cidr: str,
    name: str,
    node: V1Node | None,
    entries: Sequence[Entry],
    scope: Scope,
    *,
    addresses_count: bool,
    claimed_by: Callable[[str], bool],
    long_since: float = math.inf,
) -> Step:
    """What is to be done for the node `name` at `net`, which is its pod CIDR `cidr`, or "" when it is not.

    `addresses_count`: whether a change of addresses since our own creation matters (as far as is known).
    `claimed_by(other)`: whether that node, as it is cached, has `net` as pod CIDR.
    `long_since`: a route that nobody claims and whose place alone says that it is ours goes only if it has been listed
    since then at least. A node that has the range as pod CIDR need not wait: the allocation says whose it is.
    """
    blackholes = [entry for entry in entries if entry.route.blackhole and scope.removable(net, entry.route)]
    alive = [entry for entry in entries if not entry.route.blackhole]
    mine = [entry for entry in alive if name and entry.route.target_node == name]
    if not cidr or node is None:
        unwanted = [entry for entry in mine if is_leftover(net, entry, scope, long_since)]
        return Step(net, delete=(*blackholes, *unwanted))
    current = node_addresses(node)
    may_replace = scope.shaped(net)
    outdated = [
        entry
        for entry in mine
        if may_replace and entry.route.owned is not False and _is_outdated(entry, current, addresses_count)
    ]
    if len(mine) > len(outdated):
        return Step(net, cidr, tuple(blackholes))
    others = [entry for entry in alive if entry.route.target_node not in ("", name)]
    for entry in others:
        if claimed_by(entry.route.target_node):
            return Step(net, cidr, rival=entry.route.target_node)
    stale = [entry for entry in others if scope.removable(net, entry.route)]
    return Step(net, cidr, (*blackholes, *outdated, *stale), create=True)


def is_leftover(net: IPNetwork, entry: Entry, scope: Scope, long_since: float) -> bool:
    """Whether a route may go that no node has as pod CIDR."""
    return scope.removable(net, entry.route) and (scope.proven(entry.route) or entry.since <= long_since)


def pod_cidrs(node: V1Node) -> dict[IPNetwork, str]:
    """A node's pod CIDRs by network. Raises ValueError for one that is no IP range."""
    return {network(cidr): cidr for cidr in pod_cidrs_of(node)}


def valid_pod_cidrs(node: V1Node) -> dict[IPNetwork, str]:
    """As `pod_cidrs`, {} where that fails: the node's own key says so."""
    try:
        return pod_cidrs(node)
    except ValueError:
        return {}


def destination(route: Route) -> IPNetwork | None:
    """Where a route leads, None for text that is no IP range: such a rule is none of ours."""
    try:
        return network(route.destination_cidr)
    except ValueError:
        return None


@lru_cache(maxsize=32768)
def network(text: str) -> IPNetwork:
    """As `parse_network`, remembered: a sweep asks for thousands, always the same."""
    return parse_network(text)


def node_addresses(node: V1Node) -> tuple[V1NodeAddress, ...]:
    """The addresses in a node's status."""
    return tuple((node.status.addresses if node.status else None) or ())


def same_addresses(one: Iterable[V1NodeAddress], other: Iterable[V1NodeAddress]) -> bool:
    """Whether both hold the same addresses, in whatever order."""
    return _comparable(one) == _comparable(other)


def _is_outdated(entry: Entry, current: Sequence[V1NodeAddress], addresses_count: bool) -> bool:
    if entry.state is State.DOUBTFUL:
        return True
    relevant = addresses_count if entry.state is State.CREATED else entry.route.enable_node_addresses
    return relevant and not same_addresses(entry.route.target_node_addresses, current)


def _comparable(addresses: Iterable[V1NodeAddress]) -> list[tuple[str, str]]:
    return sorted((str(address.type), str(address.address)) for address in addresses)


def _within(net: IPNetwork, cluster: IPNetwork) -> bool:
    return (
        net.version == cluster.version
        and net.prefixlen >= cluster.prefixlen
        and int(net.network_address) >> (net.max_prefixlen - cluster.prefixlen)
        == int(cluster.network_address) >> (net.max_prefixlen - cluster.prefixlen)
    )
