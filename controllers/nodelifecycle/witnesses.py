"""Whether the cloud is believed in a zone: what it says of the Ready nodes there (between stages 4 and 5). No I/O.

A Ready node's kubelet talks to the API server, so its instance exists, and the cloud's answer about it can be checked:
it is a *witness*. `triggers.py` seats the Ready nodes of the zones where a node is said to be gone, and has them asked
about; `reconcile.py` files the answers; `permits.py` asks for the verdict before it lets a node be deleted.

Only answers count that were asked for after the node to be deleted was first said to be gone, and after the zone's last
contradiction was over: an earlier one would vouch for the cloud as it was before it began to lie. All witnesses of a
zone are asked, up to `limit`. Of those beyond it, other ones are asked the next time. A lie about the share s of a
zone's Ready nodes escapes `limit` random ones with the probability (1 - s) ** limit: with 300, two in ten million for
5 %, and never where there are no more than 300.

Where nodes go one after another, each would have all witnesses asked anew. So a zone may have a few whole rounds of
questions at once, and then so many a second. Those asked about longest ago come first, so every node gets its verdict.

A contradiction is a Ready node that the cloud calls gone. It is over as soon as that node is not Ready, deleted, or
said to exist: a terminated instance's Node stays Ready for up to a minute, and that is no lie.
"""

from __future__ import annotations

import enum
import random
import threading
from collections.abc import Collection, Mapping
from typing import Final

from attrs import define, field, frozen

from cloudprovider import InstanceState

Identity = tuple[str, str]
"""UID and provider ID: which instance a name stands for."""

PATIENCE: Final = 60.0
"""Seconds after which a witness about whom the cloud has not answered is no longer waited for."""

_ROUNDS: Final = 3
"""Times that all witnesses of a zone are asked about without a pause."""

_NEVER: Final = float("-inf")


class Verdict(enum.Enum):
    """What the witnesses of a zone say of the cloud."""

    BELIEVED = enum.auto()
    """It tells them right."""
    WAITING = enum.auto()
    """Too few of them have been asked about by now."""
    CONTRADICTED = enum.auto()
    """It calls a Ready node gone: no word of it counts here."""
    SILENT = enum.auto()
    """There is none, or the cloud cannot say anything about most of them."""


@frozen
class Contradiction:
    """One zone in which the cloud calls Ready nodes gone, since when without interruption."""

    zone: str
    since: float
    names: tuple[str, ...]


@define(eq=False)
class _Witness:
    identity: Identity
    asked_at: float = _NEVER  # when the last answer was asked for
    exists: bool | None = None  # that answer; None: unknown
    called_at: float | None = None  # it is being asked about since then, without an answer


@define(eq=False)
class _Zone:
    seats: dict[str, _Witness] = field(factory=dict)
    liars: set[str] = field(factory=set)  # the Ready nodes said to be gone
    contradicted_since: float = 0.0
    cleared_at: float = _NEVER  # when the last contradiction was over
    spent: float = 0.0  # questions of late, less those that time has paid for up to `spent_at`
    spent_at: float = _NEVER
    believed_after: float = _NEVER  # the latest time for which the verdict was BELIEVED, and nothing has changed since


