"""Stage 3: QUEUE. Gathers changes of nodes, and then queues every load balancer that lags behind.

Runs off the queue `node`, which has one key for all nodes, and fills the queue `service`. So a load
balancer never has two calls at once, and fifty nodes that join together cost one or two updates."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from attrs import frozen

from controllers.runtime.queue import DONE, Result, WorkQueue

if TYPE_CHECKING:
    from prometheus_client import Histogram

    from controllers.runtime.clock import Clock
    from controllers.service.records import Records
    from controllers.service.targets import Targets, TargetSet

ALL_NODES: Final = "*"
REFRESH: Final = 0
"""Priority of load balancers whose targets have changed."""

_SAME: Final = 1.0
"""Seconds for which load balancers get the same targets while nodes change."""

_SHARE: Final = 3
"""While nodes change, rounds of all load balancers take one part in so many of the time."""
_LONGEST_ROUND: Final = 20.0
"""Seconds of a round that count for this."""
_REST: Final = 10
"""A round is over when one load balancer in so many is left, and one of fewer: one that hangs holds
no other one."""


@frozen
class Gathering:
    """Changes of nodes are acted upon together: when none came for `quiet` seconds, and `longest`
    seconds after the first at the latest, if that is more."""

    quiet: float
    longest: float

    def end(self, first: float, last: float) -> float:
        """When to act upon changes of which the first and the last came at these times."""
        return min(last + self.quiet, first + max(self.quiet, self.longest))


class NodeSync:
    """One gathering of changes at a time. Thread-safe."""

    def __init__(
        self,
        nodes: WorkQueue[str],
        services: WorkQueue[str],
        records: Records,
        targets: TargetSet,
        gathering: Gathering,
        *,
        latency: Histogram,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._services = services
        self._records = records
        self.targets = targets
        self._gathering = gathering
        self._clock = clock
        self._lock = threading.Lock()
        self._giving = threading.Lock()
        self._first: float | None = None
        self._last = 0.0
        self._waiting: set[str] = set()
        self._began = 0.0
        self._latency = latency
        self._given: tuple[float, Targets] | None = None
        self._round: set[str] = set()  # those of the last round that were not tried yet
        self._rest = 0  # so many may be left when it is over
        self._round_began = self._round_ended = clock.monotonic()

    def changed(self) -> None:
        """The targets have changed."""
        with self._lock:
            self._last = self._clock.monotonic()
            if self._first is None:
                self._first = self._last
        self._nodes.add_after(ALL_NODES, self._gathering.quiet)

    def sync(self, key: str) -> Result:
        """One unit of work of the queue `node`: wait while changes come, else queue what lags."""
        now = self._clock.monotonic()
        with self._lock:
            first = now if self._first is None else self._first
            left = max(self._gathering.end(first, self._last), self._earliest(now)) - now
            if left > 0:
                return Result(requeue_after=left)
            self._first = self._given = None
        present = self.targets.current()
        self._records.lagging(present, first)
        behind = self._records.outdated(present, self.resting)
        with self._lock:
            if not self._waiting:
                self._began = first
            self._waiting.update(behind)
            self._round, self._rest = set(behind), max(1, len(behind) // _REST)
            self._round_began = self._round_ended = now
        for service in behind:
            self._services.add(service, REFRESH)
        return DONE

    def _earliest(self, now: float) -> float:
        # With thousands of nodes and Services a round takes many seconds of CPU and of the cloud's
        # time. One after the other without a pause they would delay the nodes themselves.
        ended = now if len(self._round) > self._rest else self._round_ended
        return self._round_began + _SHARE * min(ended - self._round_began, _LONGEST_ROUND)

    def given(self) -> Targets:
        """The targets for a load balancer that gets some now. While nodes change they are the same
        for all for a while: with thousands of nodes it is dear to work them out for each, and what
        they lack now the end of the gathering brings."""
        with self._giving:  # one thread works them out: a node changes before the next one could
            now = self._clock.monotonic()
            with self._lock:
                gathering = self._first is not None
                if gathering and self._given is not None and now - self._given[0] < min(_SAME, self._gathering.quiet):
                    return self._given[1]
            found = self.targets.current()
            if gathering:
                with self._lock:
                    self._given = now, found
            return found

    def is_due(self, key: str) -> bool:
        """Whether this load balancer may get new targets now: not while changes are gathered,
        unless it waits for what was gathered before."""
        with self._lock:
            return self._first is None or key in self._waiting

    def resting(self, key: str) -> float:
        """Seconds until the turn of what failed for this Service; 0.0 if nothing did, or it is its
        turn. That nodes change hastens only what gives them to the load balancer."""
        return self._services.resting(key)

    def tried(self, key: str) -> None:
        """A Service has been worked on, with success or without."""
        with self._lock:
            if key in self._round:
                self._round.discard(key)
                if len(self._round) == self._rest:
                    self._round_ended = self._clock.monotonic()

    def finished(self, key: str) -> None:
        """A Service has been served, or is none any more."""
        with self._lock:
            if key not in self._waiting:
                return
            self._waiting.discard(key)
            if self._waiting:
                return
            seconds = self._clock.monotonic() - self._began
        self._latency.observe(seconds)
