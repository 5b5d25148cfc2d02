"""Stage 4: DECIDE. What is known of one Service and its load balancer in, the next step out. Pure.

`reconcile.py` has each step carried out (`execute.py`), adds what came of it to the view, and asks
again, until the step is REST. No step is taken twice in a run. A step that fails is passed over, so
it never keeps away those below it; the run then ends with its error. The first row that fits
counts; the states are those of `records.State`.

==================  ============================================  ================================
state               and                                           step
==================  ============================================  ================================
any                 what this run was for is done                 REST
GONE, RELEASED      the record is of a Service that vanished,     FORGET
any other           or of a former one under this name            DELETE
any                 there is no Service                           REST
RELEASED            the cache still shows our finalizer           REST: our write's event comes
------------------  --------------------------------------------  --------------------------------
`Not wanted`        deleted, or no load balancer of ours wanted
GONE                                                              RELEASE
any other           the manager of its present class took it over LEAVE, then FORGET
none, RELEASED      nothing shows that it may be ours, or it has  REST
                    a class and not our note
none, RELEASED      it may be ours, and the cloud was not asked   LOOK
none, RELEASED      the cloud has none: the Service is being      REMOVE_FINALIZER,
                    deleted, or not                               or KEEP_FINALIZER
any other, none     (with our note, or a load balancer there)     DELETE, then it is GONE
------------------  --------------------------------------------  --------------------------------
`Wanted`
any                 the UID of kube-system is not known           IDENTIFY
none                the note is of a manager of another class,    REST
                    for less than `records.LOOKING`
none                a note that may hold                          LOOK: WRITTEN if the cloud agrees
none                the same, and looks have failed for less      REST
                    than `records.LOOKING`
none, GONE,                                                       as UNSURE, and blank
RELEASED
any                 it changes again and again, which was not     WARN
                    reported
CONFIRMED, WRITTEN, there may be load balancers under other       DELETE_OTHERS
RETARGETING         names, and the present one has its address
CONFIRMED           the cache shows our last write                WRITE, then it is WRITTEN
UNSURE,             the same, it was built, and its address is    WRITE the address alone
RETARGETING         not written yet
any                 the cloud has none, another spec is wanted    ENSURE
                    and its turn has come, or the provider asks
UNSURE              that failed, another process may have built   LOOK: built if the cloud shows it
                    it, and the cloud was not asked
all but UNSURE,     the time for a look has come                  LOOK; done if as expected
ABSENT
all but UNSURE,     the time to repair has come, or the look      ENSURE
ABSENT              shows a difference
all but ELSEWHERE,  it was built, has other targets than it       UPDATE; ENSURE where there is
ABSENT              should, and they are gathered no longer       no such
WRITTEN, UNSURE,    the cache shows our last write, and           PUT_BACK what is missing, seldom
RETARGETING         another program's after it
any                 nothing of this                               REST until something is due
==================  ============================================  ================================

ENSURE makes it UNSURE and then CONFIRMED, UPDATE makes it RETARGETING and then CONFIRMED; both
write it in the end. An UPDATE that fails makes it UNSURE, so ENSURE follows in the same run, as in
Go; if the cloud said "later", it stays RETARGETING, and UPDATE is tried again then. An UPDATE while
ENSURE fails leaves it UNSURE. Only ENSURE may make it ELSEWHERE.

Go's order is the same (processNextNodeItem and syncLoadBalancerIfNeeded of
controllers/service/controller.go): an update that fails is followed by ensure, ensure writes the
status, and targets are set while ensure fails, for the Service as it was last built. Go repairs
nothing by time.
"""

from __future__ import annotations

import math
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import evolve, frozen

from cloudprovider.helpers import has_load_balancer_finalizer, load_balancer_status_equal
from controllers.runtime.cache import uid_of
from controllers.service import changes
from controllers.service.changes import WITHOUT_CLASS, Classes, Note, Ownership, Scope
from controllers.service.records import LAZY, LOOKING, Record, State

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

    from controllers.service.records import Schedule
    from controllers.service.targets import Targets


class ObservedLoadBalancer(Enum):
    """What a look at the cloud said when it showed no load balancer."""

    NOT_LOOKED = auto()
    NONE = auto()
    """The cloud has none."""
    ELSEWHERE = auto()
    """ImplementedElsewhere."""
    UNKNOWN = auto()
    """The provider cannot say (NotImplementedByProvider)."""


