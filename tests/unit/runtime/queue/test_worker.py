"""The life of a worker: threads, stop and drain, health."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from cloudprovider.internal.backoff import Backoff
from cloudprovider.testing.waiting import eventually
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Parked, Result, Worker, WorkQueue
from tests.support.clock import FakeClock

LIMIT = 10.0  # seconds of real time until a test gives up


class Bench:
    """A queue and workers on a clock moved by hand, and a reconcile that tests hold and let go."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.queue: WorkQueue[str] = WorkQueue(
            "Nodes", clock=self.clock, metrics=self.metrics, backoff=Backoff(1.0, 60.0, 0.0)
        )
        self.begun: SimpleQueue[str] = SimpleQueue()
        self.gates: dict[str, threading.Event] = {}
        self.ran: list[str] = []
        self.workers: list[Worker[str]] = []

    def reconcile(self, key: str) -> Result | None:
        self.begun.put(key)
        if key in self.gates:
            assert self.gates[key].wait(LIMIT)
        self.ran.append(key)
        return None

    def worker(self, reconcile: Callable[[str], Result | None] | None = None, threads: int = 2) -> Worker[str]:
        worker = Worker(self.queue, reconcile or self.reconcile, threads=threads, metrics=self.metrics)
        self.workers.append(worker)
        return worker

    def hold(self, key: str) -> threading.Event:
        self.gates[key] = threading.Event()
        return self.gates[key]

    def next_begun(self) -> str:
        return self.begun.get(timeout=LIMIT)

    def restarts(self) -> float | None:
        return self.metrics.value("controller_worker_restarts_total", name="Nodes")


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    for gate in bench.gates.values():
        gate.set()
    bench.queue.shut_down(drain=False)
    for worker in bench.workers:
        worker.ask_to_stop()
        ended(worker)


def ended(worker: Worker[str]) -> None:
    eventually(lambda: worker._threads.threads() == 0, LIMIT)


def test_every_key_runs(bench: Bench) -> None:
    bench.worker(threads=4).start()
    for number in range(100):
        bench.queue.add(f"node-{number}")
    assert bench.queue.wait_drained()
    assert sorted(bench.ran) == sorted(f"node-{number}" for number in range(100))
    assert bench.metrics.value("controller_reconcile_total", name="Nodes", result="success") == 100


@pytest.mark.row("N5")
def test_a_hung_key_holds_up_no_other(bench: Bench) -> None:
    bench.hold("hung")
    bench.worker(threads=2).start()
    bench.queue.add("hung")
    assert bench.next_begun() == "hung"
    for key in ("a", "b", "c"):
        bench.queue.add(key)
    assert sorted(bench.next_begun() for _ in range(3)) == ["a", "b", "c"]
    assert "hung" not in bench.ran


def test_a_raising_key_costs_only_itself(bench: Bench) -> None:
    def reconcile(key: str) -> None:
        bench.begun.put(key)
        if key == "bad":
            raise RuntimeError("always")

    worker = bench.worker(reconcile, threads=1)
    worker.start()
    bench.queue.add("bad")
    bench.queue.add("good")
    assert [bench.next_begun(), bench.next_begun()] == ["bad", "good"]
    for delay in (1.0, 2.0, 4.0):
        bench.clock.wait_for_timeout(delay)
        bench.clock.advance(delay)
        assert bench.next_begun() == "bad"
    assert bench.restarts() == 0


