"""Stage 4: RECONCILE. Takes a Service's key, and closes the gap between what is wanted and what was
applied: `decide.py` names the next step, `execute.py` or `remove.py` carries it out, until there is
nothing to do.

What was applied is known from this process's record; a new process takes it from the Service's
annotation, after the cloud confirmed that the load balancer is there. So it does not matter why a
key comes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from attrs import evolve

from controllers.cloudcalls import CallsClosed
from controllers.runtime.api import ApiError
from controllers.runtime.queue import DONE, Parked, Result, retry_after_of
from controllers.service.calls import CLOUD_ERRORS, CacheBehind, ServiceGone, TooEarly
from controllers.service.changes import WITHOUT_CLASS, Classes
from controllers.service.decide import Action, ServiceView, Step, decide
from controllers.service.targets import DRIFT

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.service.calls import ServiceAPI, ServiceCloud
    from controllers.service.changes import Scope
    from controllers.service.conditions import Conditions
    from controllers.service.execute import Executor
    from controllers.service.records import Record, Schedule
    from controllers.service.remove import Remover
    from controllers.service.targets import NodeSync

log = logging.getLogger(__name__)

_LEAST: Final = 1.0
"""Seconds at least until a run that comes back for what the provider asked for."""


class ServiceReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key.

    `conditions` None: Services get none."""

    def __init__(
        self,
        lister: Lister[V1Service],
        api: ServiceAPI,
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
        self._api = api
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
        result = DONE
        try:
            after = self._run(key)
            if after < math.inf:
                result = Result(requeue_after=after, priority=DRIFT, routine=True)
        except TooEarly as pause:
            return Result(requeue_after=pause.seconds, early=True, routine=pause.answered)
        except ServiceGone as gone:
            log.debug("%s; its event is on the way, and brings what is left to do", gone)
        finally:
            self._sync.tried(key)
        self._sync.finished(key)
        return result

    def _run(self, key: str) -> float:
        """Take steps until there is none; returns the seconds until something is due again, inf if
        nothing is. A step that fails does not keep away the others; then its error is raised."""
        gathering, resting = not self._sync.is_due(key), self._sync.resting(key)
        again = self._records.begin(key, self._clock.monotonic())
        service, record = self._newest(key, self._services.get(key))
        view = ServiceView(
            service=service,
            record=record,
            scope=self._scope,
            gathering=gathering,
            again=again,
            classes=self._classes,
            resting=resting,
        )
        failures: list[Exception] = []
        blamed: Exception | None = None
        if service is None or not self._classes.keeps(service):
            if again:  # it gets none, or it goes
                self._records.looked_again(key)
        else:
            try:
                view = evolve(view, depends_on=self._cloud.depends_on(service))
            except (Parked, CallsClosed):
                raise
            except CLOUD_ERRORS as error:
                failures.append(error)
                blamed = error
                view = evolve(view, depends_on=None)
        lasting = len(failures)
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
                    after = min(after, self._tell(self._conditions, key, view, blamed))
                if failures:
                    record = view.record
                    if record is None or record.built is None or (targets and targets.cover(record.nodes)):
                        self._sync.finished(key)  # what fails is not that it lacks nodes
                    try:
                        raise _soonest(key, failures, after)
                    finally:
                        failures.clear()  # the traceback holds this frame
                        blamed = None
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
                failures.append(error)
                # What fails beside it is of less interest than what keeps it from being built.
                blamed = error if blamed is None or step.action is Action.ENSURE else blamed
                service, record = self._newest(key, view.service)
                # An update that fails is followed by ensure in the same run, without back-off.
                resting = 0.0 if step.action is Action.UPDATE else view.resting
                view = evolve(view, service=service, record=record, resting=resting)
            else:
                if step.action is Action.ENSURE:
                    del failures[lasting:]  # it repairs whatever failed before it
                    blamed = failures[0] if failures else None

    def _tell(self, conditions: Conditions, key: str, view: ServiceView, error: Exception | None) -> float:
        """Write the condition at the end of a run that failed with this error, where the Service
        shows another one; returns the seconds until it may be written, inf once it is."""
        patch, left = conditions.closing(view, error)
        if not patch:
            return left
        try:
            written = self._api.write(key, view.present, patch)
        except ApiError as refused:
            if error is None:
                raise
            # The run failed anyway, and its own error says when the key comes back.
            log.debug("Service %s: its condition was not written: %s", key, refused)
        else:
            self._records.put(key, conditions.told(view, written).known)
        return math.inf

    def _newest(self, key: str, service: V1Service | None) -> tuple[V1Service | None, Record | None]:
        """The Service, and what is remembered of it; the answer to our last write goes when the
        cache shows it."""
        record = self._records.get(key)
        if record is None or service is None or record.written is None:
            return service, record
        newest = record.newest(service)
        if newest is service and service is not record.written:
            record = self._records.put(key, evolve(record, written=None))
        return newest, record


def _soonest(key: str, failures: list[Exception], after: float) -> Exception:
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