class Action(Enum):
    """What a step does; the table above says when."""

    REST = "nothing more in this run; another one when something is due"
    FORGET = "drop the record"
    IDENTIFY = "ask which cluster this is"
    LOOK = "ask the cloud what it has"
    WARN = "report that the change of the Service waits"
    ENSURE = "have the cloud build, or repair, and write what came of it"
    UPDATE = "have the cloud take the present targets, and write what came of it"
    WRITE = "write what the cloud confirmed earlier"
    PUT_BACK = "put back what another program removed from the Service"
    DELETE_OTHERS = "have the cloud delete what the Service had under other names"
    DELETE = "have the cloud delete"
    LEAVE = "say that it is left to another manager, and forget it"
    RELEASE = "take our note, status and finalizer off"
    REMOVE_FINALIZER = "take the finalizer off, and nothing else"
    KEEP_FINALIZER = "leave the finalizer on as another controller's"


class OwnedField(Flag):
    """What of ours may be missing on a Service."""

    NOTHING = 0
    FINALIZER = auto()
    ADDRESS = auto()
    NOTE = auto()


@frozen(kw_only=True)
class Step:
    """One thing to do."""

    action: Action
    record: Record | None = None
    """What is to be remembered before it is carried out; None: as it is."""
    after: float = math.inf
    """REST: seconds until the key is to run again without an event; inf: it need not."""
    sweep: bool = False
    """LOOK, ENSURE: nothing asks for it but the time; lowest priority, silent without a change."""
    seen: V1LoadBalancerStatus | None = None
    """ENSURE: what the look before it showed."""
    missing: OwnedField = OwnedField.NOTHING
    """PUT_BACK: these."""


Found: TypeAlias = "V1LoadBalancerStatus | ObservedLoadBalancer"
"""What the cloud has: a load balancer with this status, or why none is shown."""


@frozen(kw_only=True)
class ServiceView:
    """What is known of one key in one run."""

    service: V1Service | None
    """As the cache shows it, or as it came back from our last write."""
    record: Record | None
    scope: Scope | None = None
    """None until the cluster's identity is known."""
    depends_on: str | None = ""
    """The provider's word for what else the load balancer depends on; None: it failed to say."""
    gathering: bool = False
    """Whether changes of nodes are being gathered: then the targets are not compared."""
    found: Found = ObservedLoadBalancer.NOT_LOOKED
    updates: bool = True
    """Whether the provider can update; False once it said no."""
    tried: frozenset[Action] = frozenset()
    """The steps that this run has taken, those that failed too."""
    over: bool = False
    """What the run was for is done."""
    classes: Classes = WITHOUT_CLASS
    """Those that this manager serves."""
    again: bool = False
    """Whether the provider asked for another look: it is ensured although it is the same."""
    resting: float = 0.0
    """Seconds until the turn of what failed in the run before; until then only an update of its targets is
    tried, as a change of nodes brings it."""

    @property
    def present(self) -> V1Service:
        """The Service, in a step that is chosen only for one that is there."""
        assert self.service is not None
        return self.service

    @property
    def known(self) -> Record:
        """The record, in a step that is chosen only with one."""
        assert self.record is not None
        return self.record


def decide(view: ServiceView, targets: Targets | None, schedule: Schedule, now: float) -> Step:
    """The next step, by the table above. Never one that the run has tried. `targets` None: changes
    of nodes are being gathered, and new targets wait."""
    step = _decide(view, targets, schedule, now)
    return _rest(view, now) if step.action in view.tried else step


def _decide(view: ServiceView, targets: Targets | None, schedule: Schedule, now: float) -> Step:
    service, record = view.service, view.record
    if view.over:
        return _rest(view, now)
    if record is not None and (service is None or uid_of(service) != record.uid):
        return Step(action=Action.FORGET if record.state.deleted else Action.DELETE)
    if service is None or (record is not None and record.is_behind_release(service)):
        return Step(action=Action.REST)
    if not view.classes.keeps(service):
        return _remove(view, service)
    if view.scope is None:
        return Step(action=Action.IDENTIFY)
    return _keep(view, service, targets, schedule, now)


