"""Stage 4: RECONCILE, the key `LIST`. Lists the cloud's routes once for all nodes, and queues work.

From the cloud (stage 5) into the table; `planning.py` says which keys that brings up. Before a
route is deleted, `serves` says whether the listing is fresh enough. Counts what the comparisons
came to: one is "periodic" when a periodic listing asked for it, and "changed" when its work changed
the cloud, in any run of the key."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from controllers.cloudcalls import PRIORITY_NEW, CallsClosed, InvalidAnswer
from controllers.route.changes import Entry, State
from controllers.route.planning import LIST, LISTING, NODE
from controllers.runtime.queue import Result, WorkQueue

if TYPE_CHECKING:
    from controllers.cloudcalls.capabilities import RouteCalls
    from controllers.route.planning import Planner
    from controllers.route.registration import RouteOptions
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_MOST_NAMED: Final = 5

PERIODIC: Final = "periodic"
NODE_CHANGE: Final = "node_change"
"""Why a key is worked on: a periodic listing brought it up, or anything else."""


class RouteListing:
    """Keeps the table fresh. Thread-safe."""

    def __init__(
        self,
        routes: RouteCalls,
        planner: Planner,
        queue: WorkQueue[str],
        options: RouteOptions,
        metrics: RouteMetrics,
        clock: Clock,
    ) -> None:
        self._routes = routes
        self._table = planner.table
        self._planner = planner
        self._queue = queue
        self.cluster_name = options.cluster_name
        self._period = options.route_reconciliation_period
        self._interval = options.list_interval
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way = False
        self._again = False  # `refresh` was called since the last listing began
        self._trigger = PERIODIC
        self._left_alone: frozenset[str] = frozenset()
        self._advice = ""
        self._full: dict[str, bool] = {}  # the nodes that wait for room; True: it is their turn
        self._rooms = 0  # how often there was room for one more
        self.refused = ""
        """What is wrong with the provider's last listing; "" when nothing is. While there is
        something, nothing is created or deleted beside it: it may be any node's route."""

    def run(self) -> Result:
        """List the routes and compare them with all nodes; periodically. Raises its error."""
        age = self._table.age
        if age < min(self._interval, self._period) / 2:  # asked for twice: this is what the second one wanted
            return Result(requeue_after=self._period - age, routine=True)
        with self._lock:
            self._under_way, self._again = True, False
            trigger = self._trigger
        started = self._clock.monotonic()
        try:
            self._table.install(self._routes.list(self.cluster_name, priority=PRIORITY_NEW), started)
            self.refused = ""
        except CallsClosed:
            raise
        except Exception as error:
            # Only a bad answer stops the other keys. While the cloud is away the table stays true.
            if isinstance(error, InvalidAnswer):
                self.refused = str(error)
            self._metrics.count("error", trigger)
            raise
        finally:
            with self._lock:
                self._under_way = False
                again = self._again
        self._trigger = NODE_CHANGE if again else PERIODIC
        self._planner.forget_deletions(started)  # before they are compared with what came back
        found = self._planner.compare()
        for key, priority in found.keys.items():
            self._metrics.queued(key, trigger)
            # Else it comes by itself: after its back-off, as the cloud asked, when there is room.
            if not self._queue.resting(key) and key not in self._full:
                self._queue.add(key, priority)
        self._report_left_alone(found.left_alone)
        if found.advice and found.advice != self._advice:
            log.warning("%s", found.advice)
        self._advice = found.advice
        if not found.keys:
            self._metrics.count("noop", trigger)
        # What was asked for while this listing ran may not be in it.
        pause = min(self._interval, self._period) if again else self._period
        return Result(requeue_after=pause, routine=not (found.waits or again))

    def serves(self, key: str, entries: tuple[Entry, ...]) -> bool:
        """Whether these routes may be deleted on the present listing; False when a fresh one is on
        its way."""
        # A deletion takes the route as the cloud named it lately; a retry keeps to what it began.
        version = self._table.version
        fresh = self._table.age <= self._interval or self._queue.num_requeues(key) > 0
        if fresh and all(entry.state is not State.CREATED for entry in entries):
            return True
        self._ask(version)
        return False

    def takes_its_turn(self, name: str) -> tuple[bool, int]:
        """This node is looked at now: whether it waited for room, and for `wait_for_room`."""
        with self._lock:
            return self._full.pop(name, None) is not None, self._rooms

    def wait_for_room(self, name: str, rooms: int) -> None:
        """The cloud has no room for its route: this node asks again when one goes, and later."""
        with self._lock:
            self._full[name] = False
            missed = self._rooms != rooms  # one went while the cloud answered
        if missed:
            self.next_in_turn()

    def room(self) -> None:
        """A route or a node is gone: there is room for one more."""
        with self._lock:
            self._rooms += 1
        self.next_in_turn()

    def next_in_turn(self) -> None:
        """The node that has waited longest may find room."""
        with self._lock:
            name = next((name for name, called in self._full.items() if not called), "")
            if name:
                self._full[name] = True
        if name:
            self._queue.add(name, NODE)

    def refresh(self) -> None:
        """Have the routes listed again soon, by a listing that begins after this call."""
        with self._lock:
            self._again = True
        self._ask(self._table.version)

    def _ask(self, version: int) -> None:
        """Have the routes listed again, unless that has happened since `version` or happens now."""
        with self._lock:
            if self._under_way or self._table.version != version or self._queue.resting(LIST):
                return
            self._trigger = NODE_CHANGE
            self._queue.add_after(LIST, max(0.0, self._interval - self._table.age), LISTING)

    def _report_left_alone(self, routes: tuple[str, ...]) -> None:
        self._metrics.left_alone.set(len(routes))
        news = frozenset(routes)
        if news - self._left_alone:
            log.warning(
                "left alone %d routes that no node of this cluster should have: %s%s",
                len(routes),
                ", ".join(routes[:_MOST_NAMED]),
                ", ..." if len(routes) > _MOST_NAMED else "",
            )
        self._left_alone = news


