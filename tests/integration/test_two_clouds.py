"""Two clouds in one cluster, as docs/guides/deploying.md says: two releases of the chart, with two
leases, each of which manages its own nodes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.charts import render
from tests.support.nodes import is_tainted, small_node
from tests.support.process import MODULE, Start
from tests.support.services import SERVICES, ingress, lb_service

CLOUDS = {"north": ["*", "-node-route-controller"], "south": ["*", "-node-route-controller", "-service"]}
"""And which controllers the release has: one manager builds load balancers."""


def flags_of(name: str, config: Path) -> list[str]:
    """The arguments of the chart's container, with those that this machine needs."""
    values: dict[str, Any] = {
        "cloudProvider": "fake",
        "controllers": CLOUDS[name],
        "cloudConfig": {"path": str(config)},
        "leaderElection": {"leaseName": f"{name}-controller-manager"},
        "flags": {"node-monitor-period": "500ms", "node-deletion-young-grace": "0s", "leader-elect-retry-period": "1s"},
    }
    [workload] = [obj for obj in render(values) if obj["kind"] == "DaemonSet"]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    return [argument for argument in container["args"] if not argument.startswith(("--bind-address", "--secure-port"))]


@pytest.mark.row("O20")
def test_each_manager_has_its_own_nodes_and_leaves_the_others_alone(api: Cluster, start: Start, tmp_path: Path) -> None:
    with ExitStack() as ends:
        clouds = {}
        for name in CLOUDS:
            settings = {"provider": name, "generate": [{"count": 2, "name": name + "-{}"}]}
            clouds[name] = ends.enter_context(FakeCloud(FakeConfig.model_validate(settings)))
            clouds[name].share(tmp_path / f"{name}.json")
        kubeconfig = api.server.write_kubeconfig(tmp_path / "admin.kubeconfig")
        logs = []
        for name in CLOUDS:
            process = start(
                *flags_of(name, tmp_path / f"{name}.json"), f"--kubeconfig={kubeconfig}", "--secure-port=0",
                command=MODULE,
            )  # fmt: skip
            logs.append(process)

        def log() -> str:
            return "\n".join(process.log for process in logs)

        names = [f"{name}-{number}" for name in CLOUDS for number in range(2)]
        for name in names:
            api.create(NODES, small_node(name, ready="False" if name.endswith("-1") else "True"))
        api.create(SERVICES, lb_service("web"))
        eventually(lambda: not any(is_tainted(api.get(f"{NODES}/{name}")) for name in names), 90, log)
        owners = {name: api.get(f"{NODES}/{name}")["spec"]["providerID"].partition("://")[0] for name in names}
        assert owners == {name: name.partition("-")[0] for name in names}
        eventually(lambda: ingress(api.get(f"{SERVICES}/web")), 90, log)
        assert [len(cloud.console.load_balancers()) for cloud in clouds.values()] == [1, 0]
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        holders = {api.get(f"{leases}/{name}-controller-manager")["spec"]["holderIdentity"] for name in CLOUDS}
        assert len(holders) == 2

        clouds["north"].console.remove_instance("north-1")
        eventually(lambda: api.find(f"{NODES}/north-1") is None, 90, log)
        # South asked about its own node at least twice since, and never about north's.
        south = clouds["south"].calls
        asked = south.count("instance*")
        eventually(lambda: south.count("instance*") >= asked + 4, 90, log)
        assert {node["metadata"]["name"] for node in api.items(NODES)} == set(names) - {"north-1"}