def _remove(view: ServiceView, service: V1Service) -> Step:
    record = view.record
    if record is not None and record.state is State.GONE:
        return Step(action=Action.RELEASE)
    if record is not None and not record.state.deleted and view.classes.taken_over(service):
        # It built, or adopted, under the same name: to delete on would be to delete what serves.
        return Step(action=Action.LEAVE)
    if record is None or record.state is State.RELEASED or (record.is_untouched and view.classes.is_others(service)):
        # Where ours is off already, what holds the Service is another's, and goes at its deletion
        # only, as in Go.
        deleted = service.metadata is not None and service.metadata.deletion_timestamp is not None
        ours = view.classes.ownership(service)
        if record is not None and record.state is State.RELEASED:
            held = ours is not Ownership.NONE and not view.classes.is_others(service)
            ours = Ownership.ASK if deleted and held else Ownership.NONE
        if ours is Ownership.NONE:
            return Step(action=Action.REST)
        if ours is Ownership.ASK:
            if view.found is ObservedLoadBalancer.NOT_LOOKED:
                return Step(action=Action.LOOK)
            # To delete what is not there does no harm, and the Service must not hang.
            may_exist = view.found is ObservedLoadBalancer.UNKNOWN and deleted
            if isinstance(view.found, ObservedLoadBalancer) and not may_exist:
                return Step(action=Action.REMOVE_FINALIZER if deleted else Action.KEEP_FINALIZER)
        record = Record.blank(service)
    return Step(action=Action.DELETE, record=record)


def _keep(view: ServiceView, service: V1Service, targets: Targets | None, schedule: Schedule, now: float) -> Step:
    found, record, fingerprint = view.found, view.record, wanted(view)
    if record is None or record.looking is not None:
        if view.classes.waits_for_others(service):
            record = record or evolve(Record.inherited(service), looking=now)
            left = LOOKING - (now - (record.looking or 0.0))
            if left > 0:
                return Step(action=Action.REST, record=record, after=left)
        note = changes.trusted_note(service, fingerprint)
        if note is not None and found is ObservedLoadBalancer.NOT_LOOKED:
            record = record or evolve(Record.inherited(service), looking=now)
            if record.looking is None or now - record.looking < LOOKING:
                return Step(action=Action.LOOK, record=record)
        record = _recalled(service, note, found, schedule, now)
    elif record.state.deleted:  # what the cloud still shows, or a note says, does not count
        record = Record.blank(service)
    record = _taken_over(record, found)
    view = evolve(view, record=record)
    pause = record.pause(service, view.scope, fingerprint)
    waits = pause.left(now)
    if waits and pause is record.changes and not record.warned:
        return Step(action=Action.WARN, record=evolve(record, warned=True))
    if record.others and Action.DELETE_OTHERS not in view.tried and _stands(record, fingerprint, schedule):
        return Step(action=Action.DELETE_OTHERS, record=record)
    if Action.WRITE not in view.tried and _is_unwritten(record) and record.shows_our_write(service):
        return Step(action=Action.WRITE, record=record)
    certain = record.state not in (State.UNSURE, State.ABSENT)
    ensure: Step | None = None
    changed = found is ObservedLoadBalancer.NONE or (record.spec != fingerprint and not waits)
    if fingerprint and (changed or view.again):
        # A change that waits is built, too, when the provider asks: then the note is true no longer.
        same = record.spec == fingerprint and not changed
        ensure = Step(action=Action.ENSURE, record=record, sweep=same)
    elif certain and not waits and min(record.due, record.ensure_due) <= now:
        looks = record.state is not State.ELSEWHERE
        if looks and found is ObservedLoadBalancer.NOT_LOOKED and Action.LOOK not in view.tried:
            return Step(action=Action.LOOK, record=record, sweep=True)
        repair = record.ensure_due <= now or schedule.is_unfinished(record.empty)
        seen = None if isinstance(found, ObservedLoadBalancer) else found
        if seen is not None:
            repair = repair or not any(load_balancer_status_equal(seen, one) for one in (record.status, record.seen))
        if repair:
            ensure = Step(action=Action.ENSURE, record=record, sweep=True, seen=seen)
        elif found is not ObservedLoadBalancer.NOT_LOOKED:  # a look that failed stays due
            record = evolve(record, due=schedule.next_look(now))
            view = evolve(view, record=record)
    if ensure is not None and Action.ENSURE not in view.tried:
        return ensure
    if record.found is not None and Action.LOOK not in view.tried:
        return Step(action=Action.LOOK, record=record)
    missing = found is ObservedLoadBalancer.NONE or record.built is None
    if not (missing or targets is None or targets.cover(record.nodes)):
        action = Action.UPDATE if view.updates else Action.ENSURE
        if action not in view.tried:
            return Step(action=action, record=record, sweep=action is Action.ENSURE)
    # Whatever the cloud said when it was asked to build, something may be there.
    if (record.built or record.asked) and record.state in _PUT_BACK and record.shows_our_write(service):
        return _put_back(view, service, record, now)
    return _rest(view, now)


