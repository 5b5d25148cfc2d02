"""Stage 4, its decision, and pure: what is known of one Service and its load balancer in, the next step out.

`reconcile.py` has each step carried out (`execute.py`), adds what came of it to the case, and asks again, until it is
REST. The first line that fits counts; the states are those of `records.State`.

====================  ===========================================================  ====================================
state                 and                                                          step
====================  ===========================================================  ====================================
any                   what this run was for is done                                REST
GONE, RELEASED        the record is of a Service that vanished, or of a former     FORGET
any other             one under this name                                          DELETE
any                   there is no Service                                          REST
RELEASED              the cache still shows our finalizer                          REST: the event of our write comes
--------------------  -----------------------------------------------------------  ------------------------------------
`Not wanted`          the Service is being deleted, or wants no load balancer of ours
GONE                                                                               RELEASE
none, RELEASED        nothing shows that it may be ours                            REST
none, RELEASED        it may be ours, and the cloud was not asked                  LOOK
none, RELEASED        the cloud has none: the Service is being deleted, or not     UNHOLD, or LEAVE
any other, none       (with our note, or a load balancer in the cloud)             DELETE, then it is GONE
--------------------  -----------------------------------------------------------  ------------------------------------
`Wanted`
any                   the cluster's identity is not known                          IDENTIFY
none                  a note that may hold                                         LOOK: WRITTEN if the cloud agrees
none, GONE, RELEASED                                                               as UNSURE, and blank
any                   it changes again and again, which was not told               WARN
any                   the cloud has none, or another spec is wanted and its turn   ENSURE
UNSURE, UNSEEN        it changes again and again                                   REST until its turn
all but ELSEWHERE     other targets, and they are no longer being gathered         UPDATE; ENSURE where there is no such
any                   the time for a look has come                                 LOOK; no more if it is as expected
any                   the time to repair has come, or the look shows a difference  ENSURE
CONFIRMED             the cache shows our last write                               WRITE, then it is WRITTEN
WRITTEN               the cache shows our last write, and somebody's after it      PUT_BACK what is missing, seldom
any                   nothing of this                                              REST until something is due
====================  ===========================================================  ====================================

ENSURE makes it UNSURE and then CONFIRMED, UPDATE makes it RETARGETING and then CONFIRMED; both write it in the end, and
either may make it ELSEWHERE.
"""

from __future__ import annotations

import math
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from cloudprovider.helpers import has_load_balancer_finalizer, load_balancer_status_equal
from controllers.runtime.cache import is_newer, uid_of, version_of
from controllers.service import changes, pacing
from controllers.service.changes import Claim, Note, Scope
from controllers.service.records import Record, State

if TYPE_CHECKING:
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

    from controllers.service.pacing import Schedule
    from controllers.service.targets import Targets


class Sight(Enum):
    """What a look at the cloud said when it showed no load balancer."""

    NOT_LOOKED = auto()
    NONE = auto()
    """The cloud has none."""
    ELSEWHERE = auto()
    """ImplementedElsewhere."""
    UNTOLD = auto()
    """The provider cannot say (NotImplementedByProvider)."""


class Act(Enum):
    """What a step does; the table above says when."""

    REST = "nothing more in this run; another one when something is due"
    FORGET = "drop the record"
    IDENTIFY = "ask which cluster this is"
    LOOK = "ask the cloud what it has"
    WARN = "tell the Service's owner that its change waits"
    ENSURE = "have the cloud build, or repair, and write what came of it"
    UPDATE = "have the cloud take the present targets, and write what came of it"
    WRITE = "write what the cloud confirmed earlier"
    PUT_BACK = "put back what somebody removed from the Service"
    DELETE = "have the cloud delete"
    RELEASE = "take our note, status and finalizer off"
    UNHOLD = "take the finalizer off, and nothing else"
    LEAVE = "leave the finalizer on as another controller's"


class Part(Flag):
    """What of ours may be missing on a Service."""

    NOTHING = 0

    FINALIZER = auto()
    ADDRESS = auto()
    NOTE = auto()


