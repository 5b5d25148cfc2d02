"""A plan run (--dry-run): everything starts, nothing is written, and what would be done comes out.

Stage: around all of them. It stands in the manager's place, over the same parts: it refuses every
write of every client and every call that changes the cloud, has them answered here, and ends
when the first pass is over: `Settling` says so. The controllers know nothing of it. The outcome
goes to `rows.py`, which shows it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, TextIO

from attrs import evolve
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import CloudConfig, Interface, StopSignal
from cloudprovider.internal.cleaning import few
from controllers.catalog import CATALOG
from controllers.cloudcalls import CloudCalls
from controllers.manager.accesscheck import AccessCheck
from controllers.manager.assembly import Assembly
from controllers.manager.earlylists import IDENTITY
from controllers.manager.permissions import provider_rules
from controllers.manager.provider_host import ManagerError, warn_of_installed
from controllers.manager.runner import Built, StopEvent
from controllers.plan.clients import DryRunError, PlannedClients
from controllers.plan.cloud import Evidence, PlannedCalls
from controllers.plan.cluster import DryRunInterceptor
from controllers.plan.rows import FAILED, Kind, Outcome, Plan, Row, Subject, shown
from controllers.registration.entry import ControllerEntry, enabled
from controllers.registration.options import Options
from controllers.route.registration import RouteOptions
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import NODES, SERVICES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Unfinished, WorkQueueCollector

log = logging.getLogger(__name__)

_LOOK: Final = 0.1  # seconds between two looks at what is left
# So many looks in a row must show that nothing is, as work may slip from one place to another in
# one.
_QUIET: Final = 3
# Seconds between these: sweeps bring up what is known already, again and again.
_AGAIN: Final = 0.02
_LOG: Final = 5.0  # seconds between two log lines about what is left
_ROUTES: Final = 1.0  # seconds between two comparisons of all routes
_TRIES: Final = 3
_LONGEST_RETRY: Final = 10.0  # seconds that the next try of a failing key is waited for
_MOMENT: Final = 3.0  # seconds until a controller that does not say when it works is taken to do so
_MOST_NAMED: Final = 5


class PlanRun:
    """One plan run; arguments as of `Manager`. `run` may be called once."""

    def __init__(
        self,
        options: Options,
        provider: Interface,
        clients: ClientBuilder,
        *,
        config: CloudConfig | None = None,
        catalog: Sequence[ControllerEntry] = CATALOG,
    ) -> None:
        """No client of `clients` writes any more. Raises ManagerError without a controller."""
        # Beneath the interceptor: should a way lead past it, still nothing is written.
        clients.guard = self._refuse
        self._given = options.manager
        options = _with_routes_sooner(options)
        entries = enabled(options.manager.controllers, catalog)
        self._plan = Plan([entry.name for entry in entries])
        self._evidence = Evidence(SYSTEM_CLOCK)
        self._nodes: tuple[V1Node, ...] = ()
        self._settling: Settling | None = None
        names: dict[str, list[str]] = {}
        for entry in entries:
            names.setdefault(entry.account, []).append(entry.name)
        self._cluster = DryRunInterceptor(
            self._plan,
            names,
            clients.rest(IDENTITY, guarded=False).get,
            at_work=lambda: "" if self._settling is None else self._settling.at_work(),
            evidence=self._evidence.of,
        )
        planned = PlannedClients(clients, self._cluster)
        self._parts = Assembly(options, provider, planned, config=config, catalog=catalog)

    def run(self, stop: StopSignal) -> Outcome | None:
        """What would be done; None when `stop` was set before anything was known. Blocks.

        Raises ManagerError, after stopping what was started, when a part cannot start or has died,
        and when the time is over before the controllers run.
        """
        warn_of_installed(self._given.cloud_provider)
        parts, timeout = self._parts, self._given.plan.timeout
        ending = parts.stop_event(stop)
        until = parts.clock.monotonic() + timeout
        over = StopEvent(ending, lambda: parts.clock.monotonic() >= until)
        outcome = None
        try:
            settling = self._start(over)
            if settling is not None:
                left = self._wait(settling, ending, until)
                parts.drain = 0.0  # what still goes on changes nothing
                outcome = self._outcome(settling, left)
            elif over.is_set() and not ending.is_set():
                raise ManagerError(
                    f"nothing can be planned: after {timeout:g} s (--dry-run-timeout) the controllers do "
                    f"not run yet. Waiting for: {parts.health.unsynced()}"
                )
        finally:
            parts.stop()
        if parts.failure is not None:
            raise parts.failure
        return outcome

    def print_to(self, file: TextIO | None, stop: StopSignal) -> int:
        """Run, print the plan to this file, or to standard output, and return the exit code. Raises
        as `run` does."""
        outcome = self.run(stop)
        # Stopped before anything was known: that is not "nothing to do".
        if outcome is None:
            return FAILED
        print(shown(outcome, self._given.plan.output), end="", file=file, flush=True)
        return outcome.code

    def release_held(self) -> int:
        """As of `Manager`: what is let go becomes rows of the plan."""
        return self._parts.runner.release_held()

    def _refuse(self, *about: str) -> float:
        """The guard of all clients and cloud calls. Raises DryRunError."""
        raise DryRunError(f"{' '.join(about)}: not sent, this is a dry run")

    def _start(self, ending: StopSignal) -> Settling | None:
        """Start all controllers; None when it was time to end before that."""
        parts = self._parts
        parts.groups.in_background("serving", "health watch", parts.health.run)
        informers = parts.informers()
        access = parts.access_check()
        if ending.is_set():
            return None
        gateway = partial(
            PlannedCalls,
            plan=self._plan,
            evidence=self._evidence,
            original=lambda key: self._cluster.original(SERVICES.prefix, SERVICES.plural, key),
            nodes=lambda: self._nodes,
        )
        context = parts.initialized(informers, ending, guard=self._refuse, gateway=gateway)
        if context is None:
            return None
        built = parts.construct(context)
        rules = [rule for entry, _ in built for rule in entry.rules]
        access.ask_about([*rules, *provider_rules(informers)])
        if not parts.filled(informers, ending):
            return None
        # All caches are complete, and show what there was before any controller began.
        self._cluster.informers = informers
        # Before the first controller runs: it may delete, or taint, what a digest was made of.
        found = informers.find(NODES.prefix, NODES.plural)
        self._nodes = tuple(found.lister.list()) if found is not None else ()
        settling = self._settling = Settling(self._cluster, context.cloud, access, parts.metrics, parts.clock)
        settling.watch(built)
        return settling if parts.runner.start(built, ending) else None

    def _wait(self, settling: Settling, stop: StopSignal, until: float) -> list[str]:
        """Wait until the first pass is over; what is left at the time `until` (`clock.monotonic`),
        or when `stop` was set."""
        clock = self._parts.clock
        began = logged = clock.monotonic()
        quiet = 0
        while True:
            left = settling.left()
            # A key on its way from one queue to another is in none for a moment.
            quiet = 0 if left else quiet + 1
            now = clock.monotonic()
            if quiet >= _QUIET or now >= until:
                return left
            if left and now - logged >= _LOG:
                logged = now
                log.info("after %.0f s there is left: %s", now - began, "; ".join(left))
            if stop.wait(_AGAIN if quiet else _LOOK):
                return left or ["a signal ended the dry run"]

    def _outcome(self, settling: Settling, left: Sequence[str]) -> Outcome:
        """What was found."""
        held = [self._with_evidence(row) for row in settling.undecided()]
        self._plan.record(*held, *settling.unknown(), *settling.left_alone(), *settling.missing())
        rows = self._plan.rows()
        # A warning about what is held back, or not known, says no more than that row.
        open_subjects = {row.subject for row in rows if row.kind in (Kind.HELD_BACK, Kind.UNKNOWN)}
        return Outcome(
            provider=self._given.cloud_provider,
            cluster=self._given.cluster_name,
            controllers=tuple(entry.name for entry in self._parts.entries),
            rows=tuple(row for row in rows if row.kind != Kind.WARNING or row.subject not in open_subjects),
            left=tuple(left),
        )

    def _with_evidence(self, row: Row) -> Row:
        evidence = self._evidence.of(row.subject.name)
        return evolve(row, note=f"{row.note}; {evidence}") if evidence else row


def _with_routes_sooner(options: Options) -> Options:
    """What only a second comparison of all routes would delete is a row of the plan, too."""
    routes = options.of(RouteOptions)
    # The second one only confirms: in a plan nothing is gained by waiting for it.
    period = min(routes.route_reconciliation_period, _ROUTES)
    own = {**options.own, RouteOptions: evolve(routes, route_reconciliation_period=period)}
    return evolve(options, own=own)


# ---- when it is over


class Settling:
    """When the first pass is over: what is left to do, as far as is known. Thread-safe.

    Controllers, caches, queues and the gateway say what is under way. A key that runs again only
    because time passes counts as done, one that is due for another reason never, however late; one
    that fails is tried a few times, and then given up as not known."""

    def __init__(
        self,
        cluster: DryRunInterceptor,
        cloud: CloudCalls,
        access: AccessCheck,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._access = access
        self._metrics = metrics
        self._clock = clock
        self._since = clock.monotonic()
        self._controllers: list[tuple[str, object]] = []

    def watch(self, built: Iterable[Built]) -> None:
        """These controllers are about to be started."""
        self._since = self._clock.monotonic()
        self._controllers = [(entry.name, controller) for entry, controller in built]

    def left(self) -> list[str]:
        """What is not done yet, for people; nothing when the first pass is over."""
        left = []
        if beginning := sum(not self._has_begun(controller) for _, controller in self._controllers):
            left.append(f"{beginning} controllers that begin")
        if not self._access.answered:
            left.append("questions about permissions")
        if self._cluster.busy():
            left.append("changes on their way from the caches")
        for queue in WorkQueueCollector.of(self._metrics).queues():
            keys = [str(one.key) for one in queue.unfinished() if not _is_over(one)]
            if keys:
                left.append(f"queue {queue.name}: {few(sorted(keys), _MOST_NAMED)}")
        if calls := self._cloud.in_flight():
            left.append(f"{calls} calls to the cloud")
        waiting = [f"{subject} {why}" for _, subject, why, waits in self._undecided() if waits]
        if waiting:
            left.append(few(sorted(waiting), _MOST_NAMED))
        return left

    def _has_begun(self, controller: object) -> bool:
        """Whether it is in full work. One that does not say so gets a moment."""
        begun: bool | None = getattr(controller, "begun", None)
        return self._clock.monotonic() - self._since >= _MOMENT if begun is None else begun

    def at_work(self) -> str:
        """The controller whose thread this is; "" where that is not known. By its name."""
        thread = threading.current_thread().name
        for queue in WorkQueueCollector.of(self._metrics).queues():
            if thread.rpartition("-")[0] == queue.name:
                return queue.controller
        return next((name for name, _ in self._controllers if thread.startswith(f"{name}-")), "")

    def undecided(self) -> list[Row]:
        """What controllers hold back."""
        return [
            Row(name, _subject(about), "delete", note=why, kind=Kind.HELD_BACK)
            for name, about, why, waits in self._undecided()
            if not waits
        ]

    def left_alone(self) -> list[Row]:
        """What an administrator keeps controllers from: nothing to be done, whatever the cloud
        says."""
        return [
            Row(name, _subject(about), "left alone", note=why, kind=Kind.WARNING)
            for name, controller in self._controllers
            for about, why in getattr(controller, "left_alone", tuple)()
        ]

    def unknown(self) -> list[Row]:
        """The keys whose work failed, or has not ended."""
        parked = self._cloud.parked()
        rows = []
        for queue in WorkQueueCollector.of(self._metrics).queues():
            for one in queue.unfinished():
                if not _failed(one) and one.failures:
                    continue
                why = one.problem or "not finished in time"
                # Its call has not come back: which one says more than "in a queue".
                if one.parked:
                    calls = [call for key, call in parked.items() if key.endswith(f"/{one.key}")]
                    why = ", ".join(f"{call.method}: no answer for {call.seconds:.0f} s" for call in calls) or why
                elif not _failed(one) and one.delay > 0:
                    why = f"not finished in time: it waits for another {one.delay:.1f} s"
                subject = _subject(f"{queue.noun}/{one.key}")
                rows.append(Row(queue.controller, subject, queue.name, note=why, kind=Kind.UNKNOWN))
        return rows

    def missing(self) -> list[Row]:
        """The permissions without which not all of the plan could be carried out."""
        return [
            Row(
                "",
                Subject("Permission", f"{rule.resource}: {', '.join(rule.verbs)}"),
                "missing",
                note=f"without it {rule.consequence}. Fix: {rule.fix()}",
                kind=Kind.WARNING,
            )
            for rule in self._access.missing
        ]

    def _undecided(self) -> list[tuple[str, str, str, bool]]:
        return [
            (name, *matter)
            for name, controller in self._controllers
            for matter in getattr(controller, "undecided", tuple)()
        ]


def _failed(one: Unfinished) -> bool:
    """Whether something about it is not known. "No such disk" is known: an Event reports it."""
    return bool(one.parked or one.problem)


def _is_over(one: Unfinished) -> bool:
    """Whether this key is no longer waited for."""
    # One that fails may succeed at its next try, and one that is parked never in this run.
    if _failed(one):
        return one.parked or one.failures >= _TRIES or one.delay > _LONGEST_RETRY
    # It failed for a reason that is known, and an Event has told it.
    return bool(one.failures and one.delay)


def _subject(about: str) -> Subject:
    kind, _, key = about.partition("/")
    namespace, _, name = key.rpartition("/")
    return Subject(_KINDS.get(kind, kind.capitalize()), name, namespace)


_KINDS: Final = {"persistentvolume": "PersistentVolume"}
