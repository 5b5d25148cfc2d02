"""Stage 4: DECIDE. The whole policy of deletions, in this table. Pure: no I/O, no clock.

A node is deleted after --node-deletion-confirmations (2) answers "gone" about it, a period apart,
without another answer between, about the UID and provider ID that it still has. Then the first row
that applies decides:

| the node, and the cloud's answers about the Ready nodes of its zone          | decision                            |
|------------------------------------------------------------------------------|-------------------------------------|
| --node-deletion-breaker=false; released by an operator; the autoscaler's     | delete                              |
|   taint ToBeDeletedByClusterAutoscaler                                       |                                     |
| no Ready node can witness                                                    | the limit on deletions (`Breaker`)  |
| not all witnesses answered about since the node was first said to be gone    | wait, a minute for each             |
| *wrong* ones: Ready, and called gone for a minute (--node-deletion-ready-    | hold, with an alarm                 |
|   grace). More of these, known or not, than of those called existing         |                                     |
| more known wrong ones than one (none, if fewer than 10 are called existing), | hold, with an alarm                 |
|   and one more for every 4 confirmed ones                                    |                                     |
| *open* ones: Ready, and called gone for less than a minute. With the wrong   | wait: in a minute each of these is  |
|   ones they are more than those called existing; or, those known, more than  |   confirmed, wrong, or taken back   |
|   one (none), and one more for every confirmed one                           |                                     |
| fewer than half are called existing: the cloud cannot say                    | the limit on deletions              |
| anything else                                                                | delete                              |

*Confirmed*: called gone while Ready, and then no longer Ready, within the last ten minutes. A
machine that was just terminated stays Ready for about 50 s, so in a rolling replacement the record
of the first few machines covers the open ones. *Known*: see `witnesses.py`. `judge` is the rows
about a zone's answers, `Breaker` the limit; `deletion_gate.py` applies both.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from attrs import frozen

from controllers.nodelifecycle.options import BreakerOptions
from controllers.nodelifecycle.witnesses import Tally

_EPSILON: Final = 1e-9
_MANY: Final = 10  # right answers among which a single wrong one is a fact about that one node
_PER_WRONG: Final = 4  # confirmed ones that cover one more wrong one


class Verdict(enum.Enum):
    """What is to be done about a node that is confirmed gone."""

    DELETE = enum.auto()
    WAIT = enum.auto()
    """Answers are missing, or it shows within a minute whether those there are right."""
    HOLD = enum.auto()
    """The cloud calls too many Ready nodes gone to be believed."""
    COUNT = enum.auto()
    """No Ready node shows whether the cloud is right: the limit decides."""


def judge(tally: Tally) -> Verdict:
    """The rows of the table about a zone's answers. Pure."""
    if not tally.needed:
        return Verdict.COUNT
    if tally.missing:
        return Verdict.WAIT
    # One contradiction among many right answers is a fact about that one Node; a cloud that has lost
    # its machines, or a share of them, is wrong about more.
    alone = 1 if tally.right >= _MANY else 0
    if tally.wrong + tally.unproven > tally.right or tally.wrong > alone + tally.confirmed // _PER_WRONG:
        return Verdict.HOLD
    if tally.gone > tally.right or tally.open + tally.wrong > alone + tally.confirmed:
        return Verdict.WAIT
    return Verdict.DELETE if 2 * tally.right >= tally.needed else Verdict.COUNT


@frozen
class Admission:
    """Whether a node may be deleted now."""

    allowed: bool
    opened: bool = False
    """More are held back or deleted than the limit, for the first time: the alarm."""
    released: str = ""
    """Why the breaker closed by this very question; "" if it did not."""


class Breaker:
    """The limit on deletions in zones where no Ready node shows whether the cloud tells the truth.

    A cloud that lost its database, or a switched account, says "gone" of everything, for hours. So
    deletions are counted over a sliding window. Above the limit the breaker opens, with an alarm:
    only a trickle is deleted until it closes. Times are seconds of one monotonic clock, and never
    go back. Not thread-safe.
    """

    def __init__(self, options: BreakerOptions, *, now: float, quiet: float = 0.0) -> None:
        """`now`: when this process began. `quiet`: seconds that must pass without a held deletion,
        at least, before an open breaker closes by itself; longer than it takes until a node that
        was held back is asked about again."""
        self.options = options
        self._quiet = max(options.window, quiet)
        self._deleted: deque[float] = deque()
        self._owned: deque[tuple[float, int]] = deque()  # falling numbers: the first is the window's greatest
        # A process does not know what the last one deleted. It begins as if that had used up the
        # window, open without an alarm: so a restart never lets more nodes go.
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
        """Note how many nodes this provider has. Returns why the breaker closed, if it did.

        `calm`: the cloud answers all questions."""
        if self._recount:
            self._recount = False
            self._owned.clear()
        while self._owned and self._owned[-1][1] <= owned:
            self._owned.pop()
        self._owned.append((now, owned))
        self._expire(now)
        if not calm:  # a silent cloud has not recovered
            self._held_at = now
        self._outlive_start(now)
        if self._opened_at is not None and now - self._held_at >= self._quiet:
            alarmed = self._alarmed
            self._close()
            return f"nothing had to be held back for {self._quiet:g} s" if alarmed else ""
        return ""

    def limit(self, now: float) -> int:
        """Deletions allowed per window. The share is of the most nodes seen in it."""
        self._expire(now)
        owned = self._owned[0][1] if self._owned else 0
        return max(self.options.at_least, int(self.options.share * owned + _EPSILON))

    def deletions(self, now: float) -> int:
        """Deletions within the window that ends now."""
        self._expire(now)
        return len(self._deleted)

    def admit(self, now: float, gone_since: float, held: int = 0) -> Admission:
        """Whether one node may be deleted that was found gone without interruption since
        `gone_since`; counted if so. `held`: how many other nodes are held back already."""
        released = ""
        self._outlive_start(now)
        if self._opened_at is not None:
            lasting = now - max(self._opened_at, gone_since)
            if self.options.release_after and lasting >= self.options.release_after:
                # The count begins anew with the same limit: a disaster is cleaned up in steps that
                # each take this long.
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
        """An admission was not used: the node exists, or the API server refused."""
        if admitted_at in self._deleted:
            self._deleted.remove(admitted_at)

    def _outlive_start(self, now: float) -> None:
        # Without an alarm it is open because of the start alone. A window later nothing that another
        # process deleted is in the window, and fewer nodes wait than the limit. A zone that ended
        # together with the leader in it would else keep its nodes for --node-deletion-release-after.
        if self._opened_at is not None and not self._alarmed and now - self._opened_at >= self.options.window:
            self._opened_at = None

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
