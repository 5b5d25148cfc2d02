"""What the cloud was asked: counts, the log, and the proof that nothing overlapped; over both stores."""

from __future__ import annotations

import os
import threading

import pytest

from cloudprovider import CloudProviderError, LoadBalancer, Route
from cloudprovider.testing.fake import Caller, FakeCloud, Hang, Raise
from tests.support.clock import FakeClock
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes, service
from tests.unit.fake.test_hangs import LIMIT, in_thread, nudge, until_asleep


def balancer(cloud: FakeCloud) -> LoadBalancer:
    found = cloud.load_balancer()
    assert found is not None
    return found


def test_every_call_is_counted_failed_ones_too(make_both: MakeCloud) -> None:
    cloud = make_both()
    v2, batch = cloud.instances_v2(), cloud.instances_batch()
    assert v2 is not None
    assert batch is not None
    for _ in range(3):
        v2.instance_exists(node("a"))
    cloud.faults.add(Raise(method="instance_exists", error="TimeoutError"))
    with pytest.raises(TimeoutError):
        v2.instance_exists(node("a"))
    batch.instances_state(nodes("a", "b"))
    batch.instances_state(nodes("c"))
    balancer(cloud).get_load_balancer_name("c", service())
    assert cloud.calls.counts() == {"instance_exists": 4, "instances_state": 2, "get_load_balancer_name": 1}
    assert cloud.console.counts() == cloud.calls.counts()
    assert cloud.calls.count() == 7
    assert cloud.calls.count("instance*") == 6
    assert cloud.calls.count("instance_exists", "get*") == 5
    assert cloud.calls.keys_asked("instances_state") == 3
    assert cloud.calls.errors() == {"instance_exists": {"TimeoutError": 1}}
    assert cloud.calls.log() == ()
    cloud.calls.clear()
    assert (cloud.calls.counts(), cloud.calls.errors(), cloud.calls.keys_asked("instances_state")) == ({}, {}, 0)
    batch.instances_state(nodes("c"))
    assert cloud.calls.counts() == {"instances_state": 1}


def test_changes_are_logged_with_who_when_and_what(make_both: MakeCloud, clock: FakeClock) -> None:
    cloud = make_both(caller="ccm-a")
    cloud.faults.add(Hang(method="ensure_load_balancer", seconds=4, when="after"))
    begun, unix = clock.monotonic(), clock.time()
    answer = in_thread(lambda: balancer(cloud).ensure_load_balancer("prod", service(), []))
    until_asleep(cloud)
    clock.advance(4)
    answer.result(LIMIT)
    balancer(cloud).get_load_balancer("prod", service())
    (call,) = cloud.calls.log()
    assert call.method == "ensure_load_balancer"
    assert call.key == "auidweb"
    assert call.keys == ("auidweb", "default/web")
    assert call.caller == Caller(os.getpid(), "prod", "ccm-a")
    assert call.thread != threading.get_ident()
    assert (call.time, call.started, call.ended) == (unix, begun, begun + 4)
    assert (call.effect, call.error) == ("created", "")
    assert call.finished is not None
    assert call.finished > call.sequence
    assert cloud.calls.running() == ()


def test_the_log_is_in_order_and_can_be_searched(make_both: MakeCloud) -> None:
    cloud = make_both()
    routes = cloud.routes()
    assert routes is not None
    balancer(cloud).ensure_load_balancer("c", service("a"), [])
    balancer(cloud).ensure_load_balancer("c", service("b"), [])
    balancer(cloud).ensure_load_balancer("c", service("a"), [])
    routes.create_route("c", "h", Route("", "n", "10.0.0.0/24"))
    cloud.console.add_route("vpn", "10.1.0.0/24")
    with pytest.raises(CloudProviderError):
        balancer(cloud).update_load_balancer("c", service("x"), [])
    log = cloud.calls.log()
    assert [call.sequence for call in log] == sorted(call.sequence for call in log)
    assert [call.method for call in log] == [
        *["ensure_load_balancer"] * 3, "create_route", "console.add_route", "update_load_balancer",
    ]  # fmt: skip
    assert [call.effect for call in cloud.calls.log("ensure*", key="default/a")] == ["created", "unchanged"]
    assert [call.key for call in cloud.calls.log(changes_only=True)] == ["auida", "auidb", "10.0.0.0/24", "vpn"]
    assert cloud.calls.log(key="n")[0].method == "create_route"
    assert len(cloud.console.calls()) == 5
    assert [call.method for call in cloud.console.calls("create_route")] == ["create_route"]
    assert log[-1].error == "BadRequest"


def test_questions_are_logged_where_wanted(make_both: MakeCloud) -> None:
    cloud = make_both(log="all")
    batch = cloud.instances_batch()
    assert batch is not None
    batch.instances_state([node("a", "fake://i-a"), node("b")])
    (call,) = cloud.calls.log()
    assert (call.method, call.keys, call.effect) == ("instances_state", ("a", "b"), "")


class TestOverlaps:
    def test_one_after_the_other_is_none(self, make_both: MakeCloud) -> None:
        cloud = make_both()
        for _ in range(3):
            balancer(cloud).ensure_load_balancer("c", service(), [])
            balancer(cloud).ensure_load_balancer_deleted("c", service())
        assert cloud.calls.overlaps() == cloud.console.overlaps() == ()

    def test_two_at_once_are_found_even_where_no_time_passes(self, make_both: MakeCloud, clock: FakeClock) -> None:
        cloud = make_both()
        cloud.faults.add(Hang(name="stuck", method="ensure_load_balancer", key="default/web"))
        first = in_thread(lambda: balancer(cloud).ensure_load_balancer("c", service(), []))
        until_asleep(cloud)
        balancer(cloud).ensure_load_balancer("c", service("other"), [])
        balancer(cloud).get_load_balancer("c", service())
        assert cloud.calls.overlaps() == (), "another load balancer, and a question, do no harm"
        balancer(cloud).ensure_load_balancer_deleted("c", service())
        ((one, two),) = cloud.calls.overlaps()
        assert (one.method, two.method) == ("ensure_load_balancer", "ensure_load_balancer_deleted")
        assert cloud.calls.overlaps(unfinished=False) == ()
        cloud.faults.release()
        nudge(cloud, clock, [first])
        first.result(LIMIT)
        assert len(cloud.calls.overlaps(unfinished=False)) == 1
        balancer(cloud).update_load_balancer("c", service(), [])
        assert len(cloud.calls.overlaps()) == 1

    def test_routes_can_be_asked_about_too(self, make_both: MakeCloud, clock: FakeClock) -> None:
        cloud = make_both()
        routes = cloud.routes()
        assert routes is not None
        cloud.faults.add(Hang(method="create_route"))
        made = in_thread(lambda: routes.create_route("c", "h", Route("", "n", "10.0.0.0/24")))
        until_asleep(cloud)
        routes.delete_route("c", Route("", "n", "10.0.0.0/24"))
        assert len(cloud.calls.overlaps("routes")) == 1
        assert cloud.calls.overlaps() == ()
        cloud.faults.clear()
        nudge(cloud, clock, [made])
        made.result(LIMIT)
