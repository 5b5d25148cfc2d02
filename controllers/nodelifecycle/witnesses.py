"""What the cloud said of the Ready nodes of each zone. No I/O; `deletion_policy.py` judges it.

A Ready node's kubelet talks to the API server, so its machine runs, and the cloud's answer about it
can be checked: it is a *witness*. `triggers.py` registers the Ready nodes and queues questions
about them, `reconcile.py` notes the answers.

A kubelet writes Ready, the provider ID and the zone label of its own Node itself. So a Ready node
that the cloud calls gone speaks against the cloud only

- as *known*: in this process the cloud once called it existing, with this UID, provider ID and
  zone. Each Ready node is asked about once for that purpose (`census`).
- as *unproven*: it was there when this process began, and the cloud has never called it existing
  since.

Any other one proves nothing, nor does a provider ID that stands on two Nodes.

All witnesses of a zone are asked about, up to `limit`, or three times as many where one of these is
called gone; of those beyond it, other ones the next time. A lie about the share s of a zone's Ready
nodes escapes `limit` random ones with the probability (1 - s) ** limit.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from attrs import define, evolve, field, frozen

from cloudprovider import InstanceState

Identity = tuple[str, str, str]
"""UID, provider ID and zone: which instance a name stands for, and where."""

PATIENCE: Final = 60.0
"""Seconds after which a witness about whom the cloud has not answered is no longer waited for."""

MEMORY: Final = 600.0
"""Seconds for which a node that turned NotReady after "gone" speaks for the cloud."""

_ROUNDS: Final = 3  # times `limit` that may be asked about without a pause
_CENSUS: Final = 5  # seconds' worth of questions that one census may put
_SAME: Final = 1.0  # seconds for which a count is used again, if no answer has come
_NEVER: Final = float("-inf")


@frozen
class Tally:
    """The answers about a zone's Ready nodes, for a node said to be gone. Nodes, but for `zone`."""

    needed: int = 0
    """Witnesses whose answers are needed."""
    missing: int = 0
    """Those of them that the cloud has not answered about by now."""
    right: int = 0
    """Called existing, since the node was said to be gone."""
    open: int = 0
    """Known, called gone less than the grace ago, and not long after the node itself."""
    gone: int = 0
    """All that are called gone: known or unproven, for however long."""
    wrong: int = 0
    """Known, called gone, and Ready for the grace since."""
    unproven: int = 0
    """Never called existing, called gone, and Ready for the grace since."""
    confirmed: int = 0
    """Called gone while Ready, and then no longer Ready, of late."""


@define(eq=False)
class _Witness:
    identity: Identity
    asked_at: float = _NEVER  # when the last answer was asked for
    exists: bool | None = None  # that answer; None: unknown
    called_at: float | None = None  # it is being asked about since then, without an answer
    gone_since: float | None = None  # the cloud calls it gone since then


@define(eq=False)
class _Zone:
    witnesses: dict[str, _Witness] = field(factory=dict)
    confirmed: dict[str, float] = field(factory=dict)
    retracted_at: float = _NEVER  # when the cloud last retracted a "gone" about a known node
    spent: float = 0.0  # questions of late, less those that time has paid for up to `spent_at`
    spent_at: float = _NEVER
    last: tuple[float, float, Tally] | None = None  # the last count: for which time, when; None: answers have come


