"""Routes and pod CIDRs: what the conformance suite does not ask of the fake cloud."""

from __future__ import annotations

import pytest
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import InstanceNotFound, Route, Routes
from cloudprovider.testing.fake import BadRequest, FakeCloud
from tests.support.there import there
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import node, nodes

EXISTING = [
    {"name": "vpn", "destination_cidr": "172.16.0.0/12"},
    {"name": "mine", "destination_cidr": "10.244.9.0/24", "cluster": "c", "foreign": False, "blackhole": True},
    {"name": "theirs", "destination_cidr": "10.245.0.0/24", "cluster": "d", "foreign": False},
]


def routes(cloud: FakeCloud) -> Routes:
    return there(cloud.routes())


def route(destination: str, target: str = "a") -> Route:
    return Route(name="", target_node=target, destination_cidr=destination)


def test_a_destination_has_one_rule(make_cloud: MakeCloud) -> None:
    cloud = make_cloud()
    routes(cloud).create_route("c", "h", route("10.244.1.0/24", "a"))
    with pytest.raises(BadRequest, match="already"):
        routes(cloud).create_route("c", "h", route("10.244.1.0/24", "b"))
    for bad in ("10.244.1.1/24", "nonsense", ""):
        with pytest.raises(BadRequest, match="CIDR"):
            routes(cloud).create_route("c", "h", route(bad))


def test_foreign_rules_are_listed_too_and_deleting_names_the_rule(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(routes={"existing": EXISTING})
    assert [one.name for one in routes(cloud).list_routes("c")] == ["mine", "vpn"]
    routes(cloud).delete_route("c", Route("vpn", "", "10.0.0.0/8"))
    routes(cloud).delete_route("c", Route("unknown", "", "172.16.0.0/12"))
    assert len(cloud.console.routes()) == 3, "neither name nor destination alone is enough"
    routes(cloud).delete_route("c", Route("mine", "", "10.244.9.0/24"))
    routes(cloud).delete_route("d", Route("", "", "10.245.0.0/24"))
    assert [one.name for one in cloud.console.routes()] == ["vpn"]


def test_node_addresses_where_the_cloud_knows_them(make_cloud: MakeCloud) -> None:
    address = V1NodeAddress(type="InternalIP", address="10.0.0.1")
    wanted = Route("", "a", "10.244.1.0/24", True, (address,))
    for known in (True, False):
        cloud = make_cloud(routes={"node_addresses": known})
        routes(cloud).create_route("c", "h", wanted)
        (listed,) = routes(cloud).list_routes("c")
        assert listed.enable_node_addresses is known
        assert listed.target_node_addresses == ((address,) if known else ())


def test_strict_targets(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(routes={"strict_targets": True}, instances=[{"name": "a"}])
    routes(cloud).create_route("c", "h", route("10.244.1.0/24", "a"))
    with pytest.raises(InstanceNotFound):
        routes(cloud).create_route("c", "h", route("10.244.2.0/24", "b"))


def test_a_removed_machines_routes_lead_nowhere(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(instances=[{"name": "a"}, {"name": "b"}])
    for number, name in enumerate("ab"):
        routes(cloud).create_route("c", name, route(f"10.244.{number}.0/24", name))
    cloud.console.add_route("by-hand", "10.9.0.0/16", target_node="a")
    cloud.console.remove_instance("a")
    found = {one.name: (one.target_node, one.blackhole) for one in routes(cloud).list_routes("c")}
    assert found == {
        "c-a-10-244-0-0-24": ("", True),
        "c-b-10-244-1-0-24": ("b", False),
        "by-hand": ("a", False),
    }


def test_pod_cidrs_are_chosen_by_the_configuration_and_at_the_console(make_cloud: MakeCloud) -> None:
    machines = [{"name": "a", "pod_cidrs": ["10.9.0.0/24", "fd00::/64"]}, {"name": "b"}]
    cloud = make_cloud(instances=machines, max_batch=3)
    found = there(cloud.pod_cidrs())
    answer = found.pod_cidrs(nodes("a", "b", "never"))
    assert isinstance(answer["never"], InstanceNotFound)
    assert (answer["a"], answer["b"]) == (("10.9.0.0/24", "fd00::/64"), ())
    cloud.console.change_instance("b", pod_cidrs=["10.9.1.0/24"])
    assert found.pod_cidrs([node("other-name", "fake://i-b")]) == {"other-name": ("10.9.1.0/24",)}
    cloud.console.recreate_instance("a")
    assert found.pod_cidrs(nodes("a")) == {"a": ()}, "another machine: not chosen yet"
    with pytest.raises(BadRequest, match="4 nodes in a batch"):
        found.pod_cidrs(nodes("a", "b", "c", "d"))
