"""A cloud that takes its time, or has no room, over both API servers: what users read of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from cloudprovider import InvalidService, Pending, QuotaExceeded, RetryError
from cloudprovider.testing.fake import FakeCloud, FakeConfig, Strike, raises
from cloudprovider.testing.waiting import eventually
from controllers.node.controller import CloudNodeController
from controllers.options.podnetwork import CIDRS
from controllers.route.controller import RouteController
from controllers.route.registration import RouteOptions
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from tests.integration.conftest import Cluster
from tests.support.api import EVENTS, NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.running import at_work
from tests.support.services import SERVICES, ingress, lb_service

SERVICE = ServiceOptions(cluster_name="test", node_sync_window=0.1, drift_check_period=3600.0)


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    config = FakeConfig.model_validate({"log": "all", "instances": [{"name": f"node-{n}"} for n in range(3)]})
    with FakeCloud(config) as made:
        yield made


def _events(api: Cluster, name: str) -> list[tuple[str, str, int]]:
    """Type, reason and count of an object's Events."""
    found = [one for one in api.items(EVENTS) if one["involvedObject"]["name"] == name]
    return [(one["type"], one["reason"], one["count"]) for one in found]


def _unavailable(api: Cluster, name: str) -> str:
    conditions = api.get(f"{NODES}/{name}")["status"].get("conditions", ())  # until one is written there are none
    return next((one["status"] for one in conditions if one["type"] == "NetworkUnavailable"), "")


def _failed(api: Cluster, name: str) -> bool:
    return "SyncLoadBalancerFailed" in api.event_messages(name)


@pytest.mark.row("P10")
def test_a_slow_load_balancer_is_no_failure(api: Cluster, cloud: FakeCloud, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    api.create(NODES, small_node("node-0", provider_id="fake://node-0"))
    words = iter(("being built, 10 %", "being built, 90 %", "attaching its targets"))

    def building(strike: Strike) -> object:
        raise Pending(next(words), 1.0)

    cloud.faults.on("ensure_load_balancer", building, times=3)
    with at_work(ServiceController, api.kubeconfig, cloud, SERVICE) as running:
        api.create(SERVICES, lb_service("web"))
        eventually(lambda: ingress(api.get(f"{SERVICES}/web")))
        eventually(lambda: "EnsuredLoadBalancer" in api.reasons("web"))
        assert running.count("controller_reconcile_errors_total", name="service") == 0
        cloud.faults.on("ensure_load_balancer_deleted", raises(Pending("being deleted", 1.0)), times=2)
        api.delete(f"{SERVICES}/web")
        eventually(lambda: "DeletedLoadBalancer" in api.reasons("web"))
    told = _events(api, "web")
    assert all(kind == "Normal" and count == 1 for kind, _, count in told), told
    assert [reason for _, reason, _ in told].count("LoadBalancerPending") == 3
    assert "failed" not in caplog.text
    for done in ("built", "deleted"):
        [seconds] = re.findall(rf"{done} the load balancer .* in ([\d.]+) s", caplog.text)
        assert float(seconds) >= 2, "from the first try"


@pytest.mark.row("P10")
def test_a_slow_machine_and_a_slow_route_are_no_failures(api: Cluster, cloud: FakeCloud) -> None:
    cloud.faults.on("instance*_metadata", raises(Pending("it has no address yet", 1.0)), key="node-0", times=2)
    with at_work(CloudNodeController, api.kubeconfig, cloud):
        api.create(NODES, small_node("node-0"))
        eventually(lambda: not is_tainted(api.get(f"{NODES}/node-0")))
    cloud.faults.on("create_route", raises(Pending("the route is being made", 1.0)), times=2)
    options = RouteOptions(cluster_cidrs=CIDRS.parse("10.244.0.0/16"))
    with at_work(RouteController, api.kubeconfig, cloud, options) as running:
        api.create(NODES, small_node("node-1", taints=[], cidrs=["10.244.1.0/24"]))
        eventually(lambda: cloud.console.routes())
        assert running.count("route_controller_route_sync_total", outcome="error", trigger="node_change") == 0
    eventually(lambda: ("Normal", "InstancePending", 1) in _events(api, "node-0"))
    eventually(lambda: _events(api, "node-1") == [("Normal", "RoutePending", 1)])
    assert "Warning" not in {kind for kind, _, _ in _events(api, "node-0")}


@pytest.mark.row("P10")
def test_a_full_route_table_is_told_and_a_route_that_goes_makes_room(api: Cluster, cloud: FakeCloud) -> None:
    options = RouteOptions(cluster_cidrs=CIDRS.parse("10.244.0.0/16"), list_interval=0.5)
    with at_work(RouteController, api.kubeconfig, cloud, options) as running:
        api.create(NODES, small_node("node-0", taints=[], cidrs=["10.244.0.0/24"], provider_id="fake://i-node-0"))
        eventually(lambda: len(cloud.console.routes()) == 1)
        full = cloud.faults.on("create_route", raises(QuotaExceeded("1 of 1 routes")))
        api.create(NODES, small_node("node-1", taints=[], cidrs=["10.244.1.0/24"], provider_id="fake://i-node-1"))
        eventually(lambda: "1 of 1 routes" in api.event_messages("node-1").get("FailedToCreateRoute", ""))
        eventually(lambda: _unavailable(api, "node-1") == "True")
        assert running.count("controller_reconcile_errors_total", name="Routes") == 0
        full.remove()
        api.delete(f"{NODES}/node-0")
        eventually(lambda: [one.target_node for one in cloud.console.routes()] == ["node-1"])
        eventually(lambda: _unavailable(api, "node-1") == "False")


class Unspeakable(InvalidService):
    """Its text and its problems raise."""

    def __init__(self) -> None:
        pass

    def __getattribute__(self, name: str) -> object:
        if name == "problems":
            raise OSError("no problems today")
        return super().__getattribute__(name)

    def __str__(self) -> str:
        raise TypeError("sequence item 0")


@pytest.mark.row("P8")
def test_an_error_that_is_built_wrongly_or_cannot_be_read_is_told_with_its_method(
    api: Cluster, cloud: FakeCloud
) -> None:
    problems: Any = ["UDP is not supported", "port 80 is reserved"]

    def wrong(strike: Strike) -> object:
        raise InvalidService(problems)

    cloud.faults.on("ensure_load_balancer", wrong, key="default/web")
    cloud.faults.on("ensure_load_balancer", raises(Unspeakable()), key="default/odd")
    with at_work(ServiceController, api.kubeconfig, cloud, SERVICE):
        api.create(SERVICES, lb_service("web"))
        api.create(SERVICES, lb_service("odd"))
        for name, says in (("web", "write InvalidService(*problems)"), ("odd", "Unspeakable")):
            eventually(partial(_failed, api, name))
            message = api.event_messages(name)["SyncLoadBalancerFailed"]
            assert "the provider's ensure_load_balancer failed: " in message
            assert says in message


@pytest.mark.row("P10")
def test_what_has_not_begun_is_no_work_of_the_cloud(api: Cluster, cloud: FakeCloud) -> None:
    waits = RetryError("it is built as soon as there is a node to send traffic to", 1.0)
    cloud.faults.on("ensure_load_balancer", raises(waits), times=2)
    with at_work(ServiceController, api.kubeconfig, cloud, SERVICE):
        api.create(SERVICES, lb_service("web"))
        eventually(lambda: "EnsuredLoadBalancer" in api.reasons("web"))
    told = [one["message"] for one in api.items(EVENTS) if one["reason"] == "LoadBalancerPending"]
    assert told == ["The load balancer has to wait: it is built as soon as there is a node to send traffic to"]
