"""Controllers that are off, over both API servers: what a former run left is reported, and cleaned
up where it is certain that nobody else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from controllers.service import orphans
from controllers.testing import Cluster, ManagerRun
from tests.integration.conftest import Cluster as Server
from tests.support.api import NODES, STRATEGIC

WITHOUT_LOAD_BALANCERS = {"capabilities": ["instances_v2", "instances_batch", "zones"]}


@pytest.fixture
def cluster(api: Server, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(api.server.write_kubeconfig(tmp_path / "admin")) as found:
        yield found


@pytest.mark.row("S29")
@pytest.mark.parametrize("by_flag", [False, True])
def test_a_deleted_service_that_nobody_serves_is_told(
    api: Server, cluster: Cluster, by_flag: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "PERIOD", 0.1)
    monkeypatch.setattr(orphans, "REPORT_AFTER", 0.2)
    with FakeCloud() as cloud, ManagerRun(api.kubeconfig, cloud):
        service = cluster.expose("web")
        [address] = cluster.wait_until(lambda: service.addresses)
    flags = ("--controllers=*,-service",) if by_flag else ()
    without = FakeConfig() if by_flag else FakeConfig.model_validate(WITHOUT_LOAD_BALANCERS)
    with FakeCloud(without) as cloud, ManagerRun(api.kubeconfig, cloud, flags) as manager:
        cluster.watch_over(manager)
        cluster.wait_until(lambda: manager.metric("service_controller_unserved_services") == 1.0)
        assert manager.metric("service_controller_unserved_deletions") == 0.0
        [running] = [line for line in manager.log.splitlines() if "running: " in line]
        assert "service-lb-controller" not in running, "what looks after its remains is not it"
        service.delete()
        [event] = cluster.wait_until(lambda: [one for one in cluster.events(service) if "NotDeleted" in one.reason])
        assert address in event.message
        assert manager.metric("service_controller_unserved_deletions") == 1.0
        assert service.finalizers, "only the cloud's word takes it off"
        assert manager.manager is not None
        [check] = [one for one in manager.manager.health.endpoint("healthz")() if one.name.endswith("-off-deletions")]
        assert check.ok, "it is no fault of this program"
        assert check.detail == "1 deleted Services wait for our finalizer: default/web"


@pytest.mark.row("R12")
def test_a_node_that_waits_for_a_route_in_vain_is_freed(api: Server, cluster: Cluster) -> None:
    flags = ("--allocate-node-cidrs=false", "--configure-cloud-routes=false")
    ours = {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}
    plugins = {**ours, "reason": "CiliumIsDown"}
    machines = FakeConfig.model_validate({"instances": [{"name": "ours"}, {"name": "plugins"}]})
    with FakeCloud(machines) as cloud, ManagerRun(api.kubeconfig, cloud, flags) as manager:
        nodes = [cluster.join(name) for name in ("ours", "plugins")]
        cluster.wait_until(lambda: all(node.is_initialized for node in nodes))
        manager.stop()
        for name, condition in (("ours", ours), ("plugins", plugins)):
            api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    with FakeCloud(machines) as cloud, ManagerRun(api.kubeconfig, cloud, flags) as manager:
        cluster.watch_over(manager)
        cluster.wait_until(lambda: "NetworkUnavailable" not in cluster.node("ours").conditions)
        assert cluster.node("ours").conditions["Ready"] == "True", "the others stay"
        assert cluster.node("plugins").conditions["NetworkUnavailable"] == "True"
        assert "1 nodes have the condition NetworkUnavailable=True" in manager.log
