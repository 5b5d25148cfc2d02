"""Who is a witness, who is asked about in a zone, how often, and how long for. Times are plain
numbers."""

from __future__ import annotations

import random

import pytest

from cloudprovider import InstanceState
from controllers.nodelifecycle.deletion_policy import Verdict, judge
from controllers.nodelifecycle.witnesses import MEMORY, PATIENCE, Identity, Tally, Witnesses

pytestmark = pytest.mark.row("N21", "N28")

PERIOD = 5.0
GRACE = 60.0
GONE, RUNNING = InstanceState.GONE, InstanceState.RUNNING


def _registered(number: int, *, limit: int = 300, again: int = 10) -> Witnesses:
    witnesses = Witnesses(limit, again=again, grace=GRACE, rng=random.Random(1))
    nodes = {f"n{i}": _identity(f"n{i}") for i in range(number)}
    witnesses.look(nodes)
    witnesses.register("a", nodes)
    return witnesses


def _identity(name: str, *, zone: str = "a", uid: str = "", provider_id: str = "") -> Identity:
    return uid or f"uid-{name}", provider_id or f"fake://{name}", zone


def _verdict(witnesses: Witnesses, after: float, now: float) -> Verdict:
    return judge(_tally(witnesses, after, now))


def _tally(witnesses: Witnesses, after: float, now: float) -> Tally:
    return witnesses.tally("a", after, now, now)


def _answer(witnesses: Witnesses, name: str, now: float, state: InstanceState = InstanceState.RUNNING) -> None:
    witnesses.file(name, _identity(name), now, state, now)


def test_a_witness_that_is_called_at_each_look_and_never_answered_for_holds_nobody_back() -> None:
    witnesses = _registered(3)
    for name in witnesses.call("a", 0.0, 0.0):
        if name != "n2":
            _answer(witnesses, name, 0.5)
    verdicts = {}
    for look in range(1, 25):
        now = look * PERIOD
        witnesses.call("a", 0.0, now)
        verdicts[now] = _verdict(witnesses, 0.0, now)
    assert {verdicts[now] for now in verdicts if now < PATIENCE} == {Verdict.WAIT}
    assert {verdicts[now] for now in verdicts if now >= PATIENCE} == {Verdict.DELETE}


def test_a_witness_without_an_answer_is_waited_for_anew_for_each_node_and_another_is_asked_in_its_place() -> None:
    witnesses = _registered(4, limit=3)
    (mute, *others) = witnesses.call("a", 0.0, 0.0)
    for name in others:
        _answer(witnesses, name, 0.5)
    later = PATIENCE + 10.0
    called = witnesses.call("a", 0.0, later)
    assert called, "its place is free"
    assert mute not in called
    for name in witnesses.call("a", later, later) + called:
        _answer(witnesses, name, later)
    assert _verdict(witnesses, later, later) is Verdict.DELETE, "three others were heard"
    witnesses = _registered(3)
    (mute, *others) = witnesses.call("a", 0.0, 0.0)
    for name in others:
        _answer(witnesses, name, later)
    assert _verdict(witnesses, later, later + 1.0) is Verdict.WAIT, "of this node it was asked a second ago"
    assert _verdict(witnesses, later, later + PATIENCE) is Verdict.DELETE


def test_nodes_that_go_one_after_another_do_not_have_all_witnesses_asked_about_each_time() -> None:
    witnesses = _registered(300)
    asked = 0
    believed_at: dict[int, float] = {}
    for now in map(float, range(601)):
        for name in witnesses.call("a", now, now):  # a node is said to be gone in each second
            asked += 1
            _answer(witnesses, name, now)
        for since in range(int(now) + 1):
            if since not in believed_at and _verdict(witnesses, float(since), now) is Verdict.DELETE:
                believed_at[since] = now
    assert asked <= 3 * 300 + 10 * 600
    assert max(believed_at[since] - since for since in range(560)) <= 31, "each has its verdict in a round"


def test_the_first_rounds_come_without_a_pause() -> None:
    witnesses = _registered(300)
    for now in (0.0, 1.0, 2.0):
        called = witnesses.call("a", now, now)
        assert len(called) == 300
        for name in called:
            _answer(witnesses, name, now)


# ---- whose word counts (N28)


