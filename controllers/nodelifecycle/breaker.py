"""Pure: how many nodes may be deleted in how much time (between stages 4 and 6). No I/O, no clock, no threads.

For zones where no Ready node can show whether the cloud tells the truth (see witnesses.py). A cloud that loses its
database, or an account that was switched, says "gone" of everything, twice and for hours. So deletions are counted over
a sliding window, and when more than a share of the nodes would go, the breaker opens: an alarm, and from then on a
trickle. It closes again

- when a node was found gone without interruption for `release_after` seconds since it opened: then the count begins
  anew, with the same limit, so that a disaster is cleaned up in steps that each take that long,
- when no deletion had to be held back for a whole window: the cloud has come to its senses.

A process knows nothing of what the one before it deleted. So it begins as if the window were used up: open, without an
alarm, and with a trickle that begins a full interval after the start. Restarts do not let more nodes go, but fewer.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from attrs import frozen

from controllers.nodelifecycle.options import BreakerOptions

_EPSILON: Final = 1e-9


@frozen
class Admission:
    """Whether a node may be deleted now."""

    allowed: bool
    opened: bool = False
    """More are held back or deleted than the limit, for the first time since it opened: time for the alarm."""
    released: str = ""
    """The breaker closed by this very question, and why."""


class Breaker:
    """The count. Times are seconds of one monotonic clock, and never go back. Not thread-safe."""

    def __init__(self, options: BreakerOptions, *, now: float, quiet: float = 0.0) -> None:
        """`now`: when this process began. `quiet`: seconds that must pass without a held deletion, at least, before an
        open breaker closes by itself; longer than it takes until a node that was held back is asked about again."""
        self.options = options
        self._quiet = max(options.window, quiet)
        self._deleted: deque[float] = deque()
        self._owned: deque[tuple[float, int]] = deque()  # falling numbers: the first is the window's greatest
        self._opened_at: float | None = now
        self._alarmed = False
        self._held_at = self._trickled_at = now
        self._recount = False  # from the next number on, the share is one of the nodes that are left

    @property
    def is_open(self) -> bool:
        """Whether only a trickle is let through."""
        return self._opened_at is not None

    @property
    def is_alarming(self) -> bool:
        """Whether more nodes were to be deleted than the limit, since it opened."""
        return self.is_open and self._alarmed

    def observe(self, now: float, owned: int, *, calm: bool = True) -> str:
        """Note how many nodes of this provider there are. Returns why the breaker closed, if it did.

        `calm`: the cloud answers whatever it is asked; a time of silence proves nothing of its senses.
        """
        if self._recount:
            self._recount = False
            self._owned.clear()
        while self._owned and self._owned[-1][1] <= owned:
            self._owned.pop()
        self._owned.append((now, owned))
        self._expire(now)
        if not calm:
            self._held_at = now
        if self._opened_at is not None and now - self._held_at >= self._quiet:
            alarmed = self._alarmed
            self._close()
            return f"nothing had to be held back for {self._quiet:g} s" if alarmed else ""
        return ""

    def limit(self, now: float) -> int:
        """Deletions allowed per window. The share is of the greatest number of nodes that was seen in it."""
        self._expire(now)
        owned = self._owned[0][1] if self._owned else 0
        return max(self.options.at_least, int(self.options.share * owned + _EPSILON))

    def deletions(self, now: float) -> int:
        """Deletions within the window that ends now."""
        self._expire(now)
        return len(self._deleted)

    def admit(self, now: float, gone_since: float, held: int = 0) -> Admission:
        """Ask for leave to delete one node, found gone without interruption since `gone_since`. A leave is counted.

        `held`: how many nodes are held back already, this one left out.
        """
        released = ""
        if self._opened_at is not None:
            lasting = now - max(self._opened_at, gone_since)
            if self.options.release_after and lasting >= self.options.release_after:
                released = f"the cloud has said nothing but gone for {lasting:.0f} s"
                self._close()
            elif self.options.trickle and now - self._trickled_at >= self.options.trickle:
                self._trickled_at = now
                self._deleted.append(now)
                return Admission(True)
        if self._opened_at is None:
            if self.deletions(now) < self.limit(now):
                self._deleted.append(now)
                return Admission(True, released=released)
            self._opened_at = self._trickled_at = now
        self._held_at = now
        opened = not self._alarmed and self.deletions(now) + held >= self.limit(now)
        self._alarmed = self._alarmed or opened
        return Admission(False, opened=opened, released=released)

    def refund(self, admitted_at: float) -> None:
        """A leave was not used: the node turned out to be there, or the API server refused."""
        if admitted_at in self._deleted:
            self._deleted.remove(admitted_at)

    def _close(self) -> None:
        self._opened_at = None
        self._alarmed = False
        self._deleted.clear()
        self._recount = True

    def _expire(self, now: float) -> None:
        start = now - self.options.window
        while self._deleted and self._deleted[0] <= start:
            self._deleted.popleft()
        while len(self._owned) > 1 and self._owned[0][0] <= start:
            self._owned.popleft()
