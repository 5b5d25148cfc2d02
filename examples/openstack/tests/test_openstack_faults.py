"""What breaks in the cloud while the whole manager runs, over the double: a token that ends between
two requests of a call, a network that somebody renames, Octavia away while Nova answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from openstack_provider.provider import new_provider
from openstackdouble import Double, served
from osbench import login
from typing_extensions import override

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from controllers.testing import Cluster, ManagerRun

FLAGS = ("--cluster-name=faults", "--controllers=cloud-node,cloud-node-lifecycle,service")
PATIENCE = 60.0


class ShortLived(Double):
    """Ends every token after each second answer of Octavia or Neutron: in the middle of calls."""

    answered = 0
    built = 0
    """Load balancers and floating IPs that it has made."""

    @override
    def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        found = super().answer(method, target, headers, body)
        if found[0] < 400 and target.startswith(("/octavia/", "/neutron/")):
            self.answered += 1
            self.built += method == "POST" and target.endswith(("/loadbalancers", "/floatingips"))
            if self.answered % 2 == 0:
                self.end_tokens()
        return found


@pytest.fixture
def cloud() -> Iterator[Double]:
    with served() as made:
        yield made


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with EmbeddedAPIServer() as api:
        yield api.write_kubeconfig(tmp_path / "kubeconfig")


def test_a_token_that_ends_in_mid_call_is_renewed_and_nothing_is_built_twice(kubeconfig: Path) -> None:
    cloud = ShortLived()
    with served(cloud), Cluster(kubeconfig) as cluster:
        cloud.create_server("node-1")
        with ManagerRun(kubeconfig, new_provider(login(cloud)), FLAGS):
            node = cluster.join("node-1")
            cluster.wait_until(lambda: node.is_initialized, timeout=PATIENCE)
            service = cluster.expose("web")
            cluster.wait_until(lambda: service.addresses, timeout=PATIENCE)
            assert cloud.built == 2
            assert cloud.counts()["keystone POST /v3/auth/tokens"] > 2
            service.delete()
            cluster.wait_until(lambda: not service.exists, timeout=PATIENCE)
    assert cloud.octavia.things["loadbalancers"] == cloud.neutron.things["floatingips"] == {}


def test_a_node_keeps_its_addresses_when_its_network_is_renamed(cloud: Double, kubeconfig: Path) -> None:
    server = cloud.create_server("node-1")
    with Cluster(kubeconfig) as cluster:
        provider = new_provider(login(cloud, "[Networking]\ninternal-network-name = nodes\n"))
        with ManagerRun(kubeconfig, provider, FLAGS):
            node = cluster.join("node-1")
            cluster.wait_until(lambda: node.is_initialized, timeout=PATIENCE)
            before = node.addresses
            assert "InternalIP" in [kind for kind, _ in before]
            addresses = cloud.nova.servers[server]["addresses"]
            addresses["others"] = addresses.pop("nodes")
            [network] = [one for one in cloud.neutron.things["networks"].values() if one["name"] == "nodes"]
            network["name"] = "others"
            since = len(cloud.requests)
            asked = "nova GET /v2.1/servers/ID"
            cluster.wait_until(lambda: cloud.counts(since)[asked] > 2, timeout=PATIENCE)
            assert node.addresses == before
            assert node.is_initialized


def test_nodes_come_while_octavia_is_away_and_services_when_it_is_back(cloud: Double, kubeconfig: Path) -> None:
    cloud.create_server("node-1")
    away = [f"{method} octavia " for method in ("GET", "POST", "PUT", "DELETE")]
    cloud.answers |= dict.fromkeys(away, (503, {"faultstring": "no server is available"}))
    with Cluster(kubeconfig) as cluster, ManagerRun(kubeconfig, new_provider(login(cloud)), FLAGS):
        service = cluster.expose("web")
        node = cluster.join("node-1")
        cluster.wait_until(lambda: node.is_initialized, timeout=PATIENCE)
        cluster.wait_until(lambda: any("503" in str(one) for one in cluster.events(service)), timeout=PATIENCE)
        assert service.addresses == []
        for one in away:
            del cloud.answers[one]
        cluster.wait_until(lambda: service.addresses, timeout=PATIENCE)
        cluster.wait_until(lambda: len(cloud.octavia.things["loadbalancers"]) == 1, timeout=PATIENCE)
        service.delete()
        cluster.wait_until(lambda: not service.exists, timeout=PATIENCE)
