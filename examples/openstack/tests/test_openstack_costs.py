"""What Services cost in requests under the whole manager, counted in the services' own logs: the
figures of docs/reports/openstack.md, beside the Go manager's, measured on the same services."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack_provider.provider import new_provider
from openstackdouble import Double, served
from osbench import login
from test_openstack_manager import Count

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from controllers.testing import Cluster, ManagerRun, ServiceHandle
from tests.lab.openstack.cloud import OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]

FLAGS = (
    "--cluster-name=costs", "--controllers=cloud-node,service", "--node-status-update-frequency=5m",
    "--load-balancer-drift-check-period=30m", "--load-balancer-orphan-check-period=30m",
    "--load-balancer-node-window=1s",
)  # fmt: skip
PATIENCE = 240.0
POLLS = "octavia GET /v2.0/lbaas/loadbalancers"
"""Is it ready? The Go manager's figures hold its polls, too."""


@pytest.fixture(params=["double", "openstack"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Double | OpenStack]:
    if request.param == "double":
        with served() as made:
            yield made
    else:
        yield request.getfixturevalue("openstack")


def machines(cloud: Double | OpenStack, number: int) -> list[str]:
    mark = f"c{uuid.uuid4().hex[:6]}"
    if isinstance(cloud, OpenStack):
        cloud.create_server(f"{mark}-first")
        return [f"{mark}-first", *cloud.clone_servers(number - 1, mark)]
    for one in range(number):
        cloud.create_server(f"{mark}-{one}")
    return [f"{mark}-{one}" for one in range(number)]


def members(cloud: Double | OpenStack, service: ServiceHandle) -> list[int]:
    """How many each pool of the Service has."""
    pools = cloud.ask("GET", "octavia", "/v2.0/lbaas/pools")["pools"]
    ours = [one["id"] for one in pools if one["name"].endswith(f"_{service.name}")]
    return [len(cloud.ask("GET", "octavia", f"/v2.0/lbaas/pools/{one}/members")["members"]) for one in ours]


def quiet(cloud: Double | OpenStack, count: Count) -> Counter[str]:
    """What was asked, when nothing has come for a while: the manager looks once more after its
    last write."""
    seen = count.so_far()
    while True:
        time.sleep(8.0 if isinstance(cloud, OpenStack) else 0.5)  # real time: the manager's own
        now = count.so_far()
        if now == seen:
            return now
        seen = now


def told(task: str, asked: Counter[str]) -> dict[str, int]:
    writes = sum(number for what, number in asked.items() if " GET " not in what and "/auth/tokens" not in what)
    print(
        f"{task}: {asked.total()} requests, {writes} writes, {asked[POLLS]} looks at the load balancer: {dict(asked)}"
    )
    return {"calls": asked.total() - max(0, asked[POLLS] - 1), "writes": writes}


@pytest.mark.parametrize(
    ("number", "ports", "settings", "most"),
    [
        (20, (80,), "", {"made": 7, "joined": 5, "limited": 7, "deleted": 4}),
        (
            10, (80, 443), "manage-security-groups = true\n",
            {"first": 20, "made": 9, "joined": 18, "limited": 15, "deleted": 10, "last": 20},
        ),
    ],
    ids=["1-port-20-nodes", "2-ports-groups-10-nodes"],
)  # fmt: skip
def test_services_under_the_manager(
    number: int, ports: tuple[int, ...], settings: str, most: dict[str, int], cloud: Double | OpenStack, tmp_path: Path
) -> None:
    names = machines(cloud, number + 1)
    provider = new_provider(login(cloud, f"[LoadBalancer]\n{settings}"))
    with EmbeddedAPIServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        with Cluster(kubeconfig) as cluster, ManagerRun(kubeconfig, provider, FLAGS):
            nodes = [cluster.join(name) for name in names[:-1]]
            cluster.wait_until(lambda: all(node.is_initialized for node in nodes), timeout=PATIENCE)
            quiet(cloud, count := Count(cloud))
            found: dict[str, Any] = {}

            first: ServiceHandle | None = None
            if settings:  # the first Service of a cluster has each node's port changed, once in its life
                count.again()
                first = cluster.expose(f"f-{names[0]}")
                cluster.wait_until(lambda: cluster.service(f"f-{names[0]}").addresses, timeout=PATIENCE)
                found["first"] = told(f"the first Service, {number} nodes", quiet(cloud, count))

            count.again()
            service = cluster.expose(f"s-{names[0]}", ports=ports)
            cluster.wait_until(lambda: service.addresses, timeout=PATIENCE)
            found["made"] = told(f"Service with {len(ports)} ports, {number} nodes", quiet(cloud, count))
            assert members(cloud, service) == [number] * len(ports)

            count.again()
            cluster.join(names[-1])  # as a kubelet without --node-ip: it has no address until it is initialised
            cluster.wait_until(lambda: members(cloud, service) == [number + 1] * len(ports), timeout=PATIENCE)
            found["joined"] = told("a node joins", quiet(cloud, count))

            count.again()
            service.patch({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})
            listeners = "/v2.0/lbaas/listeners"
            cluster.wait_until(
                lambda: all(
                    one["allowed_cidrs"] == ["192.0.2.0/24"]
                    for one in cloud.ask("GET", "octavia", listeners)["listeners"]
                    if one["name"].endswith(f"_{service.name}")
                ),
                timeout=PATIENCE,
            )
            found["limited"] = told("source ranges changed", quiet(cloud, count))

            count.again()
            service.delete()
            cluster.wait_until(lambda: not service.exists, timeout=PATIENCE)
            found["deleted"] = told("Service deleted", quiet(cloud, count))

            if first is not None:
                count.again()
                first.delete()
                cluster.wait_until(lambda: not cluster.service(f"f-{names[0]}").exists, timeout=PATIENCE)
                found["last"] = told("the last Service deleted", quiet(cloud, count))
    calls = {task: one["calls"] for task, one in found.items()}
    assert all(calls[task] <= most[task] for task in calls), calls
