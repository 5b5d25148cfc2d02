"""Stage 4: DECIDE. A node, what the cloud has at a destination CIDR, and what we may touch in; one
step out. Pure: no I/O, no clock.

The node whose pod CIDR the destination is should have the one route to it.

A node's pod CIDR is no proof: a kubelet can register its Node with any. So a route is created only
wholly inside a cluster CIDR, with the prefix length that the flags say, if they say one, and never
where another node with this pod CIDR, or with one that overlaps, has its own. A route is deleted
only in the same bounds, if it is a blackhole or leads to what could be a node, and the provider
does not call it another's. So supernets, VPNs and rules without a target stay. Where the flags say
no size, a destination counts that was seen to be a node's, whatever leads there (`Scope.own`).
That its target is no node of this cluster, or one without that pod CIDR, is proved elsewhere, by a
quorum read. Names of routes prove nothing: clouds cut and rewrite them.
"""

from __future__ import annotations

import enum
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from attrs import Factory, field, frozen

from cloudprovider.helpers.objects import pod_cidrs_of
from cloudprovider.ips import IPAddress, IPNetwork, is_inside, parse_ip, parse_network

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
    target: str = field(default=Factory(lambda self: self.route.target_node, takes_self=True))
    """The node that it leads to, as `Targets.name_of` has it."""

    @property
    def identity(self) -> tuple[str, str, bool]:
        """Which of the routes to its destination it is. The name of a machine may change."""
        return self.route.name, self.route.target_provider_id or self.route.target_node, self.route.blackhole


@frozen
class Held:
    """The node that had the last route to a pod CIDR of its own, and what we know of the route."""

    name: str
    made_for: frozenset[IPAddress] = frozenset()
    """`next_hops` of the node when the route was made, or first seen."""
    remade_for: str = ""
    """What was wrong with it when it was last deleted to be made again, as `why_outdated` says."""


@frozen
class Scope:
    """What is ours, for the rules of creation and deletion."""

    cluster_cidrs: tuple[IPNetwork, ...]
    mask_sizes: Mapping[int, int]
    """Prefix length by IP version of the pod CIDRs that get routes: what the flags say. Of any,
    where they say nothing, as kube-controller-manager or the cloud may have given them any size."""
    usual_sizes: Mapping[int, int]
    """The same for routes deleted by their size alone: 24 and 64 where the flags say nothing."""
    known: Container[str]
    """The names of nodes seen by this process."""
    own: Container[IPNetwork] = ()
    """Destinations of other sizes that are nodes' all the same: a node has or had them as pod CIDR
    while this process ran, and not only its kubelet says so. See `planning.py`."""
    contested: Container[tuple[IPNetwork, str]] = ()
    """Destinations and targets of routes that we deleted recently: one that is back has another
    maker, or the provider names our node in another way. Either way it stays, for deleting it again
    would be a fight."""

    def inside(self, net: IPNetwork) -> bool:
        """Whether all of it lies in one of the cluster CIDRs."""
        return is_inside(net, self.cluster_cidrs)

    def has_pod_cidr_size(self, net: IPNetwork) -> bool:
        """Whether it could be a node's pod CIDR: inside, and of that size; where the flags say
        none, of any but a whole cluster CIDR, unless that has room for one node only."""
        size = self.mask_sizes.get(net.version)
        if size is not None:
            fits = net.prefixlen == size
        else:
            fits = net not in self.cluster_cidrs or net.prefixlen == self.usual_sizes.get(net.version)
        return fits and self.inside(net)

    def objection(self, net: IPNetwork, name: str) -> str:
        """Why a node may not have a route to this pod CIDR of its own; "" if it may."""
        if not self.inside(net):
            ranges = ",".join(map(str, self.cluster_cidrs))
            return (
                f"{net} is outside --cluster-cidr={ranges}. Fix: if it belongs to this cluster's pods, add its range "
                "to --cluster-cidr; if not, see who wrote it (kubectl get node "
                f"{name} --show-managed-fields -o yaml) and delete the Node, so that it registers anew"
            )
        if not self.has_pod_cidr_size(net):
            size = self.mask_sizes.get(net.version)
            wrong = (
                f"is not of the size /{size} that the flags say"
                if size is not None
                else "is a whole range of --cluster-cidr"
            )
            return (
                f"{net} {wrong}. Fix: if nodes have pod CIDRs of this size, give "
                f"--node-cidr-mask-size-ipv{net.version}={net.prefixlen}; if not, delete the Node, so that it "
                "registers anew"
            )
        return ""

    def removable(self, net: IPNetwork, entry: Entry) -> bool:
        """Whether we may delete it, should nothing need it."""
        return not self.why_kept(net, entry)

    def why_kept(self, net: IPNetwork, entry: Entry) -> str:
        """Why we may not delete it, for people; "" if we may."""
        route = entry.route
        if route.owned is False:
            return "another program made it, the provider says"
        if not self.inside(net):
            return "outside --cluster-cidr"
        if (net, entry.target) in self.contested:
            return "it came back after it was deleted"
        if not (route.blackhole or could_be_node(entry)):
            return "what it leads to cannot be a node"
        if net in self.own or net.prefixlen == self.usual_sizes.get(net.version):
            return ""
        # Where the size says nothing, only the provider's word shows that it was made for a node.
        if route.owned is True and self.has_pod_cidr_size(net):
            return ""
        usual = self.usual_sizes.get(net.version)
        of_nodes = f"the size of nodes' ranges, /{usual}" if usual else "a size that is known to be nodes'"
        given = net.version in self.mask_sizes
        return f"not of {of_nodes}{'' if given else f' (--node-cidr-mask-size-ipv{net.version} is not given)'}"

    def proven(self, entry: Entry) -> bool:
        """Whether more than its destination says that it was made for this cluster."""
        return entry.route.owned is True or entry.route.blackhole or entry.target in self.known


