"""Calls that hang or take time: by a test's clock, released, cancelled, closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from cloudprovider import Call, CallCancelled, CallDeadlineExceeded, call_scope
from cloudprovider.testing.fake import FakeCloud, FakeCloudClosed, Hang, attach, parse_config
from tests.support.clock import FakeClock
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes, service

LIMIT = 10.0  # seconds of real time after which a test gives up


def in_thread(work: Callable[[], object], call: Call | None = None) -> Future[object]:
    """Start the work in a thread of its own, inside a call of a host."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            with call_scope(call or Call()):
                future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed over to the test
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def asks(cloud: FakeCloud, name: str = "a") -> Callable[[], object]:
    v2 = cloud.instances_v2()
    assert v2 is not None
    return lambda: v2.instance_exists(node(name))


def until_asleep(cloud: FakeCloud, count: int = 1) -> None:
    end = time.monotonic() + LIMIT
    while cloud.asleep < count:
        assert time.monotonic() < end, f"{cloud.asleep} of {count} calls hang"
        threading.Event().wait(0.001)


def test_a_hang_ends_after_its_time(make_both: MakeCloud, clock: FakeClock) -> None:
    cloud = make_both(instances=[{"name": "a"}])
    cloud.faults.add(Hang(seconds=30))
    answer = in_thread(asks(cloud))
    until_asleep(cloud)
    clock.advance(29)
    assert not answer.done()
    until_asleep(cloud)
    clock.advance(1)
    assert answer.result(LIMIT) is True
    assert cloud.asleep == 0


@pytest.mark.parametrize("end", ["release", "release all", "remove", "clear", "replace"])
def test_a_hang_ends_when_its_fault_does(make_both: MakeCloud, clock: FakeClock, end: str) -> None:
    cloud = make_both(instances=[{"name": "a"}])
    cloud.faults.add(Hang(name="another", key="b"))
    name = cloud.faults.add(Hang(name="stuck", key="a"))
    answers = [in_thread(asks(cloud)) for _ in range(3)]
    until_asleep(cloud, 3)
    assert not any(answer.done() for answer in answers)
    if end == "release":
        assert cloud.faults.release(name) == 1
    elif end == "release all":
        assert cloud.faults.release() == 2
    elif end == "remove":
        cloud.faults.remove(name)
    elif end == "clear":
        cloud.faults.clear()
    else:
        cloud.faults.add(Hang(name="stuck", key="nobody"))
    nudge(cloud, clock, answers)
    assert [answer.result(LIMIT) for answer in answers] == [True] * 3
    assert asks(cloud)() is True, "it hangs nobody any more"


def nudge(cloud: FakeCloud, clock: FakeClock, answers: list[Future[object]]) -> None:
    """Clouds in a file look again after a moment of the clock, which stands still here."""
    end = time.monotonic() + LIMIT
    while cloud.config.state and not all(answer.done() for answer in answers) and time.monotonic() < end:
        clock.advance(0.05)
        threading.Event().wait(0.001)


def test_another_fault_s_end_leaves_it_hanging(make_cloud: MakeCloud, clock: FakeClock) -> None:
    cloud = make_cloud(instances=[{"name": "a"}])
    cloud.faults.add(Hang(name="stuck"))
    cloud.faults.add(Hang(name="another", key="b"))
    answer = in_thread(asks(cloud))
    until_asleep(cloud)
    assert cloud.faults.release("another") == 1
    assert cloud.faults.release("unknown") == 0
    cloud.faults.remove("another")
    with pytest.raises(TimeoutError):
        answer.result(0.05)
    assert cloud.asleep == 1
    assert cloud.faults.release("stuck") == 1
    assert answer.result(LIMIT) is True
    assert cloud.faults.release("stuck") == 0, "it is released already"


