"""What is known of the cloud's routes: the last listing and what we did since, which node had the
last route to each pod CIDR, and which node a route leads to: by the provider ID of its machine,
where the provider lists it, or else by the name that it lists. No I/O.

Filled from `list_routes` and from our own creations and deletions; read for every node. So one
listing serves all nodes of a burst, and their retries.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider.helpers.providerid import provider_id_of, same_provider_id
from controllers.route.changes import Entry, Held, State, destination
from controllers.runtime.cache import key_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider import Route
    from cloudprovider.ips import IPNetwork
    from controllers.runtime.clock import Clock


class RouteTable:
    """Routes by destination. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[IPNetwork, list[Entry]] = {}
        self._targets: dict[str, set[IPNetwork]] = {}
        self._written: dict[IPNetwork, float] = {}  # end of our last write there; inf while one is under way
        self._claimed: set[IPNetwork] = set()
        self.listed_at = -math.inf
        """When the last listing began."""
        self._taken_in = -math.inf
        self.version = 0
        """How many listings there were; 0 means that nothing is known."""

    # ---- looking at it

    def at(self, net: IPNetwork) -> tuple[Entry, ...]:
        """The routes to this destination."""
        with self._lock:
            return tuple(self._entries.get(net, ()))

    def destinations_of(self, name: str, machine: str = "") -> list[IPNetwork]:
        """The destinations of routes listed with this name, or with this provider ID, and perhaps
        with one that resembles it."""
        with self._lock:
            named = self._targets.get(name, set())
            return list(named | self._targets.get(index_of(machine), set()) if machine else named)

    def all(self) -> list[tuple[IPNetwork, Entry]]:
        """Everything."""
        with self._lock:
            return [(net, entry) for net, entries in self._entries.items() for entry in entries]

    @property
    def age(self) -> float:
        """Seconds since the last listing was taken in, as it may take long itself; inf without
        one."""
        return self._clock.monotonic() - self._taken_in

    # ---- changing it

    def install(self, routes: Sequence[Route], started: float) -> None:
        """Take in a listing that was begun at `started`. What we wrote since then stays."""
        fresh: dict[IPNetwork, list[Entry]] = {}
        kept: dict[IPNetwork, list[Entry]] = {}
        for route in routes:
            net = destination(route)
            if net is not None:
                fresh.setdefault(net, []).append(Entry(route, since=started))
        with self._lock:
            for net, ended in list(self._written.items()):
                if ended < started:
                    del self._written[net]
                    continue
                # The cloud may have listed it before our write, or after it: ours is newer.
                fresh.pop(net, None)
                if net in self._entries:
                    kept[net] = self._entries[net]
            grown = {net: [self._grown(net, entry) for entry in entries] for net, entries in fresh.items()}
            self._entries = fresh = {**grown, **kept}
            self._targets = {}
            for net, entries in fresh.items():
                for entry in entries:
                    self._index(net, entry)
            self.listed_at, self._taken_in = started, self._clock.monotonic()
            self.version += 1

    @contextmanager
    def claim(self, net: IPNetwork) -> Iterator[bool]:
        """Lock a destination, so that no key deletes there what another creates. Yields False when
        another key has it."""
        with self._lock:
            mine = net not in self._claimed
            self._claimed.add(net)
        try:
            yield mine
        finally:
            if mine:
                with self._lock:
                    self._claimed.discard(net)
                    if self._written.get(net) == math.inf:
                        self._written[net] = self._clock.monotonic()

    def writing(self, net: IPNetwork) -> None:
        """A write to this claimed destination begins; it ends with the claim."""
        with self._lock:
            self._written[net] = math.inf

    def created(self, net: IPNetwork, route: Route) -> None:
        """The cloud confirmed a creation."""
        with self._lock:
            entries = self._entries.setdefault(net, [])
            entries.append(Entry(route, State.CREATED))
            self._index(net, entries[-1])

    def deleted(self, net: IPNetwork, entry: Entry) -> None:
        """The cloud confirmed a deletion."""
        self._replace(net, entry, None)

    def doubt(self, net: IPNetwork, entry: Entry) -> None:
        """A deletion failed: the route may be there or not."""
        self._replace(net, entry, Entry(entry.route, State.DOUBTFUL))

    # ---- inside

    def _grown(self, net: IPNetwork, entry: Entry) -> Entry:
        """A listed route with the time since when listings have shown it."""
        for known in self._entries.get(net, ()):
            if known.state is State.LISTED and known.identity == entry.identity:
                return evolve(entry, since=min(known.since, entry.since))
        return entry

    def _replace(self, net: IPNetwork, entry: Entry, by: Entry | None) -> None:
        with self._lock:
            # By what the route is: a listing may have been taken in since `entry` was looked up.
            entries = [by if known.identity == entry.identity else known for known in self._entries.get(net, ())]
            left = [known for known in entries if known is not None]
            if left:
                self._entries[net] = left
            else:
                self._entries.pop(net, None)
            target = _index(entry)
            if target and all(_index(known) != target for known in left):
                nets = self._targets.get(target, set())
                nets.discard(net)
                if not nets:
                    self._targets.pop(target, None)

    def _index(self, net: IPNetwork, entry: Entry) -> None:
        if target := _index(entry):
            self._targets.setdefault(target, set()).add(net)