def test_a_node_speaks_against_the_cloud_only_if_the_cloud_once_called_it_existing_or_it_was_there_first() -> None:
    witnesses = _registered(12)
    nodes = {f"n{i}": _identity(f"n{i}") for i in range(12)} | {"late": _identity("late"), "new": _identity("new")}
    witnesses.look(nodes)
    witnesses.register("a", nodes)
    _answer(witnesses, "n0", 1.0)
    for name in nodes:
        _answer(witnesses, name, 2.0, GONE if name in ("n0", "n1", "late") else RUNNING)
    assert _tally(witnesses, 2.0, 2.0) == Tally(needed=13, right=11, open=1, gone=2)
    assert _tally(witnesses, 2.0, 0.9 + GRACE) == Tally(needed=13, right=11, open=1, gone=2)
    assert _tally(witnesses, 2.0, 2.0 + GRACE) == Tally(needed=13, right=11, gone=2, wrong=1, unproven=1)
    assert witnesses.contradictions(1.9 + GRACE) == {}
    assert witnesses.contradictions(2.0 + GRACE) == {"a": ("n0", "n1")}


@pytest.mark.parametrize("change", ["zone", "uid", "provider_id"])
def test_what_the_cloud_said_of_a_node_is_not_believed_of_it_elsewhere_or_as_another(change: str) -> None:
    witnesses = _registered(12)
    other = _identity("n0", **{change: "b"})
    witnesses.file("n0", other, 1.0, RUNNING, 1.0)
    for number in range(1, 12):
        _answer(witnesses, f"n{number}", 1.0)
    nodes = {f"n{i}": _identity(f"n{i}") for i in range(1, 12)}
    witnesses.look(nodes)
    witnesses.look(nodes | {"n0": _identity("n0")})
    witnesses.register("a", nodes | {"n0": _identity("n0")})
    witnesses.file("n0", _identity("n0"), 2.0, GONE, 2.0)
    assert _tally(witnesses, 1.0, 2.0) == Tally(needed=11, right=11), "it was away, so it was not there at the start"


def test_a_provider_id_on_two_nodes_says_nothing_and_is_one_instance() -> None:
    witnesses = _registered(12)
    thief = _identity("thief", provider_id="fake://n0")
    nodes = {f"n{i}": _identity(f"n{i}") for i in range(12)} | {"thief": thief}
    for number in range(12):
        _answer(witnesses, f"n{number}", 1.0)
    witnesses.look(nodes)
    witnesses.register("a", nodes)
    witnesses.file("thief", thief, 1.0, RUNNING, 1.0)
    assert _tally(witnesses, 1.0, 1.0).right == 12
    for name in ("n0", "thief"):
        witnesses.file(name, nodes[name], 2.0, GONE, 2.0)
    assert _tally(witnesses, 1.0, 2.0) == Tally(needed=11, right=11)
    del nodes["n0"]
    witnesses.look(nodes)
    assert _tally(witnesses, 1.0, 4.0) == Tally(needed=11, right=11), "nor when the real one has been deleted"
    witnesses.look({name: one for name, one in nodes.items() if name != "thief"})
    witnesses.look(nodes)
    witnesses.file("thief", thief, 3.0, RUNNING, 3.0)
    witnesses.file("thief", thief, 4.0, GONE, 4.0)
    assert _tally(witnesses, 1.0, 9.0).gone == 1, "forgotten when the last of them is gone"


# ---- open, confirmed, wrong, taken back (N26)


def _known(number: int) -> Witnesses:
    """All called existing at 0.0."""
    witnesses = _registered(number)
    for i in range(number):
        _answer(witnesses, f"n{i}", 0.0)
    return witnesses


@pytest.mark.row("N26")
def test_one_that_turns_not_ready_has_confirmed_the_cloud_for_ten_minutes() -> None:
    witnesses = _known(5)
    _answer(witnesses, "n0", 1.0, GONE)
    witnesses.not_ready("n0", _identity("n0", uid="recreated"), 2.0)
    assert _tally(witnesses, 0.0, 2.0) == Tally(needed=5, right=4, open=1, gone=1)
    witnesses.not_ready("n0", _identity("n0"), 50.0)
    witnesses.not_ready("n1", _identity("n1"), 50.0)  # of which nobody said that it is gone
    assert _tally(witnesses, 0.0, 50.0) == Tally(needed=3, right=3, confirmed=1)
    assert _tally(witnesses, 0.0, 50.0 + MEMORY - 1).confirmed == 1
    assert _tally(witnesses, 0.0, 50.0 + MEMORY).confirmed == 0