@frozen
class Step:
    """What is to be done at one destination, deletions first. False when nothing is."""

    destination: IPNetwork
    cidr: str = ""
    """The destination as the node has it in its spec; "" when the node has no claim to it."""
    delete: tuple[Entry, ...] = ()
    create: bool = False
    rival: str = ""
    """Another node with the same or an overlapping pod CIDR, which had its route first."""
    refused: str = ""
    """Why no route is made, for people."""
    outdated: str = ""
    """What is wrong with the node's own route, for people: it is made again, or where neither
    `delete` nor `create` says so, kept."""

    def __bool__(self) -> bool:
        return bool(self.delete or self.create or self.rival or self.refused or self.outdated)


def step(
    net: IPNetwork,
    cidr: str,
    name: str,
    node: V1Node | None,
    entries: Sequence[Entry],
    scope: Scope,
    *,
    claimed_by: Callable[[str], bool],
    held: Held | None = None,
    overlapping: Callable[[], Iterable[str]] = tuple,
    sharing: Iterable[str] = (),
    kept_for_now: str = "",
    long_since: float = math.inf,
) -> Step:
    """What is to be done for the node `name` at `net`, which is its pod CIDR `cidr`, or not: "".

    `claimed_by(other)`: whether that node, as it is cached, has `net` as pod CIDR.
    `held`: about the node that had the last route to `net`, while it had it as pod CIDR.
    `overlapping()`: the nodes with routes to pod CIDRs of theirs that overlap with `net`.
    `sharing`: the nodes with the provider ID of this one, which a kubelet writes: what leads to the
    machine may be any of theirs.
    `kept_for_now`: why a blackhole is not replaced now; "" if it may be. `long_since`: a route that
    no node claims and whose destination alone says that it is ours goes only if it has been listed
    since then at least. A node that has the range as pod CIDR need not wait: the allocation says
    whose it is."""
    blackholes = [entry for entry in entries if entry.route.blackhole and scope.removable(net, entry)]
    alive = [entry for entry in entries if not entry.route.blackhole]
    mine = [entry for entry in alive if name and entry.target == name]
    if not cidr or node is None:
        unwanted = [entry for entry in mine if is_leftover(net, entry, scope, long_since)]
        return Step(net, delete=(*blackholes, *unwanted))
    holder = held.name if held is not None else ""
    # Of another size than the flags say: what was made earlier, before the size was changed, is
    # kept in order.
    objection = "" if name == holder and scope.inside(net) else scope.objection(net, name)
    own = held if name == holder else None
    former: list[Entry] = []
    why = told = ""
    for entry in mine:
        if objection or entry.route.owned is False:
            continue
        wrong = why_outdated(entry, net, node, own)
        if entry.state is State.DOUBTFUL or (wrong and (own is None or wrong != own.remade_for)):
            former.append(entry)
            why = why or wrong
        else:  # not twice in a row for one reason: the cloud would go on listing it so
            told = told or wrong
    # One route of its own is right: of what else leads there only blackholes go.
    if len(mine) > len(former):
        return Step(net, cidr, tuple(blackholes), outdated=told)
    if objection:
        return Step(net, cidr, refused=objection)
    others = [entry for entry in alive if entry.target not in ("", name)]
    # A kubelet can write another node's pod CIDR: who had the route first keeps it.
    rivals = filter(claimed_by, (*(entry.target for entry in others), holder, *(sharing if former else ())))
    rival = next((other for other in (*rivals, *overlapping()) if other not in ("", name)), "")
    if rival:
        return Step(net, cidr, rival=rival)
    if blackholes and kept_for_now:
        return Step(net, cidr, refused=kept_for_now)
    stale = [entry for entry in others if scope.removable(net, entry)]
    return Step(net, cidr, (*blackholes, *former, *stale), create=True, outdated=why)


