"""The gate: deadlines, parked keys, lost threads, order, limits, exceptions, metrics. Real threads,
a clock by hand."""

import contextlib
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

from cloudprovider import (
    CallCancelled,
    CallDeadlineExceeded,
    InstanceNotFound,
    RetryError,
    Route,
    Throttled,
    current_call,
)
from cloudprovider.checks import answers
from cloudprovider.internal.readonly import read_only
from cloudprovider.testing.waiting import eventually
from controllers.cloudcalls import (
    PRIORITY_DELETE,
    PRIORITY_SWEEP,
    CallAborted,
    CallFailed,
    CallOverdue,
    CallsClosed,
    InvalidAnswer,
)
from controllers.cloudcalls.pool import IDLE_SECONDS
from controllers.runtime.queue import Parked
from tests.support.threadless import no_thread
from tests.unit.cloudcalls.support import LIMIT, Capability, Hang, Provider, Task, World, metadata, node, service, world


def later(w: World, fn: Callable[..., Any], *args: Any, key: str, method: str = "m", **how: Any) -> Task[Any]:
    """A call in a thread of its own."""
    return Task(lambda: w.calls.call(method, fn, *args, key=key, **how))


def advance_until_done(w: World, tasks: list[Task[Any]], step: float) -> None:
    """Let the pacer's waits pass, none of which is longer than `step`, until all tasks are done."""
    while not all(task.done() for task in tasks):
        left = w.clock.next_deadline()
        if left is not None and left <= step:
            w.clock.advance(max(0.0, left))


def hung_call(w: World, hang: Hang, key: str = "k", seconds: float = 60.0) -> CallOverdue:
    """Make a call that hangs, let its time pass, and return what its caller got."""
    task = Task(lambda: w.calls.call("hangs", hang, key=key))
    w.time_out(hang, seconds)
    with pytest.raises(CallOverdue) as caught:
        task.result()
    return caught.value


@pytest.mark.row("O6")
def test_threads_end_when_idle_and_come_back() -> None:
    with world(Provider(), concurrency=6) as w:
        pool = w.calls._pool
        for _ in range(2):
            hang = Hang(lambda *args: threading.current_thread())
            burst = [later(w, hang, key=str(n)) for n in range(6)]
            hang.wait_entered(6)
            hang.release()
            threads = {task.result() for task in burst}
            assert len(threads) == pool.threads() == 6
            assert all(thread.name.startswith("cloud-test-") for thread in threads)
            w.clock.wait_for_waiters(6, timed=True)  # and the timer
            w.clock.advance(IDLE_SECONDS)
            eventually(lambda all_=threads: sum(thread.is_alive() for thread in all_) == 1)  # type: ignore[misc]  # binds it
            assert pool.threads() == 1
        assert w.calls.call("m", lambda: "at once", key="k") == "at once"
        w.clock.advance(10 * IDLE_SECONDS)
        assert pool.threads() == 1, "the last one stays: the first call after a calm waits for no thread"


# ---- deadlines


def test_current_call_tells_deadline_and_cancellation() -> None:
    with world(Provider(), timeout=30) as w:

        def fn() -> tuple[float | None, bool]:
            call = current_call()
            call.check()
            return call.remaining(), call.is_cancelled()

        assert w.calls.call("m", fn, key="k") == (30.0, False)
        assert current_call().remaining() is None


@pytest.mark.row("N5")
def test_a_hung_call_costs_its_caller_the_timeout_and_nobody_else() -> None:
    with world(Provider(), concurrency=1) as w:
        assert w.calls.health().ok
        hang = Hang()
        error = hung_call(w, hang, key="node/n1")
        assert isinstance(error, Parked)
        assert not error.until.done()
        assert w.calls.call("m", lambda: "others go on", key="other") == "others go on"
        assert set(w.calls.parked()) == {"node/n1"}
        assert w.calls.parked()["node/n1"].method == "hangs"
        assert w.gauge("cloudprovider_api_requests_parked") == 1
        assert w.gauge("cloudprovider_api_requests_overdue") == 1
        assert w.calls.in_flight() == 0
        w.clock.advance(5)
        health = w.calls.health()
        assert (health.ok, health.fatal, health.overdue[0].seconds) == (False, False, 65)
        assert "hangs for node/n1 since 65 s" in health.message
        hang.release()
        error.until.result(LIMIT)
        assert w.calls.parked() == {}
        assert w.gauge("cloudprovider_api_requests_parked") == 0
        assert (w.calls.health().ok, w.calls.health().message) == (True, "ok")


