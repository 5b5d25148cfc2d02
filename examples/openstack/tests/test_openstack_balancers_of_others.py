"""What others have in the same cloud, and what others write at the same moment: nothing of theirs
is touched, and what they give us to read is not taken for ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from balancersbench import CLUSTER, PREFIX, Bench, address_of
from openstackdouble import Double
from osbench import Nodes

from cloudprovider import CloudProviderError, Listers

pytest_plugins = ["balancersfixtures", "tests.lab.openstack.fixtures"]


def things(cloud: Double, kind: str) -> dict[str, Any]:
    return cloud.neutron.things[kind]


def test_teardown_leaves_what_another_cluster_built_that_could_not_read_its_uid(bench: Bench) -> None:
    blind, seeing = bench.manager(uid=""), bench.manager(uid="cluster-2")
    service = bench.service(blind)
    bench.ensure(blind, service)
    assert service.metadata is not None
    key = f"default/{service.metadata.name}"
    [owned] = [one for one in seeing.owned_load_balancers(CLUSTER) if one.service == key]
    assert owned.service_uid == ""
    with pytest.raises(CloudProviderError, match="look whose it is"):
        seeing.delete_owned_load_balancer(CLUSTER, owned)


def test_a_security_group_that_another_project_shares_is_not_ours(bench: Bench, broken: Double) -> None:
    """Its owner could open the nodes to everyone, or keep every Service from its rules."""
    group = bench.neutron("security-groups", "POST", {"security_group": {"name": "kubernetes-node-ports-cluster-1"}})
    things(broken, "security-groups")[group["id"]]["project_id"] = "another project"
    manager = bench.manager("manage-security-groups=true")
    service = bench.service(manager)
    bench.ensure(manager, service)
    server = bench.nodes[0].spec.provider_id[-36:]  # type: ignore[union-attr,index]
    [port] = bench.neutron(f"ports?device_id={server}")
    assert group["id"] not in port["security_groups"]
    bench.delete(manager, service)
    assert group["id"] in things(broken, "security-groups")
    bench.neutron(f"security-groups/{group['id']}", "DELETE")


def test_a_port_of_another_project_that_claims_a_nodes_server_is_left_alone(bench: Bench, broken: Double) -> None:
    server = bench.nodes[0].spec.provider_id[-36:]  # type: ignore[union-attr,index]
    claim = broken.neutron.create_port(
        broken.subnet, device_id=server, device_owner="compute:nova", project_id="another project",
        fixed_ips=[{"subnet_id": broken.subnet, "ip_address": address_of(bench.nodes[0])}],
    )  # fmt: skip
    before = dict(claim)
    manager = bench.manager("manage-security-groups=true")
    service = bench.service(manager)
    bench.ensure(manager, service)
    assert claim == before
    things(broken, "ports").pop(claim["id"])


def test_a_floating_ip_of_another_project_is_not_given(bench: Bench, broken: Double) -> None:
    """A login with the role admin is shown those of all projects."""
    theirs = bench.neutron("floatingips", "POST", {"floatingip": {"floating_network_id": bench.cloud.external}})
    things(broken, "floatingips")[theirs["id"]]["project_id"] = "another project"
    manager = bench.manager()
    service = bench.service(manager)
    service.spec.load_balancer_ip = theirs["floating_ip_address"]  # type: ignore[union-attr]
    with pytest.raises(CloudProviderError):
        bench.ensure(manager, service)
    assert things(broken, "floatingips")[theirs["id"]]["port_id"] is None
    bench.neutron(f"floatingips/{theirs['id']}", "DELETE")


def test_a_floating_ip_is_kept_until_there_is_the_one_that_the_service_names(bench: Bench, broken: Double) -> None:
    """Neutron lets only some roles choose an address: the Service's clients know the other one."""
    manager = bench.manager()
    service = bench.service(manager)
    [address] = bench.ensure(manager, service)
    service.spec.load_balancer_ip = "203.0.113.250"  # type: ignore[union-attr]
    with pytest.raises(CloudProviderError, match="403"):
        bench.ensure(manager, service)
    [floating] = bench.neutron(f"floatingips?floating_ip_address={address}")
    assert floating["port_id"] == bench.balancer(service)["vip_port_id"]