def is_leftover(net: IPNetwork, entry: Entry, scope: Scope, long_since: float) -> bool:
    """Whether a route may go that no node has as pod CIDR."""
    return scope.removable(net, entry) and (scope.proven(entry) or entry.since <= long_since)


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
    """Where a route leads, None for text that is no IP range: another's may have one."""
    try:
        return network(route.destination_cidr)
    except ValueError:
        return None


def network(text: str) -> IPNetwork:
    """As `parse_network`, remembered as long as somebody holds it, as the table does for each
    route: a sweep asks for thousands, always the same."""
    found = _NETWORKS.get(text)
    if found is None:
        found = _NETWORKS[text] = parse_network(text)
    return found


_NETWORKS: Final[WeakValueDictionary[str, IPNetwork]] = WeakValueDictionary()


def common_sizes(claims: Iterable[Iterable[IPNetwork]]) -> dict[int, int]:
    """Prefix length by IP version that more than half of the nodes' pod CIDRs have, as given; -1
    where none is that common."""
    counts = Counter((net.version, net.prefixlen) for nets in claims for net in nets)
    of_version: Counter[int] = Counter()
    for (version, _), count in counts.items():
        of_version[version] += count
    found = dict.fromkeys(of_version, -1)
    found.update((version, size) for (version, size), count in counts.items() if 2 * count > of_version[version])
    return found


def could_be_node(entry: Entry) -> bool:
    """Whether it leads to what a Node could be called, or to a machine."""
    return bool(entry.route.target_provider_id) or _NODE_NAME.fullmatch(entry.target) is not None


def node_addresses(node: V1Node) -> tuple[V1NodeAddress, ...]:
    """The addresses in a node's status."""
    return tuple((node.status.addresses if node.status else None) or ())


def why_outdated(entry: Entry, net: IPNetwork, node: V1Node, held: Held | None) -> str:
    """Why a node's own route leads elsewhere than to the node, for people; "" as far as is known.

    What is compared are IP addresses alone. A cloud's route has one next hop, so the node has
    others, too; and of a node that has none at all nothing is known."""
    current = _ips(node_addresses(node))
    listed = entry.route.target_node_addresses if entry.route.enable_node_addresses else ()
    leads = _ips(listed) if entry.state is not State.CREATED else frozenset()
    wrong = (leads or (held.made_for if held is not None else frozenset())) - current
    if not (current and wrong):
        return ""
    return f"it leads to {_joined(wrong)}, and the node's addresses are {_joined(current)}"


def next_hops(net: IPNetwork, node: V1Node) -> frozenset[IPAddress]:
    """The address of a node that its route to this pod CIDR leads to, as far as is known, where the
    cloud does not list it: the first one. Another one that goes (a virtual IP that moves to another
    machine) must not cost a live route."""
    internal = (parse_ip(str(one.address)) for one in node_addresses(node) if one.type == "InternalIP")
    return frozenset([ip for ip in internal if ip is not None and ip.version == net.version][:1])


def _ips(addresses: Iterable[V1NodeAddress]) -> frozenset[IPAddress]:
    """Names of hosts are left out: a route has none, and a node's own name may be one."""
    found = (parse_ip(str(address.address)) for address in addresses if str(address.type).endswith("IP"))
    return frozenset(ip for ip in found if ip is not None)


def _joined(addresses: Iterable[IPAddress]) -> str:
    return ", ".join(sorted(map(str, addresses)))
