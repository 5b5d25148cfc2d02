"""No step starves another, over `decide` alone: whichever one fails, all else that is due is done
in the same run.

Every record that a wanted Service may have, times each step that may fail for ever. A run is played
without cloud and API server: a step that succeeds changes the record as `execute.py` does, one that
fails as it does before the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from attrs import evolve

from controllers.service import records
from controllers.service.changes import fingerprint
from controllers.service.decide import Action, ServiceView, Step, decide
from controllers.service.decide import ObservedLoadBalancer as Observed
from controllers.service.records import Record, State
from tests.support.there import there
from tests.unit.service.objects import FINALIZER, service
from tests.unit.service.test_decide import (
    AT_REST,
    BUSY,
    LATER,
    NOTE,
    NOW,
    POINT,
    SCHEDULE,
    SCOPE,
    STATUS,
    TARGETS,
    WANTED,
)

STRIPPED = service(annotations=NOTE, version="8")
EDITED = service(finalizers=[FINALIZER], annotations=NOTE, ingress=[POINT], version="8", port=81)
FAILS = (Action.LOOK, Action.ENSURE, Action.UPDATE, Action.WRITE, Action.PUT_BACK)
BUILT = (State.CONFIRMED, State.WRITTEN, State.RETARGETING, State.UNSURE)


def _records() -> Iterator[Record]:
    for state, nodes, due, ensure_due, new_status, empty in product(
        BUILT, [TARGETS.digest, "old"], [NOW, LATER], [NOW, LATER], [False, True], [0, 1]
    ):
        if state is State.WRITTEN and new_status:
            continue
        unsure = state is State.UNSURE
        yield Record(
            service=AT_REST,
            uid="uid-web",
            state=state,
            spec="" if unsure else WANTED,
            tried=WANTED,
            nodes="" if state is State.RETARGETING else nodes,
            status=STATUS,
            built=AT_REST,
            new_status=new_status or (state is State.CONFIRMED),
            empty=empty,
            due=0.0 if unsure else due,
            ensure_due=0.0 if unsure else ensure_due,
            version="7",
        )


def _after(view: ServiceView, step: Step, found: Any) -> ServiceView:
    """What is known after the step succeeded."""
    record = there(step.record or view.record)
    if step.action is Action.LOOK:
        return evolve(view, found=found)
    if step.action is Action.ENSURE:
        spec = fingerprint(_shown(view), SCOPE)
        record = evolve(
            record,
            state=State.WRITTEN,
            spec=spec,
            tried=spec,
            nodes=TARGETS.digest,
            new_status=False,
            due=LATER,
            ensure_due=LATER,
            empty=0,
        )
        return evolve(view, record=record, service=_whole(view), gathering=True)
    if step.action is Action.UPDATE:
        state: State = record.state if record.state is State.UNSURE else State.WRITTEN
        return evolve(view, record=evolve(record, state=state, nodes=TARGETS.digest))
    if step.action is Action.WRITE:
        state = State.WRITTEN if record.state is State.CONFIRMED else record.state
        return evolve(view, record=evolve(record, state=state, new_status=False), service=_whole(view))
    if step.action is Action.PUT_BACK:
        return evolve(view, record=record, service=_whole(view), over=True)
    return evolve(view, record=record)


def _failed(view: ServiceView, step: Step, later: bool) -> ServiceView:
    """What is known after it failed; `later`: as the cloud said that it is to be tried again
    then."""
    record = there(step.record or view.record)
    if step.action is Action.ENSURE:
        record = evolve(record, state=State.UNSURE, spec="", due=0.0, ensure_due=0.0, nodes="")
    if step.action is Action.UPDATE and record.state is not State.UNSURE:
        record = evolve(record, state=State.RETARGETING if later else State.UNSURE, nodes="")
        record = record if later else evolve(record, spec="")
    return evolve(view, record=record)


def _shown(view: ServiceView) -> Any:
    assert view.service is not None
    return view.service


def _whole(view: ServiceView) -> Any:
    """With finalizer and address, as our writes leave it."""
    return AT_REST if _shown(view) is STRIPPED else view.service


def _run(view: ServiceView, fails: Action | None, later: bool, found: Any) -> set[Action]:
    """The steps that succeeded in one run."""
    done: set[Action] = set()
    for _ in range(len(Action) + 1):
        step = decide(view, None if view.gathering else TARGETS, SCHEDULE, NOW)
        if step.action is Action.REST:
            return done
        assert step.action not in view.tried, "no step twice"
        view = evolve(view, tried=view.tried | {step.action}, record=step.record or view.record)
        if step.action is fails:
            view = _failed(view, step, later)
        else:
            done.add(step.action)
            view = _after(view, step, found)
    raise AssertionError("the run does not end")


def _due(view: ServiceView) -> list[tuple[Action, ...]]:
    """What is due: the step for it, and others that do it too."""
    record, shown = there(view.record), _shown(view)
    certain, waits = record.state is not State.UNSURE, bool(record.changes.count)
    due: list[tuple[Action, ...]] = []
    if not waits and (not certain or shown is EDITED or record.ensure_due <= NOW):
        due.append((Action.ENSURE,))
    if not waits and certain and record.due <= NOW and shown is not EDITED:
        due.append((Action.ENSURE,) if record.empty else (Action.LOOK, Action.ENSURE))
    if record.nodes != TARGETS.digest:
        due.append((Action.UPDATE, Action.ENSURE))
    if record.new_status:
        due.append((Action.WRITE, Action.ENSURE))
    if shown is STRIPPED and not record.new_status:  # WRITE begins with the finalizer
        due.append((Action.PUT_BACK, Action.WRITE, Action.ENSURE))
    return due


@pytest.mark.row("S22", "S23")
@pytest.mark.parametrize(
    ("fails", "later"), [(None, False), (Action.UPDATE, True), *((action, False) for action in FAILS)]
)
def test_whatever_fails_for_ever_all_else_that_is_due_is_done_in_the_same_run(
    fails: Action | None, later: bool
) -> None:
    founds = (Observed.UNKNOWN, STATUS) if fails is None else (Observed.UNKNOWN,)
    for record, shown, waits, found in product(_records(), [AT_REST, STRIPPED, EDITED], [False, True], founds):
        if waits:
            record = evolve(record, **BUSY, tried="former", spec="" if record.state is State.UNSURE else "former")
        view = ServiceView(service=shown, record=record, scope=SCOPE)
        cases = [view]
        if fails in (Action.ENSURE, Action.UPDATE):  # the run after one in which it failed
            cases.append(_failed(view, Step(action=fails), later))
        for view in cases:
            done = _run(view, fails, later, found)
            for first, *others in _due(view):
                if first is fails:  # only ensure does what an update cannot: at once, unless its turn is to come
                    assert first is not Action.UPDATE or later or waits or Action.ENSURE in done
                else:
                    assert done & {first, *others}, (record.state, view.tried)


@pytest.mark.row("S22")
def test_a_note_is_not_looked_at_in_vain_for_ever() -> None:
    view, now, runs = ServiceView(service=AT_REST, record=None, scope=SCOPE), NOW, 0
    while now < NOW + 2 * records.LOOKING:
        step = decide(view, TARGETS, SCHEDULE, now)
        if step.action is Action.ENSURE:
            break
        assert step.action is Action.LOOK
        view = evolve(view, record=step.record)
        rest = decide(evolve(view, tried=frozenset({Action.LOOK})), TARGETS, SCHEDULE, now)
        assert rest.action is Action.REST, "it fails, and nothing is asserted of the cloud for that"
        now, runs = now + 60.0, runs + 1
    assert (now - NOW, runs) == (records.LOOKING, 5)
