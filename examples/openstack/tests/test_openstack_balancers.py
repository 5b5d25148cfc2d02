"""Load balancers on the double, and on OpenStack's own services: what there is afterwards, and what
it cost.

The faults are those of the Go manager that were seen on the same services.
"""

from __future__ import annotations

import sqlite3
from copy import deepcopy
from typing import cast
from uuid import uuid4

import pytest
from balancersbench import CLUSTER, PREFIX, Bench, Counted, a_node, address_of
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_status import V1ServiceStatus
from openstack_provider.ownership import NotOurs
from openstackdouble import Double
from osbench import Nodes

from cloudprovider import CloudProviderError, InvalidService, Listers, Pending, QuotaExceeded, RetryError
from cloudprovider.helpers import node_name
from cloudprovider.testing.conformance.lab import new_service

pytest_plugins = ["balancersfixtures", "tests.lab.openstack.fixtures"]


def test_one_service_from_begin_to_end(bench: Bench) -> None:
    manager, nodes = bench.manager(), bench.nodes
    service = bench.service(manager)
    before = bench.left()
    with Counted(bench) as made:
        [address] = bench.ensure(manager, service)
    assert made.calls <= 7
    assert len(made.writes) == 2, made.writes
    assert address.startswith("203.0.113.")
    found = bench.balancer(service)
    assert service.metadata is not None
    assert set(found["tags"]) == {
        found["name"], "kubernetes-cluster-uid=cluster-1", f"kubernetes-service-uid={service.metadata.uid}",
    }  # fmt: skip
    with Counted(bench) as again:
        assert bench.ensure(bench.manager(), service) == [address]
    assert again.calls <= 5
    assert not again.writes
    with Counted(bench) as joined:
        bench.update(manager, service, nodes[:3])
    assert joined.calls <= 3
    assert len(joined.writes) == 1
    bench.settled(found["id"])
    [there] = bench.members(found["id"]).values()
    assert there == {(address_of(node), 30080) for node in nodes[:3]}
    assert service.spec is not None
    service.spec.load_balancer_source_ranges = ["192.0.2.0/24"]
    with Counted(bench) as limited:
        bench.ensure(manager, service, nodes[:3])
    assert limited.calls <= 6
    assert len(limited.writes) == 1
    bench.settled(found["id"])
    [listener] = bench.octavia(f"listeners?loadbalancer_id={found['id']}")["listeners"]
    assert listener["allowed_cidrs"] == ["192.0.2.0/24"]
    [owned] = [one for one in manager.owned_load_balancers(CLUSTER) if one.service_uid == service.metadata.uid]
    assert owned.name == manager.get_load_balancer_name(CLUSTER, service)
    with Counted(bench) as deleted:
        bench.delete(manager, service)
    assert deleted.calls <= 4
    assert len(deleted.writes) == 2
    assert bench.left() == before
    assert manager.get_load_balancer(CLUSTER, service) is None


def test_one_security_group_for_all_nodes(bench: Bench) -> None:
    """Not one for each Service: a node's port is changed once."""
    manager = bench.manager("manage-security-groups=true")
    first = bench.service(manager, ports=[(80, 30080)])
    bench.ensure(manager, first, bench.nodes)
    second = bench.service(manager, ports=[(80, 31080), (443, 31443)])
    with Counted(bench) as made:
        bench.ensure(manager, second, bench.nodes)
    assert made.calls <= 12
    assert len(made.writes) <= 6, made.writes
    [group] = [one for one in bench.neutron("security-groups") if one["name"].startswith("kubernetes")]
    rules = {one["port_range_min"] for one in group["security_group_rules"] if one["direction"] == "ingress"}
    assert rules == {30080, 31080, 31443}
    ports = bench.neutron(f"ports?security_groups={group['id']}")
    assert len(ports) == len(bench.nodes)
    assert all(len(one["security_groups"]) == 2 for one in ports), "the nodes' own groups are kept"
    assert second.spec is not None
    assert second.spec.ports is not None
    second.spec.ports[1].node_port = 31999
    bench.ensure(manager, second, bench.nodes)
    bench.delete(manager, first)
    [group] = [one for one in bench.neutron("security-groups") if one["name"].startswith("kubernetes")]
    rules = {one["port_range_min"] for one in group["security_group_rules"] if one["direction"] == "ingress"}
    assert rules == {31080, 31999}


