"""The table of states and steps in decide.py, line by line: no cloud, no API server, and a time
that is a number."""

from __future__ import annotations

import copy
import math
from itertools import product
from typing import Any

import pytest
from attrs import evolve, frozen
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

from cloudprovider.internal.backoff import Attempts
from controllers.service import records
from controllers.service.changes import APPLIED, WITHOUT_CLASS, Note, Scope, fingerprint
from controllers.service.decide import Action, OwnedField, ServiceView, Step, decide
from controllers.service.decide import ObservedLoadBalancer as Observed
from controllers.service.records import Record, Schedule, State
from controllers.service.targets import Targets, targets
from tests.support.controllers import DELETED_AT
from tests.unit.service.objects import FINALIZER, KIND, node, service

NOW = 10_000.0
LATER = NOW + 900.0
SCHEDULE = Schedule(1800.0, 43200.0, lambda: 1.0)
SCOPE = Scope("prod", "cluster-1", "r1")
TARGETS = targets([node("n1", "10.0.0.1")], False)
POINT = {"ip": "192.0.2.1"}
BUSY: dict[str, Any] = {"changes": Attempts(6, NOW - 1.0, records.CHANGES.base), "warned": True}
RESTORED = Attempts(1, NOW - 15.0, records.RESTORED.base)
"""It was changed so often that the next change waits for 4 s more."""
FORMER: dict[str, Any] = {"spec": "former", "tried": "former"}


def _status(ip: str = "192.0.2.1") -> V1LoadBalancerStatus:
    status = V1LoadBalancerStatus.from_dict({"ingress": [{"ip": ip}] if ip else []})
    assert status is not None
    return status


STATUS = _status()
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
        "built": AT_REST if certain and state is not State.ELSEWHERE else None,
        "due": LATER,
        "ensure_due": LATER + 900.0,
        "version": "7",
    }
    return Record(service=AT_REST, uid="uid-web", state=state, **{**usual, **fields})


SILENT = _record(**FORMER, **BUSY | {"warned": False})
RECALLED = Record(
    service=AT_REST,
    uid="uid-web",
    state=State.WRITTEN,
    spec=WANTED,
    tried=WANTED,
    nodes=TARGETS.digest,
    status=_status(),
    built=AT_REST,
    former=AT_REST,
    due=NOW + 1800.0,
    ensure_due=NOW + 43200.0,
)
OTHER_NODES = service(
    finalizers=[FINALIZER], annotations={APPLIED: str(Note("uid-web", WANTED, "0" * 16))}, ingress=[POINT]
)
RECALLED_OTHER = evolve(RECALLED, service=OTHER_NODES, built=OTHER_NODES, former=OTHER_NODES, nodes="0" * 16)
LOOKING = evolve(Record.inherited(AT_REST), looking=NOW)
INHERITED = Record.inherited(AT_REST)
BY_GO = service(finalizers=[FINALIZER], ingress=[POINT])
FROM_GO = Record.inherited(BY_GO)
HALF_BUILT = service(finalizers=[FINALIZER], annotations={APPLIED: str(Note("uid-web"))})
OTHERS = (service(annotations={KIND: "big"}),)
WITH_CLASS = service(loadBalancerClass="example.com/other", finalizers=[FINALIZER], version="7")
TAKEN_OVER = service(
    loadBalancerClass="example.com/other",
    finalizers=[FINALIZER],
    annotations={APPLIED: str(Note("uid-web", lb_class="example.com/other"))},
    version="7",
)
EDITED = service(finalizers=[FINALIZER], annotations=NOTE, ingress=[POINT], version="8", port=81)
CLAIMED = service(finalizers=[FINALIZER])
STRIPPED = service(annotations=NOTE, ingress=[POINT], version="8")
NOTELESS = service(finalizers=[FINALIZER], ingress=[POINT], version="8")
FAILING = _record(State.UNSURE, built=AT_REST, nodes="old")
"""It was built once, and a change of it fails."""


