"""The change from the Go manager and back, by the whole manager: what plan mode prints, and that
nothing in OpenStack changes but tags of ours. On the double, and on OpenStack's own services."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from openstack_provider.provider import new_provider
from openstackdouble import Double, served
from osbench import login

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from controllers.app import CATALOG, PlanRun, parse
from controllers.runtime.api import MERGE_PATCH, ClientBuilder
from controllers.testing import Cluster, ManagerRun, ServiceHandle
from controllers.testing.managerrun import QUICK
from tests.lab.openstack.cloud import OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]

CLUSTER = "prod"
FLAGS = (f"--cluster-name={CLUSTER}", "--controllers=cloud-node,cloud-node-lifecycle,service")
OURS = ("kubernetes-service-uid=", "kubernetes-cluster-uid=", "kubernetes-adopted=true")
APPLIED = "kubernetes-cloud-provider/applied-load-balancer"
MOVES = ("updated_at", "revision_number")
"""What moves with each write, and with a status of the cloud's own."""


@pytest.fixture(params=["double", "openstack"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Double | OpenStack]:
    if request.param == "double":
        with served() as made:
            yield made
    else:
        yield request.getfixturevalue("openstack")


def built_by_go(cloud: Double | OpenStack, service: ServiceHandle, node: str, server: str) -> tuple[str, str]:
    """What the Go manager made for the Service in the cloud, and noted on it. Returns the load
    balancer's ID and its address."""
    name, key = f"kube_service_{CLUSTER}_default_{service.name}", f"default/{service.name}"
    port = service.json["spec"]["ports"][0]
    spot = {"address": address_of(cloud, server), "protocol_port": port["nodePort"], "subnet_id": cloud.subnet}
    pool = {
        "name": f"pool_0_{name}", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": [{"name": node, **spot}],
    }  # fmt: skip
    listener = {
        "name": f"listener_0_{name}", "protocol": "TCP", "protocol_port": port["port"], "tags": [name],
        "connection_limit": -1, "timeout_client_data": 50000, "timeout_member_connect": 5000,
        "timeout_member_data": 50000, "timeout_tcp_inspect": 0, "allowed_cidrs": ["0.0.0.0/0"], "default_pool": pool,
    }  # fmt: skip
    body = {
        "name": name, "description": f"Kubernetes external service {key} from cluster {CLUSTER}", "tags": [name],
        "vip_subnet_id": cloud.subnet, "listeners": [listener],
    }  # fmt: skip
    path = "/v2.0/lbaas/loadbalancers"
    made = cloud.ask("POST", "octavia", path, {"loadbalancer": body})["loadbalancer"]
    told = f"Floating IP for Kubernetes external service {key} from cluster {CLUSTER}"
    wanted = {"floating_network_id": cloud.external, "port_id": made["vip_port_id"], "description": told}
    floating = cloud.ask("POST", "neutron", "/v2.0/floatingips", {"floatingip": wanted})["floatingip"]
    address = floating["floating_ip_address"]
    settled(cloud, made["id"])
    noted = {"load-balancer-id": made["id"], "load-balancer-address": address}
    service.patch({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
    service.annotate({f"loadbalancer.openstack.org/{one}": value for one, value in noted.items()})
    return str(made["id"]), str(address)


def settled(cloud: Double | OpenStack, balancer: str) -> None:
    """Until Octavia has done its work."""

    def is_active() -> bool:
        found = cloud.ask("GET", "octavia", f"/v2.0/lbaas/loadbalancers/{balancer}")["loadbalancer"]
        return bool(found["provisioning_status"] == "ACTIVE")

    if isinstance(cloud, OpenStack):
        cloud.wait(is_active, f"load balancer {balancer}")
    else:
        while not is_active():
            pass


def address_of(cloud: Double | OpenStack, server: str) -> str:
    ports = cloud.ask("GET", "neutron", f"/v2.0/ports?device_id={server}")["ports"]
    return str(ports[0]["fixed_ips"][0]["ip_address"])


def everything(cloud: Double | OpenStack, balancer: str) -> Mapping[str, Any]:
    """All of the load balancer, as the cloud has it, without what moves by itself."""
    lbaas = "/v2.0/lbaas"
    found = {
        f"{kind} {one['id']}": one
        for kind in ("listeners", "pools")
        for one in cloud.ask("GET", "octavia", f"{lbaas}/{kind}?loadbalancer_id={balancer}")[kind]
    }
    for pool in [one.removeprefix("pools ") for one in found if one.startswith("pools ")]:
        members = cloud.ask("GET", "octavia", f"{lbaas}/pools/{pool}/members")["members"]
        found |= {f"member {one['id']}": one for one in members}
    found["balancer"] = cloud.ask("GET", "octavia", f"{lbaas}/loadbalancers/{balancer}")["loadbalancer"]
    port = found["balancer"]["vip_port_id"]
    found["port"] = cloud.ask("GET", "neutron", f"/v2.0/ports/{port}")["port"]
    found["floating"] = cloud.ask("GET", "neutron", f"/v2.0/floatingips?port_id={port}")["floatingips"]
    found = deepcopy(found)
    for one in found.values():
        if isinstance(one, dict):
            for key in MOVES:
                one.pop(key, None)
    return found


def is_built(service: ServiceHandle) -> bool:
    """Whether the manager has written that all is done. Before it asks the cloud it writes
    spec=none."""
    note = service.annotations.get(APPLIED, "")
    return " spec=" in note and " spec=none" not in note


def planned(kubeconfig: Path, cloud: Double | OpenStack) -> list[tuple[str, str]]:
    """What plan mode would do: object and action."""
    argv = ["--cloud-provider=openstack", f"--kubeconfig={kubeconfig}", *QUICK, *FLAGS, "--dry-run"]
    parsed = parse(argv, CATALOG)
    assert parsed.options is not None, parsed.problems
    with ClientBuilder.from_options(str(kubeconfig)) as clients:
        outcome = PlanRun(parsed.options, new_provider(login(cloud)), clients).run(threading.Event())
    assert outcome is not None
    assert outcome.complete
    return [(row.subject.kind, row.action) for row in outcome.rows]


def test_a_cluster_changes_over_and_nothing_but_tags_is_written(cloud: Double | OpenStack, tmp_path: Path) -> None:
    name = f"h{uuid.uuid4().hex[:6]}"
    server = cloud.create_server(name)
    with EmbeddedAPIServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        with Cluster(kubeconfig) as cluster:
            node = cluster.join(name)
            with ManagerRun(kubeconfig, new_provider(login(cloud)), FLAGS):  # the node as any manager leaves it
                cluster.wait_until(lambda: node.is_initialized, timeout=120)
            service = cluster.expose(f"s-{name}")
            balancer, address = built_by_go(cloud, service, name, server)
            path = f"/api/v1/namespaces/default/services/{service.name}/status"
            status = {"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}}
            with ClientBuilder.from_options(str(kubeconfig)) as clients:
                clients.rest("go").request("PATCH", path, body=status, content_type=MERGE_PATCH)
            before = everything(cloud, balancer)
            assert sorted(planned(kubeconfig, cloud)) == [
                ("Service", "annotate"), ("Service", "ensure load balancer"),
            ]  # fmt: skip
            assert everything(cloud, balancer) == before, "a plan writes nothing"

            with ManagerRun(kubeconfig, new_provider(login(cloud)), FLAGS):
                cluster.wait_until(lambda: is_built(service), timeout=120)
            after = dict(everything(cloud, balancer))
            tags = after["balancer"]["tags"]
            after["balancer"] = {**after["balancer"], "tags": [one for one in tags if not one.startswith(OURS)]}
            assert after == before, "the Go manager finds all as it left it"
            assert len(tags) == len(OURS) + 1
            assert service.addresses == [address]
            assert planned(kubeconfig, cloud) == []

            with ManagerRun(kubeconfig, new_provider(login(cloud)), FLAGS):
                service.delete()
                cluster.wait_until(lambda: not service.exists, timeout=120)
    tag = f"kube_service_{CLUSTER}_default_s-{name}"
    assert cloud.ask("GET", "octavia", f"/v2.0/lbaas/loadbalancers?tags={tag}")["loadbalancers"] == []
    assert cloud.ask("GET", "neutron", f"/v2.0/floatingips?floating_ip_address={address}")["floatingips"] == []
    cloud.delete_server(server)