@frozen(kw_only=True)
class Step:
    """One thing to do."""

    act: Act
    record: Record | None = None
    """What is to be remembered before it is carried out; None: as it is."""
    after: float = math.inf
    """REST: seconds until the key is to run again without an event; inf: it need not."""
    sweep: bool = False
    """LOOK, ENSURE: nothing asks for it but the time; at the lowest priority, and silent if it changes nothing."""
    seen: V1LoadBalancerStatus | None = None
    """ENSURE: what the look before it showed."""
    missing: Part = Part.NOTHING
    """PUT_BACK: these."""


@frozen(kw_only=True)
class Case:
    """What is known of one key in one run."""

    service: V1Service | None
    """As the cache shows it, or as it came back from our last write."""
    record: Record | None
    scope: Scope | None = None
    """None until the cluster's identity is known."""
    gathering: bool = False
    """Whether changes of nodes are being gathered, so that new targets wait."""
    found: V1LoadBalancerStatus | Sight = Sight.NOT_LOOKED
    updates: bool = True
    """Whether the provider can update; False once it said no."""
    over: bool = False
    """What the run was for is done."""


def decide(case: Case, targets: Targets, schedule: Schedule, now: float) -> Step:
    """The next step, by the table above."""
    service, record = case.service, case.record
    if case.over:
        return _rest(case, now)
    if record is not None and (service is None or uid_of(service) != record.uid):
        return Step(act=Act.FORGET if record.state.deleted else Act.DELETE)
    if service is None or (record is not None and _is_behind_release(service, record)):
        return Step(act=Act.REST)
    if not changes.keeps(service):
        return _remove(case, service)
    if case.scope is None:
        return Step(act=Act.IDENTIFY)
    return _keep(case, service, targets, schedule, now)


def _remove(case: Case, service: V1Service) -> Step:
    record = case.record
    if record is not None and record.state is State.GONE:
        return Step(act=Act.RELEASE)
    if record is None or record.state is State.RELEASED:
        # Where ours is off already, what holds the Service is another's, and goes at its deletion only, as in Go.
        deleted = service.metadata is not None and service.metadata.deletion_timestamp is not None
        claim = changes.claim(service)
        if record is not None:
            claim = Claim.ASK if deleted and has_load_balancer_finalizer(service) else Claim.NONE
        if claim is Claim.NONE:
            return Step(act=Act.REST)
        if claim is Claim.ASK:
            if case.found is Sight.NOT_LOOKED:
                return Step(act=Act.LOOK)
            # To delete what is not there does no harm, and the Service must not hang.
            may_exist = case.found is Sight.UNTOLD and deleted
            if isinstance(case.found, Sight) and not may_exist:
                return Step(act=Act.UNHOLD if deleted else Act.LEAVE)
        record = Record.blank(service)
    return Step(act=Act.DELETE, record=evolve(record, service=service))


def _keep(case: Case, service: V1Service, targets: Targets, schedule: Schedule, now: float) -> Step:
    found, record, fingerprint = case.found, case.record, wanted(case)
    if record is None:
        note = changes.trusted_note(service, fingerprint)
        if note is not None and found is Sight.NOT_LOOKED:
            return Step(act=Act.LOOK)
        record = _recalled(service, note, found, schedule, now)
    elif record.state.deleted:  # whatever the cloud may still show of it, and a note say
        record = Record.blank(service)
    case = evolve(case, record=record)
    waits = _waits(record, fingerprint, now)
    if waits and not record.pace.told:
        return Step(act=Act.WARN, record=evolve(record, pace=evolve(record.pace, told=True)))
    if found is Sight.NONE or (record.spec != fingerprint and not waits):
        return Step(act=Act.ENSURE, record=record)
    if record.state in (State.UNSURE, State.UNSEEN):
        return _rest(case, now)
    elsewhere = record.state is State.ELSEWHERE
    if not (elsewhere or case.gathering or targets.cover(record.nodes)):
        act = Act.UPDATE if case.updates else Act.ENSURE
        return Step(act=act, record=record, sweep=act is Act.ENSURE)
    if not waits and min(record.due, record.ensure_due) <= now:
        if found is Sight.NOT_LOOKED and not elsewhere:
            return Step(act=Act.LOOK, record=record, sweep=True)
        repair = record.ensure_due <= now or schedule.is_unfinished(record.empty)
        seen = None if isinstance(found, Sight) else found
        if seen is not None:
            repair = repair or not any(load_balancer_status_equal(seen, one) for one in (record.status, record.seen))
        if repair:
            return Step(act=Act.ENSURE, record=record, sweep=True, seen=seen)
        record = evolve(record, due=schedule.next_look(now))
        case = evolve(case, record=record)
    if is_newer(record.version, version_of(service)) is not True:
        # The cache shows our last write, so what differs was changed by someone else.
        if record.state is State.CONFIRMED:
            return Step(act=Act.WRITE, record=record)
        if record.state is State.WRITTEN:
            return _put_back(case, service, record, now)
    return _rest(case, now)


