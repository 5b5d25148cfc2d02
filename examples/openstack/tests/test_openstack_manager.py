"""The manager with this provider, over the double and on OpenStack's own services: what nodes and
routes cost in requests, beside the Go manager's figures for the same tasks, measured on the same
services."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from openstack_provider.provider import new_provider
from openstackdouble import Double, served
from osbench import login

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from controllers.testing import Cluster, ManagerRun
from tests.lab.openstack.cloud import OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]

PERIOD = 5
NODES = (  # the periods of a cluster, as they are delivered
    f"--node-monitor-period={PERIOD}s", "--node-status-update-frequency=5m",
    "--controllers=cloud-node,cloud-node-lifecycle",
)  # fmt: skip
ROUTES = (
    "--controllers=cloud-node,cloud-node-lifecycle,route", "--configure-cloud-routes",
)  # fmt: skip
GO = {20: 85, 200: 805}
"""Requests of the Go manager from its start until so many nodes are initialised."""
GOAL = {20: 10, 200: 12}


class Count:
    """The requests since it was made, or since `again`."""

    def __init__(self, cloud: Double | OpenStack) -> None:
        self._cloud = cloud
        self.again()

    def again(self) -> None:
        self._since: Any = len(self._cloud.requests) if isinstance(self._cloud, Double) else time.time()

    def so_far(self) -> Counter[str]:
        if isinstance(self._cloud, Double):
            return self._cloud.counts(self._since)
        return self._cloud.counts(self._since, agent="openstack-controller-manager")


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for an empty cluster."""
    with EmbeddedAPIServer() as server:
        yield server.write_kubeconfig(tmp_path / "kubeconfig")


def started(cloud: Double | OpenStack, servers: Mapping[str, str], kubeconfig: Path) -> None:
    """Nodes are there before the manager starts: what it asks until all are initialised."""
    provider = new_provider(login(cloud, "[LoadBalancer]\nenabled = false\n"))
    with Cluster(kubeconfig) as cluster:
        nodes = {name: cluster.join(name) for name in servers}
        count = Count(cloud)
        with ManagerRun(kubeconfig, provider, NODES):
            cluster.wait_until(lambda: all(node.is_initialized for node in nodes.values()), timeout=180)
            asked = count.so_far()
        for name, node in nodes.items():
            assert node.provider_id == f"openstack:///{servers[name]}"
            assert [kind for kind, _ in node.addresses].count("InternalIP") == 1
    print(f"{len(servers)} nodes: {asked.total()} requests, {dict(asked)}")
    assert asked.total() <= GOAL[len(servers)] < GO[len(servers)]


def lived(cloud: Double | OpenStack, servers: Mapping[str, str], kubeconfig: Path) -> None:
    """Nodes with routes: what they cost, what nodes that are not Ready cost, and that nothing is
    left behind."""
    settings = f"[LoadBalancer]\nenabled = false\n[Route]\nrouter-id = {cloud.router}\n"
    foreign = {"destination": "10.244.250.0/24", "nexthop": "10.24.15.250"}  # inside the cluster's range
    router = f"/v2.0/routers/{cloud.router}"
    cloud.ask("PUT", "neutron", router, {"router": {"routes": [foreign]}})
    period = PERIOD if isinstance(cloud, OpenStack) else 2
    flags = [*NODES, *ROUTES, f"--node-monitor-period={period}s", f"--route-reconciliation-period={2 * period}s"]

    def routes() -> int:
        return len(cloud.ask("GET", "neutron", router)["router"]["routes"]) - 1

    def pairs() -> int:
        ports = cloud.ask("GET", "neutron", "/v2.0/ports")["ports"]
        return sum(len(one["allowed_address_pairs"]) for one in ports if one["device_id"] in servers.values())

    number = len(servers)
    with Cluster(kubeconfig) as cluster:
        nodes = {name: cluster.join(name) for name in servers}
        count = Count(cloud)
        with ManagerRun(kubeconfig, new_provider(login(cloud, settings)), flags):
            cluster.wait_until(lambda: all(node.is_initialized for node in nodes.values()), timeout=180)
            cluster.wait_until(lambda: routes() == number, timeout=180)
            asked = count.so_far()
            print(f"{number} nodes with routes: {asked.total()} requests, {dict(asked)}")
            assert asked["neutron PUT /v2.0/routers/ID/add_extraroutes"] <= 3
            assert asked["neutron PUT /v2.0/ports/ID"] == number == pairs()

            for node in nodes.values():
                node.mark_not_ready()
            time.sleep(period)  # real time: the periods of the manager
            count.again()  # each was asked about as it changed
            time.sleep(3 * period)
            asked = count.so_far()
            print(f"{number} nodes not Ready, {3 * period} s: {asked.total()} requests, {dict(asked)}")
            assert 1 <= asked["nova GET /v2.1/servers/detail"] <= 5
            assert asked["nova GET /v2.1/servers/ID"] == 0
            for node in nodes.values():
                node.mark_ready()

            lost, *_ = nodes
            nodes[lost].delete()  # the Node alone: its server lives on
            cluster.wait_until(lambda: routes() == number - 1 and pairs() == number - 1, timeout=120)
            gone = next(name for name in servers if name != lost)
            cloud.delete_server(servers[gone])
            nodes[gone].mark_not_ready()
            cluster.wait_until(lambda: not nodes[gone].exists and routes() == number - 2, timeout=120)
            for name in servers.keys() - {lost, gone}:
                nodes[name].delete()
            cluster.wait_until(lambda: routes() == pairs() == 0, timeout=120)
    assert cloud.ask("GET", "neutron", router)["router"]["routes"] == [foreign]
    cloud.ask("PUT", "neutron", router, {"router": {"routes": []}})


@pytest.mark.parametrize("number", [20, 200])
def test_nodes_are_initialised_in_few_requests(number: int, kubernetes: Path) -> None:
    with served() as cloud:
        started(cloud, {f"node-{one}": cloud.create_server(f"node-{one}") for one in range(number)}, kubernetes)


def test_routes_come_and_go_with_nodes_and_strangers_stay(kubernetes: Path) -> None:
    with served() as cloud:
        lived(cloud, {f"node-{one}": cloud.create_server(f"node-{one}") for one in range(6)}, kubernetes)


def on_the_services(openstack: OpenStack, number: int) -> dict[str, str]:
    """So many servers of one prefix: one that is really made, and copies of its rows."""
    mark = f"m{uuid.uuid4().hex[:6]}"
    made = openstack.create_server(f"{mark}-first")
    return {f"{mark}-first": made, **openstack.clone_servers(number - 1, mark)}


@pytest.mark.parametrize("number", [20, 200])
def test_nodes_on_the_services(number: int, openstack: OpenStack, kubernetes: Path) -> None:
    started(openstack, on_the_services(openstack, number), kubernetes)


def test_routes_on_the_services(openstack: OpenStack, kubernetes: Path) -> None:
    lived(openstack, on_the_services(openstack, 5), kubernetes)
