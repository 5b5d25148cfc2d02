"""Services on which others write too, over both API servers: what is not ours stays as it is, and
nobody fights.

They are watched while a marker comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloudprovider import Interface, LoadBalancer
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.waiting import eventually
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from tests.integration.conftest import EMBEDDED, Cluster
from tests.support.api import NODES
from tests.support.marker import pass_by
from tests.support.nodes import small_node
from tests.support.running import Running, at_work
from tests.support.services import FINALIZER, NOTE, SERVICES, addresses, lb_service

CLASS = "example.com/other"
POINT = {"ip": "203.0.113.9"}


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with FakeCloud(FakeConfig.model_validate({"log": "all", "on_demand": {}})) as made:
        yield made


@pytest.fixture(autouse=True)
def _node(api: Cluster) -> None:
    api.create(NODES, small_node("node-0", provider_id="fake://node-0"))


def _running(kubeconfig: Path, cloud: Interface) -> AbstractContextManager[Running[ServiceController]]:
    # Checks come often, so that a short watch sees many.
    options = ServiceOptions(cluster_name="test", node_sync_window=0.1, drift_check_period=1.0, ensure_period=3600.0)
    return at_work(ServiceController, kubeconfig, cloud, options)


@contextmanager
def _beside(act: Callable[[], None]) -> Iterator[None]:
    """Another controller, which looks twenty times a second."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(0.05):
            act()

    thread = threading.Thread(target=loop, name="neighbour")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


@pytest.mark.row("S14")
def test_a_service_with_a_class_is_left_to_the_controller_that_owns_it(api: Cluster, cloud: FakeCloud) -> None:
    """It uses the well-known finalizer, as several do, and puts back at once what somebody takes
    off."""
    path, writes = f"{SERVICES}/vip", [0]

    def owner() -> None:
        service = api.get(path)
        if FINALIZER not in service["metadata"].get("finalizers", []):
            api.patch(path, {"metadata": {"finalizers": [FINALIZER]}})
            writes[0] += 1
        if not addresses(service):
            api.patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": [POINT]}}})
            writes[0] += 1

    api.create(SERVICES, lb_service("vip", loadBalancerClass=CLASS))
    with _beside(owner):
        with _running(api.kubeconfig, cloud):
            eventually(lambda: addresses(api.get(path)))
            pass_by(api, cloud)
        with _running(api.kubeconfig, cloud):  # nor does the next process find reason
            pass_by(api, cloud)
            api.patch(path, {"metadata": {"annotations": {"example.com/a": "b"}}})
            pass_by(api, cloud)
    service = api.get(path)
    assert writes == [2]
    assert service["metadata"]["finalizers"] == [FINALIZER]
    assert addresses(service) == ["203.0.113.9"]
    assert api.events_of("vip") == []
    assert [call for call in cloud.calls.log() if "default/vip" in call.keys] == []


@pytest.mark.row("S24")
def test_its_finalizer_stays_on_until_that_controller_takes_it_off(api: Cluster, cloud: FakeCloud) -> None:
    """It deletes its load balancer meanwhile, for which the Service waits; a restart of ours
    changes nothing."""
    path = f"{SERVICES}/vip"
    vip = lb_service("vip", loadBalancerClass=CLASS)
    vip["metadata"]["finalizers"] = [FINALIZER]
    api.create(SERVICES, vip)
    api.patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": [POINT]}}})
    with _running(api.kubeconfig, cloud):
        pass_by(api, cloud)
        api.delete(path)
        pass_by(api, cloud)
    with _running(api.kubeconfig, cloud):
        pass_by(api, cloud)
    service = api.get(path)
    assert service["metadata"]["finalizers"] == [FINALIZER]
    assert addresses(service) == ["203.0.113.9"]
    assert [call for call in cloud.calls.log() if "default/vip" in call.keys] == []
    api.patch(path, {"metadata": {"finalizers": None}})
    eventually(lambda: api.find(path) is None)


