"""Pure: a node, what the cloud has at a destination, and what we may touch in; one step or patch out (stages 4 and 6).

No I/O, no clock. A destination is a network; the node whose pod CIDR it is should have the one route to it. Whether a
route may be deleted is decided here, and by more than its place: it must lie wholly inside a cluster CIDR, have the
prefix length of the nodes' pod CIDRs, and lead to a node that is or was ours (or be named after our cluster), or be a
blackhole. So supernets, VPNs and rules without a target stay, whoever lists them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.helpers.ips import IPNetwork, parse_network
from controllers.runtime.patch import Patch, condition_set

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_address import V1NodeAddress

    from cloudprovider import Route

CONDITION: Final = "NetworkUnavailable"
CREATED: Final = ("False", "RouteCreated")
MISSING: Final = ("True", "NoRouteCreated")
"""Status and reason of the condition; they must never change."""
_MESSAGES: Final = {CREATED: "RouteController created a route", MISSING: "RouteController failed to create a route"}


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


@frozen
class Scope:
    """What is ours, for the rules of deletion. `known` has the names and UIDs of nodes seen by this process."""

    cluster_name: str
    cluster_cidrs: tuple[IPNetwork, ...]
    shapes: Set[tuple[int, int]]
    """(IP version, prefix length) of nodes' pod CIDRs inside the cluster CIDRs."""
    known: Mapping[str, str]

    def inside(self, net: IPNetwork) -> bool:
        """Whether all of it lies in one of the cluster CIDRs."""
        return any(_within(net, cluster) for cluster in self.cluster_cidrs)

    def shaped(self, net: IPNetwork) -> bool:
        """Whether it could be a node's pod CIDR: inside, and of that size."""
        return (net.version, net.prefixlen) in self.shapes and self.inside(net)

    def owned(self, route: Route) -> bool:
        """Whether it was made for this cluster: to a node that is or was ours, or named after the cluster or a node."""
        if not route.target_node:
            return False
        if route.target_node in self.known:
            return True
        rest = route.name.removeprefix(self.cluster_name)
        if rest != route.name and not rest[:1].isalnum():
            return True
        return any(uid and uid in route.name for uid in tuple(self.known.values()))

    def removable(self, net: IPNetwork, route: Route) -> bool:
        """Whether we may delete it, should nothing need it."""
        return self.shaped(net) and (route.blackhole or self.owned(route))


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
) -> Step:
    """What is to be done for the node `name` at `net`, which is its pod CIDR `cidr`, or "" when it is not.

    `addresses_count`: whether a change of addresses since our own creation matters (as far as is known).
    `claimed_by(other)`: whether that node, as it is cached, has `net` as pod CIDR.
    """
    blackholes = [entry for entry in entries if entry.route.blackhole and scope.removable(net, entry.route)]
    alive = [entry for entry in entries if not entry.route.blackhole]
    mine = [entry for entry in alive if name and entry.route.target_node == name]
    if not cidr or node is None:
        return Step(net, delete=(*blackholes, *(e for e in mine if scope.removable(net, e.route))))
    current = node_addresses(node)
    may_replace = scope.shaped(net)
    outdated = [entry for entry in mine if may_replace and _is_outdated(entry, current, addresses_count)]
    if len(mine) > len(outdated):
        return Step(net, cidr, tuple(blackholes))
    others = [entry for entry in alive if entry.route.target_node not in ("", name)]
    for entry in others:
        if claimed_by(entry.route.target_node):
            return Step(net, cidr, rival=entry.route.target_node)
    stale = [entry for entry in others if scope.removable(net, entry.route)]
    return Step(net, cidr, (*blackholes, *outdated, *stale), create=True)


def parse_cluster_cidrs(text: str) -> tuple[IPNetwork, ...]:
    """One range, or two of different IP families with a comma; () for "". Raises ValueError.

    Follows: processCIDRs and startRouteController in k8s.io/cloud-provider's app/core.go.
    """
    nets = tuple(parse_network(part.strip()) for part in text.split(",")) if text.strip() else ()
    check_cluster_cidrs(nets)
    return nets


def check_cluster_cidrs(nets: Sequence[IPNetwork]) -> None:
    """Raise ValueError unless these are at most one range of each IP family."""
    if len(nets) > 2 or len({net.version for net in nets}) < len(nets):
        raise ValueError("must be one IP range, or two of different families: 10.244.0.0/16,fd00:10:244::/56")


def pod_cidrs(node: V1Node) -> dict[IPNetwork, str]:
    """A node's pod CIDRs by network. Raises ValueError for one that is no IP range."""
    spec = node.spec
    if spec is None:
        return {}
    return {network(cidr): cidr for cidr in spec.pod_cidrs or ([spec.pod_cidr] if spec.pod_cidr else [])}


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


def network_condition(node: V1Node, created: bool, now: str) -> Patch:
    """Say by the condition whether the node's routes are there; nothing when it says so already.

    `now` is RFC 3339. Only status and reason are compared, so times alone are never written.
    """
    wanted = CREATED if created else MISSING
    if condition_of(node) == wanted:
        return Patch()
    condition = {
        "type": CONDITION, "status": wanted[0], "reason": wanted[1], "message": _MESSAGES[wanted],
        "lastHeartbeatTime": now,
    }  # fmt: skip
    return condition_set(node.status.conditions if node.status else None, condition, now=now)


def condition_of(node: V1Node) -> tuple[str, str] | None:
    """Status and reason of the node's NetworkUnavailable condition."""
    conditions = (node.status.conditions if node.status else None) or ()
    found = next((condition for condition in conditions if condition.type == CONDITION), None)
    return None if found is None else (found.status, found.reason or "")


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
