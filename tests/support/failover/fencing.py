"""Pure: from the writes of all managers and the calls to the cloud to the verdict whether there
ever were two writers.

A manager leads from the moment that its write of the Lease arrives until it writes the Lease free,
or another one's write of it is answered, or nothing more than the lease's duration has passed since
its last renewal. What it begins then is right. What it begins before that is the work of an
intruder; what it begins after that came late. A request that came in time and was answered after
another one had taken over was on its way: nothing can recall it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, field, frozen

from tests.support.failover.audit import Request
from tests.support.failover.cloudserver import CHANGING, CloudCall


@frozen
class Act:
    """One thing that a manager did to the cluster or the cloud."""

    who: str
    what: str
    began: float
    ended: float

    def __str__(self) -> str:
        return f"{self.who} {self.what} at {self.began:.3f}"


@frozen
class Hold:
    """One time that a manager led, in Unix seconds."""

    who: str
    began: float
    """When its write of the Lease arrived."""
    acquired: float
    """When that was answered."""
    renewed: float
    """When its last write of the Lease arrived that kept it."""
    duration: float
    """Of the lease, as it wrote it."""
    released: float = math.inf
    """When its write that set the Lease free was answered."""
    releasing: float = math.inf
    """When that write arrived: nothing may follow it."""
    lost: float = math.inf
    """When another one's acquisition was answered."""

    @property
    def end(self) -> float:
        """Until when it may begin to write."""
        return min(self.releasing, self.lost, self.renewed + self.duration)

    @property
    def over(self) -> float:
        """When the Lease was free for another."""
        return min(self.released, self.renewed + self.duration)


def holds(requests: Iterable[Request], lease: str) -> list[Hold]:
    """Who led when, in order, from the writes of the Lease of that name."""
    found: list[Hold] = []
    writes = [one for one in requests if one.resource == "leases" and one.writes and one.code < 300]
    for write in sorted(writes, key=_order):
        spec = write.body.get("spec") or {}
        if lease not in (write.name, write.body.get("metadata", {}).get("name")):
            continue
        last = found[-1] if found else None
        if not spec.get("holderIdentity"):
            if last is not None and last.who == write.who:
                found[-1] = evolve(last, released=write.ended, releasing=write.began)
        elif last is not None and last.who == write.who and last.released == math.inf:
            found[-1] = evolve(last, renewed=write.began)
        else:
            if last is not None:
                found[-1] = evolve(last, lost=write.ended)
            found.append(
                Hold(write.who, write.began, write.ended, write.began, float(spec.get("leaseDurationSeconds") or 0))
            )
    return found


def _order(write: Request) -> tuple[int, float]:
    """Each write of a Lease names the version that it replaces. The time of an answer may be noted
    late."""
    return int((write.body.get("metadata") or {}).get("resourceVersion") or 0), write.ended


@frozen
class Verdict:
    """What the judge found. `clean` when every act of those that are judged was begun by the leader
    of its time."""

    holds: Sequence[Hold]
    acts: Sequence[Act]
    intruders: Sequence[Act]
    """Begun by one that did not lead and had not led just before."""
    late: Sequence[Act]
    """Begun by one whose time was over."""
    on_the_way: Sequence[Act]
    """Begun in time, answered after another one had taken over."""
    forbidden: Sequence[Request]
    """Answered with 401 or 403."""
    firsts: Mapping[int, Act] = field(factory=dict)
    """By the number of the hold, the first thing that its manager did in it."""

    def __str__(self) -> str:
        head = (
            f"{len(self.acts)} writes and cloud calls by {len({one.who for one in self.holds})} leaders in "
            f"{len(self.holds)} terms; {len(self.intruders)} by others, {len(self.late)} late, "
            f"{len(self.on_the_way)} on their way at a take-over, {len(self.forbidden)} forbidden"
        )
        wrong = [
            *(f"by one that did not lead: {one}" for one in self.intruders),
            *(f"late: {one}" for one in self.late),
        ]
        wrong += [f"forbidden: {one.who} {one.verb} {one.resource} {one.name}" for one in self.forbidden]
        return "\n  ".join((head, *wrong[:20]))


def judge(
    requests: Sequence[Request], calls: Sequence[CloudCall], managers: Mapping[str, str], lease: str, slack: float = 0.0
) -> Verdict:
    """The verdict on `managers`: by the UID of each one's token, its name, by which the cloud knows
    it.

    `slack` is in seconds: how much later than it was sent a request may be noticed on a busy
    machine.
    """
    found = [_named(one, managers) for one in holds([one for one in requests if one.who in managers], lease)]
    acts = sorted([*_writes(requests, managers, lease), *_changes(calls, managers)], key=lambda one: one.began)
    intruders, late, on_the_way = [], [], []
    firsts: dict[int, Act] = {}
    for act in acts:
        earlier = [number for number, hold in enumerate(found) if hold.who == act.who and hold.began <= act.began]
        if not earlier:
            intruders.append(act)
            continue
        hold = found[earlier[-1]]
        if act.began > hold.end + slack:
            late.append(act)
            continue
        firsts.setdefault(earlier[-1], act)
        if act.ended > hold.lost:
            on_the_way.append(act)
    forbidden = [one for one in requests if one.who in managers and one.code in (401, 403)]
    return Verdict(found, acts, intruders, late, on_the_way, forbidden, firsts)


def _named(hold: Hold, managers: Mapping[str, str]) -> Hold:
    return evolve(hold, who=managers[hold.who])


def _of_the_election(one: Request, lease: str) -> bool:
    """Leases, and Events about who became or stopped being the leader, which the former one sends
    too."""
    return one.resource == "leases" or (one.resource == "events" and one.name.startswith(f"{lease}."))


def _writes(requests: Iterable[Request], managers: Mapping[str, str], lease: str) -> Iterable[Act]:
    for one in requests:
        if one.who in managers and one.writes and not _of_the_election(one, lease):
            where = "/".join(filter(None, (one.namespace, one.name)))
            yield Act(managers[one.who], f"{one.verb} {one.resource} {where} ({one.code})", one.began, one.ended)


def _changes(calls: Iterable[CloudCall], managers: Mapping[str, str]) -> Iterable[Act]:
    names = set(managers.values())
    for call in calls:
        if call.method in CHANGING and call.caller in names:
            yield Act(call.caller, f"{call.method} {call.key}", call.began, call.ended)
