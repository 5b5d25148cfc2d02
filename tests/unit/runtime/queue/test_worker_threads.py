"""Threads of workers come with the work and go without it."""

import logging
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Batching, BatchWorker, Worker, WorkQueue
from controllers.runtime.queue.worker import IDLE_SECONDS
from tests.support.clock import FakeClock
from tests.support.threadless import no_thread

LIMIT = 10.0  # seconds of real time until a test gives up
COUNT = 6

pytestmark = pytest.mark.row("O6")


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.queue: WorkQueue[str] = WorkQueue("Idle", clock=self.clock, metrics=self.metrics)
        self.begun: SimpleQueue[str] = SimpleQueue()
        self.gate = threading.Event()
        self.worker: Worker[str] | BatchWorker[str, str] | None = None

    def hold(self, key: str) -> None:
        self.begun.put(key)
        assert self.gate.wait(LIMIT)

    def started(self, count: int = COUNT) -> Worker[str]:
        self.worker = Worker(self.queue, self.hold, threads=count, metrics=self.metrics)
        self.worker.start()
        return self.worker

    def burst(self, name: str) -> None:
        """As many keys as threads: all of them are worked on at once, and then done."""
        self.gate.clear()
        for number in range(COUNT):
            self.queue.add(f"{name}-{number}")
        assert {self.begun.get(timeout=LIMIT) for _ in range(COUNT)} == {f"{name}-{i}" for i in range(COUNT)}
        self.gate.set()
        assert self.queue.wait_drained()

    def calm(self) -> None:
        """The longest time that idle threads are kept."""
        assert self.worker is not None
        threads = self.worker._threads
        self.clock.wait_for_waiters(COUNT - 1, timed=True)
        self.clock.advance(IDLE_SECONDS)
        eventually(lambda: threads.threads() == 1, LIMIT)

    def alive(self, name: str = "Idle") -> int:
        return sum(thread.name.rsplit("-", 1)[0] == name for thread in threading.enumerate())


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.gate.set()
    assert bench.worker is not None
    assert bench.worker.stop(LIMIT)


def test_they_end_when_idle_and_come_back(bench: Bench) -> None:
    worker = bench.started()
    for name in ("first", "second"):
        bench.burst(name)
        assert bench.alive() == COUNT
        bench.calm()
        assert worker.health()[1] is True, worker.health()
    assert bench.metrics.value("controller_worker_restarts_total", name="Idle") == 0


def test_none_is_started_before_there_is_work(bench: Bench) -> None:
    bench.started()
    bench.clock.wait_for_waiters(1)
    assert bench.alive() == 1


def test_one_thread_waits_for_the_next_key_however_many_are_idle(bench: Bench) -> None:
    bench.started()
    bench.burst("all")
    bench.clock.wait_for_waiters(COUNT)
    assert bench.alive() == COUNT
    assert len(vars(bench.queue._changed)["_waiters"]) == 1


def test_fetchers_without_batches_end_too(bench: Bench) -> None:
    def fetch(keys: Sequence[str], deliver: Any) -> None:
        bench.hold(keys[0])
        deliver(keys[0], "answer")

    bench.worker = BatchWorker(
        bench.queue,
        fetch,
        lambda key, answer: None,
        batching=Batching(max_batch=1, linger=0.0, fetchers=COUNT),
        threads=1,
        metrics=bench.metrics,
    )
    bench.worker.start()
    for name in ("first", "second"):
        bench.burst(name)
        assert bench.alive("Idle-fetch") == COUNT
        bench.calm()


def test_a_trickle_of_keys_does_not_keep_them(bench: Bench) -> None:
    threads = bench.started()._threads
    bench.burst("all")
    for number in range(60):
        bench.queue.add(f"key-{number}")
        bench.begun.get(timeout=LIMIT)
        assert bench.queue.wait_drained()
        eventually(lambda: len(threads._idle) == threads.threads() - 1, LIMIT)  # its thread is free again
        bench.clock.advance(1.0)
    eventually(lambda: threads.threads() <= 2, LIMIT)  # one at work and one that waits


def test_no_key_is_lost_while_they_come_and_go(bench: Bench) -> None:
    bench.gate.set()
    bench.started()
    for number in range(400):
        for part in range(number % 10):
            bench.queue.add(f"key-{number}-{part}")
        bench.clock.advance(IDLE_SECONDS)
    assert bench.queue.wait_drained()
    assert bench.begun.qsize() == sum(number % 10 for number in range(400))


def test_a_thread_that_the_system_refuses_holds_up_nothing(bench: Bench) -> None:
    bench.gate.set()
    worker = bench.started()
    bench.clock.wait_for_waiters(1)
    with no_thread("Idle"):
        for number in range(20):
            bench.queue.add(f"key-{number}")
        for _ in range(20):
            bench.begun.get(timeout=LIMIT)
        assert bench.queue.wait_drained()
        assert worker.health()[1] is True
    bench.burst("later")


def test_where_the_system_has_no_further_thread_whoever_is_free_takes_the_next_key(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    ends = {key: threading.Event() for key in "abc"}

    def hold(key: str) -> None:
        bench.begun.put(key)
        assert ends[key].wait(LIMIT)

    bench.worker = Worker(bench.queue, hold, threads=COUNT, metrics=bench.metrics)
    bench.worker.start()
    bench.queue.add("a")
    assert bench.begun.get(timeout=LIMIT) == "a"
    bench.clock.wait_for_waiters(1)
    with no_thread("Idle"):
        bench.queue.add("b")
        assert bench.begun.get(timeout=LIMIT) == "b"  # by the last thread that was to be had
        bench.queue.add("c")
        ends["a"].set()
        assert bench.begun.get(timeout=LIMIT) == "c", "b is at work for long, and nobody waits for it"
    ends["b"].set()
    ends["c"].set()
    assert "Idle: work waits, as a further thread could not be started" in caplog.text


def test_without_memory_for_a_thread_the_key_that_was_taken_is_worked_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*args: object) -> None:
        raise MemoryError

    bench.gate.set()
    bench.started()
    bench.clock.wait_for_waiters(1)
    with monkeypatch.context() as patch:
        patch.setattr("cloudprovider.threads.start", no_memory)
        bench.queue.add("a")
        assert bench.begun.get(timeout=LIMIT) == "a"
        assert bench.queue.wait_drained()
    bench.burst("later")
    assert bench.alive() == COUNT


def test_without_memory_for_a_line_of_the_log_somebody_still_waits_for_the_next_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]

    def take() -> str:
        if broken and broken.pop():
            raise RuntimeError("the queue is broken, once")
        key = bench.queue.get()
        assert key is not None
        return key

    def no_memory(record: logging.LogRecord) -> bool:
        raise MemoryError

    bench.gate.set()
    bench.worker = Worker(bench.queue, bench.hold, threads=COUNT, metrics=bench.metrics)
    monkeypatch.setattr(bench.worker, "_take", take)
    for name in ("controllers.runtime.queue.worker", "cloudprovider.threads"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [no_memory])
    bench.worker.start()
    bench.queue.add("a")
    assert bench.begun.get(timeout=LIMIT) == "a"
    assert bench.metrics.value("controller_worker_restarts_total", name="Idle") == 1