class TestBrokenThreads:
    def test_a_thread_that_is_told_to_exit_is_replaced_and_counted(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        fatal = {"exit": SystemExit(1), "interrupt": KeyboardInterrupt()}

        def reconcile(key: str) -> None:
            bench.begun.put(key)
            if key in fatal:
                raise fatal.pop(key)

        worker = bench.worker(reconcile, threads=1)
        worker.start()
        bench.queue.add("exit")
        bench.queue.add("good")
        assert [bench.next_begun(), bench.next_begun()] == ["exit", "good"]
        assert bench.restarts() == 1
        assert "a worker thread failed and was restarted" in caplog.text
        assert worker.health()[1]
        bench.clock.wait_for_timeout(1.0)
        bench.clock.advance(1.0)
        assert bench.next_begun() == "exit", "the key is not lost"

    def test_again_and_again_it_pauses_longer(self, bench: Bench) -> None:
        def reconcile(key: str) -> None:
            bench.begun.put(key)
            raise SystemExit(1)

        bench.worker(reconcile, threads=1).start()
        for number in range(3):
            bench.queue.add(f"key-{number}")
        assert [bench.next_begun(), bench.next_begun()] == ["key-0", "key-1"]
        bench.clock.wait_for_timeout(0.01)
        bench.clock.advance(0.01)
        assert bench.next_begun() == "key-2"
        bench.clock.wait_for_timeout(0.02)
        assert bench.restarts() == 3

    def test_a_stop_ends_the_pause(self, bench: Bench) -> None:
        def reconcile(key: str) -> None:
            bench.begun.put(key)
            raise SystemExit(1)

        worker = bench.worker(reconcile, threads=1)
        worker.start()
        for number in range(3):
            bench.queue.add(f"key-{number}")
        bench.clock.wait_for_timeout(0.01)
        assert worker.stop(30.0), "the last key is still run"
        assert bench.restarts() == 3

    def test_a_loop_broken_for_good_ends_when_stopping(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        def take() -> str:
            raise RuntimeError("always")

        worker = bench.worker(threads=2)
        monkeypatch.setattr(worker, "_take", take)
        worker.start()
        bench.clock.wait_for_timeout(0.01)
        worker.ask_to_stop()
        ended(worker)
        assert bench.restarts() == 4

    def test_they_do_not_keep_the_process_alive(self, bench: Bench) -> None:
        bench.hold("hung")
        bench.worker(threads=1).start()
        bench.queue.add("hung")
        bench.next_begun()
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "Nodes-0"] == [True]

    def test_no_thread_to_be_had_is_said_at_the_start(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        worker = bench.worker()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            worker.start()
        assert worker.stop(1.0)

    def test_at_least_one_thread(self, bench: Bench) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            bench.worker(threads=0)


class TestStop:
    def test_works_off_what_waits(self, bench: Bench) -> None:
        gate = bench.hold("a")
        worker = bench.worker(threads=1)
        worker.start()
        for key in ("a", "b", "c"):
            bench.queue.add(key)
        assert bench.next_begun() == "a"
        bench.queue.add_after("delayed", 5.0)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(worker.stop, 30.0)
            bench.clock.wait_for_timeout(30.0)
            bench.queue.add("late")
            gate.set()
            assert stopping.result(LIMIT) is True
        assert bench.ran == ["a", "b", "c"]
        assert worker.stop(1.0)
        assert worker.health() == ("Nodes", True, "stopped")

    def test_gives_up_at_its_time(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        gate = bench.hold("hung")
        worker = bench.worker(threads=1)
        worker.start()
        bench.queue.add("hung")
        bench.queue.add("waits")
        assert bench.next_begun() == "hung"
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(worker.stop, 30.0)
            bench.clock.wait_for_timeout(30.0)
            bench.clock.advance(30.0)
            assert stopping.result(LIMIT) is False
            assert "hung is worked on since 30 s, 1 keys wait" in caplog.text
            gate.set()
            ended(worker)
        assert bench.ran == ["hung"], "after the end nothing new is begun"

    @pytest.mark.row("N5")
    def test_does_not_wait_for_parked_keys(self, bench: Bench) -> None:
        call: Future[None] = Future()

        def reconcile(key: str) -> None:
            raise Parked(call)

        worker = bench.worker(reconcile)
        worker.start()
        bench.queue.add("hung")
        assert bench.queue.wait_drained()
        assert bench.queue.parked() == ["hung"]
        assert worker.stop(30.0)
        call.set_result(None)

    def test_a_failing_key_is_not_tried_again(self, bench: Bench) -> None:
        runs = []

        def reconcile(key: str) -> None:
            runs.append(key)
            raise RuntimeError("always")

        worker = bench.worker(reconcile, threads=1)
        worker.start()
        bench.queue.add("a")
        assert bench.queue.wait_drained()
        assert worker.stop(30.0)
        assert runs == ["a"]

    def test_before_the_start(self, bench: Bench) -> None:
        worker = bench.worker()
        bench.queue.add("a")
        assert worker.stop(30.0)
        with pytest.raises(RuntimeError, match="stopped before"):
            worker.start()

    def test_starts_once(self, bench: Bench) -> None:
        worker = bench.worker()
        worker.start()
        with pytest.raises(RuntimeError, match="Nodes"):
            worker.start()


@pytest.mark.row("M3")
class TestHealth:
    def test_a_wedged_key_makes_it_bad_until_it_ends(self, bench: Bench) -> None:
        gate = bench.hold("node-7")
        worker = bench.worker(threads=2)
        assert worker.health() == ("Nodes", True, "not started")
        worker.start()
        assert bench.queue.oldest_running() == (0.0, None)
        bench.queue.add("node-7")
        bench.next_begun()
        bench.clock.advance(180.0)
        assert worker.health()[1] is True
        assert bench.queue.oldest_running() == (180.0, "node-7")
        bench.clock.advance(1.0)
        name, healthy, detail = worker.health()
        assert (name, healthy) == ("Nodes", False)
        assert detail == "node-7 has been worked on for 181 s, waits for the cloud aside"
        gate.set()
        assert bench.queue.wait_drained()
        assert worker.health()[1] is True

    def test_keys_that_nobody_takes_make_it_bad(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        worker = bench.worker(threads=1)
        monkeypatch.setattr(worker, "_take", bench.hold("x").wait)  # a thread stuck outside a key
        worker.start()
        bench.queue.add("a")
        bench.clock.advance(100.0)
        bench.queue.add("b")
        bench.clock.advance(80.0)
        assert worker.health()[1] is True
        bench.clock.advance(1.0)
        assert worker.health() == ("Nodes", False, "2 keys wait, and none was finished for 181 s")

    def test_the_time_before_the_start_does_not_count(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        worker = bench.worker(threads=1)
        monkeypatch.setattr(worker, "_take", bench.hold("x").wait)
        bench.queue.add("a")
        bench.clock.advance(1_000.0)
        worker.start()
        assert worker.health()[1] is True

    def test_a_long_queue_that_moves_is_well(self, bench: Bench) -> None:
        gates = [bench.hold(f"key-{number}") for number in range(5)]
        worker = bench.worker(threads=1)
        worker.start()
        for number in range(5):
            bench.queue.add(f"key-{number}")
        for gate in gates:
            bench.next_begun()
            bench.clock.advance(100.0)
            assert worker.health()[1] is True, "the last has waited for 400 s"
            gate.set()

    def test_idle_for_long_is_well(self, bench: Bench) -> None:
        worker = bench.worker()
        worker.start()
        bench.clock.advance(86_400)
        assert worker.health()[1] is True
        bench.queue.add_after("a", 10_000)
        bench.clock.advance(5_000)
        assert worker.health()[1] is True

    def test_parked_keys_are_told_and_are_no_stall(self, bench: Bench) -> None:
        call: Future[None] = Future()

        def reconcile(key: str) -> None:
            raise Parked(call)

        worker = bench.worker(reconcile)
        worker.start()
        bench.queue.add("hung")
        assert bench.queue.wait_drained()
        bench.clock.advance(1_000)
        assert worker.health() == ("Nodes", True, "0 keys wait, the longest run takes 0.0 s, 1 parked")
        call.set_result(None)


def test_a_drain_that_ends_before_a_waiting_key_is_taken_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = bench.worker()
    worker.start()
    monkeypatch.setattr(bench.queue, "wait_drained", lambda _timeout: False)
    monkeypatch.setattr(type(bench.queue), "__len__", lambda _queue: 2)
    assert not worker.stop(0.0)
    assert "Nodes: the work did not end within 0 s; 2 keys wait" in caplog.messages