class Witnesses:
    """The witnesses by zone. Times are of one monotonic clock. Thread-safe."""

    def __init__(self, limit: int, *, again: int, rng: random.Random | None = None) -> None:
        """`limit`: how many of a zone are asked about. `again`: how many of those said to be gone, at each look; and
        how many of a zone in a second, in the long run."""
        self._limit = limit
        self._again = again
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._zones: dict[str, _Zone] = {}
        self._zone_of: dict[str, str] = {}

    def seat(self, zone: str, nodes: Mapping[str, Identity], now: float) -> None:
        """These are the zone's witnesses now; what is known of those that were before is kept."""
        with self._lock:
            found = self._zones.setdefault(zone, _Zone())
            for name in [name for name, one in found.seats.items() if nodes.get(name) != one.identity]:
                self._excuse(name, found, now)
            for name, identity in nodes.items():
                if name not in found.seats:
                    if name in self._zone_of:
                        self._excuse(name, self._zones[self._zone_of[name]], now)
                    found.seats[name] = _Witness(identity)
                    found.believed_after = _NEVER
                    self._zone_of[name] = zone

    def keep(self, zones: Collection[str]) -> None:
        """Forget what was said in all zones but these; nobody waits for a verdict there."""
        with self._lock:
            for name, zone in self._zones.items():
                if name not in zones and (zone.liars or zone.believed_after != _NEVER):
                    zone.liars.clear()
                    zone.believed_after = _NEVER
                    for one in zone.seats.values():
                        one.exists = None

    def call(self, zone: str, after: float, now: float) -> list[str]:
        """Whom to ask about now, for a node said to be gone since `after`: those asked about longest ago come first.

        While the zone is contradicted, only some of those said to be gone: all of them must turn out to exist.
        """
        with self._lock:
            found = self._zones.get(zone)
            if found is None:
                return []
            if found.liars:
                wanted, pool = self._again, list(found.liars)
            else:
                after = max(after, found.cleared_at)
                pool = [name for name, one in found.seats.items() if one.asked_at < after]
                wanted = self._limit - (len(found.seats) - len(pool))
                if not pool or wanted <= 0:  # all were asked; where the cloud could not say, it may now
                    wanted, pool = self._again, [name for name, one in found.seats.items() if one.exists is None]
            under_way = {name for name in pool if _pending(found.seats[name], now)}
            pool = [name for name in pool if name not in under_way]
            self._rng.shuffle(pool)
            pool.sort(key=lambda name: (found.seats[name].called_at is not None, found.seats[name].asked_at))
            called = pool[: max(0, min(wanted - len(under_way), self._room(found, now)))]
            found.spent += len(called)
            for name in called:
                seat = found.seats[name]
                seat.called_at = now if seat.called_at is None else seat.called_at
            return called

    def is_called(self, name: str) -> bool:
        """Whether this Ready node is to be asked about."""
        seat = self._seat(name)
        return seat is not None and seat.called_at is not None

    def file(
        self, name: str, identity: Identity, asked_at: float, state: InstanceState | Exception, now: float
    ) -> None:
        """Note what the cloud said of a node. Of no consequence unless it is a witness."""
        with self._lock:
            seat = self._seat(name)
            if seat is None or seat.identity != identity:
                return
            zone = self._zones[self._zone_of[name]]
            seat.called_at, seat.asked_at = None, asked_at
            seat.exists = None if isinstance(state, Exception) else state is not InstanceState.GONE
            if seat.exists is not True:
                zone.believed_after = _NEVER
            if seat.exists is False:
                if not zone.liars:
                    zone.contradicted_since = now
                zone.liars.add(name)
            elif seat.exists:
                self._reconciled(name, zone, now)

    def excuse(self, name: str, now: float) -> None:
        """The node is no witness any more: it is not Ready, or deleted."""
        with self._lock:
            zone = self._zone_of.get(name)
            if zone is not None:
                self._excuse(name, self._zones[zone], now)

    def verdict(self, zone: str, after: float, now: float) -> Verdict:
        """Whether the cloud is believed in this zone when it says of a node that it is gone since `after`."""
        with self._lock:
            found = self._zones.get(zone)
            if found is None or not found.seats:
                return Verdict.SILENT
            if found.liars:
                return Verdict.CONTRADICTED
            after = max(after, found.cleared_at)
            if after <= found.believed_after:
                return Verdict.BELIEVED
            heard = [one for one in found.seats.values() if one.asked_at >= after]
            silent = sum(one.asked_at < after and _overdue(one, now, after) for one in found.seats.values())
            needed = min(self._limit, len(found.seats))
            if len(heard) + silent < needed:
                return Verdict.WAITING
            if 2 * sum(one.exists is True for one in heard) < needed:
                return Verdict.SILENT
            found.believed_after = after
            return Verdict.BELIEVED

    def contradictions(self) -> list[Contradiction]:
        """The zones where the cloud is not believed."""
        with self._lock:
            return [
                Contradiction(name, zone.contradicted_since, tuple(sorted(zone.liars)))
                for name, zone in self._zones.items()
                if zone.liars
            ]

    def _room(self, zone: _Zone, now: float) -> int:
        """How many of the zone may be asked about now."""
        zone.spent = max(0.0, zone.spent - (now - zone.spent_at) * self._again)
        zone.spent_at = now
        return int(_ROUNDS * self._limit - zone.spent)

    def _seat(self, name: str) -> _Witness | None:
        zone = self._zones.get(self._zone_of.get(name, ""))
        return None if zone is None else zone.seats.get(name)

    def _excuse(self, name: str, zone: _Zone, now: float) -> None:
        zone.seats.pop(name, None)
        self._zone_of.pop(name, None)
        self._reconciled(name, zone, now)

    def _reconciled(self, name: str, zone: _Zone, now: float) -> None:
        if name in zone.liars:
            zone.liars.remove(name)
            if not zone.liars:
                zone.cleared_at = now
                zone.believed_after = _NEVER


def _pending(one: _Witness, now: float) -> bool:
    return one.called_at is not None and not _overdue(one, now)


def _overdue(one: _Witness, now: float, after: float = _NEVER) -> bool:
    return one.called_at is not None and now - max(one.called_at, after) >= PATIENCE