def test_two_overdue_calls_for_one_key_park_it_until_both_end(w: World) -> None:
    first, second = Hang(), Hang()
    tasks = [later(w, h, key="k") for h in (first, second)]
    first.wait_entered()
    second.wait_entered()
    w.wait_for_timer(60)
    w.clock.advance(60)
    errors = []
    for task in tasks:
        with pytest.raises(CallOverdue) as caught:
            task.result()
        errors.append(caught.value)
    assert errors[0].until is not errors[1].until
    first.release()
    errors[0].until.result(LIMIT)
    with pytest.raises(CallOverdue) as still:
        w.calls.call("m", lambda: None, key="k")
    assert still.value.until is errors[1].until
    second.release()
    errors[1].until.result(LIMIT)
    w.calls.call("m", lambda: None, key="k")


@pytest.mark.row("N5")
def test_a_call_that_waits_for_its_turn_is_not_made_once_its_key_is_parked() -> None:
    with world(Provider(), concurrency=1) as w:
        hang, made = Hang(), []
        task = later(w, hang, key="node/n1")
        hang.wait_entered()
        waiting = [later(w, lambda: made.append(1), key="node/n1") for _ in range(2)]
        other = later(w, lambda: "made", key="node/n2")
        w.wait_queued(3)
        w.wait_for_timer(60)
        w.clock.advance(60)
        for refused in (task, *waiting):
            with pytest.raises(CallOverdue) as caught:
                refused.result()
            assert not caught.value.until.done()
        assert other.result() == "made"
        assert (made, w.calls._pool.waiting()) == ([], 0)
        hang.release()


def test_an_overdue_call_is_cancelled_and_ends_quickly_if_it_listens(w: World) -> None:
    cancelled: list[bool] = []
    entered = threading.Event()

    def listens() -> None:
        entered.set()
        current_call().cancelled.wait(1000)  # to the signal alone: the deadline must not be what ends it
        cancelled.append(current_call().is_cancelled())

    task = Task(lambda: w.calls.call("m", listens, key="k"))
    assert entered.wait(LIMIT)
    w.clock.wait_for_waiters(2, timed=True)  # it, and the timer
    w.clock.advance(60)
    with pytest.raises(CallOverdue) as caught:
        task.result()
    caught.value.until.result(LIMIT)
    assert cancelled == [True]
    assert w.calls.parked() == {}


def test_methods_may_have_longer_timeouts() -> None:
    remaining = lambda: current_call().remaining()  # noqa: E731 - three uses
    with world(Provider(), timeout=10, build_timeout=200) as w:
        assert w.calls.call("ensure_load_balancer", remaining, key="k") == 200
        assert w.calls.call("get_load_balancer", remaining, key="k") == 10
    with world(Provider(), timeout=10, build_timeout=1) as w:
        assert w.calls.call("ensure_load_balancer", remaining, key="k") == 10, "the longer one counts"
    with world(Provider(), timeout=60, build_timeout=300) as w:
        assert w.calls.call("add_ssh_key_to_all_instances", remaining, key="k") == 300


@pytest.mark.row("O9")
def test_a_call_with_more_time_than_usual_is_told_when_the_usual_time_is_up(caplog: pytest.LogCaptureFixture) -> None:
    hang = Hang(V1LoadBalancerStatus())
    provider = Provider(load_balancer=Capability(ensure_load_balancer=hang))
    told: list[tuple[str, str]] = []
    with world(provider, timeout=5) as w:
        calls = w.balancers
        calls.slow = lambda key, text: told.append((key, text))
        task = Task(lambda: calls.ensure("c", service(), []))
        hang.wait_entered()
        w.wait_for_timer(5)
        assert w.calls.health().message == "ok"
        w.clock.advance(5)
        w.clock.wait_for_timeout(295)
        text = (
            "the provider's ensure_load_balancer has not answered after 5 s (--cloud-api-timeout). Such a call may "
            "take up to 300 s (--cloud-api-build-timeout)"
        )
        assert told == [("service/default/web", text)]
        assert f"service/default/web: {text}" in caplog.text
        w.clock.advance(7)
        health = w.calls.health()
        assert health.ok, "it may well end in time"
        assert health.message == "slow: ensure_load_balancer for service/default/web since 12 of at most 300 s"
        hang.release()
        task.result()
        assert w.calls.health().message == "ok"
    assert len(told) == 1