class Witnesses:
    """The witnesses by zone. Times are of one monotonic clock. Thread-safe."""

    def __init__(self, limit: int, *, again: int, grace: float, rng: random.Random | None = None) -> None:
        """`limit`: how many of a zone are asked about. `again`: how many of those said to be gone,
        at each look; and how many of a zone in a second, in the long run. `grace`: seconds for
        which a terminated machine's Node may stay Ready."""
        self._limit = limit
        self._again = again
        self._grace = grace
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._zones: dict[str, _Zone] = {}
        self._known: dict[str, Identity] = {}  # by node name
        self._first: frozenset[Identity] | None = None  # what was there when this process began
        self._looked: dict[str, Identity] = {}  # what `look` was last given
        self._shared: set[str] = set()  # provider IDs that stand, or stood, on two Nodes

    # ---- who is a witness

    def look(self, nodes: Mapping[str, Identity]) -> None:
        """These are all nodes of this provider at the moment, by name."""
        with self._lock:
            for name in [name for name in self._known if name not in nodes]:
                del self._known[name]
            if self._first is not None and nodes == self._looked:
                return  # what follows would change nothing; it is dear where there are many nodes
            self._looked = dict(nodes)
            if self._first is None:
                self._first = frozenset(nodes.values())
            else:
                self._first = self._first.intersection(nodes.values())
            bearers = Counter(provider_id for _, provider_id, _ in nodes.values() if provider_id)
            self._shared.intersection_update(bearers)
            self._shared.update(one for one, count in bearers.items() if count > 1)

    def register(self, zone: str, nodes: Mapping[str, Identity]) -> None:
        """These are the zone's Ready nodes now; what is known of those that were before is kept."""
        with self._lock:
            found = self._zones.setdefault(zone, _Zone())
            witnesses = found.witnesses
            for name in [name for name, one in witnesses.items() if nodes.get(name) != one.identity]:
                del witnesses[name]
                found.last = None
            for name, identity in nodes.items():
                if name not in witnesses:
                    witnesses[name] = _Witness(identity)
                    found.last = None

    def zones(self) -> list[str]:
        """The zones that have, or had, witnesses."""
        with self._lock:
            return list(self._zones)

    def not_ready(self, name: str, identity: Identity, now: float) -> None:
        """The node is not Ready. If the cloud called it gone, that has confirmed the cloud."""
        with self._lock:
            zone = self._zones.get(identity[2])
            witness = None if zone is None else zone.witnesses.get(name)
            if zone is None or witness is None or witness.identity[0] != identity[0]:
                return
            del zone.witnesses[name]
            zone.last = None
            if witness.gone_since is not None and self._counts(name, witness):
                zone.confirmed[name] = now

    def deleted(self, name: str, zone: str) -> None:
        """The Node was deleted."""
        with self._lock:
            found = self._zones.get(zone)
            if found is not None and found.witnesses.pop(name, None) is not None:
                found.last = None

    def keep(self, waiting: Collection[str], now: float) -> None:
        """Forget the nodes that were wrongly called gone in all zones but these: no question about
        them follows there."""
        with self._lock:
            for zone in [zone for zone in self._zones if zone not in waiting]:
                found = self._zones[zone]
                for name, witness in found.witnesses.items():
                    lasting = witness.gone_since is not None and now - witness.gone_since >= self._grace
                    if lasting and self._is_known(name, witness):
                        witness.gone_since = witness.exists = found.last = None
                if not found.witnesses and all(now - at >= MEMORY for at in found.confirmed.values()):
                    del self._zones[zone]

    # ---- the questions

    def call(self, zone: str, after: float, now: float) -> list[str]:
        """Whom to ask about now, for a node said to be gone since `after`: those asked about
        longest ago come first, beside some of those that are called gone."""
        with self._lock:
            found = self._zones.get(zone)
            if found is None:
                return []
            witnesses = found.witnesses
            after = max(after, found.retracted_at)
            pool = [name for name, one in witnesses.items() if one.asked_at < after]
            gone = sum(one.exists is False for one in witnesses.values())
            wanted = self._enough(gone, found) - (len(witnesses) - len(pool))
            if not pool or wanted <= 0:  # all were asked; where the cloud could not say, it may now
                wanted, pool = self._again, [name for name, one in witnesses.items() if one.exists is None]
            gone_ones = [name for name, one in witnesses.items() if one.exists is False]
            called = self._ask(found, pool, wanted, now)
            return called + self._ask(found, gone_ones, self._again, now)

    def census(self, now: float) -> list[str]:
        """Ready nodes that the cloud has never called existing: to be asked about, a few at each
        look."""
        with self._lock:
            called: list[str] = []
            for zone in self._zones.values():
                pool = [
                    name
                    for name, witness in zone.witnesses.items()
                    if self._known.get(name) != witness.identity and now - witness.asked_at >= PATIENCE
                ]
                called += self._ask(zone, pool, _CENSUS * self._again, now) if pool else []
            return called

    def is_called(self, name: str, zone: str) -> bool:
        """Whether this Ready node is to be asked about."""
        witness = self._witness(name, zone)
        return witness is not None and witness.called_at is not None

    def file(
        self, name: str, identity: Identity, asked_at: float, state: InstanceState | Exception, now: float
    ) -> None:
        """Note what the cloud said of a node, Ready or not."""
        exists = None if isinstance(state, Exception) else state is not InstanceState.GONE
        with self._lock:
            witness = self._witness(name, identity[2])
            if witness is not None and witness.identity == identity:
                zone = self._zones[identity[2]]
                zone.last = None
                witness.called_at, witness.asked_at, witness.exists = None, asked_at, exists
                if exists is False:
                    zone.confirmed.pop(name, None)  # it is Ready again: that was no confirmation
                    witness.gone_since = now if witness.gone_since is None else witness.gone_since
                elif exists:
                    if witness.gone_since is not None and self._is_known(name, witness):
                        zone.retracted_at = now
                    witness.gone_since = None
            if exists:
                self._known[name] = identity

    # ---- the count

    def tally(self, zone: str, after: float, asked_at: float, now: float) -> Tally:
        """The answers for a node said to be gone since `after`, and again to a question put at
        `asked_at`."""
        with self._lock:
            found = self._zones.get(zone)
            if found is None:
                return Tally()
            # Only answers count that were asked for after the node was said to be gone: an earlier
            # one would speak for the cloud as it was before it began to lie. The same holds after
            # the cloud has retracted a "gone" about a known node.
            after = max(after, found.retracted_at)
            tally = self._counted(found, after, now)
            if asked_at < found.retracted_at:
                tally = evolve(tally, missing=max(1, tally.missing))
            return tally

    def contradictions(self, now: float) -> dict[str, tuple[str, ...]]:
        """By zone: the Ready nodes that the cloud calls gone, for longer than terminated ones."""
        with self._lock:
            found = {
                zone: tuple(
                    sorted(
                        name
                        for name, one in registered.witnesses.items()
                        if one.gone_since is not None
                        and now - one.gone_since >= self._grace
                        and self._counts(name, one)
                    )
                )
                for zone, registered in self._zones.items()
            }
            return {zone: names for zone, names in found.items() if names}

    def _counted(self, zone: _Zone, after: float, now: float) -> Tally:
        if zone.last is not None:
            then, at, tally = zone.last
            # An earlier `after` only makes more answers count, a later one fewer: what is reused
            # errs towards waiting.
            if now - at < _SAME and (after >= then if tally.missing else after <= then):
                return tally
        right: set[str] = set()
        counting = answered = opened = gone = wrong = unproven = 0
        for name, witness in zone.witnesses.items():
            if witness.exists and witness.asked_at >= after:
                right.add(witness.identity[1] or name)  # one instance is one witness, however many Nodes claim it
                continue
            if not self._counts(name, witness):
                continue
            counting += 1
            if witness.gone_since is None:
                answered += witness.asked_at >= after or _overdue(witness, now, after)
                continue
            answered += 1
            gone += 1
            known, lasting = self._is_known(name, witness), now - witness.gone_since >= self._grace
            wrong += known and lasting
            unproven += lasting and not known
            opened += known and not lasting and witness.gone_since < after + self._grace
        zone.confirmed = {name: at for name, at in zone.confirmed.items() if now - at < MEMORY}
        needed = min(self._enough(gone, zone), counting + len(right))
        missing = max(0, needed - answered - len(right))
        tally = Tally(needed, missing, len(right), opened, gone, wrong, unproven, len(zone.confirmed))
        zone.last = (after, now, tally)
        return tally

    def _enough(self, gone: int, zone: _Zone) -> int:
        """How many are asked about: more where some are called gone, beyond the cloud's record."""
        return self._limit * (_ROUNDS if gone > len(zone.confirmed) else 1)

    def _counts(self, name: str, witness: _Witness) -> bool:
        """Whether the cloud's "gone" about this Ready node says anything about the cloud."""
        early = self._first is not None and witness.identity in self._first
        return witness.identity[1] not in self._shared and (early or self._is_known(name, witness))

    def _is_known(self, name: str, witness: _Witness) -> bool:
        return witness.identity[1] not in self._shared and self._known.get(name) == witness.identity

    def _witness(self, name: str, zone: str) -> _Witness | None:
        found = self._zones.get(zone)
        return None if found is None else found.witnesses.get(name)

    def _ask(self, zone: _Zone, pool: list[str], wanted: int, now: float) -> list[str]:
        """Some of these are asked about from now on, besides those that are already."""
        zone.spent = max(0.0, zone.spent - (now - zone.spent_at) * self._again)
        zone.spent_at = now
        room = int(_ROUNDS * self._limit - zone.spent)
        under_way = {name for name in pool if _pending(zone.witnesses[name], now)}
        free = [name for name in pool if name not in under_way]
        self._rng.shuffle(free)
        free.sort(key=lambda name: (zone.witnesses[name].called_at is not None, zone.witnesses[name].asked_at))
        called = free[: max(0, min(wanted - len(under_way), room))]
        zone.spent += len(called)
        for name in called:
            witness = zone.witnesses[name]
            witness.called_at = now if witness.called_at is None else witness.called_at
        return called


def _pending(one: _Witness, now: float) -> bool:
    return one.called_at is not None and not _overdue(one, now)


def _overdue(one: _Witness, now: float, after: float = _NEVER) -> bool:
    return one.called_at is not None and now - max(one.called_at, after) >= PATIENCE
