"""The service controller over both API servers, against the fake cloud and what goes wrong with
it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from cloudprovider import Interface, InvalidService
from cloudprovider.testing.fake import FakeCloud, FakeConfig, hangs, raises
from cloudprovider.testing.fake.loadbalancers import ADOPT, KEEP
from cloudprovider.testing.waiting import eventually
from controllers.cloudcalls import CloudCallOptions
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from tests.integration.conftest import EMBEDDED, Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node
from tests.support.running import Running, at_work
from tests.support.services import FINALIZER, NOTE, SERVICES, ingress, lb_service

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


def _running(
    kubeconfig: Path, cloud: Interface, options: ServiceOptions | None = None, calls: CloudCallOptions | None = None
) -> AbstractContextManager[Running[ServiceController]]:
    return at_work(ServiceController, kubeconfig, cloud, options or _options(), calls=calls)


def _add_node(api: Cluster, name: str) -> None:
    api.create(NODES, small_node(name, provider_id=f"fake://{name}"))


def _annotated(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    service = lb_service(name)
    return {**service, "metadata": {**service["metadata"], "annotations": annotations}}


def _ingress(api: Cluster, name: str) -> list[dict[str, Any]]:
    return ingress(api.get(f"{SERVICES}/{name}"))


CHANGING = ("ensure_load_balancer", "update_load_balancer", "ensure_load_balancer_deleted")


def test_a_service_gets_its_load_balancer_and_loses_it_when_deleted(api: Cluster, cloud: FakeCloud) -> None:
    _add_node(api, "node-0")
    api.create(SERVICES, lb_service("web"))
    api.create(SERVICES, lb_service("inside", type="ClusterIP"))
    api.create(SERVICES, lb_service("classy", loadBalancerClass="example.com/other"))
    with _running(api.kubeconfig, cloud) as running:
        eventually(lambda: _ingress(api, "web"))
        service = api.get(f"{SERVICES}/web")
        [balancer] = cloud.console.load_balancers()
        assert [point["ip"] for point in _ingress(api, "web")] == list(balancer.ingress)
        assert service["metadata"]["finalizers"] == [FINALIZER]
        assert NOTE in service["metadata"]["annotations"]
        eventually(lambda: {"EnsuringLoadBalancer", "EnsuredLoadBalancer"} <= set(api.reasons("web")))
        assert running.metrics.value("service_controller_load_balancers") == 1
        api.delete(f"{SERVICES}/web")
        eventually(lambda: api.find(f"{SERVICES}/web") is None)
        assert cloud.console.load_balancers() == []
        eventually(lambda: {"DeletingLoadBalancer", "DeletedLoadBalancer"} <= set(api.reasons("web")))
        eventually(lambda: running.metrics.value("service_controller_load_balancers") == 0)
    assert not cloud.calls.overlaps()
    for name in ("inside", "classy"):
        assert "finalizers" not in api.get(f"{SERVICES}/{name}")["metadata"]


@pytest.mark.row("S5")
@EMBEDDED
def test_services_are_served_side_by_side(api: Cluster) -> None:
    with _cloud(latency={"ensure_load_balancer": 0.5}) as cloud:
        _add_node(api, "node-0")
        for number in range(24):
            api.create(SERVICES, lb_service(f"web-{number}"))
        with _running(api.kubeconfig, cloud):
            eventually(lambda: all(_ingress(api, f"web-{number}") for number in range(24)), 60)
        calls = cloud.calls.log("ensure_load_balancer")
    assert len(calls) == 24
    together = max(sum(other.started <= call.started < (other.ended or 0) for other in calls) for call in calls)
    assert together >= 12


@pytest.mark.row("S7")
def test_a_restart_with_nothing_changed_makes_no_write_at_all(api: Cluster, cloud: FakeCloud) -> None:
    _add_node(api, "node-0")
    names = [f"web-{number}" for number in range(3)]
    for name in names:
        api.create(SERVICES, lb_service(name))
    with _running(api.kubeconfig, cloud):
        eventually(lambda: all(_ingress(api, name) for name in names))
    before = [api.get(f"{SERVICES}/{name}")["metadata"]["resourceVersion"] for name in names]
    cloud.calls.clear()
    with _running(api.kubeconfig, cloud):
        eventually(lambda: cloud.calls.count("get_load_balancer") == 3)
        # Whatever else it had to do would come before this one, which is new.
        api.create(SERVICES, lb_service("late"))
        eventually(lambda: _ingress(api, "late"))
    assert [call.keys[1] for call in cloud.calls.log(*CHANGING)] == ["default/late"]
    assert [api.get(f"{SERVICES}/{name}")["metadata"]["resourceVersion"] for name in names] == before


@pytest.mark.row("S26")
@pytest.mark.parametrize("built_by", ["this manager", "the Go manager"])
def test_after_a_restart_new_nodes_reach_a_load_balancer_whose_service_has_a_mistake(
    api: Cluster, cloud: FakeCloud, built_by: str
) -> None:
    for name in ("node-0", "node-1"):
        _add_node(api, name)
    api.create(SERVICES, lb_service("web"))
    with _running(api.kubeconfig, cloud):
        eventually(lambda: _ingress(api, "web"))
    note = {NOTE: None} if built_by == "the Go manager" else {}
    api.patch(f"{SERVICES}/web", {"metadata": {"annotations": {"example.com/timeout": "5 minutes", **note}}})
    cloud.faults.on("ensure_load_balancer", raises(InvalidService("example.com/timeout: no number")))
    with _running(api.kubeconfig, cloud) as running:
        eventually(lambda: "SyncLoadBalancerFailed" in api.reasons("web"))
        for name in ("node-2", "node-3"):
            _add_node(api, name)
        for name in ("node-0", "node-1"):
            api.delete(f"{NODES}/{name}")
        eventually(lambda: _targets(cloud) == ["fake://node-2", "fake://node-3"])
        eventually(lambda: running.metrics.value("service_controller_load_balancers_with_old_targets") == 0)
        assert "UpdatedLoadBalancer" in api.reasons("web")
    assert cloud.calls.count("update_load_balancer") >= 1


def _targets(cloud: FakeCloud) -> list[str]:
    [balancer] = cloud.console.load_balancers()
    return sorted(balancer.backends)


@pytest.mark.row("S12")
@EMBEDDED
def test_the_default_cluster_name_is_warned_about(api: Cluster, cloud: FakeCloud) -> None:
    with _running(api.kubeconfig, cloud, _options(cluster_name="kubernetes")):
        eventually(lambda: "DefaultClusterName" in api.reasons("kube-system"))
        [event] = [one for one in api.events_of("kube-system") if one["reason"] == "DefaultClusterName"]
    assert event["type"] == "Warning"
    assert "--cluster-name" in event["message"]


@pytest.mark.row("O9")
@pytest.mark.row("S31")
def test_a_kept_load_balancer_is_adopted_by_the_service_that_names_it(api: Cluster, cloud: FakeCloud) -> None:
    _add_node(api, "node-0")
    api.create(SERVICES, _annotated("web", {KEEP: "address"}))
    with _running(api.kubeconfig, cloud, _options(orphan_check_period=0.2)):
        eventually(lambda: _ingress(api, "web"))
        address = _ingress(api, "web")
        api.delete(f"{SERVICES}/web")
        eventually(lambda: api.find(f"{SERVICES}/web") is None)  # no finalizer is left
    [kept] = cloud.console.load_balancers()
    # Another process: what was kept stays, as what is there of it is the cloud's mark alone.
    with _running(api.kubeconfig, cloud, _options(orphan_check_period=0.2)) as running:
        seen = cloud.calls.count("owned_load_balancers")
        eventually(lambda: cloud.calls.count("owned_load_balancers") > seen + 2)
        assert running.count("service_controller_orphaned_load_balancers") == 0
        assert cloud.console.load_balancers() == [kept]
        api.create(SERVICES, _annotated("shop", {ADOPT: kept.name, KEEP: "true"}))
        eventually(lambda: _ingress(api, "shop") == address)
        api.create(SERVICES, _annotated("late", {ADOPT: kept.name}))
        eventually(lambda: "SyncLoadBalancerFailed" in api.reasons("late"))
        assert any("in use by Service default/shop" in event["message"] for event in api.events_of("late"))
        assert not _ingress(api, "late")
    with _running(api.kubeconfig, cloud):
        api.delete(f"{SERVICES}/late")
        eventually(lambda: api.find(f"{SERVICES}/late") is None)
        [adopted] = cloud.console.load_balancers()
        assert (adopted.service, adopted.kept) == ("default/shop", False), "the one that was refused took nothing along"
        api.delete(f"{SERVICES}/shop")
        eventually(lambda: api.find(f"{SERVICES}/shop") is None)
        [again] = cloud.console.load_balancers()
        assert (again.name, again.kept) == (kept.name, True)


@EMBEDDED
def test_a_building_call_that_takes_long_is_told_while_it_is_waited_for(api: Cluster, cloud: FakeCloud) -> None:
    _add_node(api, "node-0")
    cloud.faults.on("ensure_load_balancer", hangs())
    api.create(SERVICES, lb_service("web"))
    with _running(api.kubeconfig, cloud, calls=CloudCallOptions(timeout=1.0, build_timeout=60.0)):
        eventually(lambda: "CloudCallOverdue" in api.reasons("web"), 60)
        [event] = [event for event in api.events_of("web") if event["reason"] == "CloudCallOverdue"]
        assert "has not answered after 1 s (--cloud-api-timeout)" in event["message"]
        assert "up to 60 s (--cloud-api-build-timeout)" in event["message"]
        assert "SyncLoadBalancerFailed" not in api.reasons("web"), "it is not given up"
        cloud.faults.clear()
        eventually(lambda: _ingress(api, "web"), 60)


@pytest.mark.row("S31")
def test_a_load_balancer_that_is_kept_is_told_and_no_orphan(api: Cluster, cloud: FakeCloud) -> None:
    api.create(SERVICES, _annotated("web", {KEEP: "true"}))
    with _running(api.kubeconfig, cloud, _options(orphan_check_period=0.2)) as running:
        eventually(lambda: _ingress(api, "web"))
        api.delete(f"{SERVICES}/web")
        eventually(lambda: api.find(f"{SERVICES}/web") is None)
        eventually(lambda: "LoadBalancerKept" in api.reasons("web"))
        seen = cloud.calls.count("owned_load_balancers")
        eventually(lambda: cloud.calls.count("owned_load_balancers") > seen + 2)
        assert running.count("service_controller_orphaned_load_balancers") == 0
        assert cloud.calls.count("ensure_load_balancer_deleted") == 1
    [kept] = cloud.console.load_balancers()
    assert kept.kept
