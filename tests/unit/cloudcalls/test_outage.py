"""An outage of the cloud: seen, told, and gone again, with the keys that waited for its end."""

from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import CloudProviderError, InstanceNotFound, Throttled
from controllers.cloudcalls import CallFailed, CloudCallError, CloudCalls
from controllers.cloudcalls.outage import Outage
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import WorkQueue
from controllers.runtime.queue.outcomes import FailureHandling, Requeuer
from tests.support.clock import FakeClock
from tests.unit.cloudcalls.support import Capability, Provider, world

DOWN = CloudProviderError("the cloud is down")


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.outage = Outage(self.clock)
        self.back: list[str] = []

    def fail(self, *keys: str) -> None:
        for key in keys:
            self.outage.call_failed(key, "down")
            self.outage.failed(key, DOWN, partial(self.back.append, key))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def keys(number: int) -> list[str]:
    return [f"node/{i}" for i in range(number)]


def test_the_first_answer_brings_some_back_and_each_further_one_two(bench: Bench) -> None:
    bench.fail(*keys(20))
    bench.outage.call_answered()
    assert bench.back == keys(8)
    bench.outage.call_answered()
    assert bench.back == keys(10)
    bench.outage.call_answered(items=4)
    assert bench.back == keys(18)
    bench.outage.call_answered(items=100)
    assert bench.back == keys(20)


def test_one_sick_key_among_well_ones_keeps_its_back_off(bench: Bench) -> None:
    for _ in range(10):
        bench.fail("node/sick")
        bench.outage.call_answered()
    assert bench.back == []


def test_keys_that_vanish_while_they_fail_leave_nothing_behind(bench: Bench) -> None:
    for number in range(100):  # each fails once, and its node is deleted before it comes again
        bench.fail(f"node/{number}")
        bench.outage.call_answered()
    bench.fail("node/a", "node/b", "node/c")
    bench.outage.call_answered(items=1000)
    assert bench.back == ["node/a", "node/b", "node/c"]


def test_whoever_settled_is_not_brought_back(bench: Bench) -> None:
    bench.fail(*keys(4))
    bench.outage.settled("node/1")
    bench.outage.failed("node/2", InstanceNotFound("gone"), partial(bench.back.append, "node/2"))
    bench.outage.failed("node/3", Throttled(), partial(bench.back.append, "node/3"))
    bench.outage.call_answered()
    assert bench.back == ["node/0"]


def test_an_error_of_the_api_server_does_not_wait_for_the_cloud(bench: Bench) -> None:
    bench.fail(*keys(3))
    bench.outage.failed("node/0", OSError("the API server"), partial(bench.back.append, "node/0"))
    bench.outage.call_answered()
    assert "node/0" not in bench.back


def test_while_it_lasts_one_key_at_a_time_comes_back_soon(bench: Bench) -> None:
    bench.fail(*keys(3))
    waits = [bench.outage.failed(key, DOWN, list) for key in keys(10)]
    assert [wait for wait in waits if wait is not None] in ([], [5.0])
    scouts = 0
    for _ in range(60):
        bench.clock.advance(1.0)
        scouts += sum(bench.outage.failed(key, DOWN, list) is not None for key in keys(10))
    assert 10 <= scouts <= 13
    bench.clock.advance(3600.0)
    assert bench.outage.failed("node/0", DOWN, list) == 60.0


def test_the_more_wait_the_longer_each_waits_so_that_few_try_in_vain(bench: Bench) -> None:
    assert bench.outage.least_wait(DOWN) == 0.0
    bench.fail(*keys(20))
    assert bench.outage.least_wait(DOWN) == 2.0
    assert bench.outage.least_wait(Throttled()) == bench.outage.least_wait(OSError("the API server")) == 0.0
    bench.fail(*keys(2000))
    assert bench.outage.least_wait(DOWN) == 60.0
    bench.outage.call_answered()
    assert bench.outage.least_wait(DOWN) == 0.0


def test_a_thousand_keys_are_no_storm(bench: Bench) -> None:
    """They back off from 5 ms, yet within a minute they are tried two or three times each, not
    fourteen."""
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue("Nodes", clock=bench.clock, metrics=metrics, floor=1.0)
    settler = Requeuer(queue, FailureHandling(outage=bench.outage), metrics=metrics, clock=bench.clock)
    for key in keys(1000):
        queue.add(key)
    tries = 0
    while bench.clock.monotonic() < 1060.0:
        while (node := queue.get(timeout=0.0)) is not None:
            tries += 1
            bench.outage.call_failed(node, "down")
            settler.settle(node, DOWN)
        bench.clock.advance(0.5)
    assert tries < 3500
    bench.outage.call_answered(items=1000)
    bench.clock.advance(1.0)  # the least time between two runs of one key
    back = 0
    while queue.get(timeout=0.0) is not None:
        back += 1
    assert back == 1000