def test_the_node_ports_of_a_server_that_left_the_cluster_are_closed(bench: Bench) -> None:
    """Not those of a node that is only left out: other Services may use it, and connections end."""
    manager, nodes = bench.manager("manage-security-groups=true"), bench.nodes[:3]
    service = bench.service(manager, ports=[(80, 30080), (443, 30443)])
    bench.ensure(manager, service, nodes)
    [group] = [one["id"] for one in bench.neutron("security-groups") if one["name"].startswith("kubernetes")]
    server = nodes[2].spec.provider_id[-36:]  # type: ignore[union-attr,index]
    [own] = [one for one in bench.neutron(f"ports?device_id={server}")[0]["security_groups"] if one != group]

    def groups_after(*known: V1Node) -> list[str]:
        manager.use(cast("Listers", Nodes(*known)))
        bench.update(manager, service, nodes)
        bench.settled(bench.balancer(service)["id"])
        bench.update(manager, service, nodes[:2])
        bench.settled(bench.balancer(service)["id"])
        found: list[str] = bench.neutron(f"ports?device_id={server}")[0]["security_groups"]
        return found

    assert group in groups_after(*nodes), "its Node is there"
    new = a_node("new", "", "")
    new.spec = None
    assert group in groups_after(*nodes[:2], new), "any server may be the new node's"
    assert groups_after(*nodes[:2]) == [own]
    assert len(bench.neutron(f"ports?security_groups={group}")) == 2
    with Counted(bench) as joined:
        bench.update(manager, service, nodes)
    assert joined.calls <= 9
    assert len(joined.writes) == 3
    assert len(bench.neutron(f"ports?security_groups={group}")) == 3


def test_several_services_on_one_load_balancer(bench: Bench) -> None:
    manager = bench.manager()
    owner = bench.service(manager)
    address = bench.ensure(manager, owner)
    found = bench.balancer(owner)
    shared = {PREFIX + "load-balancer-id": found["id"]}
    other = bench.service(manager, ports=[(8080, 31080)], annotations=shared)
    assert bench.ensure(manager, other) == address
    bench.settled(found["id"])
    with pytest.raises(InvalidService, match="max-shared-lb"):
        bench.ensure(manager, bench.service(manager, ports=[(81, 31081)], annotations=shared))
    more = bench.manager("max-shared-lb=3")
    with pytest.raises(InvalidService, match="another Service"):
        bench.ensure(more, bench.service(more, ports=[(80, 31082)], annotations=shared))
    bench.update(manager, other, bench.nodes[:3])
    bench.settled(found["id"])
    assert sorted(map(len, bench.members(found["id"]).values())) == [2, 3]
    bench.delete(manager, owner)
    bench.settled(found["id"])
    [left] = bench.octavia(f"listeners?loadbalancer_id={found['id']}")["listeners"]
    assert left["protocol_port"] == 8080
    assert bench.balancer(owner)["tags"].count("kubernetes-cluster-uid=cluster-1") == 1
    assert bench.ensure(manager, other) == address


def test_fault_1_another_clusters_load_balancer_is_left_alone(bench: Bench) -> None:
    ours, theirs = bench.manager(), bench.manager(uid="cluster-2")
    name = f"s-{uuid4().hex[:8]}"
    first, second = bench.service(ours, name), bench.service(theirs, name)
    address = bench.ensure(ours, first)
    assert theirs.get_load_balancer(CLUSTER, second) is None
    with pytest.raises(NotOurs, match="another cluster"):
        bench.ensure(theirs, second)
    # Users write annotations: an ID or an address there gives nothing away.
    assert second.metadata is not None
    second.metadata.annotations = {
        PREFIX + "load-balancer-id": bench.balancer(first)["id"], PREFIX + "load-balancer-address": address[0],
    }  # fmt: skip
    with pytest.raises(NotOurs, match="another cluster"):
        bench.ensure(theirs, second)
    second.status = deepcopy(first.status)
    bench.delete(theirs, second)
    assert theirs.owned_load_balancers(CLUSTER) == []
    assert ours.get_load_balancer(CLUSTER, first) == first.status.load_balancer  # type: ignore[union-attr]
    recreated = bench.service(ours, name)
    with pytest.raises(NotOurs, match="another Service"):
        bench.ensure(ours, recreated)


