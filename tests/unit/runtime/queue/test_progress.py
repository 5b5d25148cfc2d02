"""When a worker counts as stalled, and that waiting for the cloud is no stall."""

from __future__ import annotations

import threading

import pytest

from controllers.runtime.clock import Progress, bounded, wait_for
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Worker, WorkQueue
from controllers.runtime.queue.worker import STALL_AFTER
from tests.support.clock import FakeClock
from tests.unit.runtime.loopback import Call

pytestmark = pytest.mark.row("K1")


class Wait:
    """A wait of so many seconds, or until `end`."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._condition = threading.Condition(threading.Lock())
        self._ended = False

    def __call__(self, seconds: float) -> None:
        with self._condition:
            wait_for(self._clock, self._condition, lambda: self._ended, seconds)

    def end(self) -> None:
        with self._condition:
            self._ended = True
            self._condition.notify()


def in_the_cloud(wait: Wait, seconds: float) -> None:
    """As the gateway waits for a call."""
    with bounded():
        wait(seconds)


def test_a_wait_for_the_cloud_is_no_stall_and_what_follows_it_is(clock: FakeClock) -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue("service", clock=clock, metrics=metrics)
    call, hang = Wait(clock), Wait(clock)

    def reconcile(key: str) -> None:
        in_the_cloud(call, 300.0)
        hang(1000.0)  # and here the code of the controller hangs

    worker = Worker(queue, reconcile, threads=1, metrics=metrics)
    worker.start()
    queue.add("default/web")
    clock.wait_for_timeout(300.0)
    queue.add("default/next")
    clock.advance(299.0)
    assert worker.health()[1], "neither the call nor the key that waits behind it is a stall"
    call.end()
    clock.wait_for_timeout(1000.0)
    clock.advance(STALL_AFTER - 1.0)
    assert worker.health()[1]
    clock.advance(2.0)
    name, healthy, detail = worker.health()
    assert (name, healthy) == ("service", False)
    assert detail == "default/web has been worked on for 181 s, waits for the cloud aside"
    hang.end()
    queue.shut_down(drain=False)


def test_a_batch_is_a_piece_of_work_and_the_longest_counts(clock: FakeClock) -> None:
    progress = Progress(clock)
    assert progress.longest() == (0.0, None)

    def inner() -> None:
        clock.advance(1.0)
        assert progress.longest() == (6.0, "a")

    def outer() -> None:
        clock.advance(5.0)
        progress.run("inner", inner)
        wait = Wait(clock)
        call = Call(lambda: progress.run("another", in_the_cloud, wait, 1000.0))
        clock.wait_for_timeout(1000.0)
        clock.advance(100.0)
        assert progress.longest() == (106.0, "a")
        wait.end()
        call.outcome()

    progress.run("a", outer)
    assert progress.longest() == (0.0, None)
