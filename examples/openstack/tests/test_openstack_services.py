"""The lab itself: what tests are promised of OpenStack's own services."""

from __future__ import annotations

import time

from tests.lab.openstack.cloud import OpenStack


def test_servers_networks_and_load_balancers_are_the_plain_users(openstack: OpenStack) -> None:
    openstack.create_server("lab-1")
    copies = openstack.clone_servers(3, "lab-copy")
    since = time.time()
    with openstack.connect("lab-application") as cloud:
        servers = {one.name: one for one in cloud.compute.servers(name="lab-")}
        assert servers.keys() == {"lab-1", *copies}
        assert servers["lab-copy-2"].id == copies["lab-copy-2"]
        ports = {one.device_id: one for one in cloud.network.ports(network_id=openstack.network)}
        [address] = servers["lab-copy-2"].addresses["nodes"]
        assert ports[copies["lab-copy-2"]].fixed_ips[0]["ip_address"] == address["addr"]
        assert {one.name for one in cloud.network.networks()} == {"nodes", "public"}
        made = cloud.load_balancer.create_load_balancer(name="lab", vip_subnet_id=openstack.subnet)
        cloud.load_balancer.wait_for_load_balancer(made.id, interval=0.5, wait=120)
        cloud.load_balancer.delete_load_balancer(made.id)
        openstack.wait(lambda: cloud.load_balancer.find_load_balancer(made.id) is None, "the end of the load balancer")
    counts = openstack.counts(since, agent="openstacksdk")
    assert counts["octavia POST /v2.0/lbaas/loadbalancers"] == 1
    assert counts["neutron GET /v2.0/networks"] == 1
    for one in servers.values():
        openstack.delete_server(one.id)
