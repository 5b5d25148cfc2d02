"""Stage 4: DECIDE. When a node is deleted. Pure: no I/O, no clock; `reconcile.py` applies it.

A node that is not Ready is a *candidate*. Two answers "gone" about its instance, a monitor period
apart, confirm it; the second of a provider that has both `instances_state` and `instance_exists` is
"gone" only if both say so. Then the first row that applies decides:

| the candidate, and what the cloud says of Ready nodes of its zone    | decision            |
|----------------------------------------------------------------------|---------------------|
| marked by the cluster autoscaler; released by an operator            | delete              |
| known for less than --node-deletion-young-grace                      | wait                |
| --node-deletion-breaker=false                                        | delete              |
| more than one of its list is still Ready and still called gone (or   | wait; held, with an |
|   one, where fewer than ten of the sample were called existing)      | alarm, in a minute  |
| no Ready node could be asked, the cloud answered about fewer than    | the limit           |
|   half of the sample, or called none of it existing                  |                     |
| anything else                                                        | delete              |

The *sample* is up to thirty Ready nodes of the zone, drawn at random and asked about with the
second answer. Those that the cloud calls gone are the candidate's *list*.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from cloudprovider import InstanceState
from cloudprovider.helpers import provider_id_of
from controllers.nodelifecycle.changes import zone_of
from controllers.runtime.cache import uid_of

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

CONFIRMATIONS: Final = 2
SAMPLE: Final = 30
ALARM_AFTER: Final = 60.0
"""Seconds after which a candidate that is still there is told about: a terminated machine's Node
stays Ready for 40 to 55 s."""

SHARE: Final = 0.5  # of all nodes, in the limit
TRICKLE: Final = 60.0  # seconds from one deletion to the next above the limit

ROUNDING: Final = 1e-6
"""Seconds by which a timer may come early."""

_MANY: Final = 10

Identity = tuple[str, str, str]
"""A node's name, UID and provider ID."""


@frozen(eq=False)
class Sample:
    """What the cloud said of some Ready nodes of a zone when it was asked at `asked_at`."""

    asked_at: float
    size: int = 0
    existing: int = 0
    gone: tuple[Identity, ...] = ()


class Verdict(enum.Enum):
    """What is to be done about a candidate that is confirmed gone."""

    DELETE = enum.auto()
    WAIT = enum.auto()
    """For nodes of its list to turn NotReady, or to be called existing."""
    LIMIT = enum.auto()
    """No Ready node shows whether the cloud is right: the limit decides."""


def judge(sample: Sample, still: int) -> Verdict:
    """The rows of the table about the sample. `still`: how many of its list are still Ready and
    still called gone."""
    # Among many right answers a single wrong one is a fact about that one node, and one kubelet
    # must not veto a zone's deletions.
    if still > (1 if sample.existing >= _MANY else 0):
        return Verdict.WAIT
    # Only a cloud that calls machines existing has shown that it can tell the two apart.
    shown = sample.existing > 0 and 2 * (sample.existing + len(sample.gone)) >= sample.size
    return Verdict.DELETE if shown else Verdict.LIMIT


@frozen(eq=False)
class StateAnswer:
    """What the cloud said of a node, and of which instance it was asked."""

    node: V1Node
    """The node as it was when the question was put."""
    asked_at: float
    answered_at: float
    state: InstanceState | Exception
    confirms: bool = True
    """Whether "gone" is the word of every method of the provider that can say it."""


@frozen
class Candidate:
    """The cloud's answers about one node that is not Ready. Times are of the monotonic clock.

    A row of answers is unbroken: another answer, an unknown, another UID, provider ID or zone, or a
    node that turns ready begins a new one.
    """

    uid: str
    provider_id: str
    zone: str = ""
    state: InstanceState | None = None
    """The last answer; None: unknown."""
    since: float = 0.0
    """When the first answer of this row came."""
    counted_at: float = 0.0
    """When the last answer that counts came."""
    answers: int = 0
    """How many of the row count."""
    confirmed: bool = False
    """Whether one of the row was "gone" of every method of the provider that can say it."""
    unknown_since: float | None = None
    """When the first of a row of unknowns was asked for."""
    problem: str = ""
    """The last unknown's message."""
    reported_at: float | None = None
    """When the last Event said that it is unknown."""
    gone_since: float | None = None
    """When it was first said to be gone. A failure to answer does not undo it, unlike `since`."""
    sample: Sample | None = None
    held: bool = False
    """Confirmed gone, and held back by its list or by the limit."""
    why: str = ""
    """Why it is not deleted yet, for people."""
    told: bool = False
    """An Event said so."""
    listed: bool = False
    """A line of the log named it since the first answer of this row."""
    released: bool = False
    """Held back once, and let go by an operator."""
    out_of_service: bool = False
    """The out-of-service taint was written since the first answer of this row. It is written once:
    removing it is final."""
    rests_until: float = 0.0
    """Before that, no sweep queues it: it has a timer of its own."""

    def is_of(self, node: V1Node) -> bool:
        """Whether this is about that very node and instance."""
        return (self.uid, self.provider_id) == (uid_of(node), provider_id_of(node))


