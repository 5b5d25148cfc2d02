"""--load-balancer-conditions over both API servers: what `kubectl wait` sees of a Service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from cloudprovider import InvalidService, Pending
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.waiting import eventually
from controllers.runtime.cache import SERVICES as KIND
from controllers.runtime.cache import InformerFactory
from controllers.runtime.metrics import Metrics
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from tests.integration.conftest import Cluster
from tests.support.api import NODES, STRATEGIC
from tests.support.marker import pass_by
from tests.support.nodes import small_node
from tests.support.running import Running, at_work
from tests.support.services import SERVICES, addresses, lb_service

TYPE = "LoadBalancerReady"
FOREIGN = {
    "type": "example.com/Other",
    "status": "True",
    "reason": "Fine",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def cloud(api: Cluster) -> Iterator[FakeCloud]:
    api.create(NODES, small_node("node-0", provider_id="fake://node-0"))
    with FakeCloud(FakeConfig.model_validate({"log": "all", "on_demand": {}})) as made:
        yield made


def _running(api: Cluster, cloud: FakeCloud, **more: Any) -> AbstractContextManager[Running[ServiceController]]:
    options: dict[str, Any] = {"cluster_name": "test", "node_sync_window": 0.1, "drift_check_period": 1.0}
    options |= {"conditions": True} | more
    return at_work(ServiceController, api.kubeconfig, cloud, ServiceOptions(**options))


def _conditions(service: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in service["status"].get("conditions", ())}


def _said(api: Cluster, name: str = "web") -> tuple[str, str]:
    found = _conditions(api.get(f"{SERVICES}/{name}")).get(TYPE, {})
    return found.get("status", ""), found.get("reason", "")


class Watched:
    """What a watch shows of the condition, each change once, with the address beside it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool]] = []
        self.ready = threading.Event()

    def on_add(self, service: Any, _initial: bool) -> None:
        self.on_update(None, service)

    def on_update(self, _old: Any, service: Any) -> None:
        for one in service.status.conditions or ():
            has_address = bool(service.status.load_balancer and service.status.load_balancer.ingress)
            if one.type == TYPE and (one.status, one.reason, has_address) not in self.seen[-1:]:
                self.seen.append((one.status, one.reason, has_address))
                if one.status == "True":
                    self.ready.set()


def test_who_waits_for_it_sees_it_with_the_address(api: Cluster, cloud: FakeCloud) -> None:
    cloud.faults.on("ensure_load_balancer", raises(Pending("lb is PENDING_CREATE", 0.5)), times=2)
    informers = InformerFactory(api.clients().rest("watching"), metrics=Metrics())
    watched = Watched()
    informer = informers.informer(KIND)
    informer.add_handler(watched.on_add, watched.on_update, None)
    informers.start()
    try:
        with _running(api, cloud):
            api.create(SERVICES, lb_service("web"))
            assert watched.ready.wait(60)
    finally:
        informers.stop()
    assert watched.seen == [("False", "Building", False), ("False", "Pending", False), ("True", "Ready", True)]
    [condition] = _conditions(api.get(f"{SERVICES}/web")).values()
    [address] = addresses(api.get(f"{SERVICES}/web"))
    assert condition["message"] == f"The load balancer has the address {address}"


@pytest.mark.row("S14")
def test_what_others_say_beside_it_stays(api: Cluster, cloud: FakeCloud) -> None:
    """Also while it is written, and when ours goes."""
    path = f"{SERVICES}/web"
    api.create(SERVICES, lb_service("web"))
    api.patch(f"{path}/status", {"status": {"conditions": [FOREIGN]}}, STRATEGIC)
    with _running(api, cloud):
        eventually(lambda: _said(api) == ("True", "Ready"), 60)
        assert _conditions(api.get(path))[FOREIGN["type"]] == FOREIGN
        api.patch(f"{path}/status", {"status": {"conditions": [FOREIGN | {"reason": "Better"}]}}, STRATEGIC)
        version = api.get(path)["metadata"]["resourceVersion"]
        pass_by(api, cloud)
        assert api.get(path)["metadata"]["resourceVersion"] == version, "nothing is written again and again"
        api.patch(path, {"spec": {"type": "ClusterIP"}})
        eventually(lambda: set(_conditions(api.get(path))) == {FOREIGN["type"]}, 60)


def test_a_mistake_is_told_and_its_end(api: Cluster, cloud: FakeCloud) -> None:
    cloud.faults.on("ensure_load_balancer", raises(InvalidService("port 80 is reserved")))
    with _running(api, cloud):
        api.create(SERVICES, lb_service("web"))
        eventually(lambda: _said(api) == ("False", "Refused"), 60)
        assert _conditions(api.get(f"{SERVICES}/web"))[TYPE]["message"] == "port 80 is reserved"
        cloud.faults.clear()
        api.patch(f"{SERVICES}/web", {"spec": {"ports": [{"port": 81, "protocol": "TCP"}]}})
        eventually(lambda: _said(api) == ("True", "Ready"), 60)


def test_a_restart_writes_nothing_and_without_the_flag_it_is_left(api: Cluster, cloud: FakeCloud) -> None:
    api.create(SERVICES, lb_service("web"))
    with _running(api, cloud):
        eventually(lambda: _said(api) == ("True", "Ready"), 60)
    for on in (True, False):
        version = api.get(f"{SERVICES}/web")["metadata"]["resourceVersion"]
        with _running(api, cloud, conditions=on):
            pass_by(api, cloud)
        assert api.get(f"{SERVICES}/web")["metadata"]["resourceVersion"] == version
    with _running(api, cloud, conditions=False):
        api.patch(f"{SERVICES}/web", {"spec": {"type": "ClusterIP"}})
        eventually(lambda: not api.get(f"{SERVICES}/web")["metadata"].get("finalizers"), 60)
    assert _said(api) == ("True", "Ready")
