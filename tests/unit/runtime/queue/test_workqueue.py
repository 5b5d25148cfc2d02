"""What the work queue does, one behaviour at a time, on a clock moved by hand and in one thread."""

import itertools

import pytest

from cloudprovider.internal.backoff import Backoff
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from tests.support.clock import FakeClock
from tests.support.controllers import take_all

START = 1_000.0


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue[str]:
    return WorkQueue("nodes", clock=clock, metrics=Metrics(), backoff=Backoff(1.0, 60.0, 0.0))


def spaced(clock: FakeClock, interval: float) -> WorkQueue[str]:
    return WorkQueue("nodes", clock=clock, metrics=Metrics(), backoff=Backoff(1.0, 60.0, 0.0), min_interval=interval)


class TestOneKey:
    def test_done_without_a_run_is_refused(self, queue: WorkQueue[str]) -> None:
        queue.add("a")
        with pytest.raises(ValueError, match=r"nodes.*'a'"):
            queue.done("a")
        assert queue.get(0) == "a"
        queue.done("a")
        with pytest.raises(ValueError, match="not being worked on"):
            queue.done("a")

    def test_nothing_is_remembered_of_a_key_that_is_through(self, clock: FakeClock) -> None:
        queue = spaced(clock, 5.0)
        for key in ("a", "b", "c"):
            queue.add(key)
        queue.add_after("d", 1.0)
        queue.add_rate_limited("e")
        clock.advance(1)
        assert sorted(take_all(queue)) == ["a", "b", "c", "d", "e"]
        queue.forget("e")
        assert set(queue._keys.items) == {"a", "b", "c", "d", "e"}, "their intervals last"
        clock.advance(5)
        assert len(queue) == 0
        assert not queue._keys.items


class TestDelay:
    def test_no_delay_is_an_add_and_what_makes_no_sense_is_refused(
        self, queue: WorkQueue[str], clock: FakeClock
    ) -> None:
        for no_delay in (0.0, -1.0):
            queue.add_after("a", no_delay)
            assert take_all(queue) == ["a"]
        for no_number in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match=r"nodes.*'a'"):
                queue.add_after("a", no_number)
        assert not queue._keys.items
        queue.add("a")
        with pytest.raises(ValueError, match="'a'"):
            queue.park("a")  # only keys in work are parked
        with pytest.raises(ValueError, match="max_batch"):
            queue.get_many(0, 1.0)
        for interval in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="min_interval"):
                spaced(clock, interval)

    def test_replaced_times_do_not_pile_up(self, queue: WorkQueue[str], clock: FakeClock) -> None:
        for delay in range(5_000, 0, -1):
            queue.add_after("a", float(delay))
        assert len(queue._keys._heap) < 100
        queue.add_after("b", 1.0)
        clock.advance(1)
        assert take_all(queue) == ["a", "b"]


class TestBackoff:
    @pytest.mark.row("N15")
    def test_a_day_of_failures_is_tried_every_minute(self, clock: FakeClock) -> None:
        queue: WorkQueue[str] = WorkQueue("nodes", clock=clock, metrics=Metrics(), chance=lambda: 0.0)
        queue.add("a")
        runs = 0
        while clock.monotonic() < START + 86_400:
            if queue.get(0) is not None:
                runs += 1
                queue.add_rate_limited("a")
                queue.done("a")
            clock.advance(1.0)
        assert 86_400 / 60 <= runs <= 86_400 / 60 + 20

    def test_chance_decides_the_jitter(self, clock: FakeClock) -> None:
        chances = itertools.cycle([0.0, 1.0])
        queue: WorkQueue[str] = WorkQueue(
            "q", clock=clock, metrics=Metrics(), backoff=Backoff(4.0, 60.0, 0.5), chance=lambda: next(chances)
        )
        assert queue.add_rate_limited("a") == 4.0
        assert queue.add_rate_limited("b") == 2.0


@pytest.mark.row("N15")
class TestMinimumInterval:
    def test_a_stream_of_updates_runs_a_key_once_per_interval(self, clock: FakeClock) -> None:
        queue = spaced(clock, 10.0)
        runs = []
        for second in range(100):
            queue.add("a")
            if (key := queue.get(0)) is not None:
                runs.append(second)
                queue.add_rate_limited(key)
                queue.done(key)
            clock.advance(1)
        assert runs == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]


class TestMany:
    def test_keys_that_waited_long_enough_are_not_lingered_on(self, queue: WorkQueue[str], clock: FakeClock) -> None:
        queue.add("a")
        clock.advance(0.5)
        queue.add("b")
        assert queue.get_many(9, linger=0.5) == ["a", "b"]


class TestShutDown:
    def test_what_is_dropped_is_told_once(
        self, queue: WorkQueue[str], clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        queue.add("waits")
        queue.add_after("delayed", 1.0)
        queue.shut_down(drain=True)
        queue.shut_down(drain=False)
        queue.shut_down(drain=False)
        assert caplog.messages == ["queue nodes: shut down; keys that were to run later: 1"] * 2


class TestLooking:
    def test_oldest_running_and_waiting(self, queue: WorkQueue[str], clock: FakeClock) -> None:
        assert queue.oldest_running() == (0.0, None)
        assert queue.oldest_waiting() == 0.0
        queue.add("a")
        queue.add("b")
        clock.advance(2)
        assert queue.oldest_waiting() == 2.0
        queue.get(0)
        clock.advance(3)
        queue.get(0)
        queue.add("c", 7)
        clock.advance(1)
        assert queue.oldest_running() == (4.0, "a")
        assert queue.oldest_waiting() == 1.0
        queue.done("a")
        assert queue.oldest_running() == (1.0, "b")


@pytest.mark.parametrize("named", [False, True])
def test_a_key_that_failed_rests_until_its_turn_whoever_adds_it_before(clock: FakeClock, named: bool) -> None:
    queue: WorkQueue[str] = WorkQueue(
        "q", clock=clock, metrics=Metrics(), backoff=Backoff(8.0, 8.0), chance=lambda: 0.0
    )
    assert queue.resting("a") == 0.0, "a key never seen"
    queue.add_after("a", 60.0, routine=True)
    assert queue.resting("a") == 0.0, "only time asks for it"
    queue.add("a")
    queue.get(0)
    if named:
        queue.add_after("a", 8.0, problem="later")
    else:
        queue.add_rate_limited("a", problem="no quota")
    queue.done("a")
    clock.advance(3.0)
    queue.add("a")
    assert queue.get(0) == "a"
    assert queue.resting("a") == 5.0
    queue.done("a")
    clock.advance(5.0)
    assert queue.get(0) == "a"
    assert queue.resting("a") == 0.0, "it is its turn"
    queue.forget("a")
    queue.add_after("a", 60.0)
    assert queue.resting("a") == 0.0, "it succeeded"
