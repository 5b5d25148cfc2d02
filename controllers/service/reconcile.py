"""Stage 4: RECONCILE. Takes a Service's key, and closes the gap between what is wanted and what was
applied: `decide.py` names the next step, `execute.py` or `remove.py` carries it out, until there is
nothing to do.

All nodes have one key, of the queue `node`: `NodeSync` gathers their changes, and then queues every
load balancer that lacks them. So a load balancer never has two calls at a time, and fifty nodes
that join together cost one or two updates.

What was applied is known from this process's record; a new process takes it from the Service's
annotation, after the cloud confirmed that the load balancer is there. So it does not matter why a
key comes."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from attrs import evolve

from controllers.cloudcalls import CLOUD_ERRORS, CallsClosed
from controllers.runtime.api import ApiError
from controllers.runtime.cache import uid_of
from controllers.runtime.queue import DONE, Parked, Result, WorkQueue, retry_after_of
from controllers.service.calls import CacheBehind, ServiceGone, TooEarly
from controllers.service.changes import WITHOUT_CLASS, Classes
from controllers.service.decide import Action, ServiceView, Step, decide
from controllers.service.records import SECONDS
from controllers.service.targets import is_leaving

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics
    from controllers.service.calls import ServiceCloud
    from controllers.service.changes import Scope
    from controllers.service.conditions import Conditions
    from controllers.service.execute import Executor
    from controllers.service.records import Record, Records, Schedule
    from controllers.service.remove import Remover
    from controllers.service.targets import Targets, TargetSet

log = logging.getLogger(__name__)

_LEAST: Final = 1.0
"""Seconds at least until a run that comes back for what the provider asked for."""

ALL_NODES: Final = "*"
"""The one key of the queue `node`."""
REFRESH: Final = 0
"""Priority of load balancers whose targets have changed."""
DRIFT: Final = -10
"""Priority of load balancers that are compared with the cloud because it is time."""

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


class ServiceReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key.

    `conditions` None: Services get none."""

    def __init__(
        self,
        lister: Lister[V1Service],
        cloud: ServiceCloud,
        executor: Executor,
        remover: Remover,
        sync: NodeSync,
        schedule: Schedule,
        clock: Clock,
        classes: Classes = WITHOUT_CLASS,
        conditions: Conditions | None = None,
    ) -> None:
        self._services = lister
        self._cloud = cloud
        self._records = cloud.records
        self._sync = sync
        self._schedule = schedule
        self._clock = clock
        self._classes = classes
        self._conditions = conditions
        self._scope: Scope | None = None
        self._steps: dict[Action, Callable[[str, ServiceView, Step], ServiceView]] = {
            Action.LOOK: executor.look,
            Action.WARN: executor.warn,
            Action.ENSURE: executor.ensure,
            Action.UPDATE: executor.update,
            Action.WRITE: executor.write,
            Action.PUT_BACK: executor.put_back,
            Action.FORGET: remover.forget,
            Action.DELETE_OTHERS: remover.delete_others,
            Action.DELETE: remover.delete,
            Action.LEAVE: remover.leave,
            Action.RELEASE: remover.remove_finalizer,
            Action.REMOVE_FINALIZER: remover.remove_finalizer,
            Action.KEEP_FINALIZER: remover.keep_finalizer,
        }

    def reconcile(self, key: str) -> Result:
        """Close the gap for one Service. Raises their errors, or CacheBehind."""
        after, served = math.inf, False
        try:
            after = self._run(key)
            served = True
        except TooEarly as pause:
            return Result(requeue_after=pause.seconds, early=True, routine=pause.answered)
        except ServiceGone as gone:
            log.debug("%s; its event is on the way, and brings what is left to do", gone)
            served = True
        finally:
            # A Service that fails holds up no round of the others, and still lacks its nodes.
            self._sync.worked(key, served=served)
        return DONE if after == math.inf else Result(requeue_after=after, priority=DRIFT, routine=True)

    def _run(self, key: str) -> float:
        """Take steps until there is none; returns the seconds until something is due again, inf if
        nothing is. A step that fails does not keep away the others; then its error is raised."""
        again = self._records.begin(key, self._clock.monotonic())
        service, record = self._newest(key, self._services.get(key))
        view = ServiceView(
            service=service,
            record=record,
            scope=self._scope,
            gathering=not self._sync.is_due(key),
            again=again,
            classes=self._classes,
            resting=self._sync.services.resting(key),
        )
        failures: dict[Action | None, Exception] = {}
        if service is None or not self._classes.keeps(service):
            if again:  # it gets none, or it goes
                self._records.looked_again(key)
        elif self._cloud.has_depends_on:
            try:
                view = evolve(view, depends_on=self._cloud.depends_on(service))
            except (Parked, CallsClosed):
                raise
            except CLOUD_ERRORS as error:
                # Targets must follow the nodes even so: the Service counts as unchanged.
                failures[None] = error
                view = evolve(view, depends_on=None)
        while True:
            # While changes of nodes are gathered nothing is compared with the targets, but for what
            # waits since the last gathering.
            targets = None if view.gathering else self._sync.current()
            step = decide(view, targets, self._schedule, self._clock.monotonic())
            if step.record is not None and step.record is not view.record:
                view = evolve(view, record=self._records.put(key, step.record))
            if step.action is Action.REST:
                after = step.after
                # What was asked for before this run, and is not ensured, waits for what the run
                # rests for: the manager of another class, say.
                if not view.again or Action.ENSURE in view.tried:
                    after = min(after, max(_LEAST, self._records.again_due(key, self._clock.monotonic())))
                if self._conditions is not None:
                    after = min(after, self._conditions.tell(key, view, _blamed(failures)))
                if failures:
                    record = view.record
                    if record is None or record.built is None or (targets and targets.cover(record.nodes)):
                        self._sync.worked(key, served=True)  # what fails is not that it lacks nodes
                    try:
                        raise _soonest(key, failures.values(), after)
                    finally:
                        failures.clear()  # the traceback holds this frame
                return after
            view = evolve(view, tried=view.tried | {step.action})
            if step.action is Action.IDENTIFY:
                self._scope = self._cloud.scope()
                view = evolve(view, scope=self._scope)
                continue
            try:
                view = self._steps[step.action](key, view, step)
            except (Parked, CallsClosed):
                raise  # no second call beside one that has not ended; none at all
            except (TooEarly, CacheBehind, ApiError, *CLOUD_ERRORS) as error:
                failures[step.action] = error
                service, record = self._newest(key, view.service)
                # An update that fails is followed by ensure in the same run, without back-off.
                resting = 0.0 if step.action is Action.UPDATE else view.resting
                view = evolve(view, service=service, record=record, resting=resting)
            else:
                if step.action is Action.ENSURE:  # it repairs whatever failed before it
                    failures = {None: failures[None]} if None in failures else {}

    def _newest(self, key: str, service: V1Service | None) -> tuple[V1Service | None, Record | None]:
        """The Service, and what is remembered of it; the answer to our last write goes when the
        cache shows it."""
        record = self._records.get(key)
        if record is None or service is None or record.written is None:
            return service, record
        # What is built of an older one would undo what its owner changed since.
        if not record.shows_our_write(service) and uid_of(service) == record.uid:
            return record.written, record
        if service is not record.written:
            record = self._records.put(key, evolve(record, written=None))
        return service, record


