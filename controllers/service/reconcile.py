"""Stage 4: takes a Service's key, and closes the gap between what is wanted and what was applied, step by step.

What is known goes to `decide.py`, which names the next step; `execute.py` carries it out, with a call to the cloud
(stage 5) and a write to the Service (6); and so on until there is nothing to do. What was applied is known from the
record of this process; a new process takes it from the Service's annotation, after the cloud confirmed that the load
balancer is there. So it does not matter why a key comes: event, node change, drift check and retry all run through
`reconcile`, one at a time for each Service.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from controllers.runtime.queue import DONE, Result
from controllers.service.apiserver import ServiceGone
from controllers.service.cloudside import TooEarly
from controllers.service.decide import Act, Case, decide
from controllers.service.triggers import DRIFT

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.service.changes import Scope
    from controllers.service.execute import Executor
    from controllers.service.nodesync import NodeSync
    from controllers.service.pacing import Schedule
    from controllers.service.records import Records
    from controllers.service.targets import Targets

log = logging.getLogger(__name__)


class ServiceReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key.

    `identify` returns what all load balancers of the cluster depend on, or raises TooEarly while that is not known.
    """

    def __init__(
        self,
        lister: Lister[V1Service],
        records: Records,
        targets: Callable[[], Targets],
        executor: Executor,
        sync: NodeSync,
        identify: Callable[[], Scope],
        schedule: Schedule,
        clock: Clock,
    ) -> None:
        self._services = lister
        self._records = records
        self._targets = targets
        self._executor = executor
        self._sync = sync
        self._identify = identify
        self._schedule = schedule
        self._clock = clock
        self._scope: Scope | None = None

    def reconcile(self, key: str) -> Result:
        """Close the gap for one Service. Raises what the cloud or the API server answered, or CacheBehind."""
        result = DONE
        try:
            after = self._run(key)
            if after < math.inf:
                result = Result(requeue_after=after, priority=DRIFT, routine=True)
        except TooEarly as pause:
            return Result(requeue_after=pause.seconds)
        except ServiceGone as gone:
            log.debug("%s; its event is on the way, and brings what is left to do", gone)
        self._sync.finished(key)
        return result

    def _run(self, key: str) -> float:
        """Take steps until there is none; returns the seconds until something is due again, inf if nothing is."""
        gathering = not self._sync.is_due(key)
        service, record = self._services.get(key), self._records.get(key)
        case = Case(service=service, record=record, scope=self._scope, gathering=gathering)
        while True:
            step = decide(case, self._targets(), self._schedule, self._clock.monotonic())
            if step.record is not None and step.record is not case.record:
                case = evolve(case, record=self._records.put(key, step.record))
            if step.act is Act.REST:
                return step.after
            if step.act is Act.IDENTIFY:
                self._scope = self._identify()
                case = evolve(case, scope=self._scope)
            else:
                case = self._executor.carry_out(key, case, step)
