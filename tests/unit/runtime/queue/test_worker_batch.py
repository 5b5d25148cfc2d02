"""The batch worker: fetches, answers of all kinds of manners, backpressure."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from cloudprovider.errors import Throttled
from cloudprovider.internal.backoff import Backoff
from cloudprovider.testing.waiting import eventually
from cloudprovider.threads import NoThreadLeft
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import (
    AskAgain,
    Batching,
    BatchWorker,
    FailureHandling,
    Parked,
    Result,
    WorkQueue,
)
from controllers.runtime.queue.worker import STALL_AFTER, Batch, NotAnswered
from tests.support.clock import FakeClock
from tests.support.threadless import no_thread

LIMIT = 10.0  # seconds of real time until a test gives up

Deliver = Callable[[str, str | Exception], None]
Fetch = Callable[[Sequence[str], Deliver], None]


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.queue: WorkQueue[str] = WorkQueue(
            "Nodes", clock=self.clock, metrics=self.metrics, backoff=Backoff(1.0, 60.0, 0.0)
        )
        self.batches: SimpleQueue[tuple[str, ...]] = SimpleQueue()
        self.answers: SimpleQueue[tuple[str, str | Exception]] = SimpleQueue()
        self.reported: SimpleQueue[tuple[str, Exception]] = SimpleQueue()
        self.gate = threading.Event()
        self.gate.set()
        self.worker: BatchWorker[str, str] | None = None

    def fetch(self, keys: Sequence[str], deliver: Deliver) -> None:
        self.batches.put(tuple(keys))
        for key in keys:
            deliver(key, f"answer for {key}")

    def reconcile(self, key: str, answer: str | Exception) -> Result | None:
        self.answers.put((key, answer))
        assert self.gate.wait(LIMIT)
        if isinstance(answer, Exception):
            raise answer
        return None

    def start(self, fetch: Fetch | None = None, **changes: Any) -> BatchWorker[str, str]:
        options: dict[str, Any] = {"max_batch": 10, "linger": 0.0, "fetchers": 1, "threads": 2, **changes}
        threads = options.pop("threads")
        self.worker = BatchWorker(
            self.queue,
            fetch or self.fetch,
            self.reconcile,
            batching=Batching(**options),
            threads=threads,
            failures=FailureHandling(on_error=lambda key, error: self.reported.put((key, error))),
            metrics=self.metrics,
        )
        self.worker.start()
        return self.worker

    def add(self, *keys: str) -> None:
        for key in keys:
            self.queue.add(key)

    def strays(self, kind: str) -> float | None:
        return self.metrics.value("controller_stray_answers_total", name="Nodes", kind=kind)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.gate.set()
    if bench.worker is not None:
        bench.queue.shut_down(drain=False)
        bench.worker._end_of_keys()
        ended(bench.worker)


def ended(worker: BatchWorker[str, str]) -> None:
    eventually(lambda: worker._threads.threads() + worker._answers.threads() == 0, LIMIT)


def taken(queue: "SimpleQueue[Any]", count: int) -> list[Any]:
    return [queue.get(timeout=LIMIT) for _ in range(count)]


@pytest.mark.row("N14")
def test_keys_are_asked_for_together_and_reconciled_each(bench: Bench) -> None:
    bench.add(*"abcde")
    bench.start(max_batch=3)
    assert taken(bench.batches, 2) == [("a", "b", "c"), ("d", "e")]
    assert sorted(taken(bench.answers, 5)) == [(key, f"answer for {key}") for key in "abcde"]
    assert bench.queue.wait_drained()
    assert bench.metrics.value("controller_reconcile_total", name="Nodes", result="success") == 5


def test_a_batch_waits_for_more_keys(bench: Bench) -> None:
    bench.start(linger=0.5)
    bench.clock.wait_for_waiters(1)
    bench.add("a")
    bench.clock.wait_for_timeout(0.5)
    bench.add("b")
    bench.clock.advance(0.5)
    assert taken(bench.batches, 1) == [("a", "b")]


def test_answers_are_reconciled_before_the_fetch_ends(bench: Bench) -> None:
    slow = threading.Event()

    def fetch(keys: Sequence[str], deliver: Deliver) -> None:
        deliver("a", "early")
        assert slow.wait(LIMIT)
        deliver("b", "late")

    bench.add("a", "b")
    bench.start(fetch)
    assert taken(bench.answers, 1) == [("a", "early")]
    slow.set()
    assert taken(bench.answers, 1) == [("b", "late")]


def test_answers_come_from_any_thread(bench: Bench) -> None:
    def fetch(keys: Sequence[str], deliver: Deliver) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda key: deliver(key, "x"), keys))

    bench.add(*"abcdefgh")
    bench.start(fetch)
    assert sorted(taken(bench.answers, 8)) == [(key, "x") for key in "abcdefgh"]


def test_an_exception_is_an_answer(bench: Bench) -> None:
    def fetch(keys: Sequence[str], deliver: Deliver) -> None:
        deliver("a", Throttled("slowly", retry_after=7.0))
        deliver("b", "fine")

    bench.add("a", "b")
    bench.start(fetch, threads=1)
    assert bench.queue.wait_drained()
    key, error = bench.reported.get(timeout=LIMIT)
    assert (key, str(error)) == ("a", "slowly (retry after 7 s)")
    # Idle threads of the pool wait with a time of their own.
    eventually(lambda: 7.0 <= (bench.clock.next_deadline() or 0.0) <= 7.7, LIMIT)


@pytest.mark.row("N27")
def test_a_key_whose_answer_is_about_another_object_is_asked_about_again_at_once(bench: Bench) -> None:
    asked: list[Sequence[str]] = []

    def fetch(keys: Sequence[str], deliver: Deliver) -> None:
        bench.batches.put(tuple(keys))
        asked.append(keys)
        deliver("a", "fresh" if len(asked) > 1 else AskAgain("it was made again"))

    bench.add("a")
    bench.start(fetch)
    assert taken(bench.batches, 2) == [("a",), ("a",)], "without a back-off: the clock stands still"
    assert [answer for _, answer in taken(bench.answers, 2)][1] == "fresh"
    assert bench.queue.wait_drained()
    assert bench.reported.empty(), "nothing failed"
    assert bench.metrics.value("controller_reconcile_errors_total", name="Nodes") == 0


@pytest.mark.row("N5")
def test_an_overdue_answer_parks_its_key_alone(bench: Bench) -> None:
    call: Future[None] = Future()

    def fetch(keys: Sequence[str], deliver: Deliver) -> None:
        for key in keys:
            deliver(key, Parked(call) if key == "hung" and not call.done() else "fine")

    bench.add("a", "hung", "b")
    bench.start(fetch)
    assert bench.queue.wait_drained()
    assert bench.queue.parked() == ["hung"]
    assert bench.queue.oldest_running().key is None
    taken(bench.answers, 3)
    call.set_result(None)
    bench.clock.wait_for_timeout(1.0)
    bench.clock.advance(1.0)
    assert taken(bench.answers, 1) == [("hung", "fine")]


class TestBadManners:
    def test_a_fetch_that_raises_fails_the_keys_without_an_answer(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        raises = [True]

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            bench.batches.put(tuple(keys))
            deliver(keys[0], "fine")
            if raises.pop() if raises else False:
                raise ZeroDivisionError("in the fetch")

        bench.add("a", "b", "c")
        bench.start(fetch)
        assert [key for key, _ in taken(bench.reported, 2)] == ["b", "c"]
        assert bench.queue.wait_drained()
        assert taken(bench.answers, 1) == [("a", "fine")]
        assert "the fetch of 3 keys broke off before 2 of them were answered" in caplog.text
        assert len([record for record in caplog.records if record.exc_info]) == 1, "one stack, not one per key"
        taken(bench.batches, 1)
        bench.clock.wait_for_timeout(1.0)
        bench.clock.advance(1.0)
        assert bench.batches.get(timeout=LIMIT) == ("b", "c")

    def test_the_delay_that_a_fetch_is_told_holds_for_its_keys(self, bench: Bench) -> None:
        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            raise Throttled("slowly", retry_after=7.0)

        bench.add("a", "b")
        bench.start(fetch)
        taken(bench.reported, 2)
        eventually(lambda: 7.0 <= (bench.clock.next_deadline() or 0.0) <= 7.7, LIMIT)
        assert bench.queue.num_requeues("a") == 0

    def test_a_forgotten_key_is_tried_again(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            if "a" in keys:
                deliver("a", "fine")

        bench.add("a", "b")
        bench.start(fetch)
        key, error = bench.reported.get(timeout=LIMIT)
        assert key == "b"
        assert isinstance(error, NotAnswered)
        bench.clock.wait_for_timeout(1.0)
        bench.clock.advance(1.0)
        assert bench.reported.get(timeout=LIMIT)[0] == "b"
        bench.clock.wait_for_timeout(2.0)
        assert "Nodes: b failed (attempt 2), retrying in 2 s" in caplog.text

    def test_a_second_answer_is_dropped(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        delivered = threading.Event()

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            deliver("a", "first")
            deliver("a", "second")
            delivered.set()

        bench.add("a")
        bench.start(fetch)
        assert bench.queue.wait_drained()
        assert taken(bench.answers, 1) == [("a", "first")]
        assert bench.answers.empty()
        assert delivered.wait(30)
        assert bench.strays("twice") == 1
        assert "a was not expected (twice)" in caplog.text

    def test_an_answer_for_a_key_not_asked_for_is_dropped(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            deliver("other", "x")
            deliver("a", "x")

        bench.add("a")
        bench.start(fetch)
        assert taken(bench.answers, 1) == [("a", "x")]
        assert bench.queue.wait_drained()
        assert bench.strays("unknown") == 1
        assert bench.answers.empty()

    def test_an_answer_after_the_end_does_not_run_the_key(self, bench: Bench) -> None:
        kept: SimpleQueue[Deliver] = SimpleQueue()

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            kept.put(deliver)

        bench.add("a")
        bench.start(fetch)
        bench.reported.get(timeout=LIMIT)
        bench.clock.wait_for_timeout(1.0)
        kept.get(timeout=LIMIT)("a", "too late")
        assert bench.strays("late") == 1
        assert bench.answers.empty()
        bench.clock.advance(1.0)
        # The key's next fetch is on its way: an answer to the old one must not count for the new
        # one.
        kept.get(timeout=LIMIT)
        assert isinstance(bench.reported.get(timeout=LIMIT)[1], NotAnswered)

    def test_a_fetch_that_ends_its_thread(self, bench: Bench) -> None:
        fatal = [SystemExit(1)]

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            if fatal:
                raise fatal.pop()
            bench.fetch(keys, deliver)

        bench.add("a")
        bench.start(fetch)
        assert "SystemExit" in str(bench.reported.get(timeout=LIMIT)[1])
        bench.clock.wait_for_timeout(1.0)
        assert bench.metrics.value("controller_worker_restarts_total", name="Nodes") == 1
        bench.clock.advance(1.0)
        assert taken(bench.answers, 1) == [("a", "answer for a")]

    def test_a_reconcile_that_ends_its_thread_is_counted_and_pauses_it(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def reconcile(key: str, answer: str | Exception) -> None:
            bench.answers.put((key, answer))
            raise SystemExit(1)

        monkeypatch.setattr(bench, "reconcile", reconcile)
        bench.add("a", "b", "c")
        worker = bench.start(threads=1)
        assert [key for key, _ in taken(bench.answers, 2)] == ["a", "b"]
        bench.clock.wait_for_timeout(0.01)
        bench.clock.advance(0.01)
        assert [key for key, _ in taken(bench.answers, 1)] == ["c"]
        bench.clock.wait_for_timeout(0.02)
        assert bench.metrics.value("controller_worker_restarts_total", name="Nodes") == 3
        assert "Nodes: a worker thread failed and was restarted" in caplog.text
        worker.ask_to_stop()

    def test_the_keys_given_cannot_be_changed(self, bench: Bench) -> None:
        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            assert isinstance(keys, tuple)
            bench.fetch(keys, deliver)

        bench.add("a", "b")
        bench.start(fetch)
        assert len(taken(bench.answers, 2)) == 2


class TestBackpressure:
    def test_no_batch_is_begun_while_enough_answers_wait(self, bench: Bench) -> None:
        bench.gate.clear()
        bench.add(*(f"key-{number:03}" for number in range(100)))
        bench.start(max_batch=5, threads=1)  # twice a batch may wait
        # One answer is in reconcile, so the third batch still finds room: 14 wait at most.
        assert [len(batch) for batch in taken(bench.batches, 3)] == [5, 5, 5]
        taken(bench.answers, 1)
        with pytest.raises(Empty):
            bench.batches.get(timeout=0.05)
        assert bench.metrics.value("controller_answers_waiting", name="Nodes") == 14
        bench.gate.set()
        assert bench.queue.wait_drained()
        assert len(taken(bench.answers, 99)) == 99
        assert bench.metrics.value("controller_answers_waiting", name="Nodes") == 0

    def test_many_fetchers_that_wait_for_room_all_get_it(self, bench: Bench) -> None:
        bench.gate.clear()
        bench.add(*(f"key-{number:03}" for number in range(300)))
        bench.start(max_batch=2, threads=3, fetchers=8)
        taken(bench.answers, 3)
        bench.gate.set()
        assert bench.queue.wait_drained()
        assert len(taken(bench.answers, 297)) == 297


class TestStop:
    def test_drains_through_both_stages(self, bench: Bench) -> None:
        bench.gate.clear()
        bench.add(*(f"key-{number:03}" for number in range(50)))
        worker = bench.start(max_batch=5, threads=2)
        taken(bench.answers, 2)
        bench.queue.add("key-000", 0)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(worker.stop, 30.0)
            bench.clock.wait_for_timeout(30.0)
            bench.gate.set()
            assert stopping.result(LIMIT) is True
        runs = [key for key, _ in taken(bench.answers, 49)]
        assert "key-000" in runs, "it was added again during its run"
        assert bench.answers.empty()

    def test_a_hung_fetch_does_not_hold_it_up_past_its_time(self, bench: Bench) -> None:
        hung = threading.Event()

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            bench.batches.put(tuple(keys))
            assert hung.wait(LIMIT)
            for key in keys:
                deliver(key, "too late")

        bench.add("a")
        worker = bench.start(fetch)
        taken(bench.batches, 1)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(worker.stop, 30.0)
            bench.clock.wait_for_timeout(30.0)
            bench.clock.advance(30.0)
            assert stopping.result(LIMIT) is False
        hung.set()
        ended(worker)
        assert bench.answers.empty()

    def test_a_hung_reconcile_does_not_hold_it_up_either_and_nothing_new_is_begun(self, bench: Bench) -> None:
        bench.gate.clear()
        bench.add("a", "b", "c")
        worker = bench.start(threads=1)
        assert taken(bench.answers, 1) == [("a", "answer for a")]
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(worker.stop, 30.0)
            bench.clock.wait_for_timeout(30.0)
            bench.clock.advance(30.0)
            assert stopping.result(LIMIT) is False
        bench.gate.set()
        ended(worker)
        assert bench.answers.empty()

    def test_it_waits_for_a_fetch_that_goes_on_after_its_last_answer(self, bench: Bench) -> None:
        asks_more = threading.Event()

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            bench.fetch(keys, deliver)
            assert asks_more.wait(LIMIT)
            bench.batches.put(("asked more",))

        bench.add("a")
        worker = bench.start(fetch)
        taken(bench.answers, 1)
        assert bench.queue.wait_drained()
        taken(bench.batches, 1)
        with ThreadPoolExecutor(1) as pool:
            stopping = pool.submit(worker.stop, 30.0)
            bench.clock.wait_for_timeout(30.0)
            asks_more.set()
            assert stopping.result(LIMIT) is True
            assert bench.batches.get_nowait() == ("asked more",)

    def test_it_says_which_fetch_goes_on_after_its_time(self, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
        hung = threading.Event()

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            bench.fetch(keys, deliver)
            assert hung.wait(LIMIT)

        bench.add("a")
        worker = bench.start(fetch)
        taken(bench.answers, 1)
        assert bench.queue.wait_drained()
        assert worker.stop(0.0) is False
        assert "a batch of 1 keys (a, ...) is worked on since 0 s, 0 keys wait" in caplog.text
        hung.set()

    def test_an_answer_after_the_end_is_dropped_and_costs_no_thread(self, bench: Bench) -> None:
        hung = threading.Event()

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            bench.batches.put(tuple(keys))
            assert hung.wait(LIMIT)
            deliver("a", "too late")

        bench.add("a")
        worker = bench.start(fetch)
        taken(bench.batches, 1)
        assert worker.stop(0.0) is False
        with no_thread("Nodes"):
            hung.set()
            ended(worker)
        assert bench.answers.empty()
        assert bench.reported.empty()

    @pytest.mark.row("M3")
    def test_a_hung_fetch_shows_in_health(self, bench: Bench) -> None:
        hung = threading.Event()

        def fetch(keys: Sequence[str], deliver: Deliver) -> None:
            bench.batches.put(tuple(keys))
            assert hung.wait(LIMIT)
            bench.fetch(keys, deliver)

        bench.add("a")
        worker = bench.start(fetch)
        taken(bench.batches, 1)
        bench.clock.advance(STALL_AFTER + 1.0)
        assert worker.health() == (
            "Nodes",
            False,
            "a batch of 1 keys (a, ...) has been worked on for 181 s, waits for the cloud aside",
        )
        hung.set()
        assert bench.queue.wait_drained()
        eventually(lambda: worker.health()[1], LIMIT)  # the fetch may return after its last answer was worked on


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_batch": 0}, "max_batch"),
        ({"linger": -1.0}, "linger"),
        ({"linger": float("nan")}, "linger"),
        ({"fetchers": 0}, "at least 1 thread"),
        ({"threads": 0}, "at least 1 thread"),
    ],
)
def test_senseless_options_are_refused(bench: Bench, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        bench.start(**options)


def test_a_batch_tells_which_keys_it_misses_in_order() -> None:
    answers: list[tuple[str, str]] = []
    strays: list[str] = []
    batch: Batch[str, str] = Batch("q", ("c", "a", "b"), lambda *found: answers.append(found), strays.append)
    batch.deliver("a", "x")
    assert batch.close() == ["c", "b"]
    batch.deliver("c", "x")
    assert strays == ["late"]
    assert answers == [("a", "x")]


def test_an_answer_for_which_the_system_has_no_thread_is_asked_for_again(bench: Bench) -> None:
    worker = bench.start(threads=1)
    bench.clock.wait_for_waiters(1)
    with no_thread("Nodes"):
        bench.add("a")
        key, error = bench.reported.get(timeout=LIMIT)
    assert (key, type(error)) == ("a", NoThreadLeft)
    assert worker.health()[1]
    bench.clock.wait_for_timeout(1.0)
    bench.clock.advance(1.0)
    assert taken(bench.answers, 1) == [("a", "answer for a")]
    assert bench.metrics.value("controller_answers_waiting", name="Nodes") == 0


def test_answers_wait_for_the_threads_that_there_are_where_no_further_one_can_be_had(bench: Bench) -> None:
    bench.gate.clear()
    bench.add("a")
    bench.start(threads=3)
    taken(bench.answers, 1)
    with no_thread("Nodes"):
        bench.add("b", "c")
        eventually(lambda: bench.metrics.value("controller_answers_waiting", name="Nodes") == 2, LIMIT)
        bench.gate.set()
        assert sorted(taken(bench.answers, 2)) == [("b", "answer for b"), ("c", "answer for c")]
        assert bench.queue.wait_drained()
    assert bench.reported.empty()


def test_answers_that_get_no_thread_make_room_for_the_next_batch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = bench.start(max_batch=1, threads=1, fetchers=4)  # two answers may wait
    inside, refuse = threading.Semaphore(0), threading.Event()

    def none_left(work: object) -> None:
        inside.release()
        assert refuse.wait(LIMIT)
        raise NoThreadLeft("the system has no thread left")

    with monkeypatch.context() as patch:
        patch.setattr(worker._answers, "run", none_left)
        for key in "ab":
            bench.add(key)
            assert inside.acquire(timeout=LIMIT)
        bench.add("c")  # asked about, if its fetcher looked for room before b's answer had come
        eventually(lambda: len(vars(worker._room)["_waiters"]) == 1, LIMIT)
    refuse.set()
    bench.add("d")
    while taken(bench.answers, 1) != [("d", "answer for d")]:  # or c first
        pass