def _blamed(failures: Mapping[Action | None, Exception]) -> Exception | None:
    # What fails beside it is of less interest than what keeps the load balancer from being built.
    return failures.get(Action.ENSURE) or next(iter(failures.values()), None)


def _soonest(key: str, failures: Collection[Exception], after: float) -> Exception:
    """Of the failures of one run, the one that is retried first. There was an Event for each."""

    def order(error: Exception) -> tuple[bool, float]:
        if isinstance(error, TooEarly):
            return True, error.seconds
        return False, retry_after_of(error) or 0.0

    first, *others = sorted(failures, key=order)
    for error in others:
        log.debug("Service %s: in the same run: %s: %s", key, type(error).__name__, error)
    if isinstance(first, TooEarly):
        return TooEarly(min(first.seconds, after), answered=first.answered)
    return first


class NodeSync:
    """The informer's handler of nodes: one gathering of changes at a time. Thread-safe.

    Changes are acted upon together: when none came for `quiet` seconds, and `longest` seconds after
    the first at the latest, if that is more."""

    def __init__(
        self,
        nodes: WorkQueue[str],
        services: WorkQueue[str],
        records: Records,
        targets: TargetSet,
        metrics: Metrics,
        clock: Clock,
        *,
        quiet: float,
        longest: float,
    ) -> None:
        self._nodes = nodes
        self.services = services
        """The queue of load balancers."""
        self._records = records
        self.targets = targets
        self._quiet = quiet
        self._longest = max(quiet, longest)
        self._clock = clock
        self._lock = threading.Lock()
        self._giving = threading.Lock()
        self._first: float | None = None
        self._last = 0.0
        self._waiting: set[str] = set()
        self._began = 0.0
        self._given_at = -math.inf  # when the latest targets were worked out, in the present gathering
        self._round: set[str] = set()  # those of the last round that were not tried yet
        self._rest = 0  # so many may be left when it is over
        self._round_began = self._round_ended = clock.monotonic()
        self._latency = metrics.histogram(
            "service_controller_nodesync_latency_seconds",
            "From a change of nodes until the last load balancer has them.",
            buckets=SECONDS,
        )
        metrics.gauge(
            "service_controller_load_balancers_with_old_targets",
            "Load balancers whose targets are not the present nodes.",
        ).set_function(lambda: self._lagging()[0])
        metrics.gauge(
            "service_controller_oldest_targets_lag_seconds",
            "Seconds that a load balancer has waited for the present nodes, as far as this process saw it; 0 without "
            "one.",
        ).set_function(lambda: self._lagging()[1])

    def on_add(self, node: V1Node, initial: bool) -> None:
        if initial:
            self.targets.invalidate()  # the Services of the first listing are served with all of these
        else:
            self._changed(None, node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        self._changed(old, new)

    def on_delete(self, node: V1Node) -> None:
        self._changed(node, None)

    def _changed(self, old: V1Node | None, new: V1Node | None) -> None:
        if self.targets.differs(old, new):
            self.targets.invalidate()
            self.changed()
        # KEP-3458: else each scale-in would retarget every load balancer twice.
        elif old is not None and new is not None and is_leaving(new) and not is_leaving(old):
            self.targets.leaving()

    def changed(self) -> None:
        """The targets have changed."""
        with self._lock:
            self._last = self._clock.monotonic()
            if self._first is None:
                self._first = self._last
        self._nodes.add_after(ALL_NODES, self._quiet)

    def sync(self, key: str) -> Result:
        """One unit of work of the queue `node`: wait while changes come, else queue what lags."""
        now = self._clock.monotonic()
        with self._lock:
            first = now if self._first is None else self._first
            # One more window while nodes come, but the first of them is served after `longest`.
            left = max(min(self._last + self._quiet, first + self._longest), self._earliest(now)) - now
            if left > 0:
                return Result(requeue_after=left)
            # What changes from here on begins a gathering of its own.
            self._first, self._given_at = None, -math.inf
        if self.targets.owed:
            self.targets.ask_again()
        present = self.current()
        # The lag counts from the first change, not from when /metrics is read next.
        self._records.lagging(present, first)
        behind = self._records.outdated(present, self.services.resting)
        with self._lock:
            if not self._waiting:
                self._began = first
            self._waiting.update(behind)
            self._round, self._rest = set(behind), max(1, len(behind) // _REST)
            self._round_began = self._round_ended = now
        for service in behind:
            self.services.add(service, REFRESH)
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
                gathering, latest = self._first is not None, self.targets.latest
                # At its end only the newest will do: nothing comes later to bring what they lack.
                if gathering and latest is not None and now - self._given_at < min(_SAME, self._quiet):
                    return latest
            found = self.targets.current()
            if self.targets.owed:  # no change of a node need follow
                self._nodes.add_after(ALL_NODES, _OWED, routine=True)
            if gathering:
                with self._lock:
                    self._given_at = now
            return found

    def is_due(self, key: str) -> bool:
        """Whether this load balancer may get new targets now: not while changes are gathered,
        unless it waits for what was gathered before."""
        with self._lock:
            return self._first is None or key in self._waiting

    def worked(self, key: str, *, served: bool) -> None:
        """A Service has been worked on. `served`: it lacks no nodes now, or is none any more."""
        now = self._clock.monotonic()
        with self._lock:
            if key in self._round:
                self._round.discard(key)
                if len(self._round) == self._rest:
                    self._round_ended = now
            if not served or key not in self._waiting:
                return
            self._waiting.discard(key)
            if self._waiting:
                return
            seconds = now - self._began
        self._latency.observe(seconds)

    def _lagging(self) -> tuple[int, float]:
        """How many load balancers lack the present nodes, and for how many seconds the first of
        them. Worked out when /metrics is read; of no node, before any targets were worked out."""
        present, now = self.targets.latest, self._clock.monotonic()
        if present is None:
            return 0, 0.0
        count, since = self._records.lagging(present, now)
        return count, now - since