def test_closing_ends_latency_by_a_tests_clock(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(latency={"*": 5})
    answer = in_thread(asks(cloud))
    until_asleep(cloud)
    cloud.close()
    with pytest.raises(FakeCloudClosed):
        answer.result(LIMIT)


def test_hangs_after_the_work_are_over_for_the_cloud_but_not_for_the_caller(make_both: MakeCloud) -> None:
    cloud = make_both()
    cloud.faults.add(Hang(name="stuck", method="ensure_load_balancer", when="after"))
    balancer = cloud.load_balancer()
    assert balancer is not None
    answer = in_thread(lambda: balancer.ensure_load_balancer("c", service(), []))
    until_asleep(cloud)
    assert len(cloud.console.load_balancers()) == 1
    (running,) = cloud.calls.running()
    assert (running.method, running.ended) == ("ensure_load_balancer", None)
    cloud.close()
    with pytest.raises(FakeCloudClosed):
        answer.result(LIMIT)


def test_a_batch_hangs_for_one_of_its_names(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(instances=[{"name": "a"}, {"name": "b"}])
    batch = cloud.instances_batch()
    assert batch is not None
    cloud.faults.add(Hang(key="a", method="instances_*"))
    assert batch.instances_state(nodes("b"))
    answer = in_thread(lambda: batch.instances_state(nodes("a", "b")))
    until_asleep(cloud)
    cloud.faults.release()
    assert answer.result(LIMIT)


class TestTheHostsWishes:
    """By the machine's clock: a cancellation comes from outside, and is looked for now and then."""

    def made(self, **fault: object) -> FakeCloud:
        return FakeCloud(parse_config({"instances": [{"name": "a"}], "faults": [{"action": "hang", **fault}]}))

    def test_a_soft_hang_notices_cancellation_and_deadline(self) -> None:
        with self.made(mode="soft") as cloud:
            cancelled = threading.Event()
            answer = in_thread(asks(cloud), Call(cancelled=cancelled))
            until_asleep(cloud)
            cancelled.set()
            with pytest.raises(CallCancelled):
                answer.result(LIMIT)
            answer = in_thread(asks(cloud), Call(deadline=time.monotonic() + 0.03))
            with pytest.raises(CallDeadlineExceeded):
                answer.result(LIMIT)
            assert cloud.calls.errors() == {"instance_exists": {"CallCancelled": 1, "CallDeadlineExceeded": 1}}

    def test_a_hard_hang_notices_neither(self) -> None:
        with self.made() as cloud:
            cancelled = threading.Event()
            cancelled.set()
            answer = in_thread(asks(cloud), Call(cancelled=cancelled, deadline=time.monotonic() - 1))
            until_asleep(cloud)
            with pytest.raises(TimeoutError):
                answer.result(0.06)
            cloud.faults.release()
            assert answer.result(LIMIT) is True

    def test_closing_ends_both(self) -> None:
        for mode in ("hard", "soft"):
            cloud = self.made(mode=mode)
            answer = in_thread(asks(cloud))
            until_asleep(cloud)
            cloud.close()
            with pytest.raises(FakeCloudClosed):
                answer.result(LIMIT)

    def test_latency_ends_with_the_call(self) -> None:
        config = parse_config({"instances": [{"name": "a"}], "latency": {"instance_exists": 60}})
        with FakeCloud(config) as cloud:
            cancelled = threading.Event()
            answer = in_thread(asks(cloud), Call(cancelled=cancelled))
            cancelled.set()
            with pytest.raises(CallCancelled):
                answer.result(LIMIT)


def test_another_users_release_is_noticed(tmp_path: Path) -> None:
    """The file is all that they share."""
    config = parse_config({"state": str(tmp_path / "cloud"), "instances": [{"name": "a"}]})
    with FakeCloud(config) as cloud, attach(tmp_path / "cloud") as other:
        other.faults.add(Hang(name="stuck"))
        answer = in_thread(asks(cloud))
        until_asleep(cloud)
        assert other.faults.release("stuck") == 1
        assert answer.result(LIMIT) is True


class TestLatency:
    def test_the_first_pattern_that_matches_counts(self, make_cloud: MakeCloud, clock: FakeClock) -> None:
        cloud = make_cloud(latency={"instance_exists": "200ms", "instance*": 5, "*": 0}, instances=[{"name": "a"}])
        v2 = cloud.instances_v2()
        assert v2 is not None
        answer = in_thread(asks(cloud))
        clock.wait_for_timeout(0.2)
        clock.advance(0.2)
        assert answer.result(LIMIT) is True
        answer = in_thread(lambda: v2.instance_shutdown(node("a")))
        clock.wait_for_timeout(5)
        clock.advance(5)
        assert answer.result(LIMIT) is False
        assert cloud.console.load_balancers() == []
        assert cloud.calls.log() == ()

    def test_a_range_follows_the_seed(self, make_cloud: MakeCloud, clock: FakeClock) -> None:
        def drawn(seed: int) -> list[float]:
            cloud = make_cloud(seed=seed, latency={"*": [1, 3]}, instances=[{"name": "a"}])
            found = []
            for _ in range(3):
                answer = in_thread(asks(cloud))
                until_asleep(cloud)
                clock.wait_for_waiters(1, timed=True)
                left = clock.next_deadline()
                assert left is not None
                found.append(round(left, 6))
                clock.advance(left)
                answer.result(LIMIT)
            return found

        first = drawn(1)
        assert all(1 <= seconds <= 3 for seconds in first)
        assert len(set(first)) == 3
        assert first == drawn(1)
        assert first != drawn(2)
