"""The blocks of one cluster CIDR, of which each node gets one, and which of them are taken; by sets
of intervals, so memory grows with the ranges taken and not with their addresses. Pure; no I/O.

A range smaller than a block takes the whole block, a wider one all blocks in it. Follows CidrSet in
Kubernetes' pkg/controller/nodeipam/ipam/cidrset, without its bitmap."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudprovider.ips import IPNetwork

Interval = tuple[int, int]
"""(first, bits): the numbers from `first` on, 2 ** `bits` of them, which divides `first`."""


class IntervalSet:
    """A set of intervals, each counted as often as it was added. They are aligned as IP ranges
    are: any two are disjoint, or one contains the other. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[Interval, int] = {}
        # (first, -bits): an interval stands before those inside it.
        self._sorted: list[tuple[int, int]] = []
        self._bits: Counter[int] = Counter()

    def add(self, interval: Interval) -> bool:
        """Add it; whether it was not there before."""
        self._counts[interval] = count = self._counts.get(interval, 0) + 1
        if count > 1:
            return False
        first, bits = interval
        insort(self._sorted, (first, -bits))
        self._bits[bits] += 1
        return True

    def remove(self, interval: Interval) -> bool:
        """Remove it once; whether it is gone now. Raises KeyError when it is not there."""
        self._counts[interval] -= 1
        if self._counts[interval]:
            return False
        del self._counts[interval]
        first, bits = interval
        del self._sorted[bisect_left(self._sorted, (first, -bits))]
        self._bits[bits] -= 1
        if not self._bits[bits]:
            del self._bits[bits]
        return True

    def around(self, interval: Interval) -> list[Interval]:
        """Those that contain the interval, itself left out."""
        first, bits = interval
        wider = ((first >> more << more, more) for more in self._bits if more > bits)
        return [one for one in wider if one in self._counts]

    def inside(self, interval: Interval) -> Iterator[Interval]:
        """Those that the interval contains, itself left out; wider ones first."""
        # Aligned intervals that begin in it lie in it: the first that begins behind it is the end.
        first, bits = interval
        end = first + (1 << bits)
        place = bisect_left(self._sorted, (first, -bits))
        while place < len(self._sorted) and self._sorted[place][0] < end:
            found = self._sorted[place][0], -self._sorted[place][1]
            if found != interval:
                yield found
            place += 1

    def size_inside(self, interval: Interval) -> int:
        """How many numbers of the interval belong to intervals inside it, itself left out."""
        total, covered = 0, interval[0]
        for first, bits in self.inside(interval):
            if first >= covered:
                covered = first + (1 << bits)
                total += 1 << bits
        return total

    def end_of(self, number: int) -> int | None:
        """The first number after the widest interval that contains it; None where none does."""
        ends = [first + (1 << bits) for first, bits in self.around((number, 0))]
        if (number, 0) in self._counts:
            ends.append(number + 1)
        return max(ends) if ends else None


class CIDRSet:
    """Not thread-safe. A block that was given back comes again last: the search goes round."""

    def __init__(self, cluster: IPNetwork, mask_size: int) -> None:
        """Raises ValueError if a node's range of this size does not fit into the cluster CIDR."""
        if not cluster.prefixlen <= mask_size <= cluster.max_prefixlen:
            raise ValueError(f"a range of mask size {mask_size} does not fit into {cluster}")
        self.cluster = cluster
        self.mask_size = mask_size
        self.capacity = 1 << (mask_size - cluster.prefixlen)
        """How many blocks there are."""
        self.used = 0
        """How many are taken."""
        self.tries = 0
        """At how many places the last search looked."""
        self._shift = cluster.max_prefixlen - mask_size
        self._start = int(cluster.network_address) >> self._shift
        self._taken = IntervalSet()
        self._next = 0

    @property
    def free(self) -> int:
        """How many are not taken."""
        return self.capacity - self.used

    def take(self, net: IPNetwork) -> None:
        """Take what the range has of this cluster CIDR, again; nothing without overlap."""
        interval = self._interval(net)
        if interval is not None and self._taken.add(interval):
            self.used += self._own(interval)

    def give_back(self, net: IPNetwork) -> None:
        """Undo one `take` of this range."""
        interval = self._interval(net)
        if interval is None or not self._taken.remove(interval):
            return
        if not self.free:
            self._next = interval[0]  # where the next search need not look for long
        self.used -= self._own(interval)

    def overlap(self, net: IPNetwork) -> int:
        """How many blocks the range overlaps with, taken or not."""
        interval = self._interval(net)
        return 0 if interval is None else 1 << interval[1]

    def find(self) -> IPNetwork | None:
        """A free block; None when all are taken. The next search begins behind it."""
        self.tries = 0
        if not self.free:
            return None
        place = self._next
        # From one taken interval to the next, not from block to block: of /24 a /8 has 65,536.
        while True:
            self.tries += 1
            end = self._taken.end_of(place)
            if end is None:
                break
            place = end if end < self.capacity else 0
        self._next = place + 1 if place + 1 < self.capacity else 0
        address = (self._start + place) << self._shift
        return type(self.cluster)((address, self.mask_size))

    def _own(self, interval: Interval) -> int:
        """How many blocks of the interval no other interval takes."""
        return 0 if self._taken.around(interval) else (1 << interval[1]) - self._taken.size_inside(interval)

    def _interval(self, net: IPNetwork) -> Interval | None:
        """The blocks that overlap with the range, counted from the first one."""
        if net.version != self.cluster.version:
            return None
        # A range as wide as the cluster CIDR, or wider: it takes all of it, or nothing.
        if net.prefixlen <= self.cluster.prefixlen:
            inside = self.cluster.network_address in net
            return (0, self.mask_size - self.cluster.prefixlen) if inside else None
        if net.network_address not in self.cluster:
            return None
        first = (int(net.network_address) >> self._shift) - self._start
        return first, max(0, self.mask_size - net.prefixlen)
