"""Whose turn it is, without a queue around it; more of it in `queue/test_workqueue_turns.py` and
`cloudcalls/test_turns.py`."""

from __future__ import annotations

import pytest

from controllers.runtime.fairness import FAIR_SHARE, Lanes, TurnLanes


class Item:
    def __init__(self, key: str, priority: int = 0, added: float = 0.0) -> None:
        self.key = key
        self.priority = priority
        self.added = added


def by_namespace() -> TurnLanes[Item]:
    return TurnLanes(lambda key: key.partition("/")[0], most=1)


@pytest.mark.row("K3")
def test_the_highest_priority_is_first_and_every_eighth_is_the_oldest() -> None:
    lanes: Lanes[Item] = Lanes()
    lanes.push(Item("old", -1))
    for number in range(20):
        lanes.push(Item(str(number), 5, added=1.0 + number))
    order = [lanes.pop().key for _ in range(21)]
    assert order.index("old") == FAIR_SHARE - 1
    assert [key for key in order if key != "old"] == [str(number) for number in range(20)]


@pytest.mark.parametrize("make", [Lanes, by_namespace])
def test_what_is_given_up_is_handed_out_no_more(make: type[Lanes[Item]]) -> None:
    lanes = make()
    one, two, other = Item("a/1"), Item("a/2", 3), Item("b/1")
    for item in (one, two, other):
        lanes.push(item)
    assert {item.key for item in lanes.items()} == {"a/1", "a/2", "b/1"}
    assert lanes.remove(two)
    assert not lanes.remove(two)
    assert lanes.waiting == lanes.size == 2
    assert [lanes.pop(), lanes.pop()] == [one, other]
    assert lanes.items() == []


def test_a_group_may_be_given_up_whole() -> None:
    lanes = by_namespace()
    one = Item("a/1")
    lanes.push(one)
    assert lanes.remove(one)
    assert (lanes.size, lanes.waiting) == (0, 0)
    lanes.push(one)
    assert lanes.pop() is one