def test_tags_that_another_service_gets_meanwhile_are_kept(
    bench: Bench, broken: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One leaves a shared load balancer while another joins it: without its tags, the load balancer
    would go with the last of the others, and its listeners would stay."""
    manager = bench.manager("max-shared-lb=3")
    owner = bench.service(manager)
    bench.ensure(manager, owner)
    found = bench.balancer(owner)
    shared = {PREFIX + "load-balancer-id": found["id"]}
    first, second = (bench.service(manager, ports=[(one, 31000 + one)], annotations=shared) for one in (81, 82))
    bench.ensure(manager, first)
    close = manager._close

    def slowly(*args: Any) -> None:
        bench.ensure(manager, second)
        bench.settled(found["id"])
        close(*args)

    bench.settled(found["id"])
    monkeypatch.setattr(manager, "_close", slowly)
    bench.delete(manager, first)
    monkeypatch.undo()
    bench.settled(found["id"])
    assert f"kubernetes-service-uid={second.metadata.uid}" in bench.balancer(owner)["tags"]  # type: ignore[union-attr]


def test_a_service_that_comes_back_while_its_load_balancer_goes_is_known_by_its_name_again(bench: Bench) -> None:
    """What was remembered of the first deletion is not taken for the second."""
    manager = bench.manager()
    service, before = bench.service(manager), bench.left()
    bench.ensure(manager, service)
    with pytest.raises(CloudProviderError):
        manager.ensure_load_balancer_deleted(CLUSTER, service)
    for one in bench.balancers(service):
        bench.gone(one["id"])
    bench.ensure(manager, service)
    found = bench.balancer(service)
    bench.settled(found["id"])
    bench.octavia(f"loadbalancers/{found['id']}", "PUT", {"loadbalancer": {"tags": []}})
    bench.settled(found["id"])
    bench.delete(manager, service)
    assert bench.left() == before


def test_a_node_that_was_left_out_first_and_deleted_later_is_closed_with_the_next(bench: Bench) -> None:
    manager, nodes = bench.manager("manage-security-groups=true"), bench.nodes[:3]
    service = bench.service(manager)
    bench.ensure(manager, service, nodes)
    [group] = [one["id"] for one in bench.neutron("security-groups") if one["name"].startswith("kubernetes")]
    for left, known in ((nodes[:2], nodes), (nodes[:1], nodes[:1])):
        manager.use(cast("Listers", Nodes(*known)))
        bench.settled(bench.balancer(service)["id"])
        bench.update(manager, service, left)
    assert len(bench.neutron(f"ports?security_groups={group}")) == 1


def test_a_node_port_that_another_service_had_stays_open_when_that_one_goes(bench: Bench) -> None:
    """A Service that is no load balancer any more gives its node port free before its rules go."""
    manager = bench.manager("manage-security-groups=true")
    former, present = bench.service(manager), bench.service(manager)
    bench.ensure(manager, former)
    bench.ensure(manager, present)
    bench.delete(manager, former)
    [group] = [one for one in bench.neutron("security-groups") if one["name"].startswith("kubernetes")]
    ports = [one["port_range_min"] for one in group["security_group_rules"] if one["direction"] == "ingress"]
    assert ports == [present.spec.ports[0].node_port]  # type: ignore[union-attr,index]


def test_a_node_that_comes_while_another_leaves_keeps_the_group(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Service's call gave it to the new node while this one waited for its turn."""
    manager, nodes = bench.manager("manage-security-groups=true"), bench.nodes[:3]
    service = bench.service(manager)
    bench.ensure(manager, service, nodes)
    cache, alone = Nodes(nodes[0]), manager._groups._alone

    @contextmanager
    def late() -> Iterator[None]:
        cache.known = nodes[:2]
        with alone():
            yield

    monkeypatch.setattr(manager._groups, "_alone", late)
    manager.use(cast("Listers", cache))
    bench.settled(bench.balancer(service)["id"])
    bench.update(manager, service, nodes[:1])
    [group] = [one["id"] for one in bench.neutron("security-groups") if one["name"].startswith("kubernetes")]
    assert len(bench.neutron(f"ports?security_groups={group}")) == 2