def test_an_answer_without_end_ends_with_its_call() -> None:
    yielded = 0

    def endless(_cluster: str) -> Iterator[Route]:
        nonlocal yielded
        while True:
            if yielded == 100:
                w.clock.advance(20)
            yielded += 1
            yield Route("r", "n1", "10.0.0.0/24")

    with world(Provider(routes=Capability(list_routes=endless)), timeout=10) as w:
        assert w.calls.routes is not None
        with pytest.raises((CallOverdue, CallDeadlineExceeded)) as caught:
            w.calls.routes.list("c")
        if isinstance(caught.value, CallOverdue):
            caught.value.until.result(LIMIT)
        assert yielded == 101
        assert w.gauge("cloudprovider_api_requests_overdue") == 0, "its thread is free again"


def test_an_answer_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_MOST", 1000)

    def many(count: int) -> Callable[[str], Iterator[Route]]:
        return lambda _cluster: (Route("r", "n1", "10.0.0.0/24") for _ in range(count))

    with world(Provider(routes=Capability(list_routes=many(1000)))) as w:
        assert w.calls.routes is not None
        assert len(w.calls.routes.list("c")) == 1000
    with world(Provider(routes=Capability(list_routes=many(1001)))) as w:
        assert w.calls.routes is not None
        with pytest.raises(InvalidAnswer, match="it has more than 1000 items"):
            w.calls.routes.list("c")


def test_waiting_for_a_turn_does_not_count() -> None:
    with world(Provider(), concurrency=1, timeout=10) as w:
        hang = Hang("first")
        first = Task(lambda: w.calls.call("m", hang, key="a"))
        hang.wait_entered()
        second = Task(lambda: w.calls.call("m", lambda: current_call().remaining(), key="b"))
        w.wait_queued(1)
        w.clock.advance(9)
        hang.release()
        assert first.result() == "first"
        assert second.result() == 10


@pytest.mark.row("N5")
def test_a_call_that_had_to_wait_and_then_hangs_is_overdue_too() -> None:
    with world(Provider(), concurrency=1, timeout=10) as w:
        first, second = Hang("first"), Hang()
        one = later(w, first, key="a")
        first.wait_entered()
        two = later(w, second, key="b")
        w.wait_queued(1)
        w.clock.advance(5)
        first.release()
        assert one.result() == "first"
        w.time_out(second, 10)
        with pytest.raises(CallOverdue):
            two.result()
        second.release()


class Big:
    """Something whose end can be noticed."""


