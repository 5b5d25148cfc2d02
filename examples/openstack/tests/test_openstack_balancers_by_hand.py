"""What people do to load balancers in OpenStack behind the manager's back, and what must not come
of it: on the double, and on OpenStack's own services."""

from __future__ import annotations

from typing import Any

import pytest
from balancersbench import CLUSTER, PREFIX, Bench
from kubernetes.client.models.v1_service import V1Service
from openstackdouble import Double

from cloudprovider import CloudProviderError, Pending

pytest_plugins = ["balancersfixtures", "tests.lab.openstack.fixtures"]


def floating(bench: Bench, address: str) -> Any:
    [found] = bench.neutron(f"floatingips?floating_ip_address={address}")
    return found


def detach(bench: Bench, address: str) -> str:
    """Take it off its port. Returns its ID."""
    found: str = floating(bench, address)["id"]
    bench.neutron(f"floatingips/{found}", "PUT", {"floatingip": {"port_id": None}})
    return found


def test_a_load_balancer_that_was_deleted_is_built_again_with_its_address(bench: Bench) -> None:
    """The address stands in somebody's DNS."""
    service, before = bench.service(bench.manager()), bench.left()
    [address] = bench.ensure(bench.manager(), service)
    lost = bench.balancer(service)["id"]
    bench.octavia(f"loadbalancers/{lost}?cascade=true", "DELETE")
    bench.gone(lost)
    manager = bench.manager()
    assert bench.ensure(manager, service) == [address]
    assert bench.balancer(service)["id"] != lost
    bench.delete(manager, service)
    assert bench.left() == before


def test_a_floating_ip_that_was_taken_off_comes_back(bench: Bench) -> None:
    service, before = bench.service(bench.manager()), bench.left()
    [address] = bench.ensure(bench.manager(), service)
    detach(bench, address)
    manager = bench.manager()
    assert bench.ensure(manager, service) == [address]
    detach(bench, address)
    bench.delete(manager, service)
    assert bench.left() == before


def test_a_floating_ip_that_was_moved_elsewhere_stays_there(bench: Bench) -> None:
    manager = bench.manager()
    service = bench.service(manager)
    [address] = bench.ensure(manager, service)
    port = bench.neutron("ports", "POST", {"port": {"network_id": bench.cloud.network}})["id"]
    moved = detach(bench, address)
    bench.neutron(f"floatingips/{moved}", "PUT", {"floatingip": {"port_id": port}})
    [other] = bench.ensure(bench.manager(), service)
    assert other != address
    bench.delete(manager, service)
    assert floating(bench, address)["port_id"] == port
    bench.neutron(f"floatingips/{moved}", "DELETE")
    bench.neutron(f"ports/{port}", "DELETE")


def test_without_its_tags_it_is_still_the_services_and_goes_with_it(bench: Bench) -> None:
    """The Service's status shows its address, which only controllers write."""
    service, before = bench.service(bench.manager()), bench.left()
    address = bench.ensure(bench.manager(), service)
    found = bench.balancer(service)
    bench.octavia(f"loadbalancers/{found['id']}", "PUT", {"loadbalancer": {"tags": []}})
    bench.settled(found["id"])
    manager = bench.manager()
    shown = manager.get_load_balancer(CLUSTER, service)
    assert shown is not None
    assert [one.ip for one in shown.ingress or ()] == address
    if isinstance(bench.cloud, Double):
        bench.cloud.octavia.polls = 4  # as the services, which take their time
    bench.delete(manager, service)
    assert bench.left() == before


def test_a_service_that_leaves_a_load_balancer_in_error_is_told_so(bench: Bench, broken: Double) -> None:
    """And not that Octavia is at work on it, for ever."""
    manager = bench.manager()
    owner = bench.service(manager)
    bench.ensure(manager, owner)
    found = bench.balancer(owner)
    other = bench.service(manager, ports=[(8080, 31080)], annotations={PREFIX + "load-balancer-id": found["id"]})
    bench.ensure(manager, other)
    bench.settled(found["id"])
    balancer = broken.octavia.things["loadbalancers"][found["id"]]
    balancer["provisioning_status"] = "ERROR"
    with pytest.raises(CloudProviderError, match="is in ERROR") as caught:
        manager.ensure_load_balancer_deleted(CLUSTER, other)
    assert not isinstance(caught.value, Pending)
    balancer["provisioning_status"] = "ACTIVE"


def test_one_in_error_goes_at_once_although_deletion_is_in_steps(bench: Bench, broken: Double) -> None:
    """Octavia takes no other change of it."""
    manager = bench.manager("cascade-delete=false")
    service, before = bench.service(manager), bench.left()
    bench.ensure(manager, service)
    broken.octavia.things["loadbalancers"][bench.balancer(service)["id"]]["provisioning_status"] = "ERROR"
    bench.delete(manager, service)
    assert bench.left() == before


def test_a_cluster_whose_uid_cannot_be_read(bench: Bench) -> None:
    """Services are told apart by their own UIDs; that it can be read later changes nothing."""
    settings = "manage-security-groups=true"
    blind = bench.manager(settings, uid="")
    service: V1Service = bench.service(blind)
    before = bench.left()
    address = bench.ensure(blind, service)
    stranger = bench.service(bench.manager(uid="cluster-2"))
    assert bench.manager(uid="cluster-2").get_load_balancer(CLUSTER, stranger) is None
    seeing = bench.manager(settings)
    assert bench.ensure(seeing, service) == address
    bench.settled(bench.balancer(service)["id"])
    assert bench.ensure(bench.manager(settings, uid=""), service) == address
    bench.delete(seeing, service)
    assert bench.left() == before