@pytest.mark.row("N26")
def test_one_that_comes_back_and_is_called_gone_again_confirms_nothing() -> None:
    witnesses = _known(5)
    _answer(witnesses, "n0", 1.0, GONE)
    witnesses.not_ready("n0", _identity("n0"), 50.0)
    witnesses.register("a", {f"n{i}": _identity(f"n{i}") for i in range(5)})
    _answer(witnesses, "n0", 60.0, GONE)
    assert _tally(witnesses, 0.0, 60.0) == Tally(needed=5, right=4, open=0, gone=1)


@pytest.mark.row("N26")
def test_one_that_is_deleted_proves_nothing() -> None:
    witnesses = _known(5)
    _answer(witnesses, "n0", 1.0, GONE)
    witnesses.deleted("n0", "a")
    assert _tally(witnesses, 0.0, 2.0) == Tally(needed=4, right=4)


def test_after_a_gone_was_taken_back_only_later_answers_count() -> None:
    witnesses = _known(5)
    _answer(witnesses, "n0", 1.0, GONE)
    _answer(witnesses, "n0", 2.0)
    assert _tally(witnesses, 0.0, 2.0) == Tally(needed=5, missing=4, right=1)
    for i in range(5):
        _answer(witnesses, f"n{i}", 3.0)
    assert witnesses.tally("a", 0.0, 1.9, 3.0) == Tally(needed=5, missing=1, right=5), "its own answer is too old"
    assert witnesses.tally("a", 0.0, 2.0, 3.0) == Tally(needed=5, right=5)


def test_an_unproven_one_that_turns_out_to_exist_takes_nothing_back() -> None:
    witnesses = _registered(5)
    _answer(witnesses, "n0", 1.0, GONE)
    for i in range(5):
        _answer(witnesses, f"n{i}", 2.0)
    assert _tally(witnesses, 0.0, 2.0) == Tally(needed=5, right=5)


@pytest.mark.row("N26")
def test_those_called_gone_long_after_the_node_itself_are_not_waited_for() -> None:
    witnesses = _known(20)
    _answer(witnesses, "n0", GRACE - 1.0, GONE)
    _answer(witnesses, "n1", GRACE, GONE)
    assert _tally(witnesses, 0.0, GRACE) == Tally(needed=20, right=18, open=1, gone=2)


def test_what_was_wrong_is_forgotten_where_nobody_waits_and_what_is_open_is_not() -> None:
    witnesses = _known(5)
    _answer(witnesses, "n0", 1.0, GONE)
    witnesses.keep((), GRACE)
    assert _tally(witnesses, 0.0, GRACE).gone == 1
    witnesses.keep(("a",), 1.0 + GRACE)
    assert _tally(witnesses, 0.0, 2.0 + GRACE).wrong == 1
    witnesses.keep((), 2.0 + GRACE)
    assert _tally(witnesses, 0.0, 2.0 + GRACE).gone == 0


def test_a_zone_without_nodes_is_forgotten() -> None:
    witnesses = _known(1)
    _answer(witnesses, "n0", 1.0, GONE)
    witnesses.not_ready("n0", _identity("n0"), 2.0)
    witnesses.keep((), 1.9 + MEMORY)
    assert witnesses.zones() == ["a"]
    witnesses.keep((), 2.0 + MEMORY)
    assert witnesses.zones() == []


# ---- the census


def test_each_ready_node_is_asked_about_once_a_few_at_a_time() -> None:
    witnesses = _registered(120)
    asked = []
    for look in range(4):
        called = witnesses.census(look * PERIOD)
        asked.append(len(called))
        for name in called:
            _answer(witnesses, name, look * PERIOD)
    assert asked == [50, 50, 20, 0]


def test_one_that_the_cloud_cannot_answer_about_or_calls_gone_is_asked_about_again_after_a_minute() -> None:
    witnesses = _registered(2)
    assert sorted(witnesses.census(0.0)) == ["n0", "n1"]
    witnesses.file("n0", _identity("n0"), 0.0, RuntimeError("no"), 0.0)
    _answer(witnesses, "n1", 0.0, GONE)
    assert witnesses.census(PATIENCE - 1.0) == []
    assert sorted(witnesses.census(PATIENCE)) == ["n0", "n1"]
    assert witnesses.is_called("n0", "a")
    assert not witnesses.is_called("n0", "b")
