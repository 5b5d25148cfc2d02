"""Faults: which calls they strike, how often, and what the caller then sees."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cloudprovider import (
    Call,
    CallCancelled,
    CallDeadlineExceeded,
    CloudProviderError,
    InstanceNotFound,
    InstanceState,
    InstancesV2,
    RetryError,
    Throttled,
)
from cloudprovider.testing.fake import (
    FakeCloud,
    FakeCloudClosed,
    LoadBalancerState,
    Strike,
    answers,
    half_builds,
    hangs,
    raises,
)
from cloudprovider.testing.fake.config import CAPABILITIES
from cloudprovider.testing.waiting import eventually
from tests.support.there import there
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import in_thread, node, nodes, service, volume

LIMIT = 10.0  # seconds of real time after which a test gives up
NAMES = [f"n{number}" for number in range(10)]


@pytest.fixture
def cloud(make_cloud: MakeCloud) -> FakeCloud:
    machines = [{"name": name, "addresses": {"InternalIP": "10.0.0.1"}} for name in NAMES]
    return make_cloud(instances=machines, capabilities=CAPABILITIES, volumes=[{"id": "v", "zones": ["z"]}], zone="z")


def v2(cloud: FakeCloud) -> InstancesV2:
    return there(cloud.instances_v2())


def exists(cloud: FakeCloud, name: str = "n1") -> Callable[[], bool]:
    return lambda: v2(cloud).instance_exists(node(name))


def states(cloud: FakeCloud, *names: str) -> dict[str, InstanceState | CloudProviderError]:
    batch = there(cloud.instances_batch())
    return dict(batch.instances_state(nodes(*(names or NAMES))))


def outcomes(ask: Callable[[], object], times: int = 1) -> str:
    """A letter for each of so many calls: "." it answered, "x" it raised."""
    letters = ""
    for _ in range(times):
        try:
            ask()
            letters += "."
        except CloudProviderError:
            letters += "x"
    return letters


class TestWhichCalls:
    def test_method_and_key_patterns(self, cloud: FakeCloud) -> None:
        cloud.faults.on(("instance_e*", "get_zone"), raises(), key=("n[12]", "fake://i-n5"))
        for name, letter in (("n1", "x"), ("n2", "x"), ("n3", "."), ("n5", ".")):
            assert outcomes(exists(cloud, name)) == letter
            assert outcomes(lambda name=name: v2(cloud).instance_metadata(node(name))) == "."  # type: ignore[misc]  # bound now
        assert outcomes(lambda: v2(cloud).instance_exists(node("n5", "fake://i-n5"))) == "x"
        zones = there(cloud.zones())
        assert outcomes(zones.get_zone) == ".", "it is about no key"

    def test_every_name_that_something_is_known_by(self, cloud: FakeCloud) -> None:
        balancer, labeler = there(cloud.load_balancer()), there(cloud.pv_labeler())
        for key, ask in (
            ("default/web", lambda: balancer.get_load_balancer("c", service())),
            ("auidweb", lambda: balancer.get_load_balancer("c", service())),
            ("v", lambda: labeler.get_labels_for_volume(volume("pv", "v"))),
            ("pv", lambda: labeler.get_labels_for_volume(volume("pv", "v"))),
        ):
            with cloud.faults.on("*", raises(), key=key):
                assert outcomes(ask) == "x"
            with cloud.faults.on("*", raises(), key="nothing of the kind"):
                assert outcomes(ask) == "."

    def test_times_removing_and_clearing(self, cloud: FakeCloud) -> None:
        fault = cloud.faults.on("*", raises(), times=2)
        assert outcomes(exists(cloud), 5) == "xx..."
        assert fault.struck == 2
        fault, _ = cloud.faults.on("*", raises()), cloud.faults.on("*", raises())
        for _ in range(2):
            fault.remove()
        assert outcomes(exists(cloud)) == "x"
        cloud.faults.clear()
        assert outcomes(exists(cloud)) == "."
        with pytest.raises(ValueError, match="no method instance_is"):
            cloud.faults.on("instance_is", raises())

    def test_of_several_the_first_decides_whether_the_next_is_asked(self, cloud: FakeCloud) -> None:
        second = cloud.faults.on("*", raises(Throttled)), cloud.faults.on("*", answers(False))
        with pytest.raises(Throttled):
            exists(cloud)()
        assert [fault.struck for fault in second] == [1, 1], "both were met, though one was not asked"
        second[0].remove()
        assert exists(cloud)() is False

    def test_an_action_of_ones_own_sees_the_call(self, cloud: FakeCloud) -> None:
        seen: list[object] = []

        def every_other(strike: Strike) -> object:
            seen.append((strike.method, list(strike.names), strike.arguments[0].metadata.name))
            if strike.fault.struck % 2:
                raise CloudProviderError("every other call")
            return strike.proceed()

        cloud.faults.on("instance_exists", every_other)
        assert outcomes(exists(cloud), 4) == "x.x."
        assert seen[0] == ("instance_exists", ["n1"], "n1")


class TestRaising:
    @pytest.mark.parametrize(
        ("error", "raised", "told"),
        [
            (InstanceNotFound("tired"), InstanceNotFound, "tired"),
            (TimeoutError("tired"), TimeoutError, "tired"),
            (SystemExit("tired"), SystemExit, "tired"),
            (RuntimeError, RuntimeError, "injected into instance_exists"),
        ],
    )
    def test_any_error(self, cloud: FakeCloud, error: Any, raised: type[BaseException], told: str) -> None:
        cloud.faults.on("*", raises(error))
        for _ in range(2):
            with pytest.raises(raised, match=told):
                exists(cloud)()

    def test_what_an_error_carries_arrives(self, cloud: FakeCloud) -> None:
        cloud.faults.on("*", raises(RetryError("later", 7)))
        with pytest.raises(RetryError) as caught:
            exists(cloud)()
        assert caught.value.retry_after == 7

    @pytest.mark.parametrize("after", [False, True])
    def test_before_nothing_and_after_everything_is_done(self, cloud: FakeCloud, after: bool) -> None:
        balancer = there(cloud.load_balancer())
        cloud.faults.on("ensure_load_balancer", raises(after=after))
        assert outcomes(lambda: balancer.ensure_load_balancer("c", service(), [])) == "x"
        assert len(cloud.console.load_balancers()) == after

    def test_a_half_built_load_balancer_exists_and_is_completed(self, cloud: FakeCloud) -> None:
        balancer = there(cloud.load_balancer())
        fault = cloud.faults.on("ensure_load_balancer", half_builds())
        for _ in range(2):
            assert outcomes(lambda: balancer.ensure_load_balancer("c", service(), nodes("n1"))) == "x"
            (record,) = cloud.console.load_balancers()
            assert (record.state, record.ingress, record.backends) == (LoadBalancerState.HALF_BUILT, (), ())
        status = there(balancer.get_load_balancer("c", service()))
        assert status.ingress == []
        fault.remove()
        balancer.ensure_load_balancer("c", service(), nodes("n1"))
        (record,) = cloud.console.load_balancers()
        assert record.state is LoadBalancerState.ACTIVE
        assert record.ingress
        assert outcomes(lambda: balancer.ensure_load_balancer("c", service(), nodes("n2"))) == "."


class TestBatches:
    def test_with_a_key_only_the_matching_names_fail_and_without_one_the_whole_call(self, cloud: FakeCloud) -> None:
        fault = cloud.faults.on("instances_*", raises(Throttled), key="n[12]")
        found = states(cloud)
        assert [name for name, one in found.items() if isinstance(one, Throttled)] == ["n1", "n2"]
        assert states(cloud, "n3") == {"n3": InstanceState.RUNNING}
        fault.remove()
        cloud.faults.on("instances_*", raises(ValueError("odd")), key="n1", times=1)
        one = states(cloud)["n1"]
        assert (type(one), str(one)) == (CloudProviderError, "odd"), "an error from outside the contract"
        cloud.faults.on("instances_*", raises(Throttled))
        with pytest.raises(Throttled):
            states(cloud)

    def test_answers_are_by_name_and_some_are_left_out(self, cloud: FakeCloud) -> None:
        cloud.faults.on("instances_*", answers(InstanceState.GONE), key="n1", times=1)
        assert states(cloud, "n1", "n2") == {"n1": InstanceState.GONE, "n2": InstanceState.RUNNING}
        cloud.faults.on("instances_*", lambda strike: {n: s for n, s in strike.proceed().items() if n != "n3"}, times=1)
        assert set(states(cloud)) == set(NAMES) - {"n3"}
        cloud.faults.on("instances_*", answers(lambda truth: [truth]))
        found: object = states(cloud, "n1", "n2")
        assert found == {"n1": [InstanceState.RUNNING], "n2": [InstanceState.RUNNING]}


class TestHanging:
    def test_a_hang_ends_with_its_fault_and_others_go_on(self, cloud: FakeCloud) -> None:
        stuck = cloud.faults.on("*", hangs(), key="n1")
        hung = [in_thread(exists(cloud)) for _ in range(3)]
        eventually(lambda: stuck.struck == 3)
        assert exists(cloud, "n2")()
        assert not any(one.done() for one in hung)
        stuck.remove()
        assert [one.result(LIMIT) for one in hung] == [True] * 3

    def test_a_hang_of_some_seconds(self, cloud: FakeCloud) -> None:
        cloud.faults.on("*", hangs(0.05))
        began = time.monotonic()
        assert exists(cloud)()
        assert time.monotonic() - began >= 0.05

    def test_a_hang_after_the_work_is_over_for_the_cloud_alone(self, cloud: FakeCloud) -> None:
        balancer = there(cloud.load_balancer())
        cloud.faults.on("ensure_load_balancer", hangs(after=True))
        hung = in_thread(lambda: balancer.ensure_load_balancer("c", service(), []))
        eventually(cloud.console.load_balancers)
        assert not hung.done()
        cloud.faults.clear()
        hung.result(LIMIT)

    @pytest.mark.parametrize("soft", [True, False])
    def test_a_soft_hang_notices_cancellation_and_deadline_and_a_hard_one_neither(
        self, cloud: FakeCloud, soft: bool
    ) -> None:
        stuck = cloud.faults.on("*", hangs(soft=soft))
        cancelled = threading.Event()
        hung = in_thread(exists(cloud), Call(cancelled=cancelled))
        eventually(lambda: stuck.struck)
        cancelled.set()
        with pytest.raises(CallCancelled if soft else TimeoutError):
            hung.result(LIMIT if soft else 0.06)
        late = in_thread(exists(cloud), Call(deadline=time.monotonic() + 0.03))
        with pytest.raises(CallDeadlineExceeded if soft else TimeoutError):
            late.result(LIMIT if soft else 0.06)
        stuck.remove()
        assert soft or [hung.result(LIMIT), late.result(LIMIT)] == [True, True]

    @pytest.mark.parametrize("soft", [False, True])
    def test_closing_ends_it(self, make_cloud: MakeCloud, soft: bool) -> None:
        cloud = make_cloud()
        stuck = cloud.faults.on("*", hangs(soft=soft))
        hung = in_thread(exists(cloud))
        eventually(lambda: stuck.struck)
        cloud.close()
        with pytest.raises(FakeCloudClosed):
            hung.result(LIMIT)


class TestLatency:
    def test_the_first_pattern_that_matches_counts(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(latency={"instance_exists": "50ms", "instance*": [60, 90], "*": 0})
        began = time.monotonic()
        exists(cloud)()
        assert 0.05 <= time.monotonic() - began < 50

    def test_it_ends_with_the_call(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud(latency={"*": 60})
        with pytest.raises(CallDeadlineExceeded):
            in_thread(exists(cloud), Call(deadline=time.monotonic() + 0.03)).result(LIMIT)

    def test_a_call_that_was_given_up_changes_nothing_and_is_logged(self, cloud: FakeCloud) -> None:
        balancer = there(cloud.load_balancer())
        with pytest.raises(CallDeadlineExceeded):
            in_thread(lambda: balancer.ensure_load_balancer("c", service(), []), Call(deadline=0.0)).result(LIMIT)
        assert cloud.console.load_balancers() == []
        assert [call.error for call in cloud.calls.log()] == ["CallDeadlineExceeded"]
