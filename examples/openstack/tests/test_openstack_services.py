"""The lab itself: what tests are promised of OpenStack's own services."""

from __future__ import annotations

import time
import uuid

from tests.lab.openstack.cloud import OpenStack

pytest_plugins = ["tests.lab.openstack.fixtures"]


def test_servers_networks_and_load_balancers_are_the_plain_users(openstack: OpenStack) -> None:
    mark = f"lab-{uuid.uuid4().hex[:6]}"
    made_really = openstack.create_server(f"{mark}-1")
    copies = openstack.clone_servers(3, f"{mark}-copy")
    since = time.time()
    with openstack.connect("lab-application") as cloud:
        servers = {one.name: one for one in cloud.compute.servers(name=mark)}
        assert {name: one.id for name, one in servers.items()} == {f"{mark}-1": made_really, **copies}
        ports = {one.device_id: one for one in cloud.network.ports(network_id=openstack.network)}
        [address] = servers[f"{mark}-copy-2"].addresses["nodes"]
        assert ports[copies[f"{mark}-copy-2"]].fixed_ips[0]["ip_address"] == address["addr"]
        assert {one.name for one in cloud.network.networks()} == {"nodes", "public"}
        made = cloud.load_balancer.create_load_balancer(name="lab", vip_subnet_id=openstack.subnet)
        cloud.load_balancer.wait_for_load_balancer(made.id, interval=1, wait=120)
        cloud.load_balancer.delete_load_balancer(made.id)
        openstack.wait(lambda: cloud.load_balancer.find_load_balancer(made.id) is None, "the end of the load balancer")
    counts = openstack.counts(since, agent="openstacksdk")
    assert counts["octavia POST /v2.0/lbaas/loadbalancers"] == 1
    assert counts["neutron GET /v2.0/networks"] == 1
    for one in (made_really, *copies.values()):
        openstack.delete_server(one)
