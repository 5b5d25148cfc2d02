"""Stage 5: CALL, and 6: WRITE. Carries out one step that `decide.py` chose.

What the cloud is about to be asked, and what it confirmed, goes into `records.py` before anything
else may fail. A call's result is written on the Service when the call changed it. What other
programs write over it afterwards is theirs: only what is missing is put back, seldom.

Normal Events about a load balancer that is to be there, and its metrics, are here; a failure's
Event is in `calls.py`, a deletion's in `remove.py`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from attrs import evolve

from cloudprovider import ImplementedElsewhere, NotImplementedByProvider, RetryError
from cloudprovider.helpers import load_balancer_status_equal
from controllers.cloudcalls import CLOUD_ERRORS, PRIORITY_NEW, PRIORITY_NORMAL, PRIORITY_SWEEP, CallsClosed
from controllers.runtime.cache import version_of
from controllers.service import changes
from controllers.service.calls import SAYS_LATER, ServiceCloud, TooEarly
from controllers.service.changes import as_built
from controllers.service.changes import fingerprint as fingerprint_of
from controllers.service.conditions import Conditions, built, reason_of
from controllers.service.decide import Action, ObservedLoadBalancer, OwnedField, ServiceView, Step, wanted
from controllers.service.records import CHANGES, RESTORED, SECONDS, TOLD, Record, State

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.write import Patch
    from controllers.service.calls import ServiceAPI
    from controllers.service.records import Schedule
    from controllers.service.targets import Targets

log = logging.getLogger(__name__)

_VISIBLE: Final = OwnedField.FINALIZER | OwnedField.ADDRESS


class Executor:
    """Carries out the steps about a load balancer that is to be there. Each returns what is known
    then, and raises what the cloud or the API server answered, CacheBehind, ServiceGone, or
    TooEarly. Thread-safe: the work queue keeps two threads off one key.

    `targets` gives what load balancers get now. `conditions` None: none are written.
    """

    def __init__(
        self,
        api: ServiceAPI,
        cloud: ServiceCloud,
        targets: Callable[[], Targets],
        metrics: Metrics,
        schedule: Schedule,
        clock: Clock,
        conditions: Conditions | None = None,
    ) -> None:
        self._api = api
        self._cloud = cloud
        self._targets = targets
        self._records = cloud.records
        self._recorder = cloud.recorder
        metrics.gauge(
            "service_controller_load_balancers", "Load balancers that this process looks after."
        ).set_function(self._records.__len__)
        self._syncs = metrics.counter(
            "service_controller_loadbalancer_sync_total",
            "Calls that had the cloud build, repair or retarget a load balancer.",
        )
        self._update_errors = metrics.counter(
            "service_controller_nodesync_error_total", "Updates of a load balancer's targets that failed."
        )
        self._update_latency = metrics.histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "Updating the targets of one load balancer.",
            buckets=SECONDS,
        )
        self._schedule = schedule
        self._clock = clock
        self._conditions = conditions

    def look(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        # Only the time asks for this look: a cloud that fails is not asked sooner for it.
        if step.sweep and view.resting:
            raise TooEarly(view.resting)
        record = view.record
        if record is not None and record.found is not None and Action.ENSURE in view.tried:
            for other in self._cloud.former_services(record.found):  # it has another name since it was built
                found = self._cloud.look(other)
                if changes.ingress(None if isinstance(found, ObservedLoadBalancer) else found):
                    record = evolve(record, found=None, built=other)
                    return evolve(view, record=self._records.put(key, record), found=found)
        return evolve(view, found=self._cloud.look(view.present, sweep=step.sweep))

    def warn(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        recent = view.known.changes
        message = (
            f"The Service was changed {recent.count} times within a short time, so its load balancer gets the latest "
            f"change in {recent.left(self._clock.monotonic()):.0f} s. Look for two writers that disagree "
            "about its spec or annotations"
        )
        log.warning("Service %s: %s", key, message)
        self._recorder.event(view.present, "Warning", "LoadBalancerChangesDelayed", message)
        return view

    def ensure(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        service, former = view.present, view.known
        missing = view.found is ObservedLoadBalancer.NONE or (former.status is not None and former.built is None)
        if missing and former.status is not None:
            log.warning("the load balancer of Service %s is missing in the cloud; rebuilding it", key)
        fingerprint = wanted(view)  # once for each version of the Service: a third of a poll's CPU
        if not view.again:  # the provider's latest word counts, not the one before it
            self._cloud.not_too_early(former, "ensure", fingerprint, view.resting)
        # An empty cache would take every node out of what serves: there a list must agree.
        new = missing or not changes.ingress(changes.status_of(service))
        targets = self._api.confirmed(self._targets(), may_be_empty=new)
        # A repair of what the note says: should this process end meanwhile, the next one may go on
        # trusting it. Anything else may leave half of a change behind.
        keep_note = step.sweep and former.nodes == targets.digest
        asks_new = self._conditions is not None and self._asks_new(former, service, fingerprint, missing=missing)
        former = self._named(former, service, fingerprint)
        claim = self._claim(service, former, keep_note, asks_new)
        with self._cloud.reporting(service, "failed to add load balancer cleanup finalizer"):
            if not (claim or former.version):
                # A former process said so: no answer to a write shows if our cache is behind.
                service = self._api.newest(key, service)
                claim = self._claim(service, former, keep_note, asks_new)
            service = self._api.write(key, service, claim)
            if service is not view.service:
                before, view = fingerprint, evolve(view, service=service)
                fingerprint = wanted(view)
                if fingerprint != before and view.classes.keeps(service):
                    # Its owner changed it meanwhile; the claim must name what is built.
                    former = self._named(former, service, fingerprint)
                    claim = self._claim(service, former, keep_note, asks_new)
                    service = self._api.write(key, service, claim)
                    view = evolve(view, service=service)
                    fingerprint = wanted(view)
        if not view.classes.keeps(service):
            # Changed on the server meanwhile. Until its event comes, what we wrote counts.
            return evolve(view, record=self._records.put(key, former.after(service)), over=True)
        if missing:  # there is nothing to set targets for, should the call fail
            former = evolve(former, built=None)
        said = reason_of(service) if asks_new else ""
        # Remembered before the call: whatever comes of it, the cloud may have begun to build.
        record = self._records.put(key, self._begun(view, former, fingerprint, targets.digest, said))
        if view.again:
            self._records.looked_again(key)  # what the provider asks for while the call runs is another look
        # Its owner hears of what is new to them: neither of a routine check nor of each retry.
        if not (step.sweep or former.asks_again("ensure", fingerprint)):
            self._recorder.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if not targets.nodes:
            self._warn_no_targets(service, targets)
        self._syncs.inc()
        priority = PRIORITY_SWEEP if step.sweep else PRIORITY_NEW if new else PRIORITY_NORMAL
        try:
            with self._cloud.delays(key, record, "ensure"):
                status = self._cloud.balancers.ensure(
                    self._cloud.cluster,
                    service,
                    targets.nodes,
                    priority=priority,
                    began=record.asked["ensure"].since,
                    former=record.former_of(service),
                )
        except ImplementedElsewhere:
            # From now on another controller sets its address and targets.
            return self._elsewhere(key, view, evolve(record, spec=record.tried, nodes=targets.digest))
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
            built=service,
            former=service,
            found=None,
            new_status=record.new_status or not same or not changes.ingress(changes.status_of(service)),
            seen=step.seen,
            empty=empty,
            due=self._schedule.next_look(now, empty),
            ensure_due=self._schedule.next_ensure(now),
        )
        self._records.put(key, record)
        if not (step.sweep and same):
            self._recorder.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        # The call set the targets too: whatever node changes from now on is gathered with others.
        return self._note(key, evolve(view, gathering=True), record)

    def _asks_new(self, former: Record, service: V1Service, fingerprint: str, *, missing: bool) -> bool:
        """Whether the Service is to show that the cloud is asked to build: not when the same is
        tried again, nor for what a former process may have built."""
        if former.tried == fingerprint:
            return missing and not former.asks_again("ensure", fingerprint)
        return bool(former.tried) or not changes.ingress(changes.status_of(service))

    def _claim(self, service: V1Service, record: Record, keep_note: bool, asks_new: bool) -> Patch:
        claim = changes.claim_patch(service, record.annotations, keep_note=keep_note)
        if self._conditions is None or not asks_new:
            return claim
        return self._conditions.building(service, claim)

    def _named(self, former: Record, service: V1Service, fingerprint: str) -> Record:
        """Before another Service than the last one is built: should its load balancer have another
        name, those that there may be under former names are to go once it stands."""
        # First built, and nothing says under which other names: there is none to look for. Asked
        # counts too, as a deletion may have failed for what the owner wants again.
        annotations = former.annotations or changes.provider_annotations(service)
        note = changes.own_note(service)
        if not (former.asked or former.built or former.others or annotations or (note and note.annotations)):
            return former
        before = changes.distinct(filter(None, (former.last_built, former.last_asked)), service)
        if former.tried and (former.tried == fingerprint or not before):
            return former
        others: dict[str, V1Service] = {}
        noted = [] if former.tried else self._cloud.former_services(service)
        for one in (*former.others, *noted, *before):
            others.setdefault(self._cloud.name(one), one)
        if others:
            for name in ("", self._cloud.name(service)):
                others.pop(name, None)
        annotations = *map(self._cloud.naming_annotations, others.values()), self._cloud.naming_annotations(service)
        return evolve(former, others=tuple(others.values()), annotations=annotations)

    def _begun(self, view: ServiceView, former: Record, fingerprint: str, targets: str, said: str) -> Record:
        """Before the cloud is called: nothing is certain any more, as it may begin to build."""
        service, own, now = view.present, fingerprint, self._clock.monotonic()
        if view.depends_on != "":
            own = former.own if view.depends_on is None or view.scope is None else fingerprint_of(service, view.scope)
        changed = former.tried not in ("", fingerprint)
        told = changed and own == former.own  # by the provider: the owner has changed nothing
        changed = changed and not told
        return evolve(
            Record.blank(service),
            # The same targets make no difference, unless the provider chooses among them.
            nodes=former.nodes if former.nodes == targets and not told else "",
            status=former.status,
            built=former.built,
            former=former.former,
            others=former.others,
            annotations=former.annotations,
            found=former.found,
            new_status=former.new_status,
            empty=former.empty if former.tried == fingerprint else 0,
            version=version_of(service),
            written=service,
            asked=former.asking("ensure", now, fingerprint),
            tried=fingerprint,
            own=own,
            told=TOLD.next(former.told, now) if told or view.again else former.told,
            changes=CHANGES.next(former.changes, now) if changed else former.changes,
            warned=former.warned and not changed,
            restores=former.restores,
            condition_writes=former.condition_writes,
            said=said or former.said,
        )

    def update(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        service, record = view.present, view.known
        targets = self._api.confirmed(self._targets(), may_be_empty=False)
        self._cloud.not_too_early(record, "update", targets.digest)
        certain = record.state is not State.UNSURE
        began = self._clock.monotonic()
        record = evolve(
            record,
            state=State.RETARGETING if certain else State.UNSURE,
            nodes="",  # half of them may be set when the call fails
            asked=record.asking("update", began, targets.digest),
        )
        view = evolve(view, record=self._records.put(key, record))
        self._syncs.inc()
        try:
            with self._cloud.delays(key, record, "update"):
                since = record.asked["update"].since
                self._cloud.balancers.update(self._cloud.cluster, _as_built(view), targets.nodes, began=since)
        except ImplementedElsewhere:
            log.debug("Service %s: the targets of its load balancer are another controller's", key)
        except NotImplementedByProvider:
            # Then `decide` has it ensured, which sets targets too.
            return evolve(view, updates=False)
        except CLOUD_ERRORS as error:
            # A cloud that is still at work has not failed: an alert looks at this counter.
            if not isinstance(error, RetryError):
                self._update_errors.inc()
            self._cloud.failed(
                service, "UpdateLoadBalancerFailed", "Error updating load balancer with new hosts", error
            )
            if not isinstance(error, CallsClosed):
                self._update_failed(key, view, certain=certain, later=isinstance(error, SAYS_LATER))
            raise
        else:
            if targets.nodes:
                self._recorder.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
            else:
                self._warn_no_targets(service, targets)
        finally:
            self._update_latency.observe(self._clock.monotonic() - began)
        # Its targets are right; whether the rest of it is, only `ensure` can say.
        state = State.CONFIRMED if certain else State.UNSURE
        record = self._records.put(key, evolve(record, state=state, nodes=targets.digest))
        return self._note(key, view, record) if certain else evolve(view, record=record)

    def _update_failed(self, key: str, view: ServiceView, *, certain: bool, later: bool) -> None:
        """Half of it may be done, so the note is true no longer. Unless the cloud said "later",
        only `ensure` repairs what may be missing: in the same run, as in Go."""
        record = self._records.get(key)
        assert record is not None, "it was remembered before the call"
        if certain and not later:
            record = self._records.put(key, evolve(record, state=State.UNSURE, spec=""))
        service, record = self._claimed(key, view.present, record, keep_note=False)
        view = evolve(view, service=service)
        if certain and not later and self._cloud.look(_as_built(view)) is ObservedLoadBalancer.NONE:
            self._records.put(key, evolve(record, built=None))

    def _elsewhere(self, key: str, view: ServiceView, record: Record) -> ServiceView:
        due = self._schedule.next_ensure(self._clock.monotonic())
        # What was ours before no longer counts: neither as missing, nor as written on the Service.
        record = evolve(
            record, state=State.ELSEWHERE, status=None, built=None, found=None, due=math.inf, ensure_due=due
        )
        return evolve(view, record=self._records.put(key, record), over=True)

    def _warn_no_targets(self, service: V1Service, targets: Targets) -> None:
        message = f"There are no available nodes for LoadBalancer: {targets.why_none}"
        self._recorder.event(service, "Warning", "UnAvailableLoadBalancer", message)

    # ---- what is written on the Service

    def _claimed(self, key: str, service: V1Service, record: Record, *, keep_note: bool) -> tuple[V1Service, Record]:
        """Finalizer and claim are written; what the API server answers counts from now on."""
        service = self._api.write(key, service, changes.claim_patch(service, record.annotations, keep_note=keep_note))
        return service, self._records.put(key, record.after(service))

    def write(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        service, record = view.present, view.known
        service, record = self._claimed(key, service, record, keep_note=record.state is State.CONFIRMED)
        return self._note(key, evolve(view, service=service), record)

    def _note(self, key: str, view: ServiceView, record: Record) -> ServiceView:
        """Put the note of what was applied on the Service, unless that is unsure, and the status if
        a call of ours changed it."""
        service, state = view.present, record.state
        status = record.status if record.new_status else None
        # The next process trusts a note, so there is none while anything of it may be untrue.
        note = record.note if state is State.CONFIRMED and not record.others else None
        patch = changes.status_patch(service, status, note)
        if self._conditions is not None and state is State.CONFIRMED and record.spec == wanted(view):
            patch = self._conditions.added(service, patch, said := built(record.status))
            record = evolve(record, said=said.reason)
        with self._cloud.reporting(service, "failed to write its status"):
            service = self._api.write(key, service, patch)
        state = State.WRITTEN if note is not None else state
        record = evolve(record.after(service), state=state, new_status=False, restore_at=0.0)
        return evolve(view, service=service, record=self._records.put(key, record))

    def put_back(self, key: str, view: ServiceView, step: Step) -> ServiceView:
        service, record = view.present, view.known
        stripped = [one.name.lower() for one in step.missing & _VISIBLE if one.name]
        if stripped:
            log.warning("Service %s: another program removed its %s; added again", key, " and ".join(stripped))
            service, record = self._claimed(key, service, record, keep_note=True)
            if OwnedField.ADDRESS in step.missing:
                service = self._api.write(key, service, changes.status_patch(service, record.status, None))
            restores = RESTORED.next(record.restores, self._clock.monotonic())
            record = self._records.put(key, evolve(record.after(service), restores=restores))
        if OwnedField.NOTE in step.missing:
            service = self._api.write(key, service, changes.status_patch(service, None, record.note))
            # Once for each note that we write: a program that insists is not fought.
            record = self._records.put(key, evolve(record.after(service), restore_at=math.inf))
        return evolve(view, service=service, record=record, over=True)


def _as_built(view: ServiceView) -> V1Service:
    """The Service to set targets for: as it was last built, while a change of it waits or fails, as
    in Go."""
    service, built = view.present, view.known.built
    return service if built is None else as_built(service, built)
