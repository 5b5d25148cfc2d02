"""Aligned spans of whole numbers, as IP ranges are: any two are disjoint, or one contains the other. Pure; no I/O.

`blocks.py` keeps in it which blocks of a cluster CIDR are taken, `ledger.py` which ranges the nodes have. Memory grows
with the spans that are held, never with the numbers in them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator

__all__ = ["Span", "Spans"]

Span = tuple[int, int]
"""(first, bits): the numbers from `first` on, 2 to the power of `bits` of them; `first` is a multiple of that."""


class Spans:
    """A set of spans, each counted as often as it was added. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[Span, int] = {}
        self._sorted: list[tuple[int, int]] = []  # (first, -bits): a span stands before those inside it
        self._bits: Counter[int] = Counter()

    def __contains__(self, span: Span) -> bool:
        return span in self._counts

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, span: Span) -> bool:
        """Add it; whether it was not there before."""
        self._counts[span] = count = self._counts.get(span, 0) + 1
        if count > 1:
            return False
        first, bits = span
        insort(self._sorted, (first, -bits))
        self._bits[bits] += 1
        return True

    def remove(self, span: Span) -> bool:
        """Remove it once; whether it is gone now. Raises KeyError when it is not there."""
        self._counts[span] -= 1
        if self._counts[span]:
            return False
        del self._counts[span]
        first, bits = span
        del self._sorted[bisect_left(self._sorted, (first, -bits))]
        self._bits[bits] -= 1
        if not self._bits[bits]:
            del self._bits[bits]
        return True

    def around(self, span: Span) -> list[Span]:
        """Those that contain the span, itself left out."""
        first, bits = span
        wider = ((first >> more << more, more) for more in self._bits if more > bits)
        return [one for one in wider if one in self._counts]

    def inside(self, span: Span) -> Iterator[Span]:
        """Those that the span contains, itself left out; wider ones before those inside them."""
        first, bits = span
        end = first + (1 << bits)
        place = bisect_left(self._sorted, (first, -bits))
        while place < len(self._sorted) and self._sorted[place][0] < end:
            found = self._sorted[place][0], -self._sorted[place][1]
            if found != span:
                yield found
            place += 1

    def size_inside(self, span: Span) -> int:
        """How many numbers of the span belong to spans inside it, itself left out."""
        total, covered = 0, span[0]
        for first, bits in self.inside(span):
            if first >= covered:
                covered = first + (1 << bits)
                total += 1 << bits
        return total

    def end_of(self, number: int) -> int | None:
        """The first number after the widest span that contains this one; None where none does."""
        ends = [first + (1 << bits) for first, bits in self.around((number, 0))]
        if (number, 0) in self._counts:
            ends.append(number + 1)
        return max(ends) if ends else None