class _Announced(LoadBalancer):
    """The address comes from an agent on the nodes, which writes it into the status; the provider
    echoes that."""

    def __init__(self) -> None:
        self.ensured: list[tuple[str, int]] = []
        """Service and port of every call."""

    def get_load_balancer(self, cluster_name: str, service: Any) -> Any:
        return service.status.load_balancer

    def ensure_load_balancer(self, cluster_name: str, service: Any, nodes: Any) -> Any:
        from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus

        self.ensured.append((service.metadata.name, service.spec.ports[0].port))
        return service.status.load_balancer or V1LoadBalancerStatus()

    def update_load_balancer(self, cluster_name: str, service: Any, nodes: Any) -> None:
        """Nothing to do."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: Any) -> None:
        """Nothing to do."""


class _Agent(Interface):
    def __init__(self) -> None:
        self.announced = _Announced()

    def provider_name(self) -> str:
        return "announced"

    def load_balancer(self) -> LoadBalancer:
        return self.announced


@pytest.mark.row("S15")
@EMBEDDED
def test_an_agent_that_fills_in_the_status_writes_it_once(api: Cluster) -> None:
    path, marker, writes, cloud = f"{SERVICES}/web", f"{SERVICES}/marker", [0], _Agent()
    ensured = cloud.announced.ensured

    def agent() -> None:
        service = api.get(path)
        if NOTE in service["metadata"].get("annotations", {}) and not addresses(service):
            api.patch(f"{path}/status", {"status": {"loadBalancer": {"ingress": [POINT]}}})
            writes[0] += 1

    api.create(SERVICES, lb_service("web"))
    with _running(api.kubeconfig, cloud), _beside(agent):
        eventually(lambda: addresses(api.get(path)))
        api.patch(path, {"spec": {"ports": [{"port": 81, "protocol": "TCP"}]}})
        eventually(lambda: ("web", 81) in ensured)
        # What the first one's change leads to comes before a marker's creation and two changes.
        api.create(SERVICES, lb_service("marker"))
        for port in (80, 82, 83):
            api.patch(marker, {"spec": {"ports": [{"port": port, "protocol": "TCP"}]}})
            eventually(lambda port=port: ("marker", port) in ensured)  # type: ignore[misc]
    assert writes == [1]
    assert addresses(api.get(path)) == ["203.0.113.9"]


@pytest.mark.row("S17")
@EMBEDDED
def test_an_operator_that_owns_all_annotations_gets_its_way(api: Cluster, cloud: FakeCloud) -> None:
    path, writes = f"{SERVICES}/web", [0]

    def operator() -> None:
        if NOTE in api.get(path)["metadata"].get("annotations", {}):
            api.patch(path, {"metadata": {"annotations": {NOTE: None}}})
            writes[0] += 1

    api.create(SERVICES, lb_service("web"))
    with _running(api.kubeconfig, cloud), _beside(operator):
        eventually(lambda: addresses(api.get(path)))
        eventually(lambda: len(cloud.calls.log("get_load_balancer", key="default/web")) >= 4, 60, "four checks")
    # The claim, the note, and once what is put back after a minute.
    assert 1 <= writes[0] <= 3
    assert cloud.calls.count("ensure_load_balancer") == 1


def _address_of(api: Cluster, name: str) -> list[str]:
    return addresses(api.get(f"{SERVICES}/{name}"))


@EMBEDDED
def test_a_deletion_that_no_finalizer_reminds_of_is_tried_once_more_at_the_end(
    api: Cluster, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """The next process cannot know of it."""
    for name in ("ends", "stays"):
        api.create(SERVICES, lb_service(name))
    fault = cloud.faults.on("ensure_load_balancer_deleted", raises())
    with _running(api.kubeconfig, cloud):
        for name in ("ends", "stays"):
            eventually(partial(_address_of, api, name))
            api.delete(f"{SERVICES}/{name}")
            api.patch(f"{SERVICES}/{name}", {"metadata": {"finalizers": None}})
        eventually(lambda: len(cloud.calls.log("ensure_load_balancer_deleted")) >= 4)  # the next try is seconds away
        fault.remove()
        cloud.faults.on("ensure_load_balancer_deleted", raises(), key="default/stays")
    assert [one.service for one in cloud.console.load_balancers()] == ["default/stays"]
    told = [line for line in caplog.messages if "no other process" in line]
    assert len(told) == 1
    assert "Service default/stays is gone" in told[0]
