"""What the cloud was asked: counts, the log, and the proof that nothing overlapped."""

from __future__ import annotations

import os

import pytest

from cloudprovider import CloudProviderError, LoadBalancer, Route
from cloudprovider.testing.fake import Caller, FakeCloud, hangs, raises
from cloudprovider.testing.waiting import eventually
from tests.support.there import there
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import in_thread, node, nodes, service

LIMIT = 10.0  # seconds of real time after which a test gives up


def balancer(cloud: FakeCloud) -> LoadBalancer:
    return there(cloud.load_balancer())


def test_every_call_is_counted_failed_ones_too(make_cloud: MakeCloud) -> None:
    cloud = make_cloud()
    v2, batch = there(cloud.instances_v2()), there(cloud.instances_batch())
    for _ in range(3):
        v2.instance_exists(node("a"))
    cloud.faults.on("instance_exists", raises(TimeoutError))
    with pytest.raises(TimeoutError):
        v2.instance_exists(node("a"))
    batch.instances_state(nodes("a", "b"))
    balancer(cloud).get_load_balancer_name("c", service())
    assert cloud.calls.counts() == {"instance_exists": 4, "instances_state": 1, "get_load_balancer_name": 1}
    assert cloud.calls.counts()["never"] == 0
    assert cloud.calls.count() == 6
    assert cloud.calls.count("instance*") == 5
    assert cloud.calls.count("instance_exists", "get*") == 5
    assert cloud.calls.log() == ()
    cloud.calls.clear()
    assert cloud.calls.counts() == {}


def test_changes_are_logged_with_who_when_and_what(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(caller="ccm-a")
    hung = cloud.faults.on("ensure_load_balancer", hangs(after=True))
    answer = in_thread(lambda: balancer(cloud).ensure_load_balancer("prod", service(), []))
    eventually(cloud.console.load_balancers)
    (call,) = cloud.calls.running()
    assert (call.ended, call.finished, call.effect) == (None, None, "")
    hung.remove()
    answer.result(LIMIT)
    balancer(cloud).get_load_balancer("prod", service())
    (call,) = cloud.calls.log()
    assert (call.method, call.key, call.cluster) == ("ensure_load_balancer", "auidweb", "prod")
    assert call.keys == ("auidweb", "default/web")
    assert call.caller == Caller(os.getpid(), "ccm-a")
    assert (call.effect, call.error) == ("created", "")
    assert call.ended is not None
    assert call.ended >= call.started
    assert call.finished is not None
    assert call.finished > call.sequence
    assert cloud.calls.running() == ()


def test_the_log_is_in_order_and_can_be_searched(make_cloud: MakeCloud) -> None:
    cloud = make_cloud()
    routes = there(cloud.routes())
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
    assert log[-1].error == "BadRequest"


def test_questions_are_logged_where_wanted(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(log="all")
    batch = there(cloud.instances_batch())
    batch.instances_state([node("a", "fake://i-a"), node("b")])
    (call,) = cloud.calls.log()
    assert (call.method, call.keys, call.effect) == ("instances_state", ("a", "b"), "")


class TestOverlaps:
    def test_one_after_the_other_is_none(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud()
        for _ in range(3):
            balancer(cloud).ensure_load_balancer("c", service(), [])
            balancer(cloud).ensure_load_balancer_deleted("c", service())
        assert cloud.calls.overlaps() == ()

    def test_two_at_once_are_found(self, make_cloud: MakeCloud) -> None:
        cloud = make_cloud()
        stuck = cloud.faults.on("ensure_load_balancer", hangs(), key="default/web")
        first = in_thread(lambda: balancer(cloud).ensure_load_balancer("c", service(), []))
        eventually(lambda: stuck.struck)
        balancer(cloud).ensure_load_balancer("c", service("other"), [])
        balancer(cloud).get_load_balancer("c", service())
        assert cloud.calls.overlaps() == (), "another load balancer, and a question, do no harm"
        balancer(cloud).ensure_load_balancer_deleted("c", service())
        ((one, two),) = cloud.calls.overlaps()
        assert (one.method, two.method) == ("ensure_load_balancer", "ensure_load_balancer_deleted")
        assert cloud.calls.overlaps(unfinished=False) == ()
        stuck.remove()
        first.result(LIMIT)
        assert len(cloud.calls.overlaps(unfinished=False)) == 1
        balancer(cloud).update_load_balancer("c", service(), [])
        assert len(cloud.calls.overlaps()) == 1