def _decide(view: ServiceView, present: Targets = TARGETS, schedule: Schedule = SCHEDULE) -> Step:
    shown = None if view.gathering else present
    return decide(evolve(view, scope=view.scope or SCOPE), shown, schedule, NOW)


@frozen
class Row:
    name: str
    view: ServiceView
    action: Action
    expected: dict[str, Any]
    """Attributes of the step."""


LONG_AGO = NOW - records.LOOKING


def _deleted(shown: Any) -> Any:
    shown = copy.deepcopy(shown)
    shown.metadata.deletion_timestamp = DELETED_AT
    return shown


def _row(
    name: str, shown: Any, known: Record | None, act: str, *, found: Any = Observed.NOT_LOOKED, tried: str = "",
    gathering: bool = False, updates: bool = True, **expected: Any,
) -> Row:  # fmt: skip
    """What is known of the Service, then the step; `tried`: the steps that this run has taken."""
    before = frozenset(_action(one) for one in tried.split())
    view = ServiceView(service=shown, record=known, found=found, tried=before, gathering=gathering, updates=updates)
    return Row(name, view, _action(act), expected)


def _action(name: str) -> Action:
    return Action[name.upper()]


ROWS = [
    # ---- a record of another Service
    _row("vanished", None, _record(), "delete"),
    _row("vanished, half built", None, _record(State.UNSURE), "delete"),
    _row("vanished, of another controller", None, _record(State.ELSEWHERE), "delete"),
    _row("vanished, deleted", None, _record(State.GONE), "forget"),
    _row("vanished, let go", None, _record(State.RELEASED), "forget"),
    _row("made anew", service(uid="second"), _record(), "delete"),
    _row("made anew, deleted", service(uid="second"), _record(State.GONE), "forget"),
    _row("nothing there", None, None, "rest"),
    # ---- not wanted
    _row("deleted", DELETED, _record(), "delete", record=_record()),
    _row("of another type", OTHER_TYPE, _record(), "delete"),
    _row("half deleted", DELETED, _record(State.UNSURE), "delete"),
    _row("deletion failed, nothing seen", DELETED, _record(State.ABSENT), "delete"),
    _row("confirmed gone", DELETED, _record(State.GONE), "release"),
    _row("confirmed gone, cache behind", DELETED, _record(State.GONE, version="8"), "release"),
    _row("let go, cache behind", DELETED, _record(State.RELEASED, version="8"), "rest"),
    _row("let go, then held by another", NOT_OURS, _record(State.RELEASED, version="6"), "rest"),
    _row("let go, held, deleted", DELETED, _record(State.RELEASED, version="6"), "look", sweep=False),
    _row("our note, no record", OTHER_TYPE, None, "delete"),
    _row("no claim", service(type="ClusterIP"), None, "rest"),
    _row("perhaps ours", NOT_OURS, None, "look", sweep=False),
    _row("perhaps ours, and there", NOT_OURS, None, "delete", found=_status(), record=Record.blank(NOT_OURS)),
    _row("perhaps ours, none there", NOT_OURS, None, "keep_finalizer", found=Observed.NONE),
    _row("perhaps ours, cannot tell", NOT_OURS, None, "keep_finalizer", found=Observed.UNKNOWN),
    _row("perhaps ours, elsewhere", NOT_OURS, None, "keep_finalizer", found=Observed.ELSEWHERE),
    *(
        _row(f"let go, held, deleted, {found}", DELETED, _record(State.RELEASED, version="6"), act, found=found)
        for found, act in [
            (Observed.NONE, "remove_finalizer"),
            (Observed.ELSEWHERE, "remove_finalizer"),
            (Observed.UNKNOWN, "delete"),
        ]
    ),
    # ---- of another class: row S24
    _row("another class", WITH_CLASS, None, "rest"),
    _row("another class, deleted", _deleted(WITH_CLASS), None, "rest"),
    _row("another class, deleted, there", _deleted(WITH_CLASS), None, "rest", found=_status()),
    _row("another class, deleted, let go", _deleted(WITH_CLASS), _record(State.RELEASED, version="6"), "rest"),
    _row("another class, deleted, never served", _deleted(WITH_CLASS), Record.blank(WITH_CLASS), "rest"),
    _row("another class, deleted, of ours", _deleted(WITH_CLASS), _record(), "delete"),
    _row("another class, failing, taken over", TAKEN_OVER, _record(State.UNSURE), "leave"),
    _row("another class, gone, taken over", TAKEN_OVER, _record(State.GONE), "release"),
    # ---- wanted, and to be built
    _row("new", service(), None, "ensure", sweep=False, record=Record.blank(service())),
    _row("new, wanted since before its event", service(), Record.blank(service()), "ensure", sweep=False),
    _row("half built", service(), _record(State.UNSURE), "ensure", sweep=False),
    _row("wanted again, half deleted", service(), _record(State.ABSENT), "ensure"),
    _row("wanted again, deleted", AT_REST, _record(State.GONE), "ensure", record=Record.blank(AT_REST)),
    _row("wanted again, let go", service(), _record(State.RELEASED), "ensure", record=Record.blank(service())),
    _row("wanted again, cache behind", AT_REST, _record(State.RELEASED, version="8"), "rest", after=math.inf),
    _row("changed", AT_REST, _record(**FORMER), "ensure", sweep=False),
    _row("changed, of another controller", AT_REST, _record(State.ELSEWHERE, **FORMER), "ensure", sweep=False),
    # ---- changed again and again
    _row("changed too often", AT_REST, SILENT, "warn", record=_record(**FORMER, **BUSY)),
    _row("changed too often, told", AT_REST, _record(**FORMER, **BUSY), "rest", after=4.0),
    _row("half built, too often", AT_REST, _record(State.UNSURE, tried="x", **BUSY), "rest", after=4.0),
    _row("too often, other nodes", AT_REST, _record(**FORMER, **BUSY, nodes="old"), "update"),
    _row("too often, look is due", AT_REST, _record(**FORMER, **BUSY, due=NOW), "rest", after=4.0),
    _row("too often, half built", AT_REST, evolve(FAILING, tried="x", **BUSY), "update"),
    # ---- what a former process left
    _row("a note that may hold", AT_REST, None, "look", sweep=False),
    _row("a note that holds", AT_REST, None, "rest", found=_status(), after=1800.0, record=RECALLED),
    _row("a note that holds, other nodes", OTHER_NODES, None, "update", found=_status(), record=RECALLED_OTHER),
    _row("a note, another address", AT_REST, None, "ensure", found=_status("192.0.2.9"), sweep=False),
    _row("a note, none there", AT_REST, None, "ensure", found=Observed.NONE, sweep=False),
    _row("a note, cannot tell", AT_REST, None, "ensure", found=Observed.UNKNOWN, sweep=False),
    _row("a note, looking", AT_REST, LOOKING, "look", record=LOOKING),
    _row("a note, looked in vain", AT_REST, LOOKING, "rest", tried="look", record=LOOKING),
    _row("a note, found at last", AT_REST, LOOKING, "rest", found=_status(), record=RECALLED),
    _row("a note, looked for long", AT_REST, evolve(LOOKING, looking=LONG_AGO), "ensure", record=INHERITED),
    _row("a note no more, looking", service(), LOOKING, "ensure", record=Record.blank(service())),
    # ---- built by another process, and not to be ensured now: row S26
    _row("inherited, ensure fails", AT_REST, INHERITED, "look", tried="ensure", sweep=False),
    _row("inherited, changed, ensure fails", EDITED, Record.inherited(EDITED), "look", tried="ensure"),
    _row("inherited, by Go, ensure fails", BY_GO, FROM_GO, "look", tried="ensure"),
    _row("inherited, half built", HALF_BUILT, Record.inherited(HALF_BUILT), "look", tried="ensure"),
    _row("a claim and no address is new", CLAIMED, Record.inherited(CLAIMED), "rest", tried="ensure"),
    *(
        _row(
            f"inherited, {name}",
            shown,
            Record.inherited(shown),
            "update" if built else "rest",
            tried="ensure look",
            found=found,
            record=evolve(Record.blank(shown), built=shown if built else None),
        )
        for name, shown, found, built in [
            ("there", AT_REST, _status(), True),
            ("there at another address", AT_REST, _status("192.0.2.9"), True),
            ("by Go, there", BY_GO, _status(), True),
            ("by Go, another is there", BY_GO, _status("192.0.2.9"), False),
            ("half built", HALF_BUILT, _status(""), False),
            ("none there", AT_REST, Observed.NONE, False),
            ("elsewhere", AT_REST, Observed.ELSEWHERE, False),
            ("cannot tell", AT_REST, Observed.UNKNOWN, True),
        ]
    ),
    _row("inherited, looked in vain", AT_REST, INHERITED, "rest", tried="ensure look", record=INHERITED),
    _row(
        "inherited, another address before ensure", AT_REST, None, "update", tried="ensure", found=_status("192.0.2.9")
    ),
    # ---- other load balancers than the present one: row S28
    _row("renamed", AT_REST, _record(State.CONFIRMED, others=OTHERS), "delete_others"),
    _row("renamed, update half done", AT_REST, _record(State.RETARGETING, others=OTHERS), "delete_others"),
    _row("renamed, written", AT_REST, _record(others=OTHERS), "delete_others"),
    _row("renamed, no address yet", AT_REST, _record(others=OTHERS, empty=1), "rest", after=900.0),
    _row("renamed, no address for long", AT_REST, _record(others=OTHERS, empty=9), "delete_others"),
    _row("renamed, ensure fails", AT_REST, evolve(FAILING, others=OTHERS), "update", tried="ensure"),
    _row("renamed, changed again", AT_REST, _record(others=OTHERS, **FORMER), "ensure"),
    _row("renamed, wanted no more", DELETED, _record(others=OTHERS), "delete"),
    _row(
        "renamed, former stays: the note keeps it",
        AT_REST,
        _record(State.CONFIRMED, others=OTHERS),
        "rest",
        tried="delete_others",
    ),
    _row(
        "renamed, former stays: the address is written",
        AT_REST,
        _record(State.CONFIRMED, others=OTHERS, new_status=True),
        "write",
        tried="delete_others",
    ),
    # ---- targets
    _row("other nodes", AT_REST, _record(nodes="old"), "update"),
    _row("update half done", AT_REST, _record(State.RETARGETING), "update"),
    _row("not written, other nodes", AT_REST, _record(State.CONFIRMED, nodes="old"), "write"),
    _row("address not written, other nodes", AT_REST, _record(State.RETARGETING, new_status=True), "write"),
    _row("not written, in vain", AT_REST, _record(State.CONFIRMED, nodes="old"), "update", tried="write"),
    _row("other nodes, look is due", AT_REST, _record(nodes="old", due=NOW), "look"),
    _row("other nodes, looked in vain", AT_REST, _record(nodes="old", due=NOW), "update", tried="look"),
    _row("other nodes, repair is due", AT_REST, _record(nodes="old", ensure_due=NOW), "ensure", found=_status()),
    _row("update said later", AT_REST, _record(State.RETARGETING), "rest", tried="update", after=900.0),
    _row("update failed", AT_REST, FAILING, "ensure", tried="update", sweep=False),
    _row("a change fails", AT_REST, FAILING, "update", tried="ensure"),
    _row("a change fails, targets set", AT_REST, evolve(FAILING, nodes=TARGETS.digest), "rest", tried="ensure"),
    _row("a change fails, gathering", AT_REST, FAILING, "rest", tried="ensure", gathering=True),
    _row("a change fails, no address", AT_REST, evolve(FAILING, new_status=True), "write"),
    _row("never built, no address", AT_REST, _record(State.UNSURE, new_status=True), "ensure"),
    _row("a change fails, stripped", STRIPPED, evolve(FAILING, nodes=TARGETS.digest), "put_back", tried="ensure"),
    _row("build fails", AT_REST, _record(State.UNSURE), "rest", tried="ensure", after=math.inf),
    _row("missing, build fails", AT_REST, _record(nodes="old"), "rest", tried="ensure", found=Observed.NONE),
    _row("nodes are gathered", AT_REST, _record(nodes="old"), "rest", gathering=True),
    _row("no updates", AT_REST, _record(State.RETARGETING), "ensure", updates=False, sweep=True, seen=None),
    _row("update failed, none there", AT_REST, _record(State.RETARGETING), "ensure", found=Observed.NONE, sweep=False),
    _row("elsewhere, other nodes", AT_REST, _record(State.ELSEWHERE, nodes="old"), "rest", after=900.0),
    # ---- looks and repairs
    _row("look is due", AT_REST, _record(due=NOW), "look", sweep=True),
    _row("look is due, as expected", AT_REST, _record(due=NOW), "rest", found=_status(), after=1800.0),
    _row("look is due, cannot tell", AT_REST, _record(due=NOW), "rest", found=Observed.UNKNOWN, after=1800.0),
    _row("look is due, none there", AT_REST, _record(due=NOW), "ensure", found=Observed.NONE, sweep=False),
    _row("another address", AT_REST, _record(due=NOW), "ensure", found=_status("x"), sweep=True, seen=_status("x")),
    _row("another address, known", AT_REST, _record(due=NOW, seen=_status("x")), "rest", found=_status("x")),
    _row("repair is due", AT_REST, _record(ensure_due=NOW), "look", sweep=True),
    _row("repair is due, looked", AT_REST, _record(ensure_due=NOW), "ensure", found=_status(), sweep=True),
    _row("repair is due, cannot tell", AT_REST, _record(ensure_due=NOW), "ensure", found=Observed.UNKNOWN, seen=None),
    _row("no address yet", AT_REST, _record(due=NOW, empty=1), "ensure", found=_status(), sweep=True),
    _row("look is due, in vain", AT_REST, _record(due=NOW), "rest", tried="look", after=1800.0),
    _row("repair is due, look in vain", AT_REST, _record(ensure_due=NOW), "ensure", tried="look", sweep=True),
    _row("no address yet, look in vain", AT_REST, _record(due=NOW, empty=1), "ensure", tried="look"),
    _row("no address for long", AT_REST, _record(due=NOW, empty=9), "rest", found=_status(), after=1800.0),
    _row("elsewhere, repair is due", AT_REST, _record(State.ELSEWHERE, ensure_due=NOW), "ensure", sweep=True),
    # ---- what is on the Service
    _row("not written yet", AT_REST, _record(State.CONFIRMED), "write"),
    _row("not written, cache behind", AT_REST, _record(State.CONFIRMED, version="8"), "rest"),
    _row("all is well", AT_REST, _record(), "rest", after=900.0),
    _row("finalizer gone", STRIPPED, _record(), "put_back", missing=OwnedField.FINALIZER),
    _row(
        "address gone too",
        service(annotations=NOTE, version="8"),
        _record(),
        "put_back",
        missing=OwnedField.FINALIZER | OwnedField.ADDRESS,
    ),
    _row("finalizer gone again", STRIPPED, _record(restores=RESTORED), "rest", after=45.0),
    _row("finalizer gone, cache behind", service(annotations=NOTE, version="6"), _record(), "rest"),
    _row("note gone", NOTELESS, _record(), "rest", record=_record(restore_at=NOW + records.LAZY), after=records.LAZY),
    _row("note gone for a while", NOTELESS, _record(restore_at=NOW), "put_back", missing=OwnedField.NOTE),
    _row("finalizer back", AT_REST, _record(restores=RESTORED), "rest", after=900.0),
    _row("note back after ours", AT_REST, _record(restore_at=math.inf), "rest", record=_record(restore_at=math.inf)),
    _row("note back", AT_REST, _record(restore_at=NOW + 5.0), "rest", record=_record(), after=900.0),
    _row("note gone, put back once", NOTELESS, _record(restore_at=math.inf), "rest", after=900.0),
    _row("of another controller, stripped", service(version="8"), _record(State.ELSEWHERE), "rest", after=900.0),
]