def test_a_service_that_the_cloud_refuses_is_no_outage(bench: Bench) -> None:
    bench.fail(*["service/default/web"] * 10)
    assert bench.outage.trouble() is None
    assert bench.outage.failed("x", DOWN, list) is None
    bench.fail("service/default/other")
    assert bench.outage.trouble() is not None


def test_a_failure_that_is_heard_of_after_the_first_answer_does_not_wait_out_its_back_off(bench: Bench) -> None:
    """The process is busy: the last failed calls of the outage are settled when the cloud answers
    others already."""
    bench.fail(*keys(3))
    bench.clock.advance(60.0)
    bench.outage.call_answered(items=100)
    assert bench.outage.failed("node/late", DOWN, list) == 1.0
    bench.outage.call_answered(items=100)
    bench.clock.advance(29.0)
    waits = [bench.outage.failed("node/late", DOWN, list) for _ in range(4)]
    assert waits == [2.0, 4.0, None, None], "a key that is sick itself keeps to its back-off"
    bench.clock.advance(1.0)
    assert bench.outage.failed("node/other", DOWN, list) is None


def test_who_has_an_answer_and_fails_otherwise_does_not_pay_for_the_outage(bench: Bench) -> None:
    """Its cache is behind, say: a matter of a moment, but its back-off has grown to a minute."""
    bench.fail(*keys(3))
    bench.outage.call_answered()
    errors = [RuntimeError("the cache is behind"), Throttled(), OSError("the API server"), RuntimeError("and again")]
    assert [bench.outage.failed("node/0", error, list) for error in errors] == [1.0, 2.0, 4.0, None]
    bench.outage.settled("node/0")
    bench.clock.advance(30.0)
    assert bench.outage.failed("node/0", errors[0], list) is None


def test_a_cloud_that_stumbles_as_it_returns(bench: Bench) -> None:
    """Two of those that came back fail once more, which is no outage of its own."""
    bench.fail(*keys(3))
    bench.outage.call_answered()
    waits = []
    for key in keys(2):
        bench.outage.call_failed(key, "down")
        waits.append(bench.outage.failed(key, DOWN, list))
    bench.outage.call_answered()
    assert waits == [1.0, 1.0]


def test_those_that_have_nothing_to_ask_hold_up_nobody(bench: Bench) -> None:
    """The first eight that come back are nodes deleted during the outage: of them comes no
    answer."""
    bench.fail(*keys(30))
    bench.outage.call_answered()
    done = 0
    while done < len(bench.back):
        bench.outage.settled(bench.back[done])
        done += 1
    assert bench.back == keys(30)


@pytest.mark.row("O1")
def test_health_says_since_when_every_call_fails_and_why() -> None:
    def down() -> None:
        raise RuntimeError("connection refused")

    with world(Provider()) as w:
        for key in ("node/a", "node/b", "node/c"):
            with pytest.raises(CallFailed):
                w.calls.call("instance_metadata", down, key=key)
        assert w.calls.health().ok, "a moment is no outage"
        w.clock.advance(6)
        health = w.calls.health()
        assert not health.ok
        assert not health.fatal
        assert "every call has failed for 6 s (3 calls), the last one: instance_metadata" in health.message
        assert "connection refused" in health.message
        w.calls.call("instance_metadata", lambda: None, key="node/a")
        assert w.calls.health().ok


@pytest.mark.row("X12")
def test_volumes_of_strangers_prove_neither_that_the_cloud_is_down_nor_that_it_is_up() -> None:
    answers: list[Any] = []

    def look(_pv: V1PersistentVolume) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cloud = CloudCalls(Provider(pv_labeler=Capability(get_labels_for_volume=look)), clock=FakeClock())

    def ask(name: str, answer: Any, *, admission: bool) -> None:
        answers.append(answer)
        volume = V1PersistentVolume.from_dict({"metadata": {"name": name}})
        assert cloud.pv_labeler is not None
        assert volume is not None
        with suppress(CloudCallError, CloudProviderError):
            cloud.pv_labeler.labels(volume, admission=admission)

    for number in range(20):
        ask(f"v{number}", DOWN, admission=True)
    assert cloud.outage.trouble() is None
    for number in range(3):
        ask(f"v{number}", DOWN, admission=False)
    assert cloud.outage.trouble() is not None
    ask("of-a-stranger", {"zone": "z"}, admission=True)  # no disk at all, say, about which no cloud was asked
    assert cloud.outage.trouble() is not None
    ask("v1", {"zone": "z"}, admission=False)
    assert cloud.outage.trouble() is None
    cloud.close()
