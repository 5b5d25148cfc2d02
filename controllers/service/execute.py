"""Stages 5 and 6: carries out one step that `decide.py` chose, with the cloud and the API server.

Called by `reconcile.py`, one step at a time for each Service. What the cloud is about to be asked, and what it
confirmed, is remembered in `records.py` before anything else may fail. Written on the Service is what a call of ours
changed, when it changed it. What others write over it afterwards is theirs: only what is missing is put back, seldom.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from cloudprovider import ImplementedElsewhere, NotImplementedByProvider
from cloudprovider.helpers import load_balancer_status_equal
from controllers.cloudcalls import PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP, CallsClosed
from controllers.runtime.cache import uid_of, version_of
from controllers.service import changes, pacing
from controllers.service.changes import Note
from controllers.service.cloudside import CLOUD_ERRORS, PATIENT
from controllers.service.decide import Act, Case, Part, Sight, Step, wanted
from controllers.service.records import Record, State

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.clock import Clock
    from controllers.runtime.write import EventRecorder
    from controllers.service.apiserver import ServiceAPI
    from controllers.service.cloudside import CloudSide
    from controllers.service.metrics import ServiceMetrics
    from controllers.service.pacing import Schedule
    from controllers.service.records import Records
    from controllers.service.targets import Targets

log = logging.getLogger(__name__)


class Executor:
    """Carries steps out. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        api: ServiceAPI,
        cloud: CloudSide,
        targets: Callable[[], Targets],
        records: Records,
        recorder: EventRecorder,
        metrics: ServiceMetrics,
        schedule: Schedule,
        clock: Clock,
    ) -> None:
        self._api = api
        self._cloud = cloud
        self._targets = targets
        self._records = records
        self._recorder = recorder
        self._metrics = metrics
        self._schedule = schedule
        self._clock = clock
        self._steps: dict[Act, Callable[[str, Case, Step], Case]] = {
            Act.FORGET: self._forget,
            Act.LOOK: self._look,
            Act.WARN: self._warn,
            Act.ENSURE: self._ensure,
            Act.UPDATE: self._update,
            Act.WRITE: self._write,
            Act.PUT_BACK: self._put_back,
            Act.DELETE: self._delete,
            Act.RELEASE: self._let_go,
            Act.UNHOLD: self._let_go,
            Act.LEAVE: self._leave,
        }

    def carry_out(self, key: str, case: Case, step: Step) -> Case:
        """Carry the step out and return what is known then. Raises what the cloud or the API server answered,
        CacheBehind, ServiceGone, or TooEarly."""
        return self._steps[step.act](key, case, step)

    # ---- a load balancer that is to be there

    def _look(self, key: str, case: Case, step: Step) -> Case:
        return evolve(case, found=self._cloud.look(_service(case), sweep=step.sweep))

    def _warn(self, key: str, case: Case, step: Step) -> Case:
        pace = _record(case).pace
        message = (
            f"The Service was changed {pace.count} times within a short time, so its load balancer gets the latest "
            f"change in {pacing.CHANGES.left(pace, self._clock.monotonic()):.0f} s. Look for two writers that disagree "
            "about its spec or annotations"
        )
        log.warning("Service %s: %s", key, message)
        self._recorder.event(_service(case), "Warning", "LoadBalancerChangesDelayed", message)
        return case

    def _ensure(self, key: str, case: Case, step: Step) -> Case:
        service, former = _service(case), _record(case)
        if case.found is Sight.NONE and former.spec:
            log.warning("the load balancer of Service %s is missing in the cloud; rebuilding it", key)
        self._cloud.not_too_early(former, f"ensure {wanted(case)}")
        new = not changes.ingress(changes.status_of(service))
        targets = self._api.confirmed(self._targets(), may_be_empty=new)
        keep_note = step.sweep and former.nodes == targets.digest
        with self._cloud.telling(service, "failed to add load balancer cleanup finalizer"):
            service = self._api.write(key, service, changes.begun(service, keep_note=keep_note))
        case = evolve(case, service=service)
        if not changes.keeps(service):
            return evolve(case, over=True)  # changed on the server meanwhile; the event is on its way
        record = self._records.put(key, self._begun(service, former, wanted(case)))
        if not step.sweep:
            self._recorder.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if not targets.nodes:
            self._warn_no_targets(service)
        self._metrics.syncs.inc()
        priority = PRIORITY_SWEEP if step.sweep else PRIORITY_NEW if new else PRIORITY_NORMAL
        try:
            with self._cloud.delays(key, record):
                status = self._cloud.balancers.ensure(self._cloud.cluster, service, targets.nodes, priority=priority)
        except ImplementedElsewhere:
            return self._elsewhere(key, case, evolve(record, spec=record.tried, nodes=targets.digest))
        except CLOUD_ERRORS as error:
            what = "Error syncing load balancer: failed to ensure load balancer"
            self._cloud.failed(service, "SyncLoadBalancerFailed", what, error)
            raise
        same = load_balancer_status_equal(former.status, status)
        empty = 0 if changes.ingress(status) else record.empty + 1
        now = self._clock.monotonic()
        record = evolve(
            record,
            state=State.CONFIRMED,
            spec=record.tried,
            nodes=targets.digest,
            status=status,
            new_status=record.new_status or not same or not changes.ingress(changes.status_of(service)),
            seen=step.seen,
            empty=empty,
            due=self._schedule.next_look(now, empty),
            ensure_due=self._schedule.next_ensure(now),
        )
        self._records.put(key, record)
        if not (step.sweep and same):
            self._recorder.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        return self._note(key, case, record)

    def _begun(self, service: V1Service, former: Record, fingerprint: str) -> Record:
        """Before the cloud is called: nothing is certain any more, as it may begin to build."""
        changed = former.tried not in ("", fingerprint)
        return evolve(
            Record.blank(service),
            status=former.status,
            new_status=former.new_status,
            empty=former.empty if former.tried == fingerprint else 0,
            version=version_of(service),
            attempt=f"ensure {fingerprint}",
            tried=fingerprint,
            pace=pacing.CHANGES.done(former.pace, self._clock.monotonic()) if changed else former.pace,
            held=former.held,
        )

    def _update(self, key: str, case: Case, step: Step) -> Case:
        service, record = _service(case), _record(case)
        targets = self._api.confirmed(self._targets(), may_be_empty=False)
        attempt = f"update {targets.digest}"
        self._cloud.not_too_early(record, attempt)
        record = evolve(record, service=service, state=State.RETARGETING, nodes="", attempt=attempt, not_before=0.0)
        case = evolve(case, record=self._records.put(key, record))
        self._metrics.syncs.inc()
        began = self._clock.monotonic()
        try:
            with self._cloud.delays(key, record):
                self._cloud.balancers.update(self._cloud.cluster, service, targets.nodes, priority=PRIORITY_NORMAL)
        except ImplementedElsewhere:
            return self._elsewhere(key, case, evolve(record, nodes=targets.digest))
        except NotImplementedByProvider:
            return evolve(case, updates=False)
        except CLOUD_ERRORS as error:
            self._metrics.update_errors.inc()
            if not isinstance(error, CallsClosed):  # half of it may be done, so the note is true no longer
                service = self._api.write(key, service, changes.begun(service, keep_note=False))
            # What was deleted by hand cannot be updated, and is built anew.
            if isinstance(error, PATIENT) or self._cloud.look(service) is not Sight.NONE:
                what = "Error updating load balancer with new hosts"
                self._cloud.failed(service, "UpdateLoadBalancerFailed", what, error)
                raise
            return evolve(case, service=service, found=Sight.NONE)
        finally:
            self._metrics.update_latency.observe(self._clock.monotonic() - began)
        record = self._records.put(key, evolve(record, state=State.CONFIRMED, nodes=targets.digest))
        if targets.nodes:
            self._recorder.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self._warn_no_targets(service)
        return self._note(key, case, record)

    def _elsewhere(self, key: str, case: Case, record: Record) -> Case:
        due = self._schedule.next_ensure(self._clock.monotonic())
        record = evolve(record, state=State.ELSEWHERE, due=math.inf, ensure_due=due)
        return evolve(case, record=self._records.put(key, record), over=True)

    def _warn_no_targets(self, service: V1Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._recorder.event(service, "Warning", "UnAvailableLoadBalancer", message)

    # ---- what is written on the Service

    def _write(self, key: str, case: Case, step: Step) -> Case:
        service = _service(case)
        service = self._api.write(key, service, changes.begun(service, keep_note=True))
        return self._note(key, evolve(case, service=service), _record(case))

    def _note(self, key: str, case: Case, record: Record) -> Case:
        """Put the note of what was applied on the Service, and the status if a call of ours changed it."""
        service = _service(case)
        status = record.status if record.new_status else None
        patch = changes.applied(service, status, Note(record.uid, record.spec, record.nodes))
        with self._cloud.telling(service, "failed to write its status"):
            service = self._api.write(key, service, patch)
        record = evolve(record, state=State.WRITTEN, version=version_of(service), new_status=False, restore_at=0.0)
        return evolve(case, service=service, record=self._records.put(key, record), over=True)

    def _put_back(self, key: str, case: Case, step: Step) -> Case:
        service, record = _service(case), _record(case)
        stripped = [part.name.lower() for part in (Part.FINALIZER, Part.ADDRESS) if part in step.missing and part.name]
        if stripped:
            log.warning("Service %s: another program removed its %s; added again", key, " and ".join(stripped))
            service = self._api.write(key, service, changes.begun(service, keep_note=True))
            if Part.ADDRESS in step.missing:
                service = self._api.write(key, service, changes.applied(service, record.status, None))
            held = pacing.RESTORED.done(record.held, self._clock.monotonic())
            record = self._records.put(key, evolve(record, held=held, version=version_of(service)))
        if Part.NOTE in step.missing:
            note = Note(record.uid, record.spec, record.nodes)
            service = self._api.write(key, service, changes.applied(service, None, note))
            record = self._records.put(key, evolve(record, version=version_of(service), restore_at=math.inf))
        return evolve(case, service=service, record=record, over=True)

    # ---- a load balancer that is to go

    def _delete(self, key: str, case: Case, step: Step) -> Case:
        record = _record(case)
        failure = "SyncLoadBalancerFailed", "Error syncing load balancer: failed to delete load balancer"
        if case.service is None or uid_of(case.service) != record.uid:
            self._api.prove_gone(key, record.uid)
            failure = "DeleteLoadBalancerFailed", "Error deleting load balancer"
        self._cloud.not_too_early(record, "delete")
        service, unseen = record.service, record.state is State.UNSEEN
        state = State.UNSEEN if unseen else State.UNSURE
        record = evolve(record, state=state, spec="", nodes="", attempt="delete", not_before=0.0)
        self._records.put(key, record)
        self._recorder.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        try:
            with self._cloud.delays(key, record):
                self._cloud.balancers.ensure_deleted(self._cloud.cluster, service)
        except ImplementedElsewhere:
            log.debug("Service %s: its load balancer is another controller's", key)
        except CLOUD_ERRORS as error:
            none = not isinstance(error, PATIENT) and self._cloud.shows_none(service)
            if not (none and unseen):
                state = State.UNSEEN if none else State.UNSURE
                self._records.put(key, evolve(self._records.get(key) or record, state=state))
                if not none:
                    self._cloud.failed(service, *failure, error)
                raise
            log.info("Service %s: its deletion failed (%s), but the cloud has no load balancer any more", key, error)
        self._recorder.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")
        return evolve(case, record=self._records.put(key, evolve(record, state=State.GONE)))

    def _forget(self, key: str, case: Case, step: Step) -> Case:
        self._records.drop(key)
        return evolve(case, record=None)

    def _let_go(self, key: str, case: Case, step: Step) -> Case:
        service, record = _service(case), case.record
        patch = changes.released(service) if step.act is Act.RELEASE else changes.unheld(service)
        with self._cloud.telling(service, "failed to remove load balancer cleanup finalizer"):
            service = self._api.write(key, service, patch)
        if step.act is Act.RELEASE:
            record = evolve(_record(case), state=State.RELEASED, version=version_of(service))
            self._records.put(key, record)
        return evolve(case, service=service, record=record, over=True)

    def _leave(self, key: str, case: Case, step: Step) -> Case:
        log.info(
            "Service %s: the cloud has no load balancer for it; its finalizer stays, it may be another's",
            key,
        )
        return evolve(case, over=True)


def _service(case: Case) -> V1Service:
    assert case.service is not None, "decide() chooses this step only for a Service that is there"
    return case.service


def _record(case: Case) -> Record:
    assert case.record is not None, "decide() chooses this step only with a record"
    return case.record
