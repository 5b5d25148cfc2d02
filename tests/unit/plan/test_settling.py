"""When the first pass is over, and what is said of what is not."""

from __future__ import annotations

import threading

import pytest

from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import OverdueCall
from controllers.plan.rows import Kind
from controllers.plan.run import Settling
from controllers.registration.entry import ControllerEntry, Rule
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from tests.support.clock import FakeClock


class World:
    """Caches, gateway and permissions, all idle until the test says otherwise; and a queue."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.delivering = False
        self.calls = 0
        self.hung: dict[str, OverdueCall] = {}
        self.answered = True
        self.missing: tuple[Rule, ...] = ()
        self.matters: list[tuple[str, str, bool]] = []
        self.begun = True
        self.queue: WorkQueue[str] = WorkQueue(
            "Nodes", clock=self.clock, metrics=self.metrics, backoff=Backoff(1.0, 60.0, 0.0)
        )
        self.queue.noun, self.queue.controller = "node", "cloud-node-controller"
        self.settling = Settling(self, self, self, self.metrics, self.clock)  # type: ignore[arg-type]  # all of what it asks is here
        self.settling.watch([(ControllerEntry(name="lifecycle", construct=lambda _c: None), self)])  # type: ignore[list-item]

    def busy(self) -> bool:
        return self.delivering

    def in_flight(self) -> int:
        return self.calls

    def parked(self) -> dict[str, OverdueCall]:
        return self.hung

    def undecided(self) -> list[tuple[str, str, bool]]:
        return self.matters

    def run(self, key: str) -> None:
        assert self.queue.get(0) == key

    def fail(self, key: str, times: int = 1) -> None:
        for _ in range(times):
            self.queue.add(key)
            self.run(key)
            self.queue.add_rate_limited(key, problem="the cloud said no")
            self.queue.done(key)


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_is_left_when_all_are_idle(world: World) -> None:
    assert world.settling.left() == []
    assert world.settling.unknown() == []


def test_everybody_who_is_busy_is_named(world: World) -> None:
    world.delivering, world.calls, world.answered = True, 2, False
    world.matters = [("node/a", "waits for answer 2 of 2", True)]
    world.queue.add("b")
    assert world.settling.left() == [
        "questions about permissions",
        "changes on their way from the caches",
        "queue Nodes: b",
        "2 calls to the cloud",
        "node/a waits for answer 2 of 2",
    ]


def test_a_controller_counts_until_it_says_that_it_works_or_for_a_moment(world: World) -> None:
    world.begun = False
    world.clock.advance(3600)
    assert world.settling.left() == ["1 controllers that begin"]
    world.begun = True
    assert world.settling.left() == []
    silent = ControllerEntry(name="silent", construct=lambda _c: None), object()
    world.settling.watch([silent])  # type: ignore[list-item]
    assert world.settling.left() == ["1 controllers that begin"]
    world.clock.advance(3.0)
    assert world.settling.left() == []


@pytest.mark.row("M8")
def test_a_key_that_only_time_brings_back_is_done_and_no_other_one(world: World) -> None:
    world.queue.add_after("routine", 1.0, routine=True)
    assert world.settling.left() == []
    assert world.settling.unknown() == []
    world.queue.add_after("late", 3600.0)
    assert world.settling.left() == ["queue Nodes: late"]
    [row] = world.settling.unknown()
    assert (str(row.subject), row.note) == ("node/late", "not finished in time: it waits for another 3600.0 s")


def test_a_failing_key_is_tried_a_few_times_and_then_unknown(world: World) -> None:
    world.fail("a")
    assert world.settling.left() == ["queue Nodes: a"]
    world.fail("a", times=2)
    assert world.settling.left() == []
    [row] = world.settling.unknown()
    assert (row.kind, row.controller, str(row.subject), row.note) == (
        Kind.UNKNOWN, "cloud-node-controller", "node/a", "the cloud said no")  # fmt: skip
    world.queue.forget("a")
    world.clock.advance(60)
    world.run("a")
    world.queue.done("a")
    assert world.settling.unknown() == []


def test_a_definite_answer_is_known_though_it_fails(world: World) -> None:
    world.queue.add("a")
    world.run("a")
    world.queue.add_rate_limited("a")
    world.queue.done("a")
    assert world.settling.left() == []
    assert world.settling.unknown() == []


def test_a_call_that_hangs_is_not_waited_for(world: World) -> None:
    world.queue.add("a")
    world.run("a")
    world.queue.park("a")
    world.hung["node/a"] = OverdueCall("instances_metadata", "node/a", 60.0)
    assert world.settling.left() == []
    assert [row.note for row in world.settling.unknown()] == ["instances_metadata: no answer for 60 s"]


def test_a_key_that_the_cloud_asks_to_wait_long_is_given_up(world: World) -> None:
    world.queue.add_after("a", 300.0, problem="throttled")
    assert world.settling.left() == []
    assert [row.note for row in world.settling.unknown()] == ["throttled"]


def test_what_is_held_back_and_what_is_missing_are_rows(world: World) -> None:
    world.matters = [("node/a", "held back: why", False), ("node/b", "waits", True)]
    [row] = world.settling.undecided()
    assert (row.kind, row.controller, str(row.subject), row.note) == (
        Kind.HELD_BACK, "lifecycle", "node/a", "held back: why")  # fmt: skip
    world.missing = (Rule(resource="nodes/status", verbs=("patch",), consequence="nodes get no addresses"),)
    [row] = world.settling.missing()
    assert row.kind == Kind.WARNING
    assert str(row.subject) == "permission/nodes/status: patch"
    assert row.note.startswith("without it nodes get no addresses. Fix: add to the ClusterRole")


def test_a_thread_is_its_queues_controllers(world: World) -> None:
    found: list[str] = []
    for name in ("Nodes-7", "lifecycle-events-0", "somebody"):
        thread = threading.Thread(target=lambda: found.append(world.settling.at_work()), name=name)
        thread.start()
        thread.join()
    assert found == ["cloud-node-controller", "lifecycle", ""]