def counted(one: Candidate | None, answer: StateAnswer, period: float) -> Candidate:
    """The candidate after one more answer."""
    new = Candidate(uid_of(answer.node), provider_id_of(answer.node), zone_of(answer.node))
    # In another zone other nodes decide about it.
    if one is None or not one.is_of(answer.node) or one.zone != new.zone:
        one = new
    if isinstance(answer.state, Exception):
        since = answer.asked_at if one.unknown_since is None else one.unknown_since
        new = evolve(new, unknown_since=since, problem=str(answer.state)[:500], reported_at=one.reported_at)
        # People are told once that it is held back, also where the cloud falls silent in between.
        return evolve(new, gone_since=one.gone_since, told=one.told)
    if one.state is not answer.state:
        at = answer.answered_at
        new = evolve(new, state=answer.state, since=at, counted_at=at, answers=1)
        if answer.state is InstanceState.GONE:
            new = evolve(new, gone_since=at if one.gone_since is None else one.gone_since, told=one.told)
        return new
    if answer.asked_at - one.counted_at < period - ROUNDING:  # too soon to be another answer
        return one
    confirmed = one.confirmed or answer.confirms
    return evolve(one, counted_at=answer.answered_at, answers=one.answers + 1, confirmed=confirmed)


class Admission(enum.Enum):
    """Whether the limit lets a node be deleted now."""

    ALLOWED = enum.auto()
    HELD = enum.auto()
    ALARM = enum.auto()
    """Held, and more are held back or deleted than the limit, for the first time."""


class Limit:
    """How many nodes are deleted where no Ready node shows whether the cloud tells the truth.

    A cloud that lost its database, or a switched account, says "gone" of everything, for hours. So
    deletions are counted over a sliding window. Above the limit it opens: only a trickle is deleted
    until nothing had to be held back for a window. Times are seconds of one monotonic clock, and
    never go back. Not thread-safe.
    """

    def __init__(self, at_least: int, window: float, *, now: float, quiet: float = 0.0) -> None:
        """`now`: when this process began. `quiet`: seconds that must pass without a held deletion,
        at least, before it closes by itself; longer than it takes until a node that was held back
        is asked about again."""
        self.window = window
        self.alarming = False
        """Whether more nodes were to be deleted than the limit, since it opened."""
        self._at_least = at_least
        self._quiet = max(window, quiet)
        self._deleted: deque[float] = deque()
        self._owned: deque[tuple[float, int]] = deque()  # falling numbers: the first is the window's greatest
        # A process does not know what the last one deleted. It begins as if that had used up the
        # window, open without an alarm: so a restart never lets more nodes go.
        self._opened_at: float | None = now
        self._held_at = self._trickled_at = now

    def observe(self, now: float, owned: int, *, calm: bool = True) -> bool:
        """Note how many nodes this provider has. Returns whether an alarm is over.

        `calm`: the cloud answers all questions."""
        if not calm:  # a silent cloud has not recovered
            self._held_at = now
        self._outlive_start(now)
        over = False
        if self._opened_at is not None and now - self._held_at >= self._quiet:
            over, self.alarming, self._opened_at = self.alarming, False, None
            self._deleted.clear()
            self._owned.clear()
        while self._owned and self._owned[-1][1] <= owned:
            self._owned.pop()
        self._owned.append((now, owned))
        return over

    def number(self, now: float) -> int:
        """Deletions allowed per window. The share is of the most nodes seen in it."""
        while len(self._owned) > 1 and self._owned[0][0] <= now - self.window:
            self._owned.popleft()
        owned = self._owned[0][1] if self._owned else 0
        return max(self._at_least, int(SHARE * owned + ROUNDING))

    def deletions(self, now: float) -> int:
        """Deletions within the window that ends now."""
        while self._deleted and self._deleted[0] <= now - self.window:
            self._deleted.popleft()
        return len(self._deleted)

    def admit(self, now: float, held: int = 0) -> Admission:
        """Whether one node may be deleted; counted if so. `held`: how many other nodes are held
        back already."""
        self._outlive_start(now)
        if self._opened_at is None and self.deletions(now) >= self.number(now):
            self._opened_at = self._trickled_at = now
        if self._opened_at is None or now - self._trickled_at >= TRICKLE:
            self._trickled_at = now
            self._deleted.append(now)
            return Admission.ALLOWED
        self._held_at = now
        if self.alarming or self.deletions(now) + held < self.number(now):
            return Admission.HELD
        self.alarming = True
        return Admission.ALARM

    def refund(self, admitted_at: float) -> None:
        """An admission was not used: the node exists, or the API server refused."""
        if admitted_at in self._deleted:
            self._deleted.remove(admitted_at)

    def _outlive_start(self, now: float) -> None:
        # Without an alarm it is open because of the start alone. A window later nothing that
        # another process deleted is in the window, and fewer nodes wait than the limit. A zone
        # that ended together with the leader in it would else keep its nodes.
        if self._opened_at is not None and not self.alarming and now - self._opened_at >= self.window:
            self._opened_at = None
