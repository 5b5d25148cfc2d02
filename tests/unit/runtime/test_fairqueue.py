"""Whose turn it is, without a queue around it; more of it in `queue/test_workqueue_turns.py` and
`cloudcalls/test_callqueue.py`."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.runtime.fairqueue import FAIR_SHARE, FairQueue


class Item:
    def __init__(self, key: str, priority: int = 0, added: float = 0.0) -> None:
        self.key = key
        self.priority = priority
        self.added = added


def namespace(key: str) -> str:
    return key.partition("/")[0]


def by_namespace() -> FairQueue[Item]:
    return FairQueue(namespace, most=1)


@pytest.mark.row("K3")
def test_the_highest_priority_is_first_and_every_eighth_is_the_oldest() -> None:
    waiting: FairQueue[Item] = FairQueue()
    waiting.push(Item("old", -1))
    for number in range(20):
        waiting.push(Item(str(number), 5, added=1.0 + number))
    order = [waiting.pop().key for _ in range(21)]
    assert order.index("old") == FAIR_SHARE - 1
    assert [key for key in order if key != "old"] == [str(number) for number in range(20)]


@pytest.mark.parametrize("make", [FairQueue, by_namespace])
def test_what_is_given_up_is_handed_out_no_more(make: type[FairQueue[Item]]) -> None:
    waiting = make()
    one, two, other = Item("a/1"), Item("a/2", 3), Item("b/1")
    for item in (one, two, other):
        waiting.push(item)
    assert {item.key for item in waiting.items()} == {"a/1", "a/2", "b/1"}
    assert waiting.remove(two)
    assert not waiting.remove(two)
    assert len(waiting) == waiting.ready == 2
    assert [waiting.pop(), waiting.pop()] == [one, other]
    assert waiting.items() == []


def test_a_group_may_be_given_up_whole() -> None:
    waiting = by_namespace()
    one = Item("a/1")
    waiting.push(one)
    assert waiting.remove(one)
    assert (waiting.ready, len(waiting)) == (0, 0)
    waiting.push(one)
    assert waiting.pop() is one


def test_a_higher_priority_costs_the_group_no_turn() -> None:
    waiting = by_namespace()
    raised = Item("a/1")
    for item in (raised, Item("b/1"), Item("c/1")):
        waiting.push(item)
    waiting.move(raised, 7)
    assert waiting.pop() is raised


ACTS = st.lists(st.tuples(st.sampled_from(["push", "pop", "ended", "remove", "move"]), st.integers(0, 11)), max_size=60)


@given(most=st.sampled_from([1, 2, 3, math.inf]), acts=ACTS)
def test_what_is_counted_is_what_can_be_handed_out(most: float, acts: list[tuple[str, int]]) -> None:
    waiting: FairQueue[Item] = FairQueue(namespace, most)
    items = [Item(f"{number % 3}/{number}") for number in range(12)]
    busy: list[Item] = []
    for act, number in acts:
        item = items[number]
        here = item in waiting.items()
        if act == "push" and not here:
            waiting.push(item)
        elif act == "pop" and waiting.ready:
            busy.append(waiting.pop())
        elif act == "ended" and busy:
            before = waiting.ready
            more = waiting.ended(busy.pop(number % len(busy)).key)
            assert waiting.ready == before + more
        elif act == "remove":
            assert waiting.remove(item) == here
        elif act == "move":
            waiting.move(item, number - 5)
        groups = {name: [each for each in waiting.items() if namespace(each.key) == name] for name in "012"}
        working = {name: sum(namespace(each.key) == name for each in busy) for name in "012"}
        assert len(waiting) == sum(map(len, groups.values()))
        assert waiting.ready == sum(min(len(groups[name]), most - working[name]) for name in "012")
        assert set(waiting._groups) == {name for name in "012" if groups[name] or working[name]}, "no group is leaked"
