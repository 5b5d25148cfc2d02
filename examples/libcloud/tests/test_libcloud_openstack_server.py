"""The provider under a manager, against OpenStack's own services: nodes get what Nova and Neutron
know, and go with their servers. By `make openstack`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from libcloud_provider.provider import new_provider

from cloudprovider import CloudConfig, Interface
from controllers.testing.cluster import Cluster
from controllers.testing.managerrun import ManagerRun

pytest.importorskip("tests.lab.openstack", reason="only in a clone of the SDK's repository")
from tests.lab.openstack.cloud import FLAVOR, PASSWORD, PROJECT, USER, OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]

CONFIG = """
driver: openstack
region: RegionOne
arguments:
  key: {user}
  ex_force_auth_url: {url}
  ex_force_auth_version: 3.x_password
  ex_tenant_name: {project}
  ex_force_microversion: "2.47"
credentials: {{secret: {secret}}}
"""
PATIENCE = 120.0


@pytest.fixture
def cloud_config(openstack: OpenStack, tmp_path: Path) -> CloudConfig:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    facts = {"url": openstack.url("keystone"), "secret": secret, "user": USER, "project": PROJECT}
    return CloudConfig(path="", data=CONFIG.format(**facts).encode())


@pytest.fixture
def provider(cloud_config: CloudConfig) -> Interface:
    return new_provider(cloud_config)


@pytest.fixture
def manager_flags() -> Sequence[str]:
    return ["--node-monitor-period=1s", "--node-deletion-young-grace=0s"]


def test_nodes_are_initialised_and_go_with_their_servers(
    openstack: OpenStack, cluster: Cluster, manager: ManagerRun
) -> None:
    servers = {name: openstack.create_server(name) for name in ("node-1", "node-2")}
    nodes = {name: cluster.join(name) for name in servers}
    cluster.wait_until(lambda: all(node.is_initialized for node in nodes.values()), PATIENCE)
    for name, node in nodes.items():
        assert node.provider_id == f"openstack:///{servers[name]}"
        listed = openstack.ask("GET", "nova", f"/v2.1/servers/{servers[name]}")["server"]["addresses"]["nodes"]
        assert node.addresses == [("InternalIP", listed[0]["addr"]), ("Hostname", name)]
        labels = node.labels
        assert labels["node.kubernetes.io/instance-type"] == FLAVOR
        assert labels["topology.kubernetes.io/zone"] == "nova"
        assert labels["topology.kubernetes.io/region"] == "RegionOne"
    openstack.ask("POST", "nova", f"/v2.1/servers/{servers['node-1']}/action", {"os-stop": None})
    nodes["node-1"].mark_not_ready()
    cluster.wait_until(lambda: "node.cloudprovider.kubernetes.io/shutdown" in nodes["node-1"].taints, PATIENCE)
    openstack.delete_server(servers["node-2"])
    nodes["node-2"].mark_not_ready()
    cluster.wait_until(lambda: not nodes["node-2"].exists, PATIENCE)
    assert nodes["node-1"].exists
    openstack.delete_server(servers["node-1"])
