"""Stage 4: takes a Service's key, compares what is wanted with what was applied, and closes the gap with one call to
the cloud (stage 5) and one write (6).

What was applied is known from the record of this process; a new process takes it from the Service's annotation, after
the cloud confirmed that the load balancer is there. So it does not matter why a key comes: event, node change, drift
check and retry all run through `reconcile`, one at a time for each Service.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider import CloudProviderError, ImplementedElsewhere, NotImplementedByProvider, RetryError, Throttled
from cloudprovider.helpers import has_load_balancer_finalizer, load_balancer_status_equal
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP, CallsClosed, CloudCallError
from controllers.cloudcalls.errors import delay_of
from controllers.runtime.apierrors import ApiError
from controllers.runtime.resources import is_newer, uid_of, version_of
from controllers.runtime.worker import DONE, Parked, Result
from controllers.service import changes
from controllers.service.changes import Note, Scope
from controllers.service.cluster import ServiceGone
from controllers.service.records import Record
from controllers.service.triggers import DRIFT

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

    from controllers.cloudcalls.capabilities import LoadBalancerCalls
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.events import EventRecorder
    from controllers.runtime.workqueue import WorkQueue
    from controllers.service.cluster import ServiceAPI
    from controllers.service.measures import Measures
    from controllers.service.nodesync import NodeSync
    from controllers.service.records import Records
    from controllers.service.targets import Targets

log = logging.getLogger(__name__)

_UNFINISHED = 60.0  # seconds until a load balancer without an address is looked at again
_CLOUD = (CloudProviderError, CloudCallError, Parked)
_PATIENT = (RetryError, Throttled, Parked, CallsClosed)


class _TooEarly(Exception):
    """The cloud named a time before which the same is not to be asked of it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:.3g} s too early")
        self.seconds = seconds


class ServiceReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        api: ServiceAPI,
        lister: Lister[V1Service],
        balancers: LoadBalancerCalls,
        targets: Callable[[], Targets],
        records: Records,
        queue: WorkQueue[str],
        recorder: EventRecorder,
        sync: NodeSync,
        *,
        cluster_name: str,
        identity: Callable[[], str | None],
        drift_period: float,
        measures: Measures,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._services = lister
        self._balancers = balancers
        self._targets = targets
        self._records = records
        self._queue = queue
        self._recorder = recorder
        self._sync = sync
        self._cluster = cluster_name
        self._identity = identity
        self._drift_period = drift_period
        self._measures = measures
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._known_scope: Scope | None = None

    def reconcile(self, key: str) -> Result:
        """Close the gap for one Service. Raises what the cloud or the API server answered, or CacheBehind."""
        service, record = self._services.get(key), self._records.get(key)
        try:
            if record is not None and (service is None or uid_of(service) != record.uid):
                self._remove_former(key, record)
                record = None
            if service is not None and changes.keeps(service):
                self._keep(key, service, record)
            elif service is not None and (has_load_balancer_finalizer(service) or record is not None):
                self._remove(key, service, record)
        except _TooEarly as pause:
            return Result(requeue_after=pause.seconds)
        except ServiceGone as gone:
            log.debug("%s; its event is on the way, and brings what is left to do", gone)
        self._sync.finished(key)
        return DONE

    # ---- a load balancer that shall be

    def _keep(self, key: str, service: V1Service, record: Record | None) -> None:
        wanted = changes.fingerprint(service, self._scope())
        if record is None:
            record = self._records.put(key, self._recall(service, wanted))
        elif record.gone:  # whatever the cloud may still show of it, and a note say
            record = self._records.put(key, Record(service=service, uid=uid_of(service)))
        if record.spec != wanted:
            self._ensure(key, service)
        elif record.due <= self._clock.monotonic():
            self._check(key, service, record)
        elif record.elsewhere:
            pass
        elif record.nodes != self._targets().digest and self._sync.is_due(key):
            self._update(key, service, record)
        elif is_newer(record.version, version_of(service)) is not True:
            # The cache shows our last write, so what differs was changed by someone else.
            self._write_applied(key, self._api.write(key, service, changes.begun(service, keep_note=True)), record)
        record = self._records.get(key)
        if record is not None and 0 < record.due < math.inf:
            self._queue.add_after(key, max(0.0, record.due - self._clock.monotonic()), DRIFT)

    def _recall(self, service: V1Service, wanted: str) -> Record:
        """What a former process applied, if its note and the cloud agree about it; else a blank record."""
        blank = Record(service=service, uid=uid_of(service))
        note = changes.trusted_note(service, wanted)
        if note is None:
            return blank
        try:
            status = self._look(service, PRIORITY_NORMAL)
        except (ImplementedElsewhere, NotImplementedByProvider):
            return blank
        if status is None or not load_balancer_status_equal(status, changes.status_of(service)):
            return blank
        return evolve(blank, spec=note.spec, nodes=note.nodes, status=status, due=self._next_check())

    def _check(self, key: str, service: V1Service, record: Record) -> None:
        """Repair what was deleted or changed by hand."""
        missing = not record.elsewhere and self._is_missing(service, PRIORITY_SWEEP)
        if missing:
            log.warning("the load balancer of Service %s is missing in the cloud; it is built anew", key)
        self._ensure(key, service, drift=not missing)

    def _ensure(self, key: str, service: V1Service, *, drift: bool = False) -> None:
        """Have the cloud build, or repair. A drift check is silent as long as it changes nothing."""
        former = self._records.get(key)
        self._not_too_early(former, f"ensure {changes.fingerprint(service, self._scope())}")
        new = not changes.ingress(changes.status_of(service))
        targets = self._api.confirmed(self._targets(), may_be_empty=new)
        same_targets = former is not None and former.nodes == targets.digest
        service = self._api.write(key, service, changes.begun(service, keep_note=drift and same_targets))
        if not changes.keeps(service):
            return  # changed on the server meanwhile; the event is on its way
        wanted = changes.fingerprint(service, self._scope())
        record = Record(service=service, uid=uid_of(service), version=version_of(service), attempt=f"ensure {wanted}")
        self._records.put(key, record)
        if not drift:
            self._recorder.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if not targets.nodes:
            self._warn_no_targets(service)
        self._measures.syncs.inc()
        priority = PRIORITY_SWEEP if drift else PRIORITY_NEW if new else PRIORITY_NORMAL
        try:
            with self._delays(key, record):
                status = self._balancers.ensure(self._cluster, service, targets.nodes, priority=priority)
        except ImplementedElsewhere:
            due = self._next_check()
            self._records.put(key, evolve(record, spec=wanted, nodes=targets.digest, elsewhere=True, due=due))
            return
        except _CLOUD as error:
            self._failed(service, "SyncLoadBalancerFailed", "Error syncing load balancer: failed to ensure it", error)
            raise
        same = former is not None and load_balancer_status_equal(former.status, status)
        due = self._next_check(finished=bool(changes.ingress(status)))
        record = evolve(record, spec=wanted, nodes=targets.digest, status=status, due=due)
        self._records.put(key, record)
        if not (drift and same):
            self._recorder.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        self._write_applied(key, service, record)

    def _update(self, key: str, service: V1Service, record: Record) -> None:
        """Have the cloud take the present targets."""
        targets = self._api.confirmed(self._targets(), may_be_empty=False)
        attempt = f"update {targets.digest}"
        self._not_too_early(record, attempt)
        record = self._records.put(key, evolve(record, service=service, nodes="", attempt=attempt, not_before=0.0))
        self._measures.syncs.inc()
        began = self._clock.monotonic()
        try:
            with self._delays(key, record):
                self._balancers.update(self._cluster, service, targets.nodes, priority=PRIORITY_NORMAL)
        except ImplementedElsewhere:
            self._records.put(key, evolve(record, elsewhere=True, nodes=targets.digest))
            return
        except NotImplementedByProvider:
            self._ensure(key, service, drift=True)
            return
        except _CLOUD as error:
            self._measures.update_errors.inc()
            if not isinstance(error, CallsClosed):  # half of it may be done, so the note is true no longer
                service = self._api.write(key, service, changes.begun(service, keep_note=False))
            # What was deleted by hand cannot be updated, and is built anew.
            if isinstance(error, _PATIENT) or not self._is_missing(service, PRIORITY_NORMAL):
                self._failed(service, "UpdateLoadBalancerFailed", "Error updating load balancer with new hosts", error)
                raise
            self._ensure(key, service)
            return
        finally:
            self._measures.update_latency.observe(self._clock.monotonic() - began)
        record = self._records.put(key, evolve(record, nodes=targets.digest))
        if targets.nodes:
            self._recorder.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._warn_no_targets(service)
        self._write_applied(key, service, record)

    def _write_applied(self, key: str, service: V1Service, record: Record) -> None:
        """Put status and note on the Service, unless they are there."""
        patch = changes.applied(service, record.status, Note(record.spec, record.nodes))
        try:
            written = self._api.write(key, service, patch)
        except ApiError as error:
            self._failed(
                service, "SyncLoadBalancerFailed", "Error syncing load balancer: failed to write its status", error
            )
            raise
        self._records.put(key, evolve(record, version=version_of(written)))

    # ---- a load balancer that shall not be

    def _remove(self, key: str, service: V1Service, record: Record | None) -> None:
        if record is not None and record.released:
            if not has_load_balancer_finalizer(service):
                if service.metadata is not None and service.metadata.deletion_timestamp is None:
                    self._records.drop(key)
                return  # until it is gone, lest its deletion be taken for one without cleaning up
            if is_newer(version_of(service), record.version) is not True:
                return  # the cache is behind our own write
            record = None  # somebody put the finalizer back
        if record is None or not record.gone:
            record = evolve(record or Record(service=service, uid=uid_of(service)), service=service)
            record = self._delete(key, record)
        written = self._api.write(key, service, changes.released(service))
        if has_load_balancer_finalizer(service):
            self._records.put(key, evolve(record, released=True, version=version_of(written)))
        else:
            self._records.drop(key)

    def _remove_former(self, key: str, record: Record) -> None:
        """Clean up for a Service that vanished without our finalizer, or was made anew under its name."""
        if not record.gone:
            self._api.prove_gone(key, record.uid)
            self._delete(key, record)
        self._records.drop(key)

    def _delete(self, key: str, record: Record) -> Record:
        """Have the cloud delete; returning means that it confirmed."""
        self._not_too_early(record, "delete")
        service = record.service
        record = self._records.put(key, evolve(record, spec="", nodes="", attempt="delete", not_before=0.0))
        self._recorder.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        try:
            with self._delays(key, record):
                self._balancers.ensure_deleted(self._cluster, service)
        except ImplementedElsewhere:
            log.debug("Service %s: its load balancer is another controller's", key)
        except _CLOUD as error:
            self._failed(service, "DeleteLoadBalancerFailed", "Error deleting load balancer", error)
            raise
        self._recorder.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")
        return self._records.put(key, evolve(record, gone=True))

    # ---- both

    def _not_too_early(self, record: Record | None, attempt: str) -> None:
        """Raise _TooEarly while the cloud's word holds when to ask for the same again: events must not hasten it."""
        if record is not None and record.attempt == attempt:
            left = record.not_before - self._clock.monotonic()
            if left > 0:
                raise _TooEarly(left)

    @contextmanager
    def _delays(self, key: str, record: Record) -> Iterator[None]:
        """Around a call that changes the cloud: remember when it wants to be asked again."""
        try:
            yield
        except (RetryError, Throttled) as error:
            not_before = self._clock.monotonic() + (delay_of(error) or 0.0)
            self._records.put(key, evolve(record, not_before=not_before))
            raise

    def _look(self, service: V1Service, priority: int) -> V1LoadBalancerStatus | None:
        """What the cloud has; None when it answered that it has none."""
        try:
            return self._balancers.get(self._cluster, service, priority=priority)
        except (ImplementedElsewhere, NotImplementedByProvider):
            raise
        except _CLOUD as error:
            self._failed(service, "SyncLoadBalancerFailed", "Error syncing load balancer: failed to look at it", error)
            raise

    def _is_missing(self, service: V1Service, priority: int) -> bool:
        """Whether the cloud answered that it has none. A provider that cannot tell has not said so."""
        try:
            return self._look(service, priority) is None
        except (ImplementedElsewhere, NotImplementedByProvider):
            return False

    def _scope(self) -> Scope:
        with self._lock:
            if self._known_scope is None:
                self._known_scope = Scope(self._cluster, self._identity() or "", self._balancers.revision())
            return self._known_scope

    def _next_check(self, *, finished: bool = True) -> float:
        """When to look for drift: spread, so that not all come at once."""
        period = self._drift_period * (0.5 + 0.5 * self._chance()) if self._drift_period else math.inf
        return self._clock.monotonic() + (period if finished else min(period, _UNFINISHED))

    def _warn_no_targets(self, service: V1Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._recorder.event(service, "Warning", "UnAvailableLoadBalancer", message)

    def _failed(self, service: V1Service, reason: str, what: str, error: Exception) -> None:
        """Tell the Service's owner; a cloud that is still at work has not failed."""
        if isinstance(error, CallsClosed):
            return
        if isinstance(error, RetryError):
            log.debug("Service %s: %s: %s", uid_of(service), what, error)
            return
        self._recorder.event(service, "Warning", reason, f"{what}: {error}")