_PUT_BACK: Final = (State.WRITTEN, State.UNSURE, State.RETARGETING)


def _is_unwritten(record: Record) -> bool:
    """Whether something that the cloud confirmed is to be written on the Service. While there may
    be others, the note says so."""
    confirmed = record.state is State.CONFIRMED
    if confirmed and not record.others:
        return True
    address = record.new_status and record.built is not None
    return address and (confirmed or record.state in (State.UNSURE, State.RETARGETING))


def _stands(record: Record, fingerprint: str, schedule: Schedule) -> bool:
    """Whether the load balancer is there as the Service asks for it, with an address if one may be
    about to come: no other one is needed."""
    certain = record.state in (State.CONFIRMED, State.WRITTEN, State.RETARGETING)
    return certain and record.spec == fingerprint and not schedule.is_unfinished(record.empty)


def _recalled(service: V1Service, note: Note | None, found: Found, schedule: Schedule, now: float) -> Record:
    """What a former process applied, if its note and the cloud agree about it; else nothing."""
    blank = Record.inherited(service)
    if note is None or isinstance(found, ObservedLoadBalancer):
        return blank
    if not load_balancer_status_equal(found, changes.status_of(service)):
        return blank
    return evolve(
        blank,
        found=None,
        state=State.WRITTEN,
        spec=note.spec,
        tried=note.spec,
        annotations=note.annotations,
        nodes=note.nodes,
        status=found,
        built=service,
        former=service,
        due=schedule.next_look(now),
        ensure_due=schedule.next_ensure(now),
    )


def _taken_over(record: Record, found: Found) -> Record:
    """With what the cloud said of a load balancer that another process may have built."""
    if record.found is None or found is ObservedLoadBalancer.NOT_LOOKED:
        return record
    if found is ObservedLoadBalancer.UNKNOWN:  # nothing better than what the Service shows
        return record.taking_over(changes.status_of(record.found))
    return record.taking_over(None if isinstance(found, ObservedLoadBalancer) else found)


def _put_back(view: ServiceView, service: V1Service, record: Record, now: float) -> Step:
    """Finalizer and address first, but ever more slowly if they are removed again and again; the
    note later, and once: a program that insists is not fought."""
    missing = _stripped(service, record)
    if view.found is ObservedLoadBalancer.NONE:
        missing &= ~OwnedField.ADDRESS  # nothing has it
    if missing and record.restores.left(now):
        missing = OwnedField.NOTHING
    noted = changes.note_of(service) == record.note
    if record.state is State.WRITTEN and record.restore_at < math.inf:
        if noted:
            record = evolve(record, restore_at=0.0)
        elif not record.restore_at:
            record = evolve(record, restore_at=now + LAZY)
        elif record.restore_at <= now:
            missing |= OwnedField.NOTE
    if missing:
        return Step(action=Action.PUT_BACK, record=record, missing=missing)
    return _rest(evolve(view, record=record), now)


def _stripped(service: V1Service, record: Record) -> OwnedField:
    missing = OwnedField.NOTHING if has_load_balancer_finalizer(service) else OwnedField.FINALIZER
    had = changes.ingress(record.status) if record.built is not None else ()
    return missing | OwnedField.ADDRESS if had and not changes.ingress(changes.status_of(service)) else missing


def _rest(view: ServiceView, now: float) -> Step:
    """Rest until what comes first: a look, a repair, the end of a wait."""
    service, record = view.service, view.record
    if record is None or service is None or record.state.deleted:
        return Step(action=Action.REST)
    pauses = record.changes.left(now) > 0 or record.told.left(now) > 0
    lefts = [record.pause(service, view.scope, wanted(view)).left(now)] if pauses else []
    if record.state in _PUT_BACK and _stripped(service, record):
        lefts.append(record.restores.left(now))
    if record.spec:
        lefts += [due - now for due in (record.due, record.ensure_due, record.restore_at)]
    # What is due already waits for something else: its turn, or the end of a failure.
    return Step(action=Action.REST, record=record, after=min([left for left in lefts if left > 0], default=math.inf))


def wanted(view: ServiceView) -> str:
    """Fingerprint of the Service; "" while it is not known what all depends on. Where the provider
    fails to say what this one does, it counts as unchanged, so that its targets follow the nodes."""
    if view.service is None or view.scope is None:
        return ""
    if view.depends_on is None:
        return view.record.tried if view.record is not None else ""
    return changes.fingerprint(view.service, view.scope, view.depends_on)
