"""Stage 4, its decisions: what is to be done at a destination, and which keys a fresh listing brings up.

From the cached nodes, the table of routes and what this process remembers of its own deletions; to `reconcile.py` and
`listing.py`, which do it. The rules are those of `changes.py`. No I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from attrs import frozen

from controllers.route import changes
from controllers.route.changes import Entry, Scope, Step, valid_pod_cidrs
from controllers.route.condition import CREATED, status_of
from controllers.route.triggers import BLACKHOLE, NODE
from controllers.runtime.cache import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.helpers.ips import IPNetwork
    from controllers.route.options import RouteOptions
    from controllers.route.table import RouteTable
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock

_CONTESTED_FOR: Final = 86400.0  # seconds for which a route that was deleted and is back stays


@frozen
class Comparison:
    """All nodes and all listed routes, side by side."""

    keys: Mapping[str, int]
    """The keys of what needs something, with their priorities."""
    left_alone: tuple[str, ...]
    """For people: routes inside the cluster CIDRs that lead to no node, and stay."""
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
    claimed: set[IPNetwork] = set()
    keys: dict[str, int] = {}
    for name, node in nodes.items():
        claimed.update(valid_pod_cidrs(node))
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
            elif scope.inside(net):
                waits = waits or removable
                until = ", deleted if the next comparison still finds it" if removable else ""
                left_alone.append(f"{entry.route.name or '(no name)'} ({net} to {target or 'no node'}{until})")
    return Comparison(keys, tuple(left_alone), waits)


class Planner:
    """Applies the rules to the present cache and table, and remembers what bears on them. Thread-safe."""

    def __init__(self, lister: Lister[V1Node], table: RouteTable, options: RouteOptions, clock: Clock) -> None:
        self._lister = lister
        self._table = table
        self._clock = clock
        self._period = options.route_reconciliation_period
        self._lock = threading.Lock()
        self._mask_sizes = {version: frozenset({size}) for version, size in options.mask_sizes().items()}
        self._known: set[str] = set()
        self._contested: dict[tuple[IPNetwork, str], float] = {}
        self._scope = Scope(options.cluster_cidrs, self._mask_sizes, self._known, self._contested)

    def step(self, net: IPNetwork, cidr: str, name: str, node: V1Node | None) -> Step:
        """What is to be done for the node `name` at `net`; see `changes.step`."""

        def claimed_by(other: str) -> bool:
            found = self._lister.get(other)
            return found is not None and net in valid_pod_cidrs(found)

        return changes.step(
            net,
            cidr,
            name,
            node,
            self._table.at(net),
            self._scope,
            addresses_count=self._table.addresses_count,
            claimed_by=claimed_by,
            long_since=self._long_since(),
        )

    def compare(self) -> Comparison:
        """Compare all cached nodes with all listed routes."""
        nodes = {key_of(node): node for node in self._lister.list()}
        for name, node in nodes.items():
            self.saw(name, node)
        self._known.difference_update(self._known - nodes.keys() - set(self._table.targets()))
        return compare(nodes, self._table.all(), self._scope, self._long_since(), self._needs_work)

    def _needs_work(self, name: str, node: V1Node) -> bool:
        wanted = valid_pod_cidrs(node)
        if any(self.step(net, cidr, name, node) for net, cidr in wanted.items()):
            return True
        if wanted and status_of(node) != CREATED[0]:
            return True
        return any(self.step(net, "", name, node) for net in self._table.destinations_of(name) if net not in wanted)

    def _long_since(self) -> float:
        """A route that has been listed since then was seen by two comparisons, a good while apart."""
        return self._table.listed_at - self._period / 2

    # ---- what is remembered

    def saw(self, name: str, node: V1Node) -> None:
        """There is such a node, and its pod CIDRs have the sizes that nodes have."""
        self._known.add(name)
        for net in valid_pod_cidrs(node):
            sizes = self._mask_sizes.get(net.version, frozenset())
            if net.prefixlen not in sizes and self._scope.inside(net):
                with self._lock:
                    sizes = self._mask_sizes.get(net.version, frozenset())
                    self._mask_sizes[net.version] = sizes | {net.prefixlen}

    def created(self, net: IPNetwork, target: str) -> None:
        """We made this route."""
        self._contested.pop((net, target), None)

    def deleted(self, net: IPNetwork, target: str) -> None:
        """We deleted this route: one that comes back, to what is no node, has another maker."""
        if target and target not in self._known:
            self._contested[net, target] = self._clock.monotonic()

    def forget_deletions(self, now: float) -> None:
        """Forget the deletions of long ago."""
        for pair in [pair for pair, deleted in list(self._contested.items()) if deleted < now - _CONTESTED_FOR]:
            self._contested.pop(pair, None)
