"""Whose call goes next: kinds and namespaces take turns, slots are kept, periodic checks wait but
do not starve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cloudprovider import Throttled
from cloudprovider.checks import answers
from controllers.cloudcalls.call import (
    PRIORITY_DELETE,
    PRIORITY_NEW,
    PRIORITY_NORMAL,
    PRIORITY_SWEEP,
    CallQueue,
    CloudCall,
    kind_of,
)

Called = CloudCall[Any]
LB = "ensure_load_balancer"


class Bench:
    """A CallQueue among slots, with the calls that hold one."""

    def __init__(self, slots: int = 16) -> None:
        self.slots = slots
        self.queue = CallQueue(slots)
        self.running: list[Called] = []

    def push(self, method: str, key: str, priority: int = PRIORITY_NORMAL) -> Called:
        call: Called = CloudCall(method, print, (), key, answers.nothing, priority=priority)
        self.queue.push(call)
        return call

    def start(self) -> list[str]:
        """Start all that may; the keys, in their order."""
        started = []
        while len(self.running) < self.slots:
            call, _ = self.queue.next(0.0)
            if call is None:
                break
            call.started = 0.0
            self.running.append(call)
            started.append(call.key)
        return started

    def end(self, which: Callable[[Called], bool] = lambda call: True) -> Called:
        call = next(call for call in self.running if which(call))
        self.running.remove(call)
        self.queue.ended(call)
        return call

    def served(self, number: int) -> list[str]:
        """The next keys, one slot being free at a time."""
        keys = []
        for _ in range(number):
            self.end()
            keys += self.start()
        return keys


@pytest.mark.row("K3")
def test_slots_are_kept_free_for_calls_about_nodes() -> None:
    bench = Bench(16)
    for number in range(80):
        bench.push(LB, f"service/ns-{number}/web", PRIORITY_NEW)
        bench.push("create_route", f"route/{number}", PRIORITY_NEW)
    assert len(bench.start()) == 14
    bench.push("instances_state", "", PRIORITY_SWEEP)
    bench.push("instance_metadata", "node/a", PRIORITY_NEW)
    assert bench.start() == ["node/a", ""]


@pytest.mark.row("K3")
def test_one_namespace_leaves_some_slots_to_the_others() -> None:
    bench = Bench(16)
    for number in range(80):
        bench.push(LB, f"service/many/{number}", PRIORITY_NEW)
    assert len(bench.start()) == 13
    bench.push(LB, "service/other/web")
    assert bench.start() == ["service/other/web"]


@pytest.mark.row("K3")
def test_namespaces_take_turns() -> None:
    bench = Bench(1)
    for number in range(10):
        bench.push(LB, f"service/many/{number}", PRIORITY_DELETE)
    bench.start()
    for name in "abc":
        bench.push(LB, f"service/few/{name}")
    order = bench.served(8)
    assert [key.split("/")[1] for key in order[:6]] == ["few", "many"] * 3


@pytest.mark.row("K3")
def test_kinds_take_turns() -> None:
    bench = Bench(1)
    for number in range(40):
        bench.push(LB, f"service/a/{number}", PRIORITY_NEW)
    bench.start()
    bench.push("instance_exists", "node/a")
    bench.push("list_routes", "routes/x")
    assert set(bench.served(2)) == {"node/a", "routes/x"}


@pytest.mark.row("K3")
def test_what_is_throttled_holds_up_no_other_kind() -> None:
    bench = Bench(4)
    throttled = bench.push(LB, "service/a/first")
    bench.start()
    bench.queue.throttled(throttled, 0.0, Throttled("slowly", 7.0))
    bench.push(LB, "service/a/web", PRIORITY_DELETE)
    bench.push("instance_metadata", "node/a", PRIORITY_SWEEP)
    assert bench.start() == ["node/a"]
    assert bench.queue.next(0.0) == (None, 7.0)
    bench.queue.throttled(throttled, 0.0, Throttled("slowly", 9.0, whole_account=True))
    bench.push("instance_metadata", "node/b")
    assert bench.queue.next(0.0) == (None, 9.0)


@pytest.mark.row("K3")
def test_periodic_checks_let_others_pass_and_do_not_starve() -> None:
    bench = Bench(1)
    bench.push("instance_exists", "first")
    bench.start()
    bench.push("instance_exists", "sweep", PRIORITY_SWEEP)
    for number in range(40):
        bench.push("instance_metadata", f"node/{number}", PRIORITY_NEW)
    assert 4 <= bench.served(20).index("sweep") <= 8


def test_what_was_given_up_while_it_waited_is_skipped() -> None:
    bench = Bench(2)
    gone = bench.push("instance_exists", "gone")
    bench.push("instance_exists", "here")
    assert [call.key for call in bench.queue.waiting()] == ["gone", "here"]
    bench.queue.remove(gone)
    assert [call.key for call in bench.queue.waiting()] == ["here"]
    assert bench.start() == ["here"]
    assert bench.queue.waiting() == []


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 40])
def test_with_few_slots_too_every_kind_is_served(slots: int) -> None:
    bench = Bench(slots)
    for number in range(3):
        bench.push(LB, f"service/a/{number}")
        bench.push("create_route", f"route/{number}")
        bench.push("instance_exists", f"node/{number}")
        bench.push("get_labels_for_volume", f"persistentvolume/{number}")
        bench.push("anything", f"x/{number}")
    keys = bench.start()
    while bench.running:
        bench.end()
        keys += bench.start()
    assert len(set(keys)) == 15


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("ensure_load_balancer", "load-balancers"),
        ("owned_load_balancers", "load-balancers"),
        ("delete_route", "routes"),
        ("get_labels_for_volume", "volumes"),
        ("instances_metadata", "nodes"),
        ("get_zone_by_node_name", "nodes"),
        ("node_addresses", "nodes"),
        ("node_addresses_by_provider_id", "nodes"),
        ("pod_cidrs", "nodes"),
        ("initialize", "others"),
    ],
)
def test_kinds(method: str, kind: str) -> None:
    assert kind_of(method) == kind


def test_what_does_no_work_in_the_cloud_waits_for_no_limit() -> None:
    bench = Bench(4)
    throttled = bench.push("list_routes", "routes")
    bench.start()
    bench.queue.throttled(throttled, 0.0, Throttled("slowly", 9.0, whole_account=True))
    call: Called = CloudCall("max_batch", print, (), "provider", answers.nothing, counted=False)
    bench.queue.push(call)
    assert bench.queue.next(0.0) == (call, 0.0)
