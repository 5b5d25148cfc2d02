"""Stage 4: DECIDE. What is to be done at a destination, and which keys a fresh listing brings up.

From the cached nodes, the table of routes and what this process remembers of its own deletions, to
`reconcile.py` and `listing.py`. The rules are those of `changes.py`. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from attrs import frozen

from cloudprovider.helpers.taints import get_node_condition
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from controllers.route import changes
from controllers.route.changes import Entry, Scope, Step, valid_pod_cidrs
from controllers.route.condition import CREATED, status_of
from controllers.route.table import Holders, RouteTable
from controllers.route.triggers import BLACKHOLE, NODE
from controllers.runtime.cache import Lister, key_of, uid_of
from controllers.runtime.queue import seconds_text

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.helpers.ips import IPNetwork
    from controllers.route.options import RouteOptions
    from controllers.runtime.clock import Clock

_CONTESTED_FOR: Final = 86400.0  # seconds for which a route that was deleted and is back stays
_REVIVING: Final = Backoff(base=600.0, cap=3600.0)
"""When a blackhole that was replaced, and is one again, is replaced again."""


@frozen
class _Revival:
    """When we last replaced a node's blackhole, and for how long it then stays."""

    uid: str
    ready_since: str
    attempts: Attempts

    def is_over(self, node: V1Node, now: float) -> bool:
        """Whether the blackhole may be replaced again: in time, or for another node."""
        back = uid_of(node) != self.uid or _ready_since(node) not in ("", self.ready_since)
        return back or not self.attempts.left(now)


@frozen
class Comparison:
    """All nodes and all listed routes, side by side."""

    keys: Mapping[str, int]
    """The keys of what needs something, with their priorities."""
    left_alone: tuple[str, ...]
    """For people: routes that lead to no node, or that we would not make for theirs, and stay."""
    waits: bool = False
    """Whether some of them go if a later comparison still finds them."""


def compare(
    nodes: Mapping[str, V1Node],
    routes: Iterable[tuple[IPNetwork, Entry]],
    scope: Scope,
    long_since: float,
    needs_work: Callable[[str, V1Node], bool],
) -> Comparison:
    """Who needs something, and what is left alone. Pure. `long_since`: see `changes.step`."""
    claims = {name: valid_pod_cidrs(node) for name, node in nodes.items()}
    claimed = {net for nets in claims.values() for net in nets}
    keys: dict[str, int] = {}
    for name, node in nodes.items():
        if needs_work(name, node):
            keys[name] = NODE
    left_alone = []
    waits = False
    for net, entry in routes:
        target, leftover = entry.route.target_node, changes.is_leftover(net, entry, scope, long_since)
        removable = scope.removable(net, entry.route)
        if entry.route.blackhole:
            if leftover and net not in claimed:
                keys[f"{BLACKHOLE}{net}"] = 0
            waits = waits or (removable and not leftover and net not in claimed)
        elif target not in nodes:
            if leftover:
                keys.setdefault(target, 0)
            elif removable:
                waits = True
                left_alone.append(_shown(net, entry, "deleted if the next comparison still finds it"))
            elif scope.inside(net):
                left_alone.append(_shown(net, entry))
            elif entry.route.owned is not False and changes.could_be_node(target):
                left_alone.append(_shown(net, entry, "outside --cluster-cidr"))
        elif net in claims[target] and not scope.has_pod_cidr_size(net):
            why = "not of the size that the flags say" if scope.inside(net) else "outside --cluster-cidr"
            left_alone.append(_shown(net, entry, f"its node's pod CIDR, {why}"))
    return Comparison(keys, tuple(left_alone), waits)


def _shown(net: IPNetwork, entry: Entry, *more: str) -> str:
    parts = (f"{net} to {entry.route.target_node or 'no node'}", *more)
    return f"{entry.route.name or '(no name)'} ({', '.join(parts)})"


def _ready_since(node: V1Node) -> str:
    """ "" while it is not Ready."""
    ready = get_node_condition(node, "Ready")
    return str(ready.last_transition_time) if ready is not None and ready.status == "True" else ""


