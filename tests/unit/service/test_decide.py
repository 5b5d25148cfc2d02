"""The table of states and steps in decide.py, line by line: no cloud, no API server, and a time that is a number."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from attrs import evolve, frozen
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

from controllers.service import pacing
from controllers.service.changes import APPLIED, Note, Scope, fingerprint, keeps
from controllers.service.decide import Act, Case, Part, Sight, Step, decide
from controllers.service.pacing import Pace, Schedule
from controllers.service.records import Record, State
from controllers.service.targets import Targets, targets
from tests.unit.service.objects import FINALIZER, node, service

NOW = 10_000.0
LATER = NOW + 900.0
SCHEDULE = Schedule(1800.0, 43200.0, lambda: 1.0)
SCOPE = Scope("prod", "cluster-1", "r1")
TARGETS = targets([node("n1", "10.0.0.1")], False)
POINT = {"ip": "192.0.2.1"}
BUSY = Pace(count=pacing.CHANGES.free, last=NOW - 1.0, told=True)
"""It was changed so often that the next change waits for 4 s more."""
FORMER: dict[str, Any] = {"spec": "former", "tried": "former"}


def _status(ip: str = "192.0.2.1") -> V1LoadBalancerStatus:
    status = V1LoadBalancerStatus.from_dict({"ingress": [{"ip": ip}]})
    assert status is not None
    return status


WANTED = fingerprint(service(), SCOPE)
NOTE = {APPLIED: str(Note("uid-web", WANTED, TARGETS.digest))}
AT_REST = service(finalizers=[FINALIZER], annotations=NOTE, ingress=[POINT], version="7")
DELETED = service(finalizers=[FINALIZER], annotations=NOTE, deleted=True, version="7")
OTHER_TYPE = service(type="ClusterIP", finalizers=[FINALIZER], annotations=NOTE, version="7")
NOT_OURS = service(type="ClusterIP", finalizers=[FINALIZER], version="7")
"""Whether it is ours only the cloud can tell."""


def _record(state: State = State.WRITTEN, **fields: Any) -> Record:
    """Of a load balancer that is as it is wanted, or was until its deletion."""
    certain = state in (State.CONFIRMED, State.WRITTEN, State.ELSEWHERE, State.RETARGETING)
    usual: dict[str, Any] = {
        "spec": WANTED if certain else "",
        "tried": WANTED,
        "nodes": TARGETS.digest if certain and state is not State.RETARGETING else "",
        "status": _status(),
        "due": LATER,
        "ensure_due": LATER + 900.0,
        "version": "7",
    }
    return Record(service=AT_REST, uid="uid-web", state=state, **{**usual, **fields})


UNTOLD = _record(**FORMER, pace=evolve(BUSY, told=False))
RECALLED = Record(
    service=AT_REST,
    uid="uid-web",
    state=State.WRITTEN,
    spec=WANTED,
    tried=WANTED,
    nodes=TARGETS.digest,
    status=_status(),
    due=NOW + 1800.0,
    ensure_due=NOW + 43200.0,
)
OTHER_NODES = service(
    finalizers=[FINALIZER], annotations={APPLIED: str(Note("uid-web", WANTED, "0" * 16))}, ingress=[POINT]
)
RECALLED_OTHER = evolve(RECALLED, service=OTHER_NODES, nodes="0" * 16)


def _decide(case: Case, present: Targets = TARGETS, schedule: Schedule = SCHEDULE) -> Step:
    return decide(evolve(case, scope=case.scope or SCOPE), present, schedule, NOW)


@frozen
class Row:
    name: str
    case: Case
    act: Act
    expected: dict[str, Any]
    """Attributes of the step."""


def _row(
    name: str, shown: Any, known: Record | None, act: Act, case: dict[str, Any] | None = None, **expected: Any
) -> Row:
    return Row(name, Case(service=shown, record=known, **(case or {})), act, expected)


ROWS = [
    # ---- a record of another Service
    _row("vanished", None, _record(), Act.DELETE),
    _row("vanished, half built", None, _record(State.UNSURE), Act.DELETE),
    _row("vanished, of another controller", None, _record(State.ELSEWHERE), Act.DELETE),
    _row("vanished, deleted", None, _record(State.GONE), Act.FORGET),
    _row("vanished, let go", None, _record(State.RELEASED), Act.FORGET),
    _row("made anew", service(uid="second"), _record(), Act.DELETE),
    _row("made anew, deleted", service(uid="second"), _record(State.GONE), Act.FORGET),
    _row("nothing there", None, None, Act.REST),
    # ---- not wanted
    _row("deleted", DELETED, _record(), Act.DELETE, record=evolve(_record(), service=DELETED)),
    _row("of another type", OTHER_TYPE, _record(), Act.DELETE),
    _row("half deleted", DELETED, _record(State.UNSURE), Act.DELETE),
    _row("deletion failed, nothing seen", DELETED, _record(State.UNSEEN), Act.DELETE),
    _row("confirmed gone", DELETED, _record(State.GONE), Act.RELEASE),
    _row("confirmed gone, cache behind", DELETED, _record(State.GONE, version="8"), Act.RELEASE),
    _row("let go, cache behind", DELETED, _record(State.RELEASED, version="8"), Act.REST),
    _row("let go, then held by another", NOT_OURS, _record(State.RELEASED, version="6"), Act.REST),
    _row("let go, held, deleted", DELETED, _record(State.RELEASED, version="6"), Act.LOOK, sweep=False),
    _row("our note, no record", OTHER_TYPE, None, Act.DELETE),
    _row("no claim", service(type="ClusterIP"), None, Act.REST),
    _row("perhaps ours", NOT_OURS, None, Act.LOOK, sweep=False),
    _row("perhaps ours, and there", NOT_OURS, None, Act.DELETE, {"found": _status()}, record=Record.blank(NOT_OURS)),
    _row("perhaps ours, none there", NOT_OURS, None, Act.LEAVE, {"found": Sight.NONE}),
    _row("perhaps ours, cannot tell", NOT_OURS, None, Act.LEAVE, {"found": Sight.UNTOLD}),
    _row("perhaps ours, elsewhere", NOT_OURS, None, Act.LEAVE, {"found": Sight.ELSEWHERE}),
    *(
        _row(f"let go, held, deleted, {found}", DELETED, _record(State.RELEASED, version="6"), act, {"found": found})
        for found, act in [(Sight.NONE, Act.UNHOLD), (Sight.ELSEWHERE, Act.UNHOLD), (Sight.UNTOLD, Act.DELETE)]
    ),
    # ---- wanted, and to be built
    _row("new", service(), None, Act.ENSURE, sweep=False, record=Record.blank(service())),
    _row("new, wanted since before its event", service(), Record.blank(service()), Act.ENSURE, sweep=False),
    _row("half built", service(), _record(State.UNSURE), Act.ENSURE, sweep=False),
    _row("wanted again, half deleted", service(), _record(State.UNSEEN), Act.ENSURE),
    _row("wanted again, deleted", AT_REST, _record(State.GONE), Act.ENSURE, record=Record.blank(AT_REST)),
    _row("wanted again, let go", service(), _record(State.RELEASED), Act.ENSURE, record=Record.blank(service())),
    _row("wanted again, cache behind", AT_REST, _record(State.RELEASED, version="8"), Act.REST, after=math.inf),
    _row("changed", AT_REST, _record(**FORMER), Act.ENSURE, sweep=False),
    _row("changed, of another controller", AT_REST, _record(State.ELSEWHERE, **FORMER), Act.ENSURE, sweep=False),
    # ---- changed again and again
    _row("changed too often", AT_REST, UNTOLD, Act.WARN, record=_record(**FORMER, pace=BUSY)),
    _row("changed too often, told", AT_REST, _record(**FORMER, pace=BUSY), Act.REST, after=4.0),
    _row("half built, too often", AT_REST, _record(State.UNSURE, tried="x", pace=BUSY), Act.REST, after=4.0),
    _row("too often, other nodes", AT_REST, _record(**FORMER, pace=BUSY, nodes="old"), Act.UPDATE),
    _row("too often, look is due", AT_REST, _record(**FORMER, pace=BUSY, due=NOW), Act.REST, after=0.0),
    # ---- what a former process left
    _row("a note that may hold", AT_REST, None, Act.LOOK, sweep=False),
    _row("a note that holds", AT_REST, None, Act.REST, {"found": _status()}, after=1800.0, record=RECALLED),
    _row("a note that holds, other nodes", OTHER_NODES, None, Act.UPDATE, {"found": _status()}, record=RECALLED_OTHER),
    _row("a note, another address", AT_REST, None, Act.ENSURE, {"found": _status("192.0.2.9")}, sweep=False),
    _row("a note, none there", AT_REST, None, Act.ENSURE, {"found": Sight.NONE}, sweep=False),
    _row("a note, cannot tell", AT_REST, None, Act.ENSURE, {"found": Sight.UNTOLD}, sweep=False),
    # ---- targets
    _row("other nodes", AT_REST, _record(nodes="old"), Act.UPDATE),
    _row("update half done", AT_REST, _record(State.RETARGETING), Act.UPDATE),
    _row("nodes are gathered", AT_REST, _record(nodes="old"), Act.REST, {"gathering": True}),
    _row("no updates", AT_REST, _record(State.RETARGETING), Act.ENSURE, {"updates": False}, sweep=True, seen=None),
    _row(
        "update failed, none there", AT_REST, _record(State.RETARGETING), Act.ENSURE, {"found": Sight.NONE}, sweep=False
    ),
    _row("elsewhere, other nodes", AT_REST, _record(State.ELSEWHERE, nodes="old"), Act.REST, after=900.0),
    # ---- looks and repairs
    _row("look is due", AT_REST, _record(due=NOW), Act.LOOK, sweep=True),
    _row("look is due, as expected", AT_REST, _record(due=NOW), Act.REST, {"found": _status()}, after=1800.0),
    _row("look is due, cannot tell", AT_REST, _record(due=NOW), Act.REST, {"found": Sight.UNTOLD}, after=1800.0),
    _row("look is due, none there", AT_REST, _record(due=NOW), Act.ENSURE, {"found": Sight.NONE}, sweep=False),
    _row(
        "another address", AT_REST, _record(due=NOW), Act.ENSURE, {"found": _status("x")}, sweep=True, seen=_status("x")
    ),
    _row("another address, known", AT_REST, _record(due=NOW, seen=_status("x")), Act.REST, {"found": _status("x")}),
    _row("repair is due", AT_REST, _record(ensure_due=NOW), Act.LOOK, sweep=True),
    _row("repair is due, looked", AT_REST, _record(ensure_due=NOW), Act.ENSURE, {"found": _status()}, sweep=True),
    _row(
        "repair is due, cannot tell", AT_REST, _record(ensure_due=NOW), Act.ENSURE, {"found": Sight.UNTOLD}, seen=None
    ),
    _row("no address yet", AT_REST, _record(due=NOW, empty=1), Act.ENSURE, {"found": _status()}, sweep=True),
    _row("no address for long", AT_REST, _record(due=NOW, empty=9), Act.REST, {"found": _status()}, after=1800.0),
    _row("elsewhere, repair is due", AT_REST, _record(State.ELSEWHERE, ensure_due=NOW), Act.ENSURE, sweep=True),
    # ---- what is on the Service
    _row("not written yet", AT_REST, _record(State.CONFIRMED), Act.WRITE),
    _row("not written, cache behind", AT_REST, _record(State.CONFIRMED, version="8"), Act.REST),
    _row("all is well", AT_REST, _record(), Act.REST, after=900.0),
    _row(
        "finalizer gone",
        service(annotations=NOTE, ingress=[POINT], version="8"),
        _record(),
        Act.PUT_BACK,
        missing=Part.FINALIZER,
    ),
    _row(
        "address gone too",
        service(annotations=NOTE, version="8"),
        _record(),
        Act.PUT_BACK,
        missing=Part.FINALIZER | Part.ADDRESS,
    ),
    _row(
        "finalizer gone again",
        service(annotations=NOTE, ingress=[POINT], version="8"),
        _record(held=Pace(count=1, last=NOW - 15.0)),
        Act.REST,
        after=45.0,
    ),
    _row("finalizer gone, cache behind", service(annotations=NOTE, version="6"), _record(), Act.REST),
    _row(
        "note gone",
        service(finalizers=[FINALIZER], ingress=[POINT], version="8"),
        _record(),
        Act.REST,
        record=_record(restore_at=NOW + pacing.LAZY),
        after=pacing.LAZY,
    ),
    _row(
        "note gone for a while",
        service(finalizers=[FINALIZER], ingress=[POINT], version="8"),
        _record(restore_at=NOW),
        Act.PUT_BACK,
        missing=Part.NOTE,
    ),
    _row("finalizer back", AT_REST, _record(held=Pace(count=1, last=NOW - 15.0)), Act.REST, after=900.0),
    _row("note back after ours", AT_REST, _record(restore_at=math.inf), Act.REST, record=_record(restore_at=math.inf)),
    _row("note back", AT_REST, _record(restore_at=NOW + 5.0), Act.REST, record=_record(), after=900.0),
    _row(
        "note gone, put back once",
        service(finalizers=[FINALIZER], ingress=[POINT], version="8"),
        _record(restore_at=math.inf),
        Act.REST,
        after=900.0,
    ),
    _row("of another controller, stripped", service(version="8"), _record(State.ELSEWHERE), Act.REST, after=900.0),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_table(row: Row) -> None:
    step = _decide(row.case)
    assert step.act is row.act
    assert {name: getattr(step, name) for name in row.expected} == row.expected


def test_every_step_is_in_the_table() -> None:
    assert {row.act for row in ROWS} | {Act.IDENTIFY} == set(Act)


def test_only_what_is_wanted_needs_the_clusters_identity() -> None:
    for row in ROWS:
        step = decide(evolve(row.case, scope=None), TARGETS, SCHEDULE, NOW)
        if step.act is Act.IDENTIFY:
            assert row.case.service is not None
            assert keeps(row.case.service)
        else:
            assert step.act is row.act
    assert decide(Case(service=service(), record=None), TARGETS, SCHEDULE, NOW).act is Act.IDENTIFY


SIGHTS = (*Sight, _status(), _status("192.0.2.9"))


@pytest.mark.parametrize("shown", [None, service(), AT_REST, DELETED, OTHER_TYPE, NOT_OURS, service(uid="second")])
def test_whatever_the_case_a_run_that_is_over_rests_and_the_first_look_is_the_last(shown: Any) -> None:
    for state, found, updates, due in product([None, *State], SIGHTS, [True, False], [NOW, LATER]):
        case = Case(
            service=shown, record=None if state is None else _record(state, due=due), found=found, updates=updates
        )
        assert _decide(evolve(case, over=True)).act is Act.REST
        step = _decide(case)
        assert step.after >= 0.0
        if found is not Sight.NOT_LOOKED:
            assert step.act is not Act.LOOK
        if not updates:
            assert step.act is not Act.UPDATE


@pytest.mark.row("S9")
def test_nothing_is_built_for_a_service_that_is_deleted_or_wants_none() -> None:
    for shown, state, found in product([DELETED, OTHER_TYPE, NOT_OURS], [None, *State], SIGHTS):
        case = Case(service=shown, record=None if state is None else _record(state), found=found)
        assert _decide(case).act not in (Act.ENSURE, Act.UPDATE, Act.WRITE, Act.PUT_BACK)


@pytest.mark.row("S14")
def test_without_our_note_only_a_record_or_the_cloud_has_anything_deleted_while_the_service_stays() -> None:
    for state, found in product([None, State.RELEASED], [Sight.NONE, Sight.ELSEWHERE, Sight.UNTOLD]):
        record = None if state is None else _record(state, version="6")
        step = _decide(Case(service=NOT_OURS, record=record, found=found))
        assert step.act in (Act.REST, Act.LEAVE)


def test_without_periods_nothing_comes_by_itself() -> None:
    schedule = Schedule(0.0, 0.0)
    step = _decide(Case(service=AT_REST, record=None, found=_status()), schedule=schedule)
    assert (step.act, step.after) == (Act.REST, math.inf)