class RouteMetrics:
    """What the comparisons with the cloud's routes came to. Thread-safe: a key has one thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._syncs = metrics.counter(
            "route_controller_route_sync_total",
            "Comparisons with the cloud's routes: of one node, or of all when that failed or found nothing to do, "
            "by outcome (changed, noop, error) and trigger (periodic, node_change).",
            ("outcome", "trigger"),
        )
        for trigger in (PERIODIC, NODE_CHANGE):
            self._syncs.labels(outcome="error", trigger=trigger)  # at 0, or increase() misses the first
        self.left_alone = metrics.gauge(
            "route_controller_routes_left_alone",
            "Listed routes inside the cluster CIDRs that lead to no node of the cluster and stay, for "
            "now or for good. The log says why: --node-cidr-mask-size is not given, for example.",
        )
        self._periodic: set[str] = set()  # keys that the last periodic listings queued
        self._changed: set[str] = set()  # keys whose work under way has changed the cloud

    def queued(self, key: str, trigger: str) -> None:
        """A listing has brought up the key."""
        if trigger == PERIODIC:
            self._periodic.add(key)

    def trigger_of(self, key: str) -> str:
        """Why the key is worked on."""
        return PERIODIC if key in self._periodic else NODE_CHANGE

    def changed(self, key: str) -> None:
        """The key's work has changed the cloud."""
        self._changed.add(key)

    def failed(self, key: str, trigger: str) -> None:
        """The key's work failed, and comes again."""
        self._changed.discard(key)
        self.count("error", trigger)

    def finished(self, key: str, trigger: str) -> None:
        """The key's work is done."""
        self._periodic.discard(key)
        self.count("changed" if key in self._changed else "noop", trigger)
        self._changed.discard(key)

    def count(self, outcome: str, trigger: str) -> None:
        """One comparison."""
        self._syncs.labels(outcome=outcome, trigger=trigger).inc()
