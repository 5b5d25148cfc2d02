"""The blocks of one cluster CIDR, each of which one node can have, and which of them are taken. Pure; no I/O.

Ranges of nodes, and those of Services, come from `ledger.py`; free blocks go back to it. A range of any size can be
taken: one that is smaller than a block takes the whole block, one that is wider all blocks in it.

Follows: CidrSet in Kubernetes' pkg/controller/nodeipam/ipam/cidrset, without its bitmap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.nodeipam.spans import Span, Spans

if TYPE_CHECKING:
    from cloudprovider.helpers.ips import IPNetwork

__all__ = ["Blocks"]


class Blocks:
    """Not thread-safe. A block that was given back comes again last: the search goes on where the last one ended."""

    def __init__(self, cluster: IPNetwork, mask_size: int) -> None:
        """Raises ValueError when a node's range of this mask size does not fit into the cluster CIDR."""
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
        self._taken = Spans()
        self._next = 0

    @property
    def free(self) -> int:
        """How many are not taken."""
        return self.capacity - self.used

    def take(self, net: IPNetwork) -> None:
        """Take what the range has of this cluster CIDR, once more; nothing where they do not overlap."""
        span = self._span(net)
        if span is not None and self._taken.add(span):
            self.used += self._own(span)

    def give_back(self, net: IPNetwork) -> None:
        """Undo one `take` of this range."""
        span = self._span(net)
        if span is None or not self._taken.remove(span):
            return
        if not self.free:
            self._next = span[0]  # where the next search need not look for long
        self.used -= self._own(span)

    def find(self) -> IPNetwork | None:
        """A free block; None when all are taken. The next search begins behind it."""
        self.tries = 0
        if not self.free:
            return None
        place = self._next
        while True:
            self.tries += 1
            end = self._taken.end_of(place)
            if end is None:
                break
            place = end if end < self.capacity else 0
        self._next = place + 1 if place + 1 < self.capacity else 0
        address = (self._start + place) << self._shift
        return type(self.cluster)((address, self.mask_size))

    def _own(self, span: Span) -> int:
        """How many blocks of the span no other span takes."""
        return 0 if self._taken.around(span) else (1 << span[1]) - self._taken.size_inside(span)

    def _span(self, net: IPNetwork) -> Span | None:
        """The blocks that overlap with the range, counted from the first one."""
        if net.version != self.cluster.version:
            return None
        if net.prefixlen <= self.cluster.prefixlen:
            inside = self.cluster.network_address in net
            return (0, self.mask_size - self.cluster.prefixlen) if inside else None
        if net.network_address not in self.cluster:
            return None
        first = (int(net.network_address) >> self._shift) - self._start
        return first, max(0, self.mask_size - net.prefixlen)