def of_the_go_manager(bench: Bench, service: V1Service) -> tuple[str, str]:
    """What the Go manager builds for a Service. Returns the ID and the floating address."""
    assert service.metadata is not None
    key = f"default/{service.metadata.name}"
    name = f"kube_service_{CLUSTER}_default_{service.metadata.name}"
    spot = {"protocol_port": 30080, "subnet_id": bench.cloud.subnet}
    members = [{"name": node_name(node), "address": address_of(node), **spot} for node in bench.nodes[:2]]
    pool = {"name": f"pool_0_{name}", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members}
    listener = {
        "name": f"listener_0_{name}", "protocol": "TCP", "protocol_port": 80, "tags": [name], "connection_limit": -1,
        "timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0, "allowed_cidrs": ["0.0.0.0/0"], "default_pool": pool,
    }  # fmt: skip
    body = {"name": name, "description": f"Kubernetes external service {key} from cluster {CLUSTER}", "tags": [name],
            "vip_subnet_id": bench.cloud.subnet, "listeners": [listener]}  # fmt: skip
    made = bench.octavia("loadbalancers", "POST", {"loadbalancer": body})["loadbalancer"]
    told = f"Floating IP for Kubernetes external service {key} from cluster {CLUSTER}"
    floating = {"floating_network_id": bench.cloud.external, "port_id": made["vip_port_id"], "description": told}
    address = bench.neutron("floatingips", "POST", {"floatingip": floating})
    group = {"name": f"lb-sg-{service.metadata.uid}-default-{service.metadata.name}"}
    bench.neutron("security-groups", "POST", {"security_group": group})
    bench.settled(made["id"])
    return str(made["id"]), str(address["floating_ip_address"])


def test_the_go_managers_load_balancer_is_taken_over_without_a_change(bench: Bench) -> None:
    manager = bench.manager()
    service = bench.service(manager)
    balancer, address = of_the_go_manager(bench, service)
    assert service.metadata is not None
    service.metadata.annotations = {PREFIX + "load-balancer-id": balancer, PREFIX + "load-balancer-address": address}
    [orphan] = [one for one in manager.owned_load_balancers(CLUSTER) if one.name == bench.balancer(service)["name"]]
    with pytest.raises(CloudProviderError, match="look whose it is"):
        manager.delete_owned_load_balancer(CLUSTER, orphan)
    # Without the status nothing proves that it is not another cluster's of this name.
    with pytest.raises(NotOurs, match="openstack loadbalancer set --no-tag --tag"):
        bench.ensure(manager, service)
    bench.delete(manager, service)
    before = bench.octavia(f"listeners?loadbalancer_id={balancer}")["listeners"], bench.members(balancer)
    ingress = [V1LoadBalancerIngress(ip=address, ip_mode="VIP")]
    service.status = V1ServiceStatus(load_balancer=V1LoadBalancerStatus(ingress=ingress))
    with Counted(bench) as adopted:
        assert bench.ensure(manager, service) == [address]
    assert [one.split(" ")[0] for one in adopted.writes] == ["PUT"], "only our marks"
    after = bench.octavia(f"listeners?loadbalancer_id={balancer}")["listeners"], bench.members(balancer)
    assert after == before
    bench.delete(manager, service)
    assert not bench.balancers(service)


def test_two_of_one_name_are_an_error(bench: Bench) -> None:
    """Of a time before there were tags, say: which one is the Service's nobody can know."""
    manager = bench.manager()
    service = bench.service(manager)
    assert service.metadata is not None
    body = {"name": f"kube_service_{CLUSTER}_default_{service.metadata.name}", "vip_subnet_id": bench.cloud.subnet}
    made = [bench.octavia("loadbalancers", "POST", {"loadbalancer": body})["loadbalancer"]["id"] for _ in range(2)]
    with pytest.raises(CloudProviderError, match="2 load balancers have the name"):
        bench.ensure(manager, service)
    bench.delete(manager, service)
    for one in made:
        bench.settled(one)
        bench.octavia(f"loadbalancers/{one}", "DELETE")
    while bench.balancers(service):
        bench.pause(1.0)


