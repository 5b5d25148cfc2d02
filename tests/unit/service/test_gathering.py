"""How changes of nodes are gathered, and which load balancers they reach: rows S6, S11, S13."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any, cast

import pytest
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import CloudProviderError, InvalidService, RetryError
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import TAINT_TO_BE_DELETED
from controllers.cloudcalls import CloudCallError
from controllers.runtime.queue import DONE, Result
from controllers.service.reconcile import ALL_NODES
from controllers.service.records import Record, State
from tests.support.controllers import Fault, Lister
from tests.unit.service.bench import Bench
from tests.unit.service.objects import node, raw_node, raw_service, service

KEY = "default/web"


def _record(bench: Bench, name: str = "web", nodes: str = "", **fields: Any) -> None:
    made = service(name)
    bench.records.put(f"default/{name}", Record(service=made, uid=f"uid-{name}", nodes=nodes, **fields))


def _run(bench: Bench) -> Result | None:
    """What is due in the queue of nodes, and what came of it."""
    result: Result | None = None
    while (key := bench.node_queue.get(timeout=0)) is not None:
        assert key == ALL_NODES
        result = bench.sync.sync(key)
        if result.requeue_after is not None:
            bench.node_queue.add_after(key, result.requeue_after)
        bench.node_queue.done(key)
    return result


@pytest.mark.row("S6")
def test_what_changes_within_the_window_is_one_sync() -> None:
    bench = Bench(window=1.0, longest=5.0)
    _record(bench)
    for _ in range(3):
        bench.sync.changed()
        bench.clock.advance(0.75)
        _run(bench)
        assert bench.waiting() == []
    bench.clock.advance(0.125)
    assert _run(bench) is None
    bench.clock.advance(0.125)
    assert _run(bench) == DONE
    assert bench.waiting() == [KEY]
    bench.clock.advance(60)
    assert _run(bench) is None


@pytest.mark.row("S6")
def test_a_stream_of_changes_holds_it_back_only_so_long() -> None:
    bench = Bench(window=1.0, longest=5.0)
    _record(bench)
    for _ in range(9):
        bench.sync.changed()
        bench.clock.advance(0.5)
        _run(bench)
        assert bench.waiting() == []
    bench.sync.changed()
    bench.clock.advance(0.5)
    assert _run(bench) == DONE
    assert bench.waiting() == [KEY]
    # The next gathering has its own beginning.
    bench.sync.changed()
    assert bench.sync.sync(ALL_NODES) == Result(requeue_after=1.0)


@pytest.mark.row("S6")
def test_a_limit_below_the_window_does_not_shorten_it() -> None:
    bench = Bench(window=2.0, longest=0.5)
    _record(bench)
    bench.sync.changed()
    bench.clock.advance(1.5)
    assert bench.sync.sync(ALL_NODES) == Result(requeue_after=0.5)
    bench.clock.advance(0.5)
    assert bench.sync.sync(ALL_NODES) == DONE
    assert bench.waiting() == [KEY]


@pytest.mark.row("S6", "S13")
def test_only_load_balancers_that_lag_behind_are_queued() -> None:
    bench = Bench("n1")
    bench.nodes.objects["n2"] = node("n2", taints=[TAINT_TO_BE_DELETED])
    present = bench.targets.current()
    [with_the_tainted] = present.good_enough
    _record(bench, "lags", "0" * 16)
    _record(bench, "unsure", "")
    _record(bench, "has-them", present.digest)
    _record(bench, "has-the-tainted-too", with_the_tainted)
    _record(bench, "not-ours", "", state=State.ELSEWHERE)
    _record(bench, "gone", "", state=State.GONE)
    bench.sync.sync(ALL_NODES)
    assert sorted(bench.waiting()) == ["default/lags", "default/unsure"]


@pytest.mark.row("S6")
def test_nodes_that_change_there_and_back_cost_nothing() -> None:
    bench = Bench("n1")
    bench.serve()
    bench.server.put(raw_node("n2"))
    bench.see()
    bench.server.delete("n2")
    bench.see()
    bench.settle()
    assert bench.cloud.calls == []


@pytest.mark.row("S6")
def test_fifty_nodes_that_join_together_cost_each_load_balancer_one_update() -> None:
    bench = Bench("n0")
    for name in ("a", "b", "c"):
        bench.serve(name)
    bench.forget()
    for number in range(1, 51):
        bench.server.put(raw_node(f"n{number}", f"10.0.1.{number}"))
        bench.see()
        bench.work()
        bench.clock.advance(0.05)
    bench.settle()
    assert sorted(bench.cloud.calls) == [("update", "default/a"), ("update", "default/b"), ("update", "default/c")]
    assert all(balancer.nodes == bench.wanted_nodes() for balancer in bench.cloud.balancers.values())


@pytest.mark.row("S6")
def test_while_nodes_never_stop_changing_load_balancers_get_what_was_gathered() -> None:
    """Node after node for two minutes: each load balancer is served as often as the limit says, not
    never."""
    bench = Bench("n0", window=1.0, longest=5.0)
    for name in ("a", "b"):
        bench.serve(name)
    seen: list[int] = []
    for number in range(240):
        bench.server.put(raw_node("n1", f"10.0.{number // 250}.{number % 250}"))
        bench.see()
        bench.work(1)  # so that the next change comes before those that wait are served
        bench.clock.advance(0.5)
        seen.append(bench.cloud.count("update"))
    assert 2 * 15 <= seen[-1] <= 2 * 25
    assert max(later - sooner for sooner, later in zip(seen, seen[30:], strict=False)) <= 2 * 4


@pytest.mark.row("S16")
def test_the_autoscalers_taint_alone_changes_no_load_balancer_and_counts_at_the_next_change() -> None:
    bench = Bench("n1", "n2", "n3")
    bench.serve()
    bench.server.put(raw_node("n1", "10.0.0.1", taints=[TAINT_TO_BE_DELETED]))
    bench.settle(rounds=70, step=60.0)  # looks at the cloud among it
    assert bench.cloud.writes() == 0
    bench.server.put(raw_node("n4", "10.0.0.4"))
    bench.settle()
    assert bench.cloud.count("update") == 1
    (balancer,) = bench.cloud.balancers.values()
    assert [line.split()[0] for line in balancer.nodes] == ["n2", "n3", "n4"]
    bench.server.put(raw_node("n2", "10.0.0.2", taints=[TAINT_TO_BE_DELETED]))
    bench.settle(rounds=70, step=60.0)
    assert bench.cloud.count("update") == 1
    bench.server.delete("n1")
    bench.settle()
    assert bench.cloud.count("update") == 1, "it has been out already"
    bench.server.put(raw_node("n5", "10.0.0.5"))
    bench.settle()
    assert bench.cloud.count("update") == 2
    (balancer,) = bench.cloud.balancers.values()
    assert [line.split()[0] for line in balancer.nodes] == ["n3", "n4", "n5"]


@pytest.mark.row("S16")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_node_that_the_autoscaler_spares_comes_back_where_it_was_left_out(restarts: bool) -> None:
    bench = Bench("n1", "n2")
    bench.serve("before")
    bench.server.put(raw_node("n1", "10.0.0.1", taints=[TAINT_TO_BE_DELETED]))
    bench.settle()
    bench.serve("after")
    backends = {one.key: len(one.nodes) for one in bench.cloud.balancers.values()}
    assert backends == {"default/before": 2, "default/after": 1}
    if restarts:
        bench.start()
        bench.settle()
        assert bench.cloud.writes() == 0, "neither process nor taint is a change"
    bench.server.put(raw_node("n1", "10.0.0.1"))
    bench.settle()
    assert [call for call in bench.cloud.calls if call[0] != "get"] == [("update", "default/after")]
    assert {len(one.nodes) for one in bench.cloud.balancers.values()} == {2}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_tainted_node_that_is_gone_leaves_every_load_balancer_that_still_has_it(restarts: bool) -> None:
    bench = Bench("n1", "n2")
    bench.serve("before")
    bench.server.put(raw_node("n1", "10.0.0.1", taints=[TAINT_TO_BE_DELETED]))
    bench.settle()
    if restarts:
        bench.start()
        bench.settle()
    bench.server.delete("n1")
    bench.settle()
    assert {len(one.nodes) for one in bench.cloud.balancers.values()} == {1}


@pytest.mark.row("S13")
def test_a_change_that_was_never_told_is_found_with_the_next_one() -> None:
    bench = Bench("n1")
    bench.serve()
    bench.server.put(raw_node("n2"))
    bench.server.log.clear()  # its event is lost; only the cache has it
    bench.nodes.objects["n2"] = node("n2")
    bench.server.put(raw_node("n3"))
    bench.settle()
    (balancer,) = bench.cloud.balancers.values()
    assert balancer.nodes == bench.wanted_nodes()
    assert len(balancer.nodes) == 3


def _latency(bench: Bench) -> tuple[float | None, float | None]:
    name = "service_controller_nodesync_latency_seconds"
    return bench.metrics.value(f"{name}_count"), bench.metrics.value(f"{name}_sum")


def test_the_latency_is_that_of_the_last_load_balancer_from_the_first_change_on() -> None:
    bench = Bench(window=1.0)
    _record(bench, "a")
    _record(bench, "b")
    bench.sync.changed()
    bench.clock.advance(0.5)
    bench.sync.changed()
    bench.clock.advance(1)
    bench.sync.sync(ALL_NODES)
    bench.clock.advance(2)
    bench.sync.worked("default/a", served=True)
    bench.sync.worked("default/other", served=True)
    assert _latency(bench) == (0, 0)
    bench.clock.advance(4)
    bench.sync.worked("default/b", served=True)
    assert _latency(bench) == (1, 7.5)
    bench.sync.worked("default/b", served=True)
    assert _latency(bench) == (1, 7.5)


def test_a_sync_that_begins_before_the_former_one_ended_counts_from_that_ones_beginning() -> None:
    bench = Bench(window=0.0)
    _record(bench, "a")
    bench.sync.changed()
    bench.sync.sync(ALL_NODES)
    bench.clock.advance(10)
    bench.sync.changed()
    bench.sync.sync(ALL_NODES)
    bench.clock.advance(1)
    bench.sync.worked("default/a", served=True)
    assert _latency(bench) == (1, 11)


@pytest.mark.parametrize("error", [InvalidService("no such size"), CloudProviderError("quota")])
def test_a_service_that_fails_for_another_reason_is_not_waited_for(error: CloudProviderError) -> None:
    bench = Bench("n1")
    key = bench.serve()
    bench.cloud.fail["ensure"] = error
    bench.server.edit(key, lambda raw: raw["metadata"]["annotations"].update(size="huge"))
    bench.server.put(raw_service("never-built"))
    bench.settle()
    for number in (2, 3):
        bench.server.put(raw_node(f"n{number}"))
        bench.settle(rounds=30)
    assert len(bench.cloud.balancers["uid-web"].nodes) == 3
    assert _latency(bench) == (2, 2.0)
    for method in ("update", "get"):
        bench.cloud.fail[method] = error
    bench.server.put(raw_node("n4"))
    bench.settle(rounds=30)
    assert _latency(bench)[0] == 2, "this one lacks a node"


@pytest.mark.row("S11")
def test_a_service_deleted_meanwhile_is_not_waited_for() -> None:
    bench = Bench("n1")
    key = bench.serve()
    bench.server.put(raw_node("n2"))
    bench.see()
    bench.clock.advance(1)
    bench.server.delete(key)
    bench.settle()
    assert bench.cloud.methods() == ["delete"]
    assert _latency(bench)[0] == 1


@pytest.mark.row("S6")
def test_while_nodes_change_all_load_balancers_get_the_same_targets_for_a_second() -> None:
    bench = Bench("n0", window=2.0, longest=10.0)
    calm = bench.sync.current()
    assert calm.nodes == bench.targets.current().nodes
    bench.server.put(raw_node("n1", "10.0.1.1"))
    bench.see()
    first = bench.sync.current()
    bench.server.put(raw_node("n2", "10.0.1.2"))
    bench.see()
    assert bench.sync.current() is first
    assert len(first.nodes) == 2, "n2 came later"
    bench.clock.advance(1.0)
    assert len(bench.sync.current().nodes) == 3
    bench.server.put(raw_node("n3", "10.0.1.3"))
    bench.see()
    bench.clock.advance(2.0)
    _run(bench)
    assert len(bench.sync.current().nodes) == 4, "after the gathering nothing old is given"


@pytest.mark.row("S6")
def test_a_service_that_is_built_while_nodes_change_has_all_of_them_in_the_end() -> None:
    bench = Bench("n0", window=1.0, longest=5.0)
    bench.serve("a")
    bench.server.put(raw_node("n1", "10.0.1.1"))
    bench.see()
    bench.sync.current()
    bench.server.put(raw_node("n2", "10.0.1.2"))
    bench.see()
    bench.serve("b")
    bench.settle()
    assert all(balancer.nodes == bench.wanted_nodes() for balancer in bench.cloud.balancers.values())


@pytest.mark.row("S6")
def test_a_node_that_comes_while_targets_are_worked_out_is_in_what_ends_the_gathering() -> None:
    bench = Bench("n1", window=1.0, longest=5.0)
    bench.serve()
    for _ in range(6):
        bench.sync.changed()
        bench.clock.advance(0.75)
    syncing, shown = threading.Thread(target=bench.sync.sync, args=[ALL_NODES], daemon=True), bench.nodes

    class Slow:
        def list(self) -> list[V1Node]:
            found = shown.list()
            bench.targets._lister = cast(Any, shown)
            bench.server.put(raw_node("n2"))
            bench.see()
            bench.clock.advance(0.5)
            syncing.start()
            eventually(lambda: bench.sync._first is None)
            return found

    bench.targets.invalidate()
    bench.targets._lister = cast(Any, Slow())
    bench.sync.current()
    syncing.join(10.0)
    assert bench.waiting() == [KEY]


def _rounds(bench: Bench, seconds: int, takes: int) -> list[int]:
    """Nodes change all the while, and the load balancer is tried so long after it was queued: the
    seconds in which it was."""
    queued: list[int] = []
    for second in range(seconds):
        bench.sync.changed()
        _run(bench)
        if bench.waiting():
            queued.append(second)
        if queued and second == queued[-1] + takes:
            bench.sync.worked("default/s1", served=False)
        bench.clock.advance(1.0)
    return queued


@pytest.mark.row("S6")
@pytest.mark.parametrize(
    ("takes", "pause"),
    [pytest.param(1, 6, id="short"), pytest.param(6, 18, id="six seconds"), pytest.param(50, 60, id="very long")],
)
def test_rounds_of_updates_leave_two_thirds_of_the_time_to_the_nodes(takes: int, pause: int) -> None:
    bench = Bench(window=2.0, longest=5.0)
    _record(bench, "s1")
    _record(bench, "hangs")
    queued = _rounds(bench, 200, takes)
    assert {later - sooner for sooner, later in pairwise(queued)} == {pause}


def _one_change(bench: Bench) -> Result | None:
    bench.sync.changed()
    bench.clock.advance(2.0)
    return _run(bench)


@pytest.mark.row("S6")
@pytest.mark.parametrize(("count", "hanging", "held"), [(1, 1, False), (10, 1, False), (10, 2, True), (20, 2, False)])
def test_one_load_balancer_in_ten_that_hangs_holds_no_other_one(count: int, hanging: int, held: bool) -> None:
    bench = Bench(window=2.0, longest=5.0)
    for number in range(count):
        _record(bench, f"s{number}")
    assert _one_change(bench) == DONE
    for key in bench.waiting()[hanging:]:
        bench.sync.worked(key, served=False)
    assert (_one_change(bench) != DONE) is held


@pytest.mark.row("S6")
def test_a_service_that_fails_was_tried() -> None:
    bench = Bench("n1")
    bench.serve()
    for method in ("update", "get", "ensure"):
        bench.cloud.fail[method] = CloudCallError("no quota")
    bench.server.put(raw_node("n2"))
    bench.see()
    bench.clock.advance(1.0)
    bench.work()
    assert bench.cloud.methods()[0] == "update"
    bench.clock.advance(30.0)
    bench.sync.changed()
    bench.clock.advance(1.0)
    assert bench.sync.sync(ALL_NODES) == DONE


@pytest.mark.row("S6")
def test_a_load_balancer_that_waits_is_not_compared_with_each_change_of_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench("n0", window=1.0, longest=5.0)
    for number in range(20):
        bench.serve(f"s{number}")
    bench.server.put(raw_node("n1"))
    bench.see()
    bench.clock.advance(1.0)
    assert _run(bench) == DONE
    asked: list[int] = []

    def counting(lister: Lister[Any]) -> list[Any]:
        asked.append(len(lister.objects))
        return list(lister.objects.values())

    monkeypatch.setattr(Lister, "list", counting)
    for number in range(20):
        bench.server.put(raw_node(f"other{number}"))
        bench.see()
        bench.work(1)
    assert bench.cloud.count("update") == 20
    assert len(asked) <= 1


COUNT, AGE = "service_controller_load_balancers_with_old_targets", "service_controller_oldest_targets_lag_seconds"


def _lag(bench: Bench) -> tuple[float | None, float | None]:
    return bench.metrics.value(COUNT), bench.metrics.value(AGE)


@pytest.mark.row("S26")
@pytest.mark.parametrize("restarts", [False, True])
def test_load_balancers_whose_targets_lag_are_counted_from_when_they_began_to(restarts: bool) -> None:
    bench = Bench("n1")
    bench.serve()
    bench.serve("other")
    assert _lag(bench) == (0, 0)
    bench.clock.advance(1000.0)
    bench.cloud.fail |= {"update": CloudProviderError("quota"), "ensure": CloudProviderError("quota")}
    bench.server.put(raw_node("n2", "10.0.0.2"))
    if restarts:  # a new process knows from the first look on
        bench.start()
        bench.work()
        _lag(bench)
    began = bench.clock.monotonic()
    bench.settle(rounds=10)
    assert _lag(bench) == (2, bench.clock.monotonic() - began)
    bench.settle(rounds=90)
    assert _lag(bench) == (2, bench.clock.monotonic() - began)
    bench.cloud.fail.clear()
    bench.settle(rounds=70)
    assert _lag(bench) == (0, 0)


@pytest.mark.row("S26")
def test_one_that_gets_its_targets_and_lacks_others_again_has_not_waited_longer() -> None:
    bench = Bench("n1")
    bench.serve()
    for number in range(2, 12):
        bench.cloud.faults.append(Fault(RetryError("busy", 3.0)))
        bench.server.put(raw_node(f"n{number}", f"10.0.0.{number}"))
        bench.settle(rounds=3)
        count, age = _lag(bench)
        assert count == 1
        assert age is not None
        assert age <= 3.0
        bench.settle(rounds=5)


def test_what_is_not_built_has_no_targets_that_could_lag() -> None:
    bench = Bench("n1")
    bench.cloud.fail["ensure"] = CloudProviderError("quota")
    bench.server.put(raw_service())
    bench.settle()
    assert _lag(bench) == (0, 0)