def test_the_table() -> None:
    wrong = []
    for row in ROWS:
        step = _decide(row.view)
        got = {"action": step.action, **{name: getattr(step, name) for name in row.expected}}
        if got != (wanted := {"action": row.action, **row.expected}):
            wrong.append(f"{row.name}: {got}, not {wanted}")
    assert not wrong, "\n".join(wrong)


def test_every_step_is_in_the_table() -> None:
    assert {row.action for row in ROWS} | {Action.IDENTIFY} == set(Action)


def test_only_what_is_wanted_needs_the_clusters_identity() -> None:
    for row in ROWS:
        step = decide(evolve(row.view, scope=None), TARGETS, SCHEDULE, NOW)
        if step.action is Action.IDENTIFY:
            assert row.view.service is not None
            assert WITHOUT_CLASS.keeps(row.view.service)
        else:
            assert step.action is row.action
    assert decide(ServiceView(service=service(), record=None), TARGETS, SCHEDULE, NOW).action is Action.IDENTIFY


SIGHTS = (*Observed, _status(), _status("192.0.2.9"))


@pytest.mark.parametrize("shown", [None, service(), AT_REST, DELETED, OTHER_TYPE, NOT_OURS, service(uid="second")])
def test_whatever_the_case_a_run_that_is_over_rests_and_the_first_look_is_the_last(shown: Any) -> None:
    for state, found, updates, due in product([None, *State], SIGHTS, [True, False], [NOW, LATER]):
        view = ServiceView(
            service=shown, record=None if state is None else _record(state, due=due), found=found, updates=updates
        )
        assert _decide(evolve(view, over=True)).action is Action.REST
        step = _decide(view)
        assert step.after >= 0.0
        if found is not Observed.NOT_LOOKED:
            assert step.action is not Action.LOOK
        if not updates:
            assert step.action is not Action.UPDATE


@pytest.mark.row("S9")
def test_nothing_is_built_for_a_service_that_is_deleted_or_wants_none() -> None:
    for shown, state, found in product([DELETED, OTHER_TYPE, NOT_OURS], [None, *State], SIGHTS):
        view = ServiceView(service=shown, record=None if state is None else _record(state), found=found)
        assert _decide(view).action not in (Action.ENSURE, Action.UPDATE, Action.WRITE, Action.PUT_BACK)


@pytest.mark.row("S14")
def test_without_our_note_only_a_record_or_the_cloud_has_anything_deleted_while_the_service_stays() -> None:
    for state, found in product(
        [None, State.RELEASED],
        [Observed.NONE, Observed.ELSEWHERE, Observed.UNKNOWN],
    ):
        record = None if state is None else _record(state, version="6")
        step = _decide(ServiceView(service=NOT_OURS, record=record, found=found))
        assert step.action in (Action.REST, Action.KEEP_FINALIZER)


def test_without_periods_nothing_comes_by_itself() -> None:
    schedule = Schedule(0.0, 0.0)
    step = _decide(ServiceView(service=AT_REST, record=None, found=_status()), schedule=schedule)
    assert (step.action, step.after) == (Action.REST, math.inf)