def test_an_administrator_says_whose_it_is(bench: Bench) -> None:
    """As the refusal tells: where a cluster was set up again, say, from a backup."""
    former, manager = bench.manager(uid="cluster-0"), bench.manager()
    name = f"s-{uuid4().hex[:8]}"
    address = bench.ensure(former, new_service(name, str(uuid4())))
    service = bench.service(manager, name)
    assert service.metadata is not None
    with pytest.raises(NotOurs, match="if that one is gone"):
        bench.ensure(manager, service)
    found = bench.balancer(service)["id"]
    tags = {"loadbalancer": {"tags": [f"kubernetes-service-uid={service.metadata.uid}"]}}
    bench.octavia(f"loadbalancers/{found}", "PUT", tags)
    bench.settled(found)
    assert bench.ensure(manager, service) == address
    bench.settled(found)
    assert "kubernetes-cluster-uid=cluster-1" in bench.balancer(service)["tags"]


def test_fault_2_a_node_without_an_address_is_waited_for(bench: Bench) -> None:
    manager, nodes = bench.manager(), bench.nodes
    service = bench.service(manager)
    late = a_node("late", str(nodes[2].spec.provider_id)[-36:], "")  # type: ignore[union-attr]
    bench.ensure(manager, service, [nodes[0], late])  # an address for clients is better than none
    for call in (manager.ensure_load_balancer, manager.update_load_balancer):
        bench.settled(bench.balancer(service)["id"])
        with pytest.raises(RetryError, match="no address yet of late"):
            call(CLUSTER, service, [nodes[0], late])
    with Counted(bench) as waiting, pytest.raises(RetryError, match="no address yet of late"):
        manager.update_load_balancer(CLUSTER, service, [nodes[0], late])
    assert waiting.calls == 0
    with pytest.raises(RetryError, match="no address yet of late"):  # others are not kept waiting
        manager.update_load_balancer(CLUSTER, service, [nodes[1], late])
    bench.settled(bench.balancer(service)["id"])
    [there] = bench.members(bench.balancer(service)["id"]).values()
    assert there == {(address_of(nodes[1]), 30080)}
    late.status = nodes[2].status
    bench.update(manager, service, [nodes[0], late])
    [there] = bench.members(bench.balancer(service)["id"]).values()
    assert there == {(address_of(nodes[0]), 30080), (address_of(nodes[2]), 30080)}


def test_weights_that_were_set_by_hand_stay(bench: Bench) -> None:
    manager = bench.manager()
    service = bench.service(manager)
    bench.ensure(manager, service)
    found = bench.balancer(service)["id"]
    [pool] = bench.octavia(f"pools?loadbalancer_id={found}")["pools"]
    member = bench.octavia(f"pools/{pool['id']}/members")["members"][0]
    path = f"pools/{pool['id']}/members/{member['id']}"
    bench.octavia(path, "PUT", {"member": {"weight": 42}})
    bench.settled(found)
    bench.update(manager, service, bench.nodes[:3])  # one joins
    bench.settled(found)
    bench.update(manager, service, bench.nodes[:5])  # several join
    bench.settled(found)
    bench.update(manager, service, [bench.nodes[0], bench.nodes[1], *bench.nodes[4:6]])  # some go
    bench.settled(found)
    weights = {one["address"]: one["weight"] for one in bench.octavia(f"pools/{pool['id']}/members")["members"]}
    assert weights.pop(member["address"]) == 42
    assert set(weights.values()) == {1}


def test_a_node_that_joins_is_checked_where_the_others_are(bench: Bench) -> None:
    manager = bench.manager()
    service = bench.service(manager)
    assert service.spec is not None
    service.spec.external_traffic_policy, service.spec.health_check_node_port = "Local", 32000
    bench.ensure(manager, service)
    bench.update(manager, service, bench.nodes[:3])
    found = bench.balancer(service)["id"]
    bench.settled(found)
    [pool] = bench.octavia(f"pools?loadbalancer_id={found}")["pools"]
    members = bench.octavia(f"pools/{pool['id']}/members")["members"]
    assert [(one["protocol_port"], one["monitor_port"]) for one in members] == [(30080, 32000)] * 3
    with Counted(bench) as nothing:
        bench.ensure(manager, service, bench.nodes[:3])
    assert not nothing.writes


