"""Row N21: who is asked about in a zone, how often, and how long for. Times are plain numbers."""

from __future__ import annotations

import random

import pytest

from cloudprovider import InstanceState
from controllers.nodelifecycle.witnesses import PATIENCE, Verdict, Witnesses

pytestmark = pytest.mark.row("N21")

PERIOD = 5.0


def _seated(number: int, *, limit: int = 300, again: int = 10) -> Witnesses:
    witnesses = Witnesses(limit, again=again, rng=random.Random(1))
    witnesses.seat("a", {f"n{i}": (f"uid-{i}", f"fake://n{i}") for i in range(number)}, 0.0)
    return witnesses


def _answer(witnesses: Witnesses, name: str, now: float, state: InstanceState = InstanceState.RUNNING) -> None:
    number = name.removeprefix("n")
    witnesses.file(name, (f"uid-{number}", f"fake://{name}"), now, state, now)


def test_a_witness_that_is_called_at_each_look_and_never_answered_for_holds_nobody_back() -> None:
    witnesses = _seated(3)
    for name in witnesses.call("a", 0.0, 0.0):
        if name != "n2":
            _answer(witnesses, name, 0.5)
    verdicts = {}
    for look in range(1, 25):
        now = look * PERIOD
        witnesses.call("a", 0.0, now)
        verdicts[now] = witnesses.verdict("a", 0.0, now)
    assert {verdicts[now] for now in verdicts if now < PATIENCE} == {Verdict.WAITING}
    assert {verdicts[now] for now in verdicts if now >= PATIENCE} == {Verdict.BELIEVED}


def test_a_witness_without_an_answer_is_waited_for_anew_for_each_node_and_another_is_asked_in_its_place() -> None:
    witnesses = _seated(4, limit=3)
    (mute, *others) = witnesses.call("a", 0.0, 0.0)
    for name in others:
        _answer(witnesses, name, 0.5)
    later = PATIENCE + 10.0
    called = witnesses.call("a", 0.0, later)
    assert called, "its place is free"
    assert mute not in called
    for name in witnesses.call("a", later, later) + called:
        _answer(witnesses, name, later)
    assert witnesses.verdict("a", later, later) is Verdict.BELIEVED, "three others were heard"
    witnesses = _seated(3)
    (mute, *others) = witnesses.call("a", 0.0, 0.0)
    for name in others:
        _answer(witnesses, name, later)
    assert witnesses.verdict("a", later, later + 1.0) is Verdict.WAITING, "of this node it was asked a second ago"
    assert witnesses.verdict("a", later, later + PATIENCE) is Verdict.BELIEVED


def test_nodes_that_go_one_after_another_do_not_have_all_witnesses_asked_about_each_time() -> None:
    witnesses = _seated(300)
    asked = 0
    believed_at: dict[int, float] = {}
    for now in map(float, range(601)):
        for name in witnesses.call("a", now, now):  # a node is said to be gone in each second
            asked += 1
            _answer(witnesses, name, now)
        for since in range(int(now) + 1):
            if since not in believed_at and witnesses.verdict("a", float(since), now) is Verdict.BELIEVED:
                believed_at[since] = now
    assert asked <= 3 * 300 + 10 * 600
    assert max(believed_at[since] - since for since in range(560)) <= 31, "each has its verdict in a round"


def test_the_first_rounds_come_without_a_pause() -> None:
    witnesses = _seated(300)
    for now in (0.0, 1.0, 2.0):
        called = witnesses.call("a", now, now)
        assert len(called) == 300
        for name in called:
            _answer(witnesses, name, now)
