"""Who has which range of pod addresses: nodes by UID, and what is free. Pure; no I/O, no clock.

A range is given to one node, and belongs to it until that node is proved gone, written or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import evolve, frozen

from controllers.nodeipam.cidr_set import CIDRSet, Interval, IntervalSet

if TYPE_CHECKING:
    from cloudprovider.ips import IPNetwork

K = TypeVar("K", bound=Hashable)
Ranges = tuple["IPNetwork", ...]


@frozen
class Holding:
    """What one node has."""

    name: str
    uid: str
    ranges: Ranges
    written: bool
    """Whether the API server is known to have it; else a write may be under way."""
    doubted: Ranges = ()
    """What it was given before that, and may still get: a write of it may be under way too."""
    counts: bool = True
    """Whether its ranges are kept from other nodes. Not those that no allocator can have given."""
    free_from: float | None = None
    """When others may get its ranges, as its node was not to be seen any more."""

    @property
    def kept(self) -> Ranges:
        """All that no other node may be given."""
        return (*self.ranges, *self.doubted) if self.counts else ()


class Allocations:
    """Thread-safe: a range is searched and taken in one step.

    `pools`: of several of one family the first that is not full gives. The families of a node's
    ranges have the order in which they come first there.
    `kept_free` are ranges that no node gets, such as those of Services. `on_change` is called after
    each step that took or gave back blocks, with the pool and how many more are taken now;
    `on_search` after each search for a free one.
    """

    def __init__(
        self,
        pools: Sequence[CIDRSet],
        kept_free: Sequence[IPNetwork] = (),
        on_change: Callable[[CIDRSet, int], None] = lambda _pool, _more: None,
        on_search: Callable[[CIDRSet], None] = lambda _pool: None,
    ) -> None:
        self.pools = tuple(pools)
        self._by_family: dict[int, list[CIDRSet]] = {}
        for pool in self.pools:
            self._by_family.setdefault(pool.cluster.version, []).append(pool)
        self._on_change = on_change
        self._on_search = on_search
        self._lock = threading.Lock()
        self._holdings: dict[str, Holding] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._ranges = {4: IntervalSet(), 6: IntervalSet()}
        self._holders: dict[tuple[int, Interval], dict[str, None]] = {}
        for net in kept_free:
            for pool in self.pools:
                self._count(pool, net, pool.take)

    def get(self, uid: str) -> Holding | None:
        """What the node with this UID has."""
        return self._holdings.get(uid)

    def named(self, name: str) -> list[Holding]:
        """What nodes of this name have, former ones that are not proved gone among them."""
        with self._lock:
            return [self._holdings[uid] for uid in self._by_name.get(name, ())]

    def names(self) -> list[str]:
        """The names of all nodes that have something."""
        with self._lock:
            return list(self._by_name)

    def give(self, name: str, uid: str) -> Ranges | None:
        """A free range of each family for a node, or those that it was given before, unless another
        node has them now; None when all pools of a family are exhausted."""
        with self._lock:
            # The same range again, while it is unknown whether a write arrived. If another program
            # has put it onto another node meanwhile, a new one: the first stays kept (`doubted`)
            # until the API server has one of them.
            held = self._holdings.get(uid)
            if held is not None and held.counts and (held.written or not self._overlapping(name, held.ranges)):
                return held.ranges
            # All families or none: what is written cannot be changed, so half would stay half.
            if not self.room():
                return None
            first = [next(pool for pool in pools if pool.free) for pools in self._by_family.values()]
            found = tuple(net for net in map(self._find, first) if net is not None)
            self._replace(held, Holding(name, uid, found, written=False))
            return found

    def claim(self, name: str, uid: str, ranges: Ranges) -> tuple[str, ...]:
        """Give a node ranges that the cloud chose for it, unless they overlap with other nodes'.

        Returns the names of those others; with any, nothing was given.
        """
        with self._lock:
            others = self._overlapping(name, ranges)
            held = self._holdings.get(uid)
            # What the API server has of it cannot be changed; the caller's write will say so.
            if not others and (held is None or not held.written):
                self._replace(held, Holding(name, uid, ranges, written=False))
            return others

    def saw(self, name: str, uid: str, ranges: Ranges, *, counts: bool = True) -> tuple[str, ...]:
        """A node has these ranges on the API server.

        What it had been given before, and can never get now, is free again. Returns the names of
        other nodes whose ranges overlap. Without `counts` other nodes may get them, and they
        overlap with nothing.
        """
        with self._lock:
            held = self._holdings.get(uid)
            if held is not None and (held.ranges, held.counts) == (ranges, counts) and not held.doubted:
                self._holdings[uid] = evolve(held, written=True, free_from=None)
            else:
                # The API server decides, whatever was given: pods may use these addresses already.
                self._drop(uid)
                self._put(Holding(name, uid, ranges, written=True, counts=counts))
            return self._overlapping(name, ranges) if counts else ()

    def too_wide(self, ranges: Ranges) -> str:
        """Which ranges take more than one block of a pool, and how many; "" when none does."""
        found = ((net, sum(pool.overlap(net) for pool in self.pools)) for net in ranges)
        return ", ".join(f"{net} takes {blocks} blocks" for net, blocks in found if blocks > 1)

    def inside(self, uid: str, ranges: Ranges) -> int:
        """How many other nodes have a range that lies inside one of these, and is smaller."""
        with self._lock:
            return len(
                {
                    other
                    for net in ranges
                    for interval in self._ranges[net.version].inside(_interval(net))
                    for other in self._holders[net.version, interval]
                    if other != uid
                }
            )

    def widest(self) -> list[str]:
        """Who has more than one block, the largest first, in words: three at most."""
        with self._lock:
            taking = [
                (sum(pool.overlap(net) for pool in self.pools), net, held.name)
                for held in self._holdings.values()
                for net in held.kept
            ]
        wide = sorted((one for one in taking if one[0] > 1), key=lambda one: -one[0])
        return [f"{net} of node {name} takes {blocks} blocks" for blocks, net, name in wide[:3]]

    def lacking_family(self) -> list[str]:
        """The names of nodes that have ranges, and none of one of the pools' families."""
        with self._lock:
            return [held.name for held in self._holdings.values() if held.written and self.lacked(held.ranges)]

    def lacked(self, ranges: Ranges) -> list[int]:
        """The pools' families (4, 6) of which these have none."""
        return [family for family in self._by_family if all(net.version != family for net in ranges)]

    def room(self) -> int:
        """How many nodes can get a range of each family; 0 without pools."""
        return min((sum(pool.free for pool in pools) for pools in self._by_family.values()), default=0)

    def exhausted(self) -> list[CIDRSet]:
        """All pools of the families that have nothing free."""
        full = [pools for pools in self._by_family.values() if not any(pool.free for pool in pools)]
        return [pool for pools in full for pool in pools]

    def doubt(self, uid: str) -> None:
        """Whether the API server has what the node was given is not known any more."""
        with self._lock:
            held = self._holdings.get(uid)
            if held is not None:
                self._holdings[uid] = evolve(held, written=False)

    def rest(self, uid: str, until: float) -> float:
        """The node is not to be seen any more; returns when others may get its ranges: then, or
        what was said before. 0.0 for those that no node can use yet."""
        with self._lock:
            held = self._holdings.get(uid)
            # Never written: no kubelet can have seen them, and no pod can have an address of them.
            if held is None or not held.written or not held.counts:
                return 0.0
            if held.free_from is None:
                self._holdings[uid] = held = evolve(held, free_from=until)
            return held.free_from or 0.0

    def release(self, uid: str) -> bool:
        """The node is proved gone: its ranges are free again. False when it had none."""
        with self._lock:
            return self._drop(uid)

    def _find(self, pool: CIDRSet) -> IPNetwork | None:
        found = pool.find()
        self._on_search(pool)
        return found

    def _replace(self, held: Holding | None, new: Holding) -> None:
        """Give a node something else than it was given; the write of that may still arrive."""
        if held is not None:
            self._drop(held.uid)
            new = evolve(new, doubted=tuple(net for net in dict.fromkeys(held.kept) if net not in new.ranges))
        self._put(new)

    def _put(self, holding: Holding) -> None:
        self._holdings[holding.uid] = holding
        self._by_name.setdefault(holding.name, {})[holding.uid] = None
        for net in holding.kept:
            self._ranges[net.version].add(_interval(net))
            self._holders.setdefault((net.version, _interval(net)), {})[holding.uid] = None
            for pool in self.pools:
                self._count(pool, net, pool.take)

    def _drop(self, uid: str) -> bool:
        holding = self._holdings.pop(uid, None)
        if holding is None:
            return False
        _without(self._by_name, holding.name, uid)
        for net in holding.kept:
            self._ranges[net.version].remove(_interval(net))
            _without(self._holders, (net.version, _interval(net)), uid)
            for pool in self.pools:
                self._count(pool, net, pool.give_back)
        return True

    def _overlapping(self, name: str, ranges: Ranges) -> tuple[str, ...]:
        """The other nodes with ranges that overlap with these, by name: of two Nodes of one name
        one is gone."""
        found: dict[str, None] = {}
        for net in ranges:
            # By the tree: among 5,000 nodes, each with all others would be 25 million comparisons.
            intervals, own = self._ranges[net.version], _interval(net)
            for interval in (own, *intervals.around(own), *intervals.inside(own)):
                found |= self._holders.get((net.version, interval), {})
        return tuple(other for uid in found if (other := self._holdings[uid].name) != name)

    def _count(self, pool: CIDRSet, net: IPNetwork, change: Callable[[IPNetwork], None]) -> None:
        before = pool.used
        change(net)
        if pool.used != before:
            self._on_change(pool, pool.used - before)


def _interval(net: IPNetwork) -> Interval:
    return int(net.network_address), net.max_prefixlen - net.prefixlen


def _without(table: dict[K, dict[str, None]], key: K, uid: str) -> None:
    """Take the UID out of the entry, and the entry out of the table when that was the last one."""
    table[key].pop(uid)
    if not table[key]:
        del table[key]
