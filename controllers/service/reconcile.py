"""Stage 4: takes a Service's key, compares what is wanted with what was applied, and closes the gap with one call to
the cloud (stage 5) and one write (6).

What was applied is known from the record of this process; a new process takes it from the Service's annotation, after
the cloud confirmed that the load balancer is there. So it does not matter why a key comes: event, node change, drift
check and retry all run through `reconcile`, one at a time for each Service. What is to go is left to `removal.py`.

Written is what a call of ours changed, when it changed it. What others write over it afterwards is theirs: only what is
missing is put back, seldom (`pacing.py`).
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider import ImplementedElsewhere, NotImplementedByProvider
from cloudprovider.helpers import has_load_balancer_finalizer, load_balancer_status_equal
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP, CallsClosed
from controllers.runtime.cache import is_newer, uid_of, version_of
from controllers.runtime.queue import DONE, Result
from controllers.service import changes, pacing
from controllers.service.changes import Note, Scope
from controllers.service.cloudside import CLOUD_ERRORS, PATIENT, UNTOLD, TooEarly
from controllers.service.cluster import ServiceGone
from controllers.service.records import Record
from controllers.service.removal import is_behind_release
from controllers.service.triggers import DRIFT

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder
    from controllers.service.cloudside import CloudSide
    from controllers.service.cluster import ServiceAPI
    from controllers.service.metrics import ServiceMetrics
    from controllers.service.nodesync import NodeSync
    from controllers.service.records import Records
    from controllers.service.removal import Removal
    from controllers.service.targets import Targets

log = logging.getLogger(__name__)


class ServiceReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        api: ServiceAPI,
        lister: Lister[V1Service],
        cloud: CloudSide,
        targets: Callable[[], Targets],
        records: Records,
        recorder: EventRecorder,
        sync: NodeSync,
        removal: Removal,
        *,
        identity: Callable[[], str],
        drift_period: float,
        ensure_period: float,
        measures: ServiceMetrics,
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._services = lister
        self._cloud = cloud
        self._targets = targets
        self._records = records
        self._recorder = recorder
        self._sync = sync
        self._removal = removal
        self._identity = identity
        self._drift_period = drift_period
        self._ensure_period = ensure_period
        self._measures = measures
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._known_scope: Scope | None = None

    def reconcile(self, key: str) -> Result:
        """Close the gap for one Service. Raises what the cloud or the API server answered, or CacheBehind."""
        service, record = self._services.get(key), self._records.get(key)
        result = DONE
        try:
            if record is not None and (service is None or uid_of(service) != record.uid):
                self._removal.of_former(key, record)
                record = None
            if service is not None and changes.keeps(service):
                if record is None or not is_behind_release(service, record):  # else its event brings it again
                    result = self._keep(key, service, record)
            elif service is not None:
                self._removal.of_service(key, service, record)
        except TooEarly as pause:
            return Result(requeue_after=pause.seconds)
        except ServiceGone as gone:
            log.debug("%s; its event is on the way, and brings what is left to do", gone)
        self._sync.finished(key)
        return result

    # ---- a load balancer that shall be

    def _keep(self, key: str, service: V1Service, record: Record | None) -> Result:
        restore_in = math.inf
        wanted = changes.fingerprint(service, self._scope())
        if record is None:
            record = self._records.put(key, self._recall(service, wanted))
        elif record.gone:  # whatever the cloud may still show of it, and a note say
            record = self._records.put(key, Record(service=service, uid=uid_of(service)))
        now = self._clock.monotonic()
        paced, record = self._paced(key, service, record, wanted)
        if record.spec != wanted and not paced:
            self._ensure(key, service)
        elif not record.spec:
            pass  # half done, and it changes too often
        elif not record.elsewhere and not self._targets().cover(record.nodes) and self._sync.is_due(key):
            self._update(key, service, record)
        elif not paced and min(record.due, record.ensure_due) <= now and self._repaired(key, service, record):
            pass
        elif not record.elsewhere and is_newer(record.version, version_of(service)) is not True:
            # The cache shows our last write, so what differs was changed by someone else.
            record = self._records.get(key) or record
            if record.unwritten and record.nodes:
                service = self._api.write(key, service, changes.begun(service, keep_note=True))
                self._write_applied(key, service, record)
            elif record.nodes:
                restore_in = self._restore(key, service, record)
        return self._next(key, min(paced or math.inf, restore_in))

    def _next(self, key: str, seconds: float) -> Result:
        """Have it looked at again after so long, or when its time comes."""
        record = self._records.get(key)
        if record is not None and record.spec:
            time = min(record.due, record.ensure_due, record.restore_at or math.inf)
            seconds = min(seconds, max(0.0, time - self._clock.monotonic()))
        return Result(requeue_after=seconds, priority=DRIFT) if seconds < math.inf else DONE

    def _paced(self, key: str, service: V1Service, record: Record, wanted: str) -> tuple[float, Record]:
        """Seconds until a change of the Service is acted upon: 0.0, unless it is changed again and again."""
        if record.tried in ("", wanted):
            return 0.0, record
        left = pacing.CHANGES.left(record.pace, self._clock.monotonic())
        if left and not record.pace.told:
            record = self._records.put(key, evolve(record, pace=pacing.told(record.pace)))
            message = (
                f"The Service was changed {record.pace.count} times within a short time, so its load balancer gets the "
                f"latest change in {left:.0f} s. Look for two writers that disagree about its spec or annotations"
            )
            log.warning("Service %s: %s", key, message)
            self._recorder.event(service, "Warning", "LoadBalancerChangesDelayed", message)
        return left, record

    def _recall(self, service: V1Service, wanted: str) -> Record:
        """What a former process applied, if its note and the cloud agree about it; else a blank record."""
        blank = Record(service=service, uid=uid_of(service))
        note = changes.trusted_note(service, wanted)
        if note is None:
            return blank
        try:
            status = self._cloud.look(service, PRIORITY_NORMAL)
        except UNTOLD:
            return blank
        if status is None or not load_balancer_status_equal(status, changes.status_of(service)):
            return blank
        return evolve(
            blank,
            spec=note.spec,
            tried=note.spec,
            nodes=note.nodes,
            status=status,
            due=self._after(self._drift_period),
            ensure_due=self._after(self._ensure_period),
        )

    def _repaired(self, key: str, service: V1Service, record: Record) -> bool:
        """Look whether the load balancer is as the cloud said when it built it. Repair it if not, or if its time for
        that has come: a look does not show all that may have been changed by hand. Whether it was repaired."""
        found: V1LoadBalancerStatus | None = None
        ensure = record.ensure_due <= self._clock.monotonic() or self._is_unfinished(record)
        if not record.elsewhere:
            try:
                found = self._cloud.look(service, PRIORITY_SWEEP)
            except UNTOLD:
                pass  # the next call that repairs will tell
            else:
                if found is None:
                    log.warning("the load balancer of Service %s is missing in the cloud; it is built anew", key)
                    self._ensure(key, service)
                    return True
                known = (record.status, record.seen)
                ensure = ensure or not any(load_balancer_status_equal(found, one) for one in known)
        if ensure:
            self._ensure(key, service, drift=True, seen=found)
        else:
            self._records.put(key, evolve(record, due=self._after(self._drift_period)))
        return ensure

    def _ensure(
        self, key: str, service: V1Service, *, drift: bool = False, seen: V1LoadBalancerStatus | None = None
    ) -> None:
        """Have the cloud build, or repair. A drift check is silent as long as it changes nothing."""
        former = self._records.get(key) or Record(service=service, uid=uid_of(service))
        self._cloud.not_too_early(former, f"ensure {changes.fingerprint(service, self._scope())}")
        new = not changes.ingress(changes.status_of(service))
        targets = self._api.confirmed(self._targets(), may_be_empty=new)
        keep_note = drift and former.nodes == targets.digest
        with self._cloud.telling(service, "failed to add load balancer cleanup finalizer"):
            service = self._api.write(key, service, changes.begun(service, keep_note=keep_note))
        if not changes.keeps(service):
            return  # changed on the server meanwhile; the event is on its way
        wanted = changes.fingerprint(service, self._scope())
        record = self._begin(key, service, former, wanted)
        if not drift:
            self._recorder.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if not targets.nodes:
            self._warn_no_targets(service)
        self._measures.syncs.inc()
        priority = PRIORITY_SWEEP if drift else PRIORITY_NEW if new else PRIORITY_NORMAL
        try:
            with self._cloud.delays(key, record):
                status = self._cloud.balancers.ensure(self._cloud.cluster, service, targets.nodes, priority=priority)
        except ImplementedElsewhere:
            due = self._after(self._ensure_period)
            record = evolve(record, spec=wanted, nodes=targets.digest, elsewhere=True, due=math.inf, ensure_due=due)
            self._records.put(key, record)
            return
        except CLOUD_ERRORS as error:
            what = "Error syncing load balancer: failed to ensure load balancer"
            self._cloud.failed(service, "SyncLoadBalancerFailed", what, error)
            raise
        same = load_balancer_status_equal(former.status, status)
        record = evolve(record, spec=wanted, nodes=targets.digest, status=status, seen=seen, unwritten=True)
        record = evolve(record, empty=0 if changes.ingress(status) else record.empty + 1)
        record = self._records.put(
            key,
            evolve(
                record,
                new_status=record.new_status or not same or not changes.ingress(changes.status_of(service)),
                due=self._next_look(record),
                ensure_due=self._after(self._ensure_period),
            ),
        )
        if not (drift and same):
            self._recorder.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        self._write_applied(key, service, record)

    def _begin(self, key: str, service: V1Service, former: Record, wanted: str) -> Record:
        """Remember, before the cloud is called, that nothing is certain any more. The cloud may begin to build."""
        changed = former.tried not in ("", wanted)
        return self._records.put(
            key,
            Record(
                service=service,
                uid=uid_of(service),
                status=former.status,
                empty=former.empty if former.tried == wanted else 0,
                version=version_of(service),
                attempt=f"ensure {wanted}",
                tried=wanted,
                pace=pacing.CHANGES.done(former.pace, self._clock.monotonic()) if changed else former.pace,
                new_status=former.new_status,
                held=former.held,
            ),
        )

    def _update(self, key: str, service: V1Service, record: Record) -> None:
        """Have the cloud take the present targets."""
        targets = self._api.confirmed(self._targets(), may_be_empty=False)
        attempt = f"update {targets.digest}"
        self._cloud.not_too_early(record, attempt)
        record = self._records.put(key, evolve(record, service=service, nodes="", attempt=attempt, not_before=0.0))
        self._measures.syncs.inc()
        began = self._clock.monotonic()
        try:
            with self._cloud.delays(key, record):
                self._cloud.balancers.update(self._cloud.cluster, service, targets.nodes, priority=PRIORITY_NORMAL)
        except ImplementedElsewhere:
            due = self._after(self._ensure_period)
            self._records.put(key, evolve(record, elsewhere=True, nodes=targets.digest, due=math.inf, ensure_due=due))
            return
        except NotImplementedByProvider:
            self._ensure(key, service, drift=True)
            return
        except CLOUD_ERRORS as error:
            self._measures.update_errors.inc()
            if not isinstance(error, CallsClosed):  # half of it may be done, so the note is true no longer
                service = self._api.write(key, service, changes.begun(service, keep_note=False))
            # What was deleted by hand cannot be updated, and is built anew.
            if isinstance(error, PATIENT) or not self._cloud.is_missing(service, PRIORITY_NORMAL):
                what = "Error updating load balancer with new hosts"
                self._cloud.failed(service, "UpdateLoadBalancerFailed", what, error)
                raise
            self._ensure(key, service)
            return
        finally:
            self._measures.update_latency.observe(self._clock.monotonic() - began)
        record = self._records.put(key, evolve(record, nodes=targets.digest, unwritten=True))
        if targets.nodes:
            self._recorder.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._warn_no_targets(service)
        self._write_applied(key, service, record)

    # ---- what is written on the Service

    def _write_applied(self, key: str, service: V1Service, record: Record) -> None:
        """Put the note of what was applied on the Service, and the status if a call of ours changed it."""
        status = record.status if record.new_status else None
        patch = changes.applied(service, status, Note(record.uid, record.spec, record.nodes))
        with self._cloud.telling(service, "failed to write its status"):
            written = self._api.write(key, service, patch)
        done = evolve(record, version=version_of(written), unwritten=False, new_status=False)
        self._records.put(key, evolve(done, restored=False, restore_at=0.0))

    def _restore(self, key: str, service: V1Service, record: Record) -> float:
        """Put back what somebody removed. Finalizer and address at once, but ever more slowly if they are removed again
        and again; the note later, and once: whoever insists gets their way. Returns the seconds until the first two
        may be put back again, inf if they are there."""
        left, now = math.inf, self._clock.monotonic()
        held = has_load_balancer_finalizer(service)
        emptied = bool(changes.ingress(record.status)) and not changes.ingress(changes.status_of(service))
        if emptied or not held:
            left = pacing.RESTORED.left(record.held, now) or math.inf
            if left == math.inf:
                what = "address" if held else "finalizer and address" if emptied else "finalizer"
                log.warning("Service %s: somebody removed its %s; put back", key, what)
                service = self._api.write(key, service, changes.begun(service, keep_note=True))
                if emptied:
                    service = self._api.write(key, service, changes.applied(service, record.status, None))
                done = pacing.RESTORED.done(record.held, now)
                record = self._records.put(key, evolve(record, held=done, version=version_of(service)))
        note = Note(record.uid, record.spec, record.nodes)
        if record.restored or changes.note_of(service) == note:
            if record.restore_at:
                self._records.put(key, evolve(record, restore_at=0.0))
        elif not record.restore_at:
            self._records.put(key, evolve(record, restore_at=now + pacing.LAZY))
        elif record.restore_at <= now:
            written = self._api.write(key, service, changes.applied(service, None, note))
            self._records.put(key, evolve(record, version=version_of(written), restored=True, restore_at=0.0))
        return left

    # ---- when

    def _scope(self) -> Scope:
        with self._lock:
            known = self._known_scope
        if known is None:
            known = Scope(self._cloud.cluster, self._identity(), self._cloud.balancers.revision())
            with self._lock:
                self._known_scope = known
        return known

    def _after(self, period: float) -> float:
        """The time after half of a period to all of it, so that not all come at once. A period of 0 never ends."""
        return self._clock.monotonic() + (period * (0.5 + 0.5 * self._chance()) if period else math.inf)

    def _is_unfinished(self, record: Record) -> bool:
        """Whether the cloud answered without an address so lately that one may be about to come."""
        return record.empty > 0 and self._patience(record) < (self._drift_period or pacing.EMPTY_CAP)

    def _patience(self, record: Record) -> float:
        return pacing.doubled(pacing.EMPTY, record.empty - 1, math.inf)

    def _next_look(self, record: Record) -> float:
        if self._is_unfinished(record):
            return self._clock.monotonic() + self._patience(record)
        return self._after(self._drift_period)

    def _warn_no_targets(self, service: V1Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._recorder.event(service, "Warning", "UnAvailableLoadBalancer", message)
