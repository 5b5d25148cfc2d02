"""The provider asks for another look at a node: gathered, by the queue that serves it, never for
one that is not there."""

from __future__ import annotations

from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from tests.support.clock import FakeClock
from tests.unit.node.world import World


def _ready(queue: WorkQueue[str]) -> list[str]:
    found: list[str] = []
    while (key := queue.get(timeout=0)) is not None:
        queue.done(key)
        found.append(key)
    return found


def test_a_look_is_gathered_and_comes_a_second_later() -> None:
    world, clock = World(), FakeClock()
    world.create("known", taints=[])
    world.create("new")
    nodes: WorkQueue[str] = WorkQueue("Nodes", clock=clock, metrics=Metrics())
    refreshes: WorkQueue[str] = WorkQueue("NodeRefresh", clock=clock, metrics=Metrics())
    world.triggers._nodes, world.triggers._refreshes = nodes, refreshes
    for _ in range(1000):
        assert world.triggers.look_again("known")
        assert world.triggers.look_again("new")
    assert not world.triggers.look_again("gone")
    clock.advance(0.9)
    assert (_ready(nodes), _ready(refreshes)) == ([], [])
    clock.advance(0.2)
    assert (_ready(nodes), _ready(refreshes)) == (["new"], ["known"])
    clock.advance(60.0)
    assert (_ready(nodes), _ready(refreshes)) == ([], [])
    world.triggers.look_again("known")
    clock.advance(1.1)
    assert _ready(refreshes) == ["known"]
