"""Stage 4: DECIDE. What is to be done at a destination, and which keys a fresh listing brings up.

From the cached nodes, the table of routes and what this process remembers of its own deletions, to
`reconcile.py` and `listing.py`. The rules are those of `changes.py`. No I/O.

A key of the queue `Routes` is a node's name, the provider ID of a machine that routes lead to and
no node is known to have, `LIST` (list the cloud's routes and compare them with all nodes), or a
destination where a blackhole is to go, "blackhole/<cidr>"; no node has such a name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider.helpers.objects import get_node_condition
from cloudprovider.internal.backoff import NO_ATTEMPTS, Attempts, Backoff
from controllers.route import changes
from controllers.route.changes import Entry, Held, Scope, State, Step, valid_pod_cidrs
from controllers.route.condition import CREATED, status_of
from controllers.route.table import Holders, RouteTable, Targets, is_machine
from controllers.runtime.cache import Lister, key_of, uid_of
from controllers.runtime.queue import seconds_text

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.ips import IPNetwork
    from controllers.route.registration import RouteOptions
    from controllers.runtime.clock import Clock

LIST: Final = "*"
BLACKHOLE: Final = "blackhole/"

LISTING = 20
"""Priority of the listing, for which all others wait."""
NODE = 10
"""Priority of a node, whose pods wait for a route, above that of what is to be cleared away."""

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
        # Another Node, or a machine that came back: then the new try is worth a call.
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
    advice: str = ""
    """For people: a flag that is missing."""


def compare(
    claims: Mapping[str, Collection[IPNetwork]],
    routes: Iterable[tuple[IPNetwork, Entry]],
    scope: Scope,
    long_since: float,
    needs_work: Callable[[str], bool],
) -> Comparison:
    """Who needs something, and what is left alone. Pure. `claims`: the pod CIDRs by node;
    `long_since`: see `changes.step`."""
    claimed = {net for nets in claims.values() for net in nets}
    keys = {name: NODE for name in claims if needs_work(name)}
    left_alone = []
    waits = False
    for net, entry in routes:
        route, target = entry.route, entry.target
        why = scope.why_kept(net, entry)
        if not route.blackhole and net in claims.get(target, ()):
            if not scope.has_pod_cidr_size(net):
                why = "not of the size that the flags say" if scope.inside(net) else "outside --cluster-cidr"
                left_alone.append(_shown(net, entry, f"its node's pod CIDR, {why}"))
        elif changes.is_leftover(net, entry, scope, long_since):
            if not route.blackhole:
                keys.setdefault(target, 0)
            elif net not in claimed:  # else that node's key removes it
                keys[f"{BLACKHOLE}{net}"] = 0
        elif not why:
            waits = True
            left_alone.append(_shown(net, entry, "deleted if the next comparison still finds it"))
        elif scope.inside(net) or _was_ours(entry, claims):
            left_alone.append(_shown(net, entry, why))
    return Comparison(keys, tuple(left_alone), waits)


def _was_ours(entry: Entry, nodes: Container[str]) -> bool:
    """Whether an earlier version may have made it for whatever a Node said: such lie outside."""
    route = entry.route
    if route.blackhole or route.owned is False or entry.target in nodes:
        return False
    return changes.could_be_node(entry)


def _shown(net: IPNetwork, entry: Entry, why: str) -> str:
    target = "nowhere (a blackhole)" if entry.route.blackhole else entry.target or "no node"
    return f"{entry.route.name or '(no name)'} ({net} to {target}, {why})"


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
        self._targets = Targets()
        self._own: set[IPNetwork] = set()  # until no route leads there, and no node has it
        self._common: Mapping[int, int] = {}  # of the nodes' ranges, at the last comparison
        self._contested: dict[tuple[IPNetwork, str], float] = {}
        self._lock = threading.Lock()  # a holder is changed by its node's key and by each listing
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
            self._at(net, name if cidr else ""),
            self._scope,
            claimed_by=lambda other: self._claims(other, net),
            held=self._holders.get(net),
            overlapping=lambda: self._overlapping(net),
            sharing=self._targets.sharing(name),
            kept_for_now=self._kept_for_now(net, node),
            long_since=self._long_since(),
        )

    def destinations_of(self, name: str) -> list[IPNetwork]:
        """The destinations whose routes lead to this node, or to the machine with this ID; perhaps
        some more."""
        return self.table.destinations_of(name, name if is_machine(name) else self._targets.machine_of(name))

    def _at(self, net: IPNetwork, claimant: str) -> list[Entry]:
        """The routes to this destination; `claimant` as for `Targets.name_of`."""
        return [self._aimed(net, entry, claimant) for entry in self.table.at(net)]

    def _aimed(self, net: IPNetwork, entry: Entry, claimant: str) -> Entry:
        target = self._targets.name_of(entry.route, claimant, lambda name: self._claims(name, net))
        return entry if target == entry.target else evolve(entry, target=target)

    def _claims(self, name: str, net: IPNetwork) -> bool:
        node = self.lister.get(name)
        return node is not None and net in valid_pod_cidrs(node)

    def _overlapping(self, net: IPNetwork) -> Iterator[str]:
        """The nodes with routes to other pod CIDRs of theirs that overlap with this one."""
        return (held.name for other, held in self._holders.overlapping(net) if self._claims(held.name, other))

    def compare(self) -> Comparison:
        """Compare all cached nodes with all listed routes."""
        nodes = {key_of(node): node for node in self.lister.list()}
        claims = {name: valid_pod_cidrs(node) for name, node in nodes.items()}
        self._common = changes.common_sizes(claims.values())
        for name, node in nodes.items():
            self.note_node(name, node)
        claimants = {net: name for name, nets in claims.items() for net in nets}
        routes = [(net, self._aimed(net, entry, claimants.get(net, ""))) for net, entry in self.table.all()]
        self._forget(claims, {entry.target for _, entry in routes})
        for net, entry in routes:
            if not entry.route.blackhole and net in claims.get(entry.target, ()):
                self._listed(net, entry, nodes[entry.target])
        found = compare(claims, routes, self._scope, self._long_since(), lambda name: self._needs_work(nodes[name]))
        return evolve(found, advice=self._advice())

    def _advice(self) -> str:
        usual = self._scope.usual_sizes
        common = [pair for pair in sorted(self._common.items()) if pair[1] >= 0]
        odd = [pair for pair in common if usual.get(pair[0], pair[1]) != pair[1]]
        if not odd:
            return ""
        sizes = " and ".join(f"/{size}" for _, size in odd)
        flags = " ".join(f"--node-cidr-mask-size-ipv{version}={size}" for version, size in odd)
        return (
            f"most nodes have pod CIDRs of the size {sizes}, and the flags do not say so: a route of "
            "that size to a node that is gone stays if no node had its range while this process ran "
            "(route_controller_routes_left_alone counts them). Fix: give "
            f"{flags}, as kube-controller-manager has it"
        )

    def _listed(self, net: IPNetwork, entry: Entry, node: V1Node) -> None:
        """There is a route to this node, which has the range as pod CIDR."""
        with self._lock:
            held = self._holders.get(net)
            if held is None or not self._claims(held.name, net):
                held = Held(entry.target)
            if held.name == entry.target:
                if not held.made_for:
                    held = evolve(held, made_for=changes.next_hops(net, node))
                # A listing shows the route right: what was wrong is over.
                fresh = held.remade_for and entry.state is State.LISTED
                if fresh and not changes.why_outdated(entry, net, node, held):
                    held = evolve(held, remade_for="")
            self._hold(net, held)

    def _hold(self, net: IPNetwork, held: Held) -> None:
        self._holders.put(net, held)
        # The only route there: more than a kubelet's word says that the destination is a node's.
        others = (entry.route for entry in self._at(net, held.name) if entry.target != held.name)
        if self._is_odd(net) and all(route.owned is False for route in others):
            self._own.add(net)

    def _is_odd(self, net: IPNetwork) -> bool:
        """Whether the size alone does not say that it is a node's."""
        return net.prefixlen != self._scope.usual_sizes.get(net.version) and self._scope.inside(net)

    def _forget(self, claims: Mapping[str, Collection[IPNetwork]], targets: Collection[str]) -> None:
        """Keep nothing about nodes that are gone and have no route."""
        gone = self._known.keys() - claims.keys() - set(targets)
        self._targets.forget(gone)
        for name in gone:
            self._known.pop(name, None)
        claimed = {net for nets in claims.values() for net in nets}
        for net in [net for net in list(self._own) if net not in claimed and not self.table.at(net)]:
            self._own.discard(net)
        for net, held in self._holders.items():
            if not self._claims(held.name, net):
                self._holders.drop(net)
        for net in [net for net in list(self._revivals) if not self._holders.get(net)]:
            self._revivals.pop(net, None)

    def _needs_work(self, node: V1Node) -> bool:
        name, wanted = key_of(node), valid_pod_cidrs(node)
        if any(self.step(net, cidr, name, node) for net, cidr in wanted.items()):
            return True
        if wanted and status_of(node) != CREATED[0]:
            return True
        return any(self.step(net, "", name, node) for net in self.destinations_of(name) if net not in wanted)

    def _long_since(self) -> float:
        """A route that has been listed since then was seen by two comparisons, a while apart."""
        return self.table.listed_at - self._period / 2

    def note_node(self, name: str, node: V1Node) -> None:
        """Remember that there is such a node, with these pod CIDRs."""
        self._known.setdefault(name, uid_of(node))
        self._targets.note(node)
        for net in valid_pod_cidrs(node):
            # Its size is most nodes': one kubelet's word alone must not make other people's routes
            # deletable.
            if self._is_odd(net) and self._scope.has_pod_cidr_size(net) and self._common_size(net) == net.prefixlen:
                self._own.add(net)

    def _common_size(self, net: IPNetwork) -> int:
        if net.version not in self._common:  # the last comparison saw no node of this family
            self._common = changes.common_sizes(valid_pod_cidrs(node) for node in self.lister.list())
        return self._common.get(net.version, -1)

    def take_recreated(self, name: str, node: V1Node) -> bool:
        """Whether another Node had this name before; logged once."""
        before, self._known[name] = self._known.get(name), uid_of(node)
        return before not in (None, uid_of(node))

    def created(self, net: IPNetwork, name: str, node: V1Node) -> None:
        """We made this node's route."""
        self._contested.pop((net, name), None)
        with self._lock:
            before = self._holders.get(net)
            remade_for = before.remade_for if before is not None and before.name == name else ""
            self._hold(net, Held(name, changes.next_hops(net, node), remade_for))

    def outdated(self, net: IPNetwork, name: str, why: str) -> None:
        """We deleted this node's route to make it again."""
        with self._lock:
            held = self._holders.get(net)
            if held is None or held.name != name:
                held = Held(name)
            self._holders.put(net, evolve(held, remade_for=why))

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

    def in_the_way(self, net: IPNetwork, name: str) -> str:
        """The routes at a node's destination that are not its own and stay, for people."""
        entries = [entry for entry in self._at(net, name) if entry.route.blackhole or entry.target != name]
        kept = [(entry, self._scope.why_kept(net, entry)) for entry in entries]
        return ", ".join(_shown(net, entry, why) for entry, why in kept if why)

    def deleted(self, net: IPNetwork, target: str) -> None:
        """We deleted this route: one that comes back, to what is no node, has another maker."""
        # A node that we know may get its route back from ourselves.
        if target and target not in self._known:
            self._contested[net, target] = self._clock.monotonic()

    def forget_deletions(self, now: float) -> None:
        """Forget the deletions of long ago."""
        for pair in [pair for pair, deleted in list(self._contested.items()) if deleted < now - _CONTESTED_FOR]:
            self._contested.pop(pair, None)
