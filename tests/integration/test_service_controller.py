"""The service controller over both API servers, against the fake cloud and what goes wrong with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudprovider import Interface
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.runtime.clients import ClientBuilder
from controllers.runtime.informer import InformerFactory
from controllers.runtime.metrics import Metrics
from controllers.service import ServiceController, ServiceOptions
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.waiting import eventually

SERVICES = "/api/v1/namespaces/default/services"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
NOTE = "kubernetes-cloud-provider/applied-load-balancer"
INSTANCES = [{"name": f"node-{number}"} for number in range(6)]


def _cloud(**settings: Any) -> FakeCloud:
    return FakeCloud(FakeConfig.model_validate({"log": "all", "instances": INSTANCES, **settings}))


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with _cloud() as made:
        yield made


def _options(**settings: Any) -> ServiceOptions:
    """Slow checks are far away: what is seen comes from events."""
    return ServiceOptions(**{"cluster_name": "test", "node_sync_window": 0.1, "drift_check_period": 3600.0, **settings})


@contextmanager
def _running(
    kubeconfig: Path, cloud: Interface, options: ServiceOptions | None = None, calls: CloudCallOptions | None = None
) -> Iterator[Metrics]:
    """The controller at work, as a program of one's own runs it; stopped and drained at the end."""
    metrics = Metrics()
    clients = ClientBuilder.from_options(kubeconfig=str(kubeconfig), metrics=metrics)
    informers = InformerFactory(clients.rest("shared-informers"), metrics=metrics)
    gateway = CloudCalls(cloud, options=calls, metrics=metrics)
    controller = ServiceController(clients, informers, gateway, options=options or _options(), metrics=metrics)
    stop = threading.Event()
    informers.start()
    thread = threading.Thread(target=controller.run, args=(stop,), name="controller")
    thread.start()
    try:
        yield metrics
        assert all(ok for _, ok, _ in controller.health())
    finally:
        stop.set()
        thread.join(40)
        informers.stop()
        gateway.close()
        clients.close()
    assert not thread.is_alive(), "the controller did not drain"


def _service(name: str, kind: str = "LoadBalancer", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"type": kind, "ports": [{"port": 80, "protocol": "TCP"}], "selector": {"app": name}, **spec},
    }


def _add_node(api: Cluster, name: str, **fields: Any) -> None:
    node = small_node(name, taints=[], **fields)
    node["spec"]["providerID"] = f"fake://{name}"
    api.create(NODES, node)


def _ingress(api: Cluster, name: str) -> list[dict[str, Any]]:
    return list(api.get(f"{SERVICES}/{name}")["status"].get("loadBalancer", {}).get("ingress", []))


def _reasons(api: Cluster, name: str) -> list[str]:
    return [event["reason"] for event in api.events_of(name)]


def test_a_service_gets_its_load_balancer_and_loses_it_when_deleted(api: Cluster, cloud: FakeCloud) -> None:
    _add_node(api, "node-0")
    api.create(SERVICES, _service("web"))
    with _running(api.kubeconfig, cloud):
        eventually(lambda: _ingress(api, "web"))
        service = api.get(f"{SERVICES}/web")
        [balancer] = cloud.console.load_balancers()
        assert [point["ip"] for point in _ingress(api, "web")] == list(balancer.ingress)
        assert service["metadata"]["finalizers"] == [FINALIZER]
        assert NOTE in service["metadata"]["annotations"]
        eventually(lambda: {"EnsuringLoadBalancer", "EnsuredLoadBalancer"} <= set(_reasons(api, "web")))
        api.delete(f"{SERVICES}/web")
        eventually(lambda: api.find(f"{SERVICES}/web") is None)
        assert cloud.console.load_balancers() == []
        eventually(lambda: {"DeletingLoadBalancer", "DeletedLoadBalancer"} <= set(_reasons(api, "web")))
    assert not cloud.calls.overlaps()