def _recalled(
    service: V1Service, note: Note | None, found: V1LoadBalancerStatus | Sight, schedule: Schedule, now: float
) -> Record:
    """What a former process applied, if its note and the cloud agree about it; else a blank record."""
    blank = Record.blank(service)
    if note is None or isinstance(found, Sight) or not load_balancer_status_equal(found, changes.status_of(service)):
        return blank
    return evolve(
        blank,
        state=State.WRITTEN,
        spec=note.spec,
        tried=note.spec,
        nodes=note.nodes,
        status=found,
        due=schedule.next_look(now),
        ensure_due=schedule.next_ensure(now),
    )


def _put_back(case: Case, service: V1Service, record: Record, now: float) -> Step:
    """Finalizer and address at once, but ever more slowly if they are removed again and again; the note later, and
    once: whoever insists gets their way."""
    missing = _stripped(service, record)
    if missing and pacing.RESTORED.left(record.held, now):
        missing = Part.NOTHING
    noted = changes.note_of(service) == Note(record.uid, record.spec, record.nodes)
    if record.restore_at < math.inf:
        if noted:
            record = evolve(record, restore_at=0.0)
        elif not record.restore_at:
            record = evolve(record, restore_at=now + pacing.LAZY)
        elif record.restore_at <= now:
            missing |= Part.NOTE
    if missing:
        return Step(act=Act.PUT_BACK, record=record, missing=missing)
    return _rest(evolve(case, record=record), now)


def _stripped(service: V1Service, record: Record) -> Part:
    missing = Part.NOTHING if has_load_balancer_finalizer(service) else Part.FINALIZER
    if changes.ingress(record.status) and not changes.ingress(changes.status_of(service)):
        missing |= Part.ADDRESS
    return missing


def _rest(case: Case, now: float) -> Step:
    """Rest until what comes first: a look, a repair, the end of a wait."""
    service, record = case.service, case.record
    if record is None or service is None or record.state.deleted:
        return Step(act=Act.REST)
    waits = [_waits(record, wanted(case), now)]
    if record.state is State.WRITTEN and _stripped(service, record):
        waits.append(pacing.RESTORED.left(record.held, now))
    after = min([left for left in waits if left], default=math.inf)
    if record.spec:
        due = min(record.due, record.ensure_due, record.restore_at or math.inf)
        after = min(after, max(0.0, due - now))
    return Step(act=Act.REST, record=record, after=after)


def wanted(case: Case) -> str:
    """Fingerprint of the Service; "" while it is not known what all depends on."""
    return changes.fingerprint(case.service, case.scope) if case.service is not None and case.scope is not None else ""


def _waits(record: Record, fingerprint: str, now: float) -> float:
    """Seconds until a change of the Service is acted upon: 0.0, unless it is changed again and again."""
    return 0.0 if record.tried in ("", fingerprint) else pacing.CHANGES.left(record.pace, now)


def _is_behind_release(service: V1Service, record: Record) -> bool:
    """Whether the cache does not show yet that our finalizer is off: what is built now would be held by nothing."""
    behind = is_newer(version_of(service), record.version) is not True
    return record.state is State.RELEASED and behind and has_load_balancer_finalizer(service)
