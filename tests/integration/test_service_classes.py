"""Managers with classes of their own beside each other, over both API servers: each serves its
Services, and none touches another's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from cloudprovider import Interface
from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from controllers.service.controller import ServiceController
from controllers.service.registration import ServiceOptions
from tests.integration.conftest import EMBEDDED, Cluster
from tests.support.api import NODES
from tests.support.marker import pass_by
from tests.support.nodes import small_node
from tests.support.process import MODULE, Start
from tests.support.running import Running, at_work
from tests.support.services import FINALIZER, NOTE, SERVICES, addresses, lb_service

ACME, OTHER = "acme.example/lb", "other.example/lb"


@pytest.fixture
def clouds() -> Iterator[tuple[FakeCloud, FakeCloud]]:
    """That of Services without a class, and that of the class."""
    config = {"log": "all", "on_demand": {}}
    with FakeCloud(FakeConfig.model_validate(config)) as plain, FakeCloud(FakeConfig.model_validate(config)) as acme:
        yield plain, acme


def _running(
    api: Cluster, cloud: Interface, *classes: str, **more: Any
) -> AbstractContextManager[Running[ServiceController]]:
    options: dict[str, Any] = {"cluster_name": "test", "node_sync_window": 0.1, "drift_check_period": 1.0} | more
    return at_work(ServiceController, api.kubeconfig, cloud, ServiceOptions(classes=classes, **options))


def _built(cloud: FakeCloud) -> list[str]:
    return sorted(one.service for one in cloud.console.load_balancers())


@pytest.mark.row("S14")
@pytest.mark.row("S24")
def test_each_manager_serves_its_class_alone(api: Cluster, clouds: tuple[FakeCloud, FakeCloud]) -> None:
    plain, acme = clouds
    api.create(NODES, small_node("node-0", provider_id="fake://node-0"))
    with _running(api, plain, ""), _running(api, acme, ACME):
        api.create(SERVICES, lb_service("web"))
        api.create(SERVICES, lb_service("vip", loadBalancerClass=ACME))
        api.create(SERVICES, lb_service("vpn", loadBalancerClass=OTHER))
        for name in ("web", "vip"):
            eventually(lambda name=name: addresses(api.get(f"{SERVICES}/{name}")), 60)  # type: ignore[misc]
        assert (_built(plain), _built(acme)) == (["default/web"], ["default/vip"])
        assert f" class={ACME}" in api.get(f"{SERVICES}/vip")["metadata"]["annotations"][NOTE]
        assert FINALIZER not in api.get(f"{SERVICES}/vpn")["metadata"].get("finalizers", [])

        # The class goes with the type; the note says whose the load balancer is.
        api.patch(f"{SERVICES}/vip", {"spec": {"type": "ClusterIP"}})
        eventually(lambda: FINALIZER not in api.get(f"{SERVICES}/vip")["metadata"].get("finalizers", []))
        assert _built(acme) == []

        # From the one class to none: built by the other one.
        api.patch(f"{SERVICES}/vip", {"spec": {"type": "LoadBalancer"}})
        eventually(lambda: addresses(api.get(f"{SERVICES}/vip")), 60)
        assert (_built(plain), _built(acme)) == (["default/vip", "default/web"], [])
        for name in ("web", "vip", "vpn"):
            api.delete(f"{SERVICES}/{name}")
        eventually(lambda: not any(api.find(f"{SERVICES}/{name}") for name in ("web", "vip", "vpn")), 60)
        assert (_built(plain), _built(acme)) == ([], [])
    touched = [{key for call in cloud.calls.log() for key in call.keys if "/" in key} for cloud in clouds]
    assert touched == [{"default/web", "default/vip"}, {"default/vip"}]
    assert api.events_of("vpn") == []


@pytest.mark.row("S24")
def test_a_class_that_no_manager_serves_any_more_is_left_as_it_is(
    api: Cluster, clouds: tuple[FakeCloud, FakeCloud], caplog: pytest.LogCaptureFixture
) -> None:
    """It was taken off the flag: nothing is torn down, the log says who is meant, and a manager
    with the class goes on."""
    plain, acme = clouds
    path = f"{SERVICES}/vip"
    api.create(NODES, small_node("node-0", provider_id="fake://node-0"))
    api.create(SERVICES, lb_service("vip", loadBalancerClass=ACME))
    with _running(api, acme, "", ACME):
        eventually(lambda: addresses(api.get(path)), 60)
    before = api.get(path)
    with caplog.at_level("INFO"), _running(api, plain, ""):
        pass_by(api, plain)
        assert api.get(path)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        api.delete(path)
        pass_by(api, plain)
        assert FINALIZER in api.get(path)["metadata"]["finalizers"]
    assert f"1 Services have a load balancer that a manager of class {ACME} built" in caplog.text
    assert _built(acme) == ["default/vip"]
    with _running(api, acme, ACME):
        eventually(lambda: api.find(path) is None, 60)
    assert _built(acme) == []


def test_managers_of_one_account_report_no_orphans_of_each_other(api: Cluster) -> None:
    """The cloud lists what both built for the cluster."""
    config = {"log": "all", "on_demand": {}, "capabilities": ["instances_v2", "load_balancer", "owned_load_balancers"]}
    api.create(NODES, small_node("node-0", provider_id="fake://node-0"))
    with FakeCloud(FakeConfig.model_validate(config)) as cloud, ExitStack() as ends:
        running = [ends.enter_context(_running(api, cloud, one, orphan_check_period=0.2)) for one in ("", ACME)]
        api.create(SERVICES, lb_service("web"))
        api.create(SERVICES, lb_service("vip", loadBalancerClass=ACME))
        eventually(lambda: _built(cloud) == ["default/vip", "default/web"], 60)
        api.patch(f"{SERVICES}/vip", {"metadata": {"labels": {"a": "b"}}})
        seen = cloud.calls.count("owned_load_balancers")
        eventually(lambda: cloud.calls.count("owned_load_balancers") > seen + 6, 60)
        assert [one.count("service_controller_orphaned_load_balancers") for one in running] == [0, 0]
    assert "OrphanedLoadBalancers" not in api.reasons("kube-system")


def test_two_managers_with_two_leases(
    api: Cluster, start: Start, tmp_path: Path, clouds: tuple[FakeCloud, FakeCloud]
) -> None:
    kubeconfig = api.server.write_kubeconfig(tmp_path / "admin.kubeconfig")
    api.create(NODES, small_node("node-0", provider_id="fake://node-0"))
    processes = []
    for name, cloud, classes in (("plain", clouds[0], '""'), ("acme", clouds[1], f"{ACME},{OTHER}")):
        cloud.share(tmp_path / f"{name}.json")
        process = start(
            f"--kubeconfig={kubeconfig}", "--cloud-provider=fake", f"--cloud-config={tmp_path / name}.json",
            "--cluster-name=blue", "--controllers=service-lb-controller", f"--load-balancer-classes={classes}",
            "--load-balancer-conditions", f"--leader-elect-resource-name={name}", "--leader-elect-retry-period=1s",
            command=MODULE,
        )  # fmt: skip
        processes.append(process)

    def log() -> str:
        return "\n".join(process.log for process in processes)

    wanted: dict[str, dict[str, Any]] = {"web": {}, "a": {"loadBalancerClass": ACME}, "b": {"loadBalancerClass": OTHER}}
    for name, spec in wanted.items():
        api.create(SERVICES, lb_service(name, **spec))
    for name in wanted:
        eventually(lambda name=name: addresses(api.get(f"{SERVICES}/{name}")), 90, log)  # type: ignore[misc]
    assert [_built(cloud) for cloud in clouds] == [["default/web"], ["default/a", "default/b"]]
    for name in wanted:
        [condition] = api.get(f"{SERVICES}/{name}")["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("LoadBalancerReady", "True")


@EMBEDDED
def test_a_class_that_no_service_can_have_is_refused_at_the_start(api: Cluster, start: Start, tmp_path: Path) -> None:
    process = start(
        f"--kubeconfig={api.kubeconfig}", "--cloud-provider=fake", "--load-balancer-classes=Acme.Example/lb,a/b/c",
        command=MODULE,
    )  # fmt: skip
    assert process.ended() != 0
    assert all(one in process.log for one in ("--load-balancer-classes", "'Acme.Example/lb'", "'a/b/c'"))