def test_ports_protocols_and_monitors_change(bench: Bench) -> None:
    manager = bench.manager()
    service = bench.service(manager, ports=[(53, 30053, "UDP"), (53, 30054, "TCP")])
    bench.ensure(manager, service)
    found = bench.balancer(service)["id"]
    assert service.spec is not None
    assert service.spec.ports is not None
    assert service.metadata is not None
    service.spec.external_traffic_policy, service.spec.health_check_node_port = "Local", 32000
    bench.ensure(manager, service)
    bench.settled(found)
    monitors = bench.octavia("healthmonitors")["healthmonitors"]
    pools = {one["id"] for one in bench.octavia(f"pools?loadbalancer_id={found}")["pools"]}
    checks = [(one["type"], one["url_path"]) for one in monitors if one["pools"][0]["id"] in pools]
    assert checks == [("HTTP", "/healthz")] * 2
    service.metadata.annotations = {
        PREFIX + "x-forwarded-for": "true", PREFIX + "lb-method": "SOURCE_IP", PREFIX + "connection-limit": "9",
    }  # fmt: skip
    service.spec.external_traffic_policy, service.spec.session_affinity = "Cluster", "ClientIP"
    bench.ensure(manager, service)
    bench.settled(found)
    listeners = bench.octavia(f"listeners?loadbalancer_id={found}")["listeners"]
    assert {(one["protocol"], one["connection_limit"]) for one in listeners} == {("HTTP", 9), ("UDP", 9)}
    there = bench.octavia(f"pools?loadbalancer_id={found}")["pools"]
    keys = ("protocol", "lb_algorithm", "healthmonitor_id")
    assert {tuple(one.get(key) for key in keys) for one in there} == {
        ("HTTP", "SOURCE_IP", None),
        ("UDP", "SOURCE_IP", None),
    }
    assert {one["session_persistence"]["type"] for one in there} == {"SOURCE_IP"}
    service.metadata.annotations = {PREFIX + "proxy-protocol": "v2"}
    service.spec.ports = service.spec.ports[1:]
    bench.ensure(manager, service)
    bench.settled(found)
    [pool] = bench.octavia(f"pools?loadbalancer_id={found}")["pools"]
    assert (pool["protocol"], len(pool["members"])) == ("PROXYV2", 2)
    assert [one.ip_mode for one in manager.get_load_balancer(CLUSTER, service).ingress or ()] == ["Proxy"]  # type: ignore[union-attr]