class Planner:
    """Applies the rules to the present cache and table, with memory. Thread-safe."""

    def __init__(self, lister: Lister[V1Node], table: RouteTable, options: RouteOptions, clock: Clock) -> None:
        self.lister = lister
        self.table = table
        self._clock = clock
        self._period = options.route_reconciliation_period
        self._known: dict[str, str] = {}  # UID by name
        self._own: set[tuple[IPNetwork, str]] = set()
        self._contested: dict[tuple[IPNetwork, str], float] = {}
        self._holders = Holders()
        self._revivals: dict[IPNetwork, _Revival] = {}
        sizes, usual = options.mask_sizes(), options.usual_sizes()
        self._scope = Scope(options.cluster_cidrs, sizes, usual, self._known, self._own, self._contested)

    def step(self, net: IPNetwork, cidr: str, name: str, node: V1Node | None) -> Step:
        """What is to be done for the node `name` at `net`; see `changes.step`."""

        return changes.step(
            net,
            cidr,
            name,
            node,
            self.table.at(net),
            self._scope,
            addresses_count=self.table.addresses_count,
            claimed_by=lambda other: self._claims(other, net),
            holder=self._holders.get(net),
            overlapping=lambda: self._overlapping(net),
            kept_for_now=self._kept_for_now(net, node),
            long_since=self._long_since(),
        )

    def _claims(self, name: str, net: IPNetwork) -> bool:
        node = self.lister.get(name)
        return node is not None and net in valid_pod_cidrs(node)

    def _overlapping(self, net: IPNetwork) -> Iterator[str]:
        """The nodes with routes to other pod CIDRs of theirs that overlap with this one."""
        return (name for other, name in self._holders.overlapping(net) if self._claims(name, other))

    def compare(self) -> Comparison:
        """Compare all cached nodes with all listed routes."""
        nodes = {key_of(node): node for node in self.lister.list()}
        for name, node in nodes.items():
            self.note_node(name, node)
        self._forget(nodes)
        routes = self.table.all()
        for net, entry in routes:
            known = entry.route.blackhole or self._holders.get(net)
            if not known and self._claims(entry.route.target_node, net):
                self._holders.put(net, entry.route.target_node)
        return compare(nodes, routes, self._scope, self._long_since(), self._needs_work)

    def _forget(self, nodes: Mapping[str, V1Node]) -> None:
        """Keep nothing about nodes that are gone and have no route."""
        gone = self._known.keys() - nodes.keys() - set(self.table.targets())
        for name in gone:
            self._known.pop(name, None)
        for pair in [pair for pair in list(self._own) if pair[1] in gone]:
            self._own.discard(pair)
        for net, name in self._holders.items():
            if not self._claims(name, net):
                self._holders.drop(net)
        for net in [net for net in list(self._revivals) if not self._holders.get(net)]:
            self._revivals.pop(net, None)

    def _needs_work(self, name: str, node: V1Node) -> bool:
        wanted = valid_pod_cidrs(node)
        if any(self.step(net, cidr, name, node) for net, cidr in wanted.items()):
            return True
        if wanted and status_of(node) != CREATED[0]:
            return True
        return any(self.step(net, "", name, node) for net in self.table.destinations_of(name) if net not in wanted)

    def _long_since(self) -> float:
        """A route that has been listed since then was seen by two comparisons, a while apart."""
        return self.table.listed_at - self._period / 2

    def note_node(self, name: str, node: V1Node) -> None:
        """Remember that there is such a node, with these pod CIDRs."""
        self._known.setdefault(name, uid_of(node))
        for net in valid_pod_cidrs(node):
            if net.prefixlen != self._scope.usual_sizes.get(net.version) and self._scope.inside(net):
                self._own.add((net, name))

    def take_recreated(self, name: str, node: V1Node) -> bool:
        """Whether another Node had this name before; logged once."""
        before, self._known[name] = self._known.get(name), uid_of(node)
        return before not in (None, uid_of(node))

    def created(self, net: IPNetwork, target: str) -> None:
        """We made this route."""
        self._contested.pop((net, target), None)
        self._holders.put(net, target)

    def revived(self, net: IPNetwork, node: V1Node) -> None:
        """We replaced a blackhole by this node's route."""
        last, now = self._revivals.get(net), self._clock.monotonic()
        before = last.attempts if last is not None and last.uid == uid_of(node) else NO_ATTEMPTS
        self._revivals[net] = _Revival(uid_of(node), _ready_since(node), _REVIVING.next(before, now))

    def _kept_for_now(self, net: IPNetwork, node: V1Node | None) -> str:
        """Why a blackhole that was replaced already is left for now; "" where it is not."""
        last, now = self._revivals.get(net), self._clock.monotonic()
        if last is None or node is None or last.is_over(node, now):
            return ""
        return (
            "it was made anew and leads nowhere again: the machine seems to be gone or stopped. It is made again when "
            f"the node becomes Ready, or after {seconds_text(last.attempts.left(now))}"
        )

    def deleted(self, net: IPNetwork, target: str) -> None:
        """We deleted this route: one that comes back, to what is no node, has another maker."""
        if target and target not in self._known:
            self._contested[net, target] = self._clock.monotonic()

    def forget_deletions(self, now: float) -> None:
        """Forget the deletions of long ago."""
        for pair in [pair for pair, deleted in list(self._contested.items()) if deleted < now - _CONTESTED_FOR]:
            self._contested.pop(pair, None)
