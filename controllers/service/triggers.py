"""Stage 3: TRIGGER. Turns events of Services and nodes into keys, and gives them a priority.

A Service's key, of the queue `service`, is "namespace/name". All nodes have one key, of the queue
`node`: `NodeSync` gathers their changes, and then queues every load balancer that lacks them. So a
load balancer never has two calls at once, and fifty nodes that join together cost one or two
updates."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from attrs import frozen

from controllers.runtime.cache import is_newer, key_of, service_of, uid_of, version_of
from controllers.runtime.queue import DONE, Result, WorkQueue
from controllers.service.changes import ingress, status_of
from controllers.service.classes import WITHOUT_CLASS, Classes, Ownership
from controllers.service.records import Record, Records
from controllers.service.targets import TargetSet, is_leaving

if TYPE_CHECKING:
    from kubernetes.client.models.v1_endpoint_slice import V1EndpointSlice
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service
    from prometheus_client import Histogram

    from controllers.runtime.clock import Clock
    from controllers.service.targets import Targets

DELETED: Final = 30
"""Priority of load balancers that are to go."""
NEW: Final = 20
"""Priority of Services without an address."""
CHANGED: Final = 10
"""Priority of Services that were changed."""
DRIFT: Final = -10
"""Priority of load balancers that are compared with the cloud because it is time."""


_AGAIN: Final = 1.0
"""Seconds for which the provider's wishes to look at a load balancer again are gathered."""

ALL_NODES: Final = "*"
REFRESH: Final = 0
"""Priority of load balancers whose targets have changed."""

_OWED: Final = 60.0
"""Seconds until a provider that failed to say what load balancers depend on is asked again."""

_SAME: Final = 1.0
"""Seconds for which load balancers get the same targets while nodes change."""

_SHARE: Final = 3
"""While nodes change, rounds of all load balancers take one part in so many of the time."""
_LONGEST_ROUND: Final = 20.0
"""Seconds of a round that count for this."""
_REST: Final = 10
"""A round is over when one load balancer in so many is left, and one of fewer: one that hangs holds
no other one."""


class ServiceTriggers:
    """The handler of Services. Called from the informer's thread, so the provider is not asked
    here: with `whole`, every change that its `depends_on` may read is looked at."""

    def __init__(
        self, queue: WorkQueue[str], records: Records, classes: Classes = WITHOUT_CLASS, *, whole: bool = False
    ) -> None:
        self._queue = queue
        self._records = records
        self._classes = classes
        self._whole = whole

    def on_add(self, service: V1Service, initial: bool) -> None:
        key = key_of(service)
        ownership = self._classes.ownership(service)
        if ownership is not Ownership.NONE or key in self._records:
            self._queue.add(key, urgency(service, ownership))

    def on_update(self, old: V1Service, new: V1Service) -> None:
        key = key_of(new)
        restored = is_newer(version_of(old), version_of(new)) is True  # the API server, from a backup
        if restored:
            self._records.rewind(key)
        relevant = self._classes.relevant
        if not restored and relevant(old, whole=self._whole) == relevant(new, whole=self._whole):
            return
        if not self._classes.wants(new) or uid_of(new) != uid_of(old):
            self._leaves(old)  # the new one may show nothing of what the old one had
        ownership = self._classes.ownership(new)
        if ownership is not Ownership.NONE or key in self._records:
            self._queue.add(key, urgency(new, ownership))

    def on_delete(self, service: V1Service) -> None:
        self._leaves(service)
        if key_of(service) in self._records:
            self._queue.add(key_of(service), DELETED)

    def look_again(self, key: str, service: V1Service | None) -> bool:
        """The provider asks for another look; False where there is no load balancer of ours, nor to
        be. `service` None: the cache does not show it. From any thread."""
        if service is not None and self._classes.ownership(service) is Ownership.NONE and key not in self._records:
            return False
        left = self._records.look_again(key, self._queue.clock.monotonic())
        # The lowest priority: a provider that asks for all of them holds up no user.
        self._queue.add_after(key, max(_AGAIN, left), DRIFT)
        return True

    def _leaves(self, service: V1Service) -> None:
        """A former process may have built for it, so it is remembered now."""
        if self._classes.wants(service) or self._classes.ownership(service) is Ownership.REMOVE:
            self._records.put_if_absent(key_of(service), Record.inherited(service))


class SliceTriggers:
    """The handler of EndpointSlices, where the provider reads them: what it says that a load
    balancer depends on may have changed. It is asked in the Service's run, whose nodes these are,
    so with the priority of changes of nodes. Called from the informer's thread."""

    def __init__(self, queue: WorkQueue[str], records: Records) -> None:
        self._queue = queue
        self._records = records

    def on_add(self, found: V1EndpointSlice, initial: bool) -> None:
        self._changed(service_of(found))

    def on_update(self, old: V1EndpointSlice, new: V1EndpointSlice) -> None:
        before, after = service_of(old), service_of(new)
        if before != after:
            self._changed(before)
        if before != after or (old.endpoints, old.ports) != (new.endpoints, new.ports):
            self._changed(after)

    def on_delete(self, found: V1EndpointSlice) -> None:
        self._changed(service_of(found))

    def _changed(self, key: str) -> None:
        # Only a Service that has been worked on was asked about. The others are still to be.
        if key in self._records:
            self._queue.add(key, REFRESH)


def urgency(service: V1Service, ownership: Ownership) -> int:
    """The priority of an event about this Service, which asks that of us."""
    if ownership is not Ownership.KEEP:
        return DELETED
    return CHANGED if ingress(status_of(service)) else NEW


class NodeTriggers:
    """The handler of nodes. Called from the informer's thread."""

    def __init__(self, targets: TargetSet, sync: NodeSync) -> None:
        self._targets = targets
        self._sync = sync

    def on_add(self, node: V1Node, initial: bool) -> None:
        if initial:
            self._targets.invalidate()  # the Services of the first listing are served with all of these
        else:
            self._changed(None, node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        self._changed(old, new)

    def on_delete(self, node: V1Node) -> None:
        self._changed(node, None)

    def _changed(self, old: V1Node | None, new: V1Node | None) -> None:
        if self._targets.differs(old, new):
            self._targets.invalidate()
            self._sync.changed()
        # KEP-3458: else each scale-in would retarget every load balancer twice.
        elif old is not None and new is not None and is_leaving(new) and not is_leaving(old):
            self._targets.leaving()


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
        if self.targets.owed:
            self.targets.ask_again()
        present = self.current()
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

    def current(self) -> Targets:
        """The targets for a load balancer that gets some now. While nodes change they are the same
        for all for a while: with thousands of nodes it is expensive to work them out for each, and
        what they lack now the end of the gathering brings."""
        with self._giving:  # one thread works them out: a node changes before the next one could
            now = self._clock.monotonic()
            with self._lock:
                gathering = self._first is not None
                if gathering and self._given is not None and now - self._given[0] < min(_SAME, self._gathering.quiet):
                    return self._given[1]
            found = self.targets.current()
            if self.targets.owed:  # no change of a node need follow
                self._nodes.add_after(ALL_NODES, _OWED, routine=True)
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
        """Seconds until what failed for this Service is tried again; 0.0 if nothing did, or it is
        time. A change of nodes brings only the call that sets targets before that."""
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