@pytest.mark.parametrize("error", [None, Throttled("busy"), ValueError("x")])
def test_a_call_leaves_nothing_behind_for_the_collector_of_cycles(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest keeps the records of a log, and with them a bug's traceback
    monkeypatch.setattr(logging.getLogger("controllers.cloudcalls.metrics"), "disabled", True)

    def vendor(arg: Big) -> None:
        if error is not None:
            raise error.with_traceback(None)

    def call(w: World, freed: threading.Event) -> None:
        big = Big()
        weakref.finalize(big, freed.set)
        with contextlib.suppress(Throttled, CallFailed):
            w.calls.call("m", vendor, big, key="k")

    with world(Provider()) as w:
        freed = threading.Event()
        gc.disable()
        try:
            call(w, freed)
            if error is not None:
                error.__traceback__ = None
            assert freed.wait(LIMIT)
        finally:
            gc.enable()


# ---- lost threads


@pytest.mark.row("N5")
def test_threads_are_bounded_and_past_the_bound_the_process_should_end(caplog: pytest.LogCaptureFixture) -> None:
    with world(Provider(), concurrency=2, max_abandoned=3) as w:
        hangs = [Hang() for _ in range(8)]
        pool = w.calls._pool
        for i in range(4):
            assert not w.calls.health().fatal
            hung_call(w, hangs[i], key=f"k{i}")
        health = w.calls.health()
        assert health.fatal
        assert not health.ok
        assert health.message.startswith("4 calls to cloud provider 'test' are overdue")
        # The fourth keeps its slot, so one is left; the fifth takes that one, and then nothing runs
        # any more.
        hung_call(w, hangs[4], key="k4")
        assert pool.threads() == 5
        starved = Task(lambda: w.calls.call("m", lambda: "late", key="z"))
        w.wait_queued(1)
        assert pool.waiting() == 1
        assert pool.threads() == 5, "concurrency + max_abandoned"
        assert w.calls.health().message == health.message
        assert [record.levelname for record in caplog.records].count("CRITICAL") == 1, "said once"
        for hang in hangs:
            hang.release()
        assert starved.result() == "late"
        assert w.calls.health().fatal, "there is no way back"


def test_surplus_threads_end_when_lost_ones_return() -> None:
    with world(Provider(), concurrency=1, max_abandoned=5) as w:
        hangs = [Hang() for _ in range(4)]
        errors = [hung_call(w, hang, key=f"k{i}") for i, hang in enumerate(hangs)]
        w.calls.call("m", lambda: None, key="z")
        pool = w.calls._pool
        assert pool.threads() == 5
        for hang, error in zip(hangs, errors, strict=True):
            hang.release()
            error.until.result(LIMIT)
        assert pool.threads() == 1
        assert w.calls.call("m", lambda: "still works", key="z") == "still works"


def test_a_system_without_threads_fails_the_call_only(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def refuse(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(CallFailed, match="no thread"):
            w.calls.call("m", lambda: None, key="k")
    assert w.calls.call("m", lambda: "works again", key="k") == "works again"
    assert w.calls.in_flight() == 0


# ---- order and limits


@pytest.mark.row("R4")
def test_concurrency_is_bounded() -> None:
    with world(Provider(), concurrency=4) as w:
        hang = Hang("ok")
        tasks = [later(w, hang, key=f"k{i}") for i in range(40)]
        hang.wait_entered(4)
        w.wait_queued(36)
        assert w.calls.in_flight() == 4
        assert w.gauge("cloudprovider_api_requests_in_flight") == 4
        assert w.gauge("cloudprovider_api_requests_waiting") == 36
        hang.release()
        assert {task.result() for task in tasks} == {"ok"}
        assert w.calls._pool.threads() <= 4


@pytest.mark.row("R4")
def test_two_hundred_parallel_calls_go_through_the_bucket() -> None:
    with world(Provider(), qps=10, burst=5, concurrency=32) as w:
        starts: list[float] = []

        def create() -> None:
            starts.append(w.clock.monotonic())

        tasks = [later(w, create, key=f"r{i}", method="create_route") for i in range(200)]
        begin = w.clock.monotonic()
        advance_until_done(w, tasks, 0.1 + 1e-6)
        assert len(starts) == 200
        starts.sort()
        assert sum(1 for s in starts if s == begin) == 5
        assert starts[-1] - begin == pytest.approx(19.5, abs=0.2)
        for i in range(200 - 15):
            assert starts[i + 15] - starts[i] >= 1.0 - 1e-6, "never more than burst + rate in a second"


def test_accessors_neither_use_up_the_rate_nor_wait_for_it() -> None:
    v2 = Capability(instance_metadata=lambda one: metadata(one.metadata.name))
    with world(Provider(instances_v2=v2), qps=1, burst=2) as w:
        assert w.calls.has_instances
        assert w.calls.max_batch == 1
        assert w.fetch([node("a")]).good() == {"a"}  # no time passed: its prefixes and the question took the burst
        waiting = later(w, lambda: None, key="k", priority=PRIORITY_DELETE)
        w.clock.wait_for_timeout(1)
        assert w.calls.load_balancers is None
        assert not waiting.done()
        w.clock.advance(1)
        waiting.result()


def test_throttling_slows_everyone_down_and_the_delay_is_obeyed(w: World) -> None:

    def throttled() -> None:
        raise Throttled("busy", 30)

    with pytest.raises(Throttled) as caught:
        w.calls.call("m", throttled, key="a")
    assert caught.value.retry_after == 30
    assert w.gauge("cloudprovider_api_throttle_pause_seconds") == 30
    assert (w.gauge("cloudprovider_api_throttle_rate") or 0) < 10
    task = Task(lambda: w.calls.call("m", w.clock.monotonic, key="b"))
    w.clock.wait_for_timeout(30)
    begin = w.clock.monotonic()
    w.clock.advance(29)
    assert not task.done()
    w.clock.advance(1)
    assert task.result() == begin + 30
    w.clock.advance(120)
    w.calls.call("m", lambda: None, key="c")
    assert w.gauge("cloudprovider_api_throttle_rate") == float("inf")


@pytest.mark.row("K7")
def test_a_pacer_that_could_not_be_started_is_started_later() -> None:
    with world(Provider(), qps=1, burst=1) as w:
        w.calls.call("m", lambda: None, key="first")
        with no_thread("timer"):
            waiting = later(w, lambda: None, key="second")
            w.wait_queued(1)
        after = later(w, lambda: None, key="third")
        advance_until_done(w, [waiting, after], 1.0)


# ---- exceptions


@pytest.mark.parametrize("exit_", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.row("N8")
def test_code_that_would_end_the_process_costs_one_call(exit_: BaseException) -> None:
    def vendor() -> None:
        raise exit_

    with world(Provider()) as w:
        for _ in range(3):
            with pytest.raises(CallAborted):
                w.calls.call("m", vendor, key="k")
        assert w.calls.call("m", lambda: "alive", key="k") == "alive"
        assert w.calls._pool.threads() == 1
        assert w.requests("m", "aborted") == 3


# ---- guard and end


def test_mutating_calls_pass_the_guard_at_the_last_moment() -> None:
    lost = threading.Event()

    class Fenced(Exception):
        pass

    def guard(method: str) -> None:
        if lost.is_set():
            raise Fenced(method)

    with world(Provider(), guard=guard, concurrency=1) as w:
        hang = Hang()
        done: list[int] = []
        first = Task(lambda: w.calls.call("m", hang, key="a"))
        hang.wait_entered()
        queued = Task(lambda: w.calls.call("delete_route", done.append, 1, key="b", mutating=True))
        w.wait_queued(1)
        lost.set()  # after it was submitted, before it runs
        hang.release()
        first.result()
        with pytest.raises(Fenced, match="delete_route"):
            queued.result()
        assert done == []
        assert w.requests("delete_route", "refused") == 1
        assert w.calls.call("list_routes", lambda: "reads go on", key="c") == "reads go on"
        lost.clear()
        w.calls.call("delete_route", done.append, 1, key="b", mutating=True)
        assert done == [1]


def test_cancel_running_reaches_every_call_under_way(w: World) -> None:
    entered = threading.Semaphore(0)

    def waits() -> None:
        entered.release()
        current_call().cancelled.wait(LIMIT)
        current_call().check()

    tasks = [later(w, waits, key=f"k{i}") for i in range(3)]
    for _ in tasks:
        assert entered.acquire(timeout=LIMIT)
    w.calls.cancel_running()
    for task in tasks:
        with pytest.raises(CallCancelled):
            task.result()
    assert w.requests("m", "cancelled") == 3


def test_close_refuses_what_waits_and_what_comes_and_waits_for_what_runs() -> None:
    with world(Provider(), concurrency=1) as w:
        hang = Hang("done")
        running = Task(lambda: w.calls.call("m", hang, key="a"))
        hang.wait_entered()
        waiting = Task(lambda: w.calls.call("m", lambda: None, key="b"))
        w.wait_queued(1)
        assert w.calls.close(0.0) is False
        with pytest.raises(CallsClosed):
            waiting.result()
        with pytest.raises(CallsClosed):
            w.calls.call("m", lambda: None, key="c")
        closing = Task(lambda: w.calls.close(30))
        w.clock.wait_for_timeout(30)
        hang.release()
        assert closing.result() is True
        assert running.result() == "done"
        assert w.calls._pool.threads() == 0


# ---- arguments and metrics


@pytest.mark.row("K28")
def test_a_provider_that_changes_its_arguments_is_told_at_once(w: World) -> None:
    original = node("n1", labels={"a": "b"})

    def vendor(one: Any) -> None:
        one.metadata.labels["a"] = "mine"

    for _ in range(2):
        with pytest.raises(CallFailed, match=r"the provider's instance_metadata failed: .*dict.__setitem__.*deepcopy"):
            w.calls.call("instance_metadata", vendor, original, key="k")
    assert original == node("n1", labels={"a": "b"})


@pytest.mark.row("K28")
def test_providers_get_the_objects_of_the_cache_in_lists_of_their_own(w: World) -> None:
    cached = (read_only(node("n1")), read_only(node("n2")))

    def vendor(one: Any, nodes: Any) -> None:
        assert one is cached[0]
        nodes.reverse()  # their list is the provider's own
        assert nodes[0] is cached[1]

    for _ in range(2):
        w.calls.call("m", vendor, cached[0], cached, key="k")


@pytest.mark.row("M6")
def test_calls_are_counted_by_method_and_outcome_and_timed(w: World) -> None:

    def takes(seconds: float, error: Exception | None = None) -> None:
        w.clock.advance(seconds)
        if error is not None:
            raise error

    w.calls.call("list_routes", takes, 0.2, key="k")
    w.calls.call("list_routes", takes, 2.0, key="k")
    for error in (Throttled(), InstanceNotFound(), RetryError("x", 1), ValueError(), InvalidAnswer("m", ["x"])):
        with pytest.raises(Exception):  # noqa: B017, PT011 - five classes
            w.calls.call("m", takes, 0.0, error, key="k")
        w.clock.advance(100)
    hang = Hang()
    late = hung_call(w, hang)
    assert w.requests("list_routes", "success") == 2
    for outcome in ("throttled", "not_found", "retry", "error", "invalid"):
        assert w.requests("m", outcome) == 1
    assert w.requests("hangs", "overdue") == 1
    assert w.requests("hangs", "success") == 0
    duration = "cloudprovider_api_request_duration_seconds"
    assert w.metrics.value(f"{duration}_sum", provider="test", method="list_routes") == pytest.approx(2.2)
    assert w.metrics.value(f"{duration}_bucket", provider="test", method="list_routes", le="0.25") == 1
    assert w.metrics.value(f"{duration}_sum", provider="test", method="hangs") == 60
    text = w.metrics.text().decode()
    assert 'cloudprovider_api_requests_total{method="list_routes",outcome="success",provider="test"} 2.0' in text
    hang.release()
    late.until.result(LIMIT)
    assert (w.requests("hangs", "overdue"), w.requests("hangs", "success")) == (1, 0), "a late end counts once"


# ---- fairness


@pytest.mark.row("K3")
def test_an_instance_check_does_not_wait_for_slow_load_balancers() -> None:
    with world(Provider(), concurrency=32) as w:
        hang = Hang()
        slow = [later(w, hang, key=f"service/a/{i}", method="ensure_load_balancer") for i in range(40)]
        hang.wait_entered(20)
        assert w.calls.call("instances_state", lambda: "there", key="", priority=PRIORITY_SWEEP) == "there"
        answer = later(w, lambda: "built", key="service/b/web", method="ensure_load_balancer")
        assert answer.result() == "built", "another namespace is served at once"
        hang.release()
        for task in slow:
            task.result()


@pytest.mark.row("K3")
@pytest.mark.parametrize("whole_account", [False, True])
def test_throttling_slows_down_the_kind_that_was_throttled(whole_account: bool) -> None:
    def throttle() -> None:
        raise Throttled("slowly", retry_after=30, whole_account=whole_account)

    with world(Provider()) as w:
        with pytest.raises(Throttled):
            w.calls.call("ensure_load_balancer", throttle, key="service/a/web")
        task = later(w, lambda: "there", key="node/a", method="instance_metadata")
        if whole_account:
            w.clock.wait_for_timeout(30)
            assert not task.done()
            w.clock.advance(30)
        assert task.result() == "there"
        rate = w.metrics.value("cloudprovider_api_kind_throttle_rate", provider="test", kind="load-balancers")
        assert rate is not None
        assert rate < 100
