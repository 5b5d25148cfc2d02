"""Threads that wait on the work queue: who is woken, for what, and that nobody sleeps past a
key."""

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import islice
from typing import Any, TypeVar

import pytest

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import ShutDown, WorkQueue
from tests.support.clock import FakeClock

LIMIT = 10.0  # seconds of real time until a test gives up

T = TypeVar("T")


def _first(futures: list[Future[T]], count: int) -> list[Future[T]]:
    """The first so many of these futures to end."""
    return list(islice(as_completed(futures, timeout=LIMIT), count))


class CountingClock(FakeClock):
    """Counts how often a waiting thread woke."""

    def __init__(self) -> None:
        super().__init__()
        self.wakeups = 0

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        try:
            return super().wait(condition, timeout)
        finally:
            self.wakeups += 1  # under the queue's lock


class Bench:
    """A queue, and threads that wait for its keys."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.clock = CountingClock()
        self.queue: WorkQueue[str] = WorkQueue(
            "q", clock=self.clock, metrics=Metrics(), backoff=Backoff(1.0, 60.0, 0.0)
        )
        self.pool = pool

    def get(self, timeout: float | None = None) -> Future[str | None]:
        """A thread that waits for a key."""
        return self.pool.submit(self.queue.get, timeout)

    def get_many(self, max_batch: int = 10) -> Future[list[str]]:
        """A thread that waits for a batch, and lingers for half a second."""
        return self.pool.submit(self.queue.get_many, max_batch, 0.5)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ThreadPoolExecutor(16) as threads:
        bench = Bench(threads)
        yield bench
        bench.queue.shut_down(drain=False)


def test_of_many_that_wait_each_key_wakes_one_and_that_one_another(bench: Bench) -> None:
    bench.queue.add_after("later", 100.0)
    getters = [bench.get() for _ in range(8)]
    bench.clock.wait_for_waiters(8)
    for count in range(1, 5):
        bench.queue.add(f"key-{count}")
        _first(getters, count)
        bench.clock.wait_for_waiters(8 - count)
        assert bench.clock.wakeups <= 2 * count
    assert {g.result() for g in getters if g.done()} == {"key-1", "key-2", "key-3", "key-4"}


def test_delayed_keys_are_waited_for_one_after_the_other(bench: Bench) -> None:
    bench.queue.add_after("a", 5.0)
    getters = [bench.get() for _ in range(4)]
    bench.clock.wait_for_waiters(4)
    bench.clock.wait_for_timeout(5.0)
    bench.queue.add_after("b", 2.0)
    bench.clock.wait_for_timeout(2.0)
    bench.clock.advance(2.0)
    bench.clock.wait_for_timeout(3.0)
    bench.clock.advance(3.0)
    results = {getter.result(LIMIT) for getter in _first(getters, 2)}
    assert results == {"a", "b"}


def test_an_earlier_delay_is_noticed_by_waiters_that_watch_no_time(bench: Bench) -> None:
    getter = bench.get()
    bench.clock.wait_for_waiters(1)
    bench.queue.add_after("a", 5.0)
    bench.clock.wait_for_timeout(5.0)
    bench.clock.advance(5.0)
    assert getter.result(LIMIT) == "a"


def test_a_keeper_whose_own_time_is_up_hands_the_watch_on(bench: Bench) -> None:
    bench.queue.add_after("a", 5.0)
    impatient = bench.get(1.0)
    bench.clock.wait_for_timeout(1.0)
    patient = bench.get()
    bench.clock.wait_for_waiters(2)
    bench.clock.advance(1.0)
    assert impatient.result(LIMIT) is None
    bench.clock.wait_for_timeout(4.0)
    bench.clock.advance(4.0)
    assert patient.result(LIMIT) == "a"


def test_a_keeper_that_leaves_with_a_key_hands_the_watch_on(bench: Bench) -> None:
    bench.queue.add_after("later", 5.0)
    first = bench.get()
    bench.clock.wait_for_timeout(5.0)
    bench.queue.add("now")
    assert first.result(LIMIT) == "now"
    second = bench.get()
    bench.clock.wait_for_timeout(5.0)
    bench.clock.advance(5.0)
    assert second.result(LIMIT) == "later"


def test_the_end_of_a_floor_wakes_a_waiter(clock: CountingClock) -> None:
    queue: WorkQueue[str] = WorkQueue("q", clock=clock, metrics=Metrics(), min_interval=10.0)
    queue.add("a")
    assert queue.get(0) == "a"
    with ThreadPoolExecutor(1) as pool:
        getter = pool.submit(queue.get)
        clock.wait_for_waiters(1)
        queue.done("a")
        queue.add("a")
        clock.wait_for_timeout(10.0)
        clock.advance(10.0)
        assert getter.result(LIMIT) == "a"


def test_far_delays_are_watched_in_steps(bench: Bench) -> None:
    bench.queue.add_after("a", 1e12)  # more than a lock's timeout can hold
    getter = bench.get()
    bench.clock.wait_for_timeout(3600.0)
    bench.clock.advance(3600.0)
    bench.clock.wait_for_timeout(3600.0)
    bench.clock.advance(1e12)
    assert getter.result(LIMIT) == "a"


class TestGathering:
    def test_a_batch_gathers_what_comes_while_it_lingers(self, bench: Bench) -> None:
        batch = bench.get_many()
        bench.clock.wait_for_waiters(1)
        bench.queue.add("a")
        bench.clock.wait_for_timeout(0.5)
        bench.clock.advance(0.3)
        bench.queue.add("b")
        bench.queue.add("a")
        bench.queue.add("urgent", 1)
        assert not batch.done()
        bench.clock.advance(0.2)
        assert batch.result(LIMIT) == ["urgent", "a", "b"]

    def test_one_gathers_and_the_others_sleep_on(self, bench: Bench) -> None:
        batches = [bench.get_many() for _ in range(4)]
        bench.clock.wait_for_waiters(4)
        bench.queue.add("key-0")
        bench.clock.wait_for_timeout(0.5)
        for i in range(1, 9):
            bench.queue.add(f"key-{i}")
        assert bench.clock.wakeups == 1, "only the one that came for the first key"
        bench.clock.advance(0.5)
        [first] = _first(batches, 1)
        assert first.result() == [f"key-{i}" for i in range(9)]

    def test_who_comes_while_one_gathers_takes_nothing_from_it(self, bench: Bench) -> None:
        batch = bench.get_many()
        bench.clock.wait_for_waiters(1)
        bench.queue.add("a")
        bench.clock.wait_for_timeout(0.5)
        bench.queue.add("b")
        assert bench.queue.get_many(10, 0.5, timeout=0) == []
        bench.clock.advance(0.5)
        assert batch.result(LIMIT) == ["a", "b"]

    def test_a_full_batch_leaves_at_once_and_the_rest_goes_to_another(self, bench: Bench) -> None:
        first = bench.get_many(3)
        bench.clock.wait_for_waiters(1)
        bench.queue.add("a")
        bench.clock.wait_for_timeout(0.5)
        second = bench.get_many(3)
        bench.clock.wait_for_waiters(2)
        for key in "bcde":
            bench.queue.add(key)
        # Which of the two gathered first is the same to the keys: both leave, full or when the
        # linger is over.
        done = _first([first, second], 1)[0]
        assert len(done.result()) == 3
        bench.clock.wait_for_timeout(0.5)
        bench.clock.advance(0.5)
        assert sorted(first.result(LIMIT) + second.result(LIMIT)) == list("abcde")

    def test_a_delayed_key_that_comes_due_joins_the_batch(self, bench: Bench) -> None:
        bench.queue.add_after("due", 0.2)
        batch = bench.get_many()
        bench.clock.wait_for_timeout(0.2)
        bench.queue.add("a")
        bench.clock.wait_for_timeout(0.5)
        bench.clock.advance(0.5)
        assert batch.result(LIMIT) == ["a", "due"]

    def test_a_gatherer_robbed_by_a_plain_get_waits_again(self, bench: Bench) -> None:
        batch = bench.get_many()
        bench.clock.wait_for_waiters(1)
        bench.queue.add("a")
        bench.clock.wait_for_timeout(0.5)
        assert bench.queue.get(0) == "a"
        bench.clock.advance(0.5)
        bench.clock.wait_for_waiters(1)
        bench.queue.add("b")
        bench.clock.wait_for_timeout(0.5)
        bench.clock.advance(0.5)
        assert batch.result(LIMIT) == ["b"]

    def test_shutdown_ends_the_linger(self, bench: Bench) -> None:
        batch = bench.get_many()
        bench.clock.wait_for_waiters(1)
        bench.queue.add("a")
        bench.clock.wait_for_timeout(0.5)
        bench.queue.shut_down()
        assert batch.result(LIMIT) == ["a"]


class TestTheEnd:
    def test_every_waiter_is_told(self, bench: Bench) -> None:
        bench.queue.add_after("later", 5.0)
        getters: list[Future[Any]] = [bench.get() for _ in range(4)]
        getters += [bench.get_many(5) for _ in range(4)]
        bench.clock.wait_for_waiters(8)
        bench.queue.shut_down()
        for getter in getters:
            with pytest.raises(ShutDown):
                getter.result(LIMIT)

    def test_workers_stay_while_a_key_in_work_must_run_again(self, bench: Bench) -> None:
        bench.queue.add("a")
        bench.queue.get(0)
        bench.queue.add("a")
        bench.queue.shut_down()
        getters = [bench.get() for _ in range(3)]
        bench.clock.wait_for_waiters(3)
        assert not any(getter.done() for getter in getters)
        bench.queue.done("a")
        [taker] = _first(getters, 1)
        assert taker.result() == "a"
        bench.queue.done("a")
        for getter in getters:
            if getter is not taker:
                with pytest.raises(ShutDown):
                    getter.result(LIMIT)

    def test_workers_do_not_stay_for_a_parked_key(self, bench: Bench) -> None:
        bench.queue.add("hung")
        bench.queue.get(0)
        bench.queue.add("hung")
        bench.queue.shut_down()
        getter = bench.get()
        drained = bench.pool.submit(bench.queue.wait_drained)
        bench.clock.wait_for_waiters(2)
        bench.queue.park("hung")
        with pytest.raises(ShutDown):
            getter.result(LIMIT)
        assert drained.result(LIMIT) is True
        bench.queue.done("hung")  # its call has ended after all: nobody is there who would run it again
        assert bench.queue.wait_drained(0.0) is True
        assert bench.queue.measure()[1].depth == 0

    def test_drained_when_the_last_key_is_done(self, bench: Bench) -> None:
        bench.queue.add("a")
        bench.queue.get(0)
        bench.queue.shut_down()
        patient, impatient = (
            bench.pool.submit(bench.queue.wait_drained, 30.0),
            bench.pool.submit(bench.queue.wait_drained, 1.0),
        )
        bench.clock.wait_for_waiters(2)
        bench.clock.advance(1.0)
        assert impatient.result(LIMIT) is False
        assert not patient.done()
        bench.queue.done("a")
        assert patient.result(LIMIT) is True


def test_stress_no_key_is_lost_or_run_twice_at_once() -> None:
    """Producers and consumers of all kinds on the real clock, with threads switched as often as
    they can be."""
    keys = [f"key-{i}" for i in range(20)]
    queue: WorkQueue[str] = WorkQueue(
        "q", clock=SYSTEM_CLOCK, metrics=Metrics(), backoff=Backoff(0.0005, 0.002, 0.5), min_interval=0.0005
    )
    wanted: Counter[str] = Counter()  # how often a run was asked for
    seen: dict[str, int] = {}  # how many of these requests the last run of a key knew of
    running: set[str] = set()
    guard = threading.Condition()
    faults: list[str] = []

    def produce(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(1_500):
            key = chance.choice(keys)
            with guard:
                wanted[key] += 1
            match chance.randrange(4):
                case 0:
                    queue.add_after(key, chance.random() * 0.003, chance.choice([None, 0, 1]))
                case 1:
                    queue.add_rate_limited(key)
                case _:
                    queue.add(key, chance.choice([0, 0, 1]))

    def work(key: str, chance: random.Random) -> None:
        with guard:
            if key in running:
                faults.append(f"{key} ran twice at once")
            running.add(key)
            seen[key] = wanted[key]
            guard.notify()
        fate = chance.randrange(10)
        if fate == 0:
            with guard:
                wanted[key] += 1
            queue.add_rate_limited(key)
        elif fate == 1:
            queue.forget(key)
        elif fate == 2:
            queue.park(key)
        with guard:
            running.discard(key)
        queue.done(key)

    def consume(seed: int) -> None:
        chance = random.Random(seed)
        try:
            while True:
                if seed % 2:
                    batch = queue.get_many(4, 0.0005, timeout=chance.choice([None, 0.0005]))
                else:
                    one = queue.get(timeout=chance.choice([None, 0.0005]))
                    batch = [] if one is None else [one]
                for key in batch:
                    work(key, chance)
        except ShutDown:
            return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(12) as pool:
            consumers = [pool.submit(consume, seed) for seed in range(6)]
            for producer in [pool.submit(produce, 100 + seed) for seed in range(4)]:
                producer.result(60)
            with guard:  # a key that sleeps past its time would leave this waiting
                assert guard.wait_for(lambda: all(seen.get(key, 0) == wanted[key] for key in keys), LIMIT)
            queue.shut_down()
            assert queue.wait_drained(LIMIT)
            for consumer in consumers:
                consumer.result(LIMIT)
    finally:
        sys.setswitchinterval(interval)
        queue.shut_down(drain=False)
    assert faults == []
    assert len(queue) == 0


@pytest.mark.parametrize("consumers", [1, 4, 16])
def test_stress_without_any_timeout(consumers: int) -> None:
    """Consumers that wait without end: one lost wakeup, and the last keys would never come."""
    queue: WorkQueue[int] = WorkQueue("q", clock=SYSTEM_CLOCK, metrics=Metrics())
    total = 3_000
    left = threading.Semaphore(0)

    def consume() -> None:
        try:
            while True:
                queue.done(queue.get())  # type: ignore[arg-type]  # never None without a timeout
                left.release()
        except ShutDown:
            return

    def produce(start: int) -> None:
        for number in range(start, total, 3):
            if number % 7:
                queue.add(number, number % 2)
            else:
                queue.add_after(number, 0.001)

    with ThreadPoolExecutor(consumers + 3) as pool:
        running = [pool.submit(consume) for _ in range(consumers)]
        for start in range(3):
            pool.submit(produce, start)
        got = sum(left.acquire(timeout=LIMIT) for _ in range(total))
        queue.shut_down()
        for future in running:
            future.result(LIMIT)
    assert got == total