def _index(entry: Entry) -> str:
    """What its destination is found by."""
    machine = entry.route.target_provider_id
    return index_of(machine) if machine else entry.route.target_node


class Holders:
    """Who holds each pod CIDR. May be read by many threads while one changes it."""

    def __init__(self) -> None:
        # By size: among nodes of one size an overlap is found by a few look-ups, however many they
        # are.
        self._by_size: dict[tuple[int, int], dict[IPNetwork, Held]] = {}

    def get(self, net: IPNetwork) -> Held | None:
        """The node, None if there is none."""
        return self._by_size.get((net.version, net.prefixlen), {}).get(net)

    def put(self, net: IPNetwork, held: Held) -> None:
        """This node has the route now."""
        self._by_size.setdefault((net.version, net.prefixlen), {})[net] = held

    def drop(self, net: IPNetwork) -> None:
        """No node has it any more. May be called again."""
        self._by_size.get((net.version, net.prefixlen), {}).pop(net, None)

    def items(self) -> list[tuple[IPNetwork, Held]]:
        """All of them, as they are now."""
        return [pair for group in list(self._by_size.values()) for pair in list(group.items())]

    def overlapping(self, net: IPNetwork) -> Iterator[tuple[IPNetwork, Held]]:
        """Those of wider and narrower ranges that overlap with this one."""
        for (version, size), group in list(self._by_size.items()):
            if version != net.version or size == net.prefixlen:
                continue
            if size < net.prefixlen:
                wider = net.supernet(new_prefix=size)
                if wider in group:
                    yield wider, group[wider]
            else:
                yield from ((other, held) for other, held in list(group.items()) if other.overlaps(net))


class Targets:
    """Names of nodes by provider ID. A node that is gone is known until `forget`, so that its route
    can be told from a stranger's. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}  # by `index_of` the ID

    def note(self, node: V1Node) -> None:
        """Remember the node's provider ID, which for one Node never changes."""
        name, machine = key_of(node), provider_id_of(node)
        with self._lock:
            if not machine or self._ids.get(name) == machine:
                return
            self._drop(name)
            self._ids[name] = machine
            self._names.setdefault(index_of(machine), set()).add(name)

    def forget(self, names: Iterable[str]) -> None:
        """These nodes are gone, and so are the routes to them."""
        with self._lock:
            for name in names:
                self._drop(name)

    def machine_of(self, name: str) -> str:
        """The provider ID of a node that is there, or was; "" where none is known."""
        return self._ids.get(name, "")

    def sharing(self, name: str) -> list[str]:
        """The nodes with the provider ID of this one, itself among them."""
        machine = self._ids.get(name, "")
        with self._lock:
            return [one for one in self._names.get(index_of(machine), ()) if same_provider_id(self._ids[one], machine)]

    def name_of(self, route: Route, claimant: str, claims: Callable[[str], bool]) -> str:
        """The name of the node that a route leads to, "" if none; the provider ID itself where no
        node is known to have it.

        `claimant`: the node that is looked at and has the destination as pod CIDR, "" if none.
        `claims(name)`: whether a node has. Of several nodes with one provider ID, which a kubelet
        writes itself, it is one that has.
        """
        machine = route.target_provider_id
        if not machine:
            return route.target_node
        with self._lock:
            names = self._names.get(index_of(machine), ())
            found = sorted(name for name in names if same_provider_id(self._ids[name], machine))
            # A node that has joined may not have its provider ID yet.
            nameless = claimant not in self._ids
        if found:
            return claimant if claimant in found else next(filter(claims, found), found[0])
        # Nothing says that it leads to another machine than that of a node without a provider ID.
        return claimant if claimant and nameless and route.target_node in ("", claimant) else machine

    def _drop(self, name: str) -> None:
        machine = self._ids.pop(name, "")
        if machine:
            index = index_of(machine)
            self._names[index].discard(name)
            if not self._names[index]:
                del self._names[index]


def index_of(machine: str) -> str:
    """What all spellings of a provider ID have in common, as `same_provider_id` has it. No node has
    such a name."""
    return f"://{machine.rpartition('/')[2].casefold()}"


def is_machine(target: str) -> bool:
    """Whether a route's target is a provider ID, as no node is known to have it."""
    return "://" in target
