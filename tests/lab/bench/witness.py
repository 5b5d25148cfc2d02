"""The two witnesses of every benchmark: the API server's audit log and the journal of the in-memory
cloud.

Both are files of JSON lines with microseconds of the same clock, written the same way whoever is
measured; all times are Unix seconds. Read while they grow.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.support.failover.audit import AuditLog, Request, Tail

# ---- the API server


class Seen:
    """One contender's writes on nodes and its new Events. Each request is looked at once: there are
    thousands, on the machine that is measured."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit, self._at = audit, len(audit.requests)
        self.nodes: list[Request] = []
        self.events: list[Request] = []

    def look(self) -> Seen:
        """Take in what is new."""
        requests = self._audit.read()
        for number in range(self._at, len(requests)):
            one = requests[number]
            if one.writes and one.code < 300:
                if one.resource.startswith("nodes") and one.verb in ("patch", "update"):
                    self.nodes.append(one)
                elif one.resource == "events" and one.verb == "create":
                    self.events.append(one)
        self._at = len(requests)
        return self

    @property
    def count(self) -> int:
        return len(self.nodes) + len(self.events)

    @property
    def first(self) -> float:
        return min(write.began for write in self.nodes)

    @property
    def last_node(self) -> float:
        return max(write.ended for write in self.nodes)

    @property
    def last_event(self) -> float:
        return max((write.ended for write in self.events), default=0.0)


# ---- the cloud


@frozen
class Call:
    """One call that the cloud answered."""

    method: str
    began: float
    ended: float
    keys: tuple[str, ...]
    """Node names, "namespace/name" of a Service, or a route's destination."""
    gone: tuple[str, ...] = ()
    """Those of the nodes that it said are gone."""
    nodes: int = 0
    """How many nodes a load balancer was given."""


class JournalReader:
    """Every call that the cloud answered."""

    def __init__(self, journal: Path) -> None:
        self._tail = Tail(journal)
        self.calls: list[Call] = []

    def read(self) -> list[Call]:
        """All calls so far, in the order in which they ended."""
        self.calls += (_call(json.loads(line)) for line in self._tail.read())
        return self.calls

    def of(self, *methods: str) -> list[Call]:
        """The calls of these methods so far."""
        return [call for call in self.read() if call.method in methods]


def _call(entry: Mapping[str, Any]) -> Call:
    return Call(**{**entry, "keys": tuple(entry["keys"]), "gone": tuple(entry.get("gone", ()))})


# ---- what follows from them


def learnt(calls: Iterable[Call]) -> dict[str, float]:
    """When the cloud had first said of each node all there is to say: gone, or else running or shut
    down."""
    found: dict[str, float] = {}
    for call in calls:
        if call.method in ("instances_state", "instance_shutdown"):
            names: Sequence[str] = call.keys
        else:
            names = call.gone
        for name in names:
            found[name] = min(call.ended, found.get(name, call.ended))
    return found


def confirmed(calls: Iterable[Call], answers: int, period: float) -> dict[str, float]:
    """When each node was confirmed gone: at the answer that makes `answers` in a row.

    Each of them was asked for at least `period` seconds after the one before had come, as the
    lifecycle controller counts them.
    """
    found: dict[str, float] = {}
    last: dict[str, float] = {}
    counts: dict[str, int] = {}
    for call in sorted(calls, key=lambda call: call.ended):
        for name in call.gone:
            if name in last and call.began - last[name] < period - 1e-3:
                continue
            last[name] = call.ended
            counts[name] = counts.get(name, 0) + 1
            if counts[name] == answers:
                found[name] = call.ended
    return found


def per_key(calls: Iterable[Call]) -> dict[str, int]:
    """How many of these calls each key had."""
    return dict(Counter(key for call in calls for key in call.keys))