def test_floating_ips_given_kept_chosen_and_none(bench: Bench) -> None:
    manager = bench.manager("floating-subnet=!nothing*")
    kept = bench.service(manager, annotations={PREFIX + "keep-floatingip": "true"})
    [address] = bench.ensure(manager, kept)
    bench.delete(manager, kept)
    [left] = bench.neutron(f"floatingips?floating_ip_address={address}")
    assert left["port_id"] is None
    given = bench.service(manager)
    assert given.spec is not None
    given.spec.load_balancer_ip = address
    assert bench.ensure(manager, given) == [address]
    taken = bench.service(manager)
    assert taken.spec is not None
    taken.spec.load_balancer_ip = address
    with pytest.raises(InvalidService, match="in use elsewhere"):
        bench.ensure(manager, taken)
    given.spec.load_balancer_ip = None
    assert given.metadata is not None
    given.metadata.annotations = {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
    [own] = bench.ensure(manager, given)
    assert own.startswith("10.24.")
    given.spec.load_balancer_ip = "10.24.9.9"
    with pytest.raises(InvalidService, match=f"has the address {own}"):
        bench.ensure(manager, given)
    bench.delete(manager, given)
    [left] = bench.neutron(f"floatingips?floating_ip_address={address}")
    bench.neutron(f"floatingips/{left['id']}", "DELETE")
    nowhere = bench.service(manager, annotations={PREFIX + "floating-subnet": "nothing*"})
    with pytest.raises(InvalidService, match="it has: public"):
        bench.ensure(manager, nowhere)


def set_state(bench: Bench, balancer: str, state: str) -> None:
    if isinstance(bench.cloud, Double):
        bench.cloud.octavia.things["loadbalancers"][balancer]["provisioning_status"] = state
        return
    with sqlite3.connect(bench.cloud.folder / "octavia.sqlite", timeout=60) as database:
        database.execute("update load_balancer set provisioning_status = ? where id = ?", (state, balancer))
    database.close()


def test_one_in_error_is_built_again_only_while_nobody_knows_its_address(bench: Bench) -> None:
    manager = bench.manager()
    service = bench.service(manager)
    bench.ensure(manager, service)
    first = bench.balancer(service)["id"]
    set_state(bench, first, "ERROR")
    with pytest.raises(CloudProviderError, match="failover"):
        manager.ensure_load_balancer(CLUSTER, service, bench.nodes[:2])
    with pytest.raises(CloudProviderError, match="failover"):
        manager.update_load_balancer(CLUSTER, service, bench.nodes[:2])
    assert bench.balancer(service)["id"] == first
    service.status = None
    with pytest.raises(RetryError, match="built again"):
        manager.ensure_load_balancer(CLUSTER, service, bench.nodes[:2])
    bench.ensure(manager, service)
    assert bench.balancer(service)["id"] != first


def test_both_families_where_the_network_has_both(bench: Bench) -> None:
    manager = bench.manager()
    service = bench.service(manager)
    assert service.spec is not None
    service.spec.ip_families, service.spec.ip_family_policy = ["IPv4", "IPv6"], "RequireDualStack"
    with pytest.raises(InvalidService, match="no subnet of IPv6"):
        bench.ensure(manager, service)
    if isinstance(bench.cloud, Double):
        return  # it makes no subnets
    wanted = {"network_id": bench.cloud.network, "ip_version": 6, "cidr": "2001:db8:24::/64", "enable_dhcp": False}
    subnet = bench.neutron("subnets", "POST", {"subnet": wanted})["id"]
    try:
        four, six = bench.ensure(manager, service)
        assert four.startswith("203.0.113.")
        assert six.startswith("2001:db8:24:")
        bench.delete(manager, service)
    finally:
        bench.neutron(f"subnets/{subnet}", "DELETE")


def test_a_floating_ip_that_changed_hands_is_not_deleted(bench: Bench) -> None:
    """Not even where this process remembers it as its own: by its revision it is another one."""
    manager = bench.manager()
    service = bench.service(manager)
    bench.ensure(manager, service)
    [address] = bench.ensure(manager, service)
    [floating] = bench.neutron(f"floatingips?floating_ip_address={address}")
    bench.neutron(f"floatingips/{floating['id']}", "PUT", {"floatingip": {"description": "the shop's, do not delete"}})
    bench.delete(manager, service)
    [left] = bench.neutron(f"floatingips?floating_ip_address={address}")
    assert left["port_id"] is None
    bench.neutron(f"floatingips/{floating['id']}", "DELETE")


def test_fault_5_a_load_balancer_that_is_at_work_is_waited_for(bench: Bench, broken: Double) -> None:
    """Another call, or another program, changed it in the moment before."""
    manager = bench.manager()
    service = bench.service(manager)
    bench.ensure(manager, service)
    refusal = {"faultcode": "Client", "faultstring": "Load Balancer x is immutable and cannot be updated."}
    broken.answers["POST octavia /v2.0/lbaas/pools"] = (409, refusal)
    with pytest.raises(Pending):
        manager.update_load_balancer(CLUSTER, service, bench.nodes[:3])
    broken.answers.clear()
    bench.update(manager, service, bench.nodes[:3])


def test_a_full_quota_is_told_in_one_line(bench: Bench, broken: Double) -> None:
    manager = bench.manager("manage-security-groups=true")
    service = bench.service(manager)
    with broken.exhausted(), pytest.raises(QuotaExceeded) as caught:
        bench.ensure(manager, service)
    assert "\n" not in str(caught.value)
    assert "uota" in str(caught.value)


def test_a_port_that_changed_meanwhile_is_read_again(bench: Bench, broken: Double) -> None:
    """Groups that another program put on a node's port at that moment are kept."""
    manager = bench.manager("manage-security-groups=true")
    service = bench.service(manager)
    broken.answers["PUT neutron /v2.0/ports"] = (
        412,
        {"NeutronError": {"message": "revision", "type": "x", "detail": ""}},
    )
    with pytest.raises(RetryError, match="changed meanwhile"):
        manager.ensure_load_balancer(CLUSTER, service, bench.nodes[:2])
    broken.answers.clear()
    bench.ensure(manager, service)
