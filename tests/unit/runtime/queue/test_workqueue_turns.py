"""Groups of keys take turns, and none has all workers."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import FairQueue, ShutDown, WorkQueue
from tests.support.clock import FakeClock


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    waiting: FairQueue[Any] = FairQueue(lambda key: key.partition("/")[0], most=3)
    return WorkQueue("service", clock=clock, metrics=Metrics(), waiting=waiting)


def taken(queue: WorkQueue[str], number: int) -> list[str | None]:
    return [queue.get(0) for _ in range(number)]


@pytest.mark.row("K3")
def test_namespaces_take_turns(queue: WorkQueue[str]) -> None:
    for number in range(80):
        queue.add(f"many/{number}")
    queue.add("b/web")
    queue.add("c/web")
    assert taken(queue, 3) == ["many/0", "b/web", "c/web"]


@pytest.mark.row("K3")
def test_one_namespace_never_has_all_workers(queue: WorkQueue[str]) -> None:
    for number in range(80):
        queue.add(f"many/{number}")
    assert len(queue) == 3
    assert taken(queue, 4) == ["many/0", "many/1", "many/2", None]
    queue.add("other/web")
    assert taken(queue, 2) == ["other/web", None]
    queue.done("many/1")
    assert taken(queue, 2) == ["many/3", None]


def test_what_can_be_handed_out_is_counted_group_by_group() -> None:
    """And not again for all groups with each key: 5,000 namespaces would take seconds under the
    queue's lock."""
    looked_at = 0

    class Group(str):
        def __hash__(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return super().__hash__()

    waiting: FairQueue[Any] = FairQueue(lambda key: Group(key.partition("/")[0]), most=3)
    queue: WorkQueue[str] = WorkQueue("service", clock=FakeClock(), metrics=Metrics(), waiting=waiting)
    for number in range(1000):
        queue.add(f"{number}/web")
        assert len(queue) == number + 1
    for key in taken(queue, 1000):
        assert key is not None
        queue.done(key)
    assert len(queue) == 0
    assert looked_at < 100_000


@pytest.mark.row("K3")
def test_a_parked_key_is_no_workers(queue: WorkQueue[str]) -> None:
    for number in range(5):
        queue.add(f"many/{number}")
    assert taken(queue, 4) == ["many/0", "many/1", "many/2", None]
    queue.park("many/0")
    assert taken(queue, 2) == ["many/3", None]
    queue.done("many/0")
    assert taken(queue, 1) == [None], "parking freed the worker, its end frees none"


def test_within_a_namespace_the_priority_counts(queue: WorkQueue[str]) -> None:
    queue.add("a/low", -1)
    queue.add("a/high", 5)
    queue.add("a/raised", -1)
    queue.add("a/raised", 9)
    assert taken(queue, 3) == ["a/raised", "a/high", "a/low"]


def test_all_that_waits_is_drained_before_the_end(queue: WorkQueue[str]) -> None:
    for number in range(5):
        queue.add(f"many/{number}")
    running = taken(queue, 3)
    queue.shut_down()
    assert queue.get(0) is None
    assert not queue.wait_drained(0)
    for key in running:
        assert key is not None
        queue.done(key)
    for key in taken(queue, 2):
        assert key is not None
        queue.done(key)
    assert queue.wait_drained(0)
    with pytest.raises(ShutDown):
        queue.get(0)


def test_a_stop_without_drain_drops_what_waits(queue: WorkQueue[str]) -> None:
    for number in range(5):
        queue.add(f"many/{number}")
    running = taken(queue, 3)
    queue.shut_down(drain=False)
    for key in running:
        assert key is not None
        queue.done(key)
    with pytest.raises(ShutDown):
        queue.get(0)


def test_the_age_of_the_oldest(queue: WorkQueue[str], clock: FakeClock) -> None:
    queue.add("a/old")
    clock.advance(5.0)
    queue.add("b/young")
    assert queue.oldest_waiting() == 5.0
    queue.get(0)
    assert queue.oldest_waiting() == 0.0
