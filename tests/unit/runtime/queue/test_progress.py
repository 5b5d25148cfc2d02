"""When a worker counts as stalled, and that waiting for the cloud is no stall."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.cloudcalls.call import Inbox
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Worker, WorkQueue
from controllers.runtime.queue.threads import Progress
from controllers.runtime.queue.worker import STALL_AFTER
from tests.support.clock import FakeClock
from tests.unit.runtime.loopback import Call

pytestmark = pytest.mark.row("K1")

ANSWER: Any = "a call that ended"


def test_a_wait_for_the_cloud_is_no_stall_and_what_follows_it_is(clock: FakeClock) -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue("service", clock=clock, metrics=metrics)
    inbox, answered = Inbox(), Inbox()

    def reconcile(key: str) -> None:
        inbox.wait(clock, clock.monotonic() + 300.0)  # as the gateway waits for a call
        answered.put(ANSWER)
        with answered.condition:  # and here the code of the controller hangs
            clock.wait(answered.condition, 1000.0)

    worker = Worker(queue, reconcile, threads=1, metrics=metrics)
    worker.start()
    queue.add("default/web")
    clock.wait_for_timeout(300.0)
    queue.add("default/next")
    clock.advance(299.0)
    assert worker.health()[1], "neither the call nor the key that waits behind it is a stall"
    inbox.put(ANSWER)
    clock.wait_for_timeout(1000.0)
    clock.advance(STALL_AFTER - 1.0)
    assert worker.health()[1]
    clock.advance(2.0)
    name, healthy, detail = worker.health()
    assert (name, healthy) == ("service", False)
    assert detail == "default/web has been worked on for 181 s, waits for the cloud aside"
    with answered.condition:
        answered.condition.notify_all()
    queue.shut_down(drain=False)


def test_a_batch_is_a_piece_of_work_and_the_longest_counts(clock: FakeClock) -> None:
    progress = Progress(clock)
    assert progress.longest() == (0.0, None)
    with progress.work("a"):
        clock.advance(5.0)
        with progress.work("inner"):
            clock.advance(1.0)
            assert progress.longest() == (6.0, "a")
        inbox = Inbox()
        call = Call(lambda: _wait_in(progress, inbox, clock))
        clock.wait_for_timeout(1000.0)
        clock.advance(100.0)
        assert progress.longest() == (106.0, "a")
        inbox.put(ANSWER)
        call.outcome()
    assert progress.longest() == (0.0, None)


def _wait_in(progress: Progress, inbox: Inbox, clock: FakeClock) -> None:
    with progress.work("another"):
        inbox.wait(clock, clock.monotonic() + 1000.0)
