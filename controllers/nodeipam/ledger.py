"""Who has which range of pod addresses: nodes, by UID, and what is kept free. Pure; no I/O, no clock.

What is seen on nodes and what reconcilers are about to write comes in; free ranges, and who overlaps with whom, goes
out. A range is given to one node, and belongs to it until that node is proved gone, whatever became of the write. So it
stays the node's while nobody knows whether a write arrived, and the next try writes the same. Where somebody else has
put it onto another node meanwhile, the next try writes another one; the first stays kept until the API server has one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import evolve, frozen

from controllers.nodeipam.spans import Span, Spans

if TYPE_CHECKING:
    from cloudprovider.helpers.ips import IPNetwork
    from controllers.nodeipam.blocks import Blocks

__all__ = ["Holding", "Ledger"]

K = TypeVar("K", bound=Hashable)
Ranges = tuple["IPNetwork", ...]


@frozen
class Holding:
    """What one node has."""

    name: str
    uid: str
    ranges: Ranges
    written: bool
    """Whether the API server is known to have it; else it was given to the node, and a write may be under way."""
    doubted: Ranges = ()
    """What it was given before that, and may still get: a write of it may be under way too."""

    @property
    def kept(self) -> Ranges:
        """All that no other node may be given."""
        return (*self.ranges, *self.doubted)


class Ledger:
    """Thread-safe: a range is searched and taken in one step.

    `kept_free` are ranges that no node gets, such as those of Services. `on_change` is called after each step that took
    or gave back blocks, with the pool and how many more are taken now; `on_search` after each search for a free one.
    """

    def __init__(
        self,
        pools: Sequence[Blocks],
        kept_free: Sequence[IPNetwork] = (),
        on_change: Callable[[Blocks, int], None] = lambda _pool, _more: None,
        on_search: Callable[[Blocks], None] = lambda _pool: None,
    ) -> None:
        self.pools = tuple(pools)
        self._on_change = on_change
        self._on_search = on_search
        self._lock = threading.Lock()
        self._holdings: dict[str, Holding] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._ranges = {4: Spans(), 6: Spans()}
        self._holders: dict[tuple[int, Span], dict[str, None]] = {}
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
        """A free range of each pool for a node, or those that it was given before, unless another node has them by now;
        None when a pool is exhausted."""
        with self._lock:
            held = self._holdings.get(uid)
            if held is not None and (held.written or not self._rivals(uid, held.ranges)):
                return held.ranges
            if not all(pool.free for pool in self.pools):
                return None
            found = tuple(net for net in map(self._find, self.pools) if net is not None)
            self._replace(held, Holding(name, uid, found, written=False))
            return found

    def claim(self, name: str, uid: str, ranges: Ranges) -> tuple[str, ...]:
        """Give a node ranges that somebody else chose for it, unless another node has what overlaps with them.

        Returns the names of those others; with any, nothing was given.
        """
        with self._lock:
            rivals = self._rivals(uid, ranges)
            held = self._holdings.get(uid)
            if not rivals and (held is None or not held.written):
                self._replace(held, Holding(name, uid, ranges, written=False))
            return rivals

    def saw(self, name: str, uid: str, ranges: Ranges) -> tuple[str, ...]:
        """A node has these ranges on the API server, whoever wrote them.

        What it had been given before, and can never get now, is free again. Returns the names of other nodes that have
        what overlaps with them.
        """
        with self._lock:
            held = self._holdings.get(uid)
            if held is not None and held.ranges == ranges and not held.doubted:
                self._holdings[uid] = evolve(held, written=True)
            else:
                self._drop(uid)
                self._put(Holding(name, uid, ranges, written=True))
            return self._rivals(uid, ranges)

    def doubt(self, uid: str) -> None:
        """Whether the API server has what the node was given is not known any more."""
        with self._lock:
            held = self._holdings.get(uid)
            if held is not None:
                self._holdings[uid] = evolve(held, written=False)

    def release(self, uid: str) -> bool:
        """The node is proved gone: its ranges are free again. False when it had none."""
        with self._lock:
            return self._drop(uid)

    def _find(self, pool: Blocks) -> IPNetwork | None:
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
            self._ranges[net.version].add(_span(net))
            self._holders.setdefault((net.version, _span(net)), {})[holding.uid] = None
            for pool in self.pools:
                self._count(pool, net, pool.take)

    def _drop(self, uid: str) -> bool:
        holding = self._holdings.pop(uid, None)
        if holding is None:
            return False
        _without(self._by_name, holding.name, uid)
        for net in holding.kept:
            self._ranges[net.version].remove(_span(net))
            _without(self._holders, (net.version, _span(net)), uid)
            for pool in self.pools:
                self._count(pool, net, pool.give_back)
        return True

    def _rivals(self, uid: str, ranges: Ranges) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for net in ranges:
            spans, own = self._ranges[net.version], _span(net)
            for span in (own, *spans.around(own), *spans.inside(own)):
                found |= self._holders.get((net.version, span), {})
        return tuple(self._holdings[other].name for other in found if other != uid)

    def _count(self, pool: Blocks, net: IPNetwork, change: Callable[[IPNetwork], None]) -> None:
        before = pool.used
        change(net)
        if pool.used != before:
            self._on_change(pool, pool.used - before)


def _span(net: IPNetwork) -> Span:
    return int(net.network_address), net.max_prefixlen - net.prefixlen


def _without(table: dict[K, dict[str, None]], key: K, uid: str) -> None:
    """Take the UID out of the entry, and the entry out of the table when that was the last one."""
    table[key].pop(uid)
    if not table[key]:
        del table[key]
