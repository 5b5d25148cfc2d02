"""Routes, volume labels and clusters; over both stores."""

from __future__ import annotations

import pytest
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import DiskNotFound, InstanceNotFound, Route, Routes
from cloudprovider.testing.fake import BadRequest, FakeCloud, QuotaExceeded
from cloudprovider.wellknown import LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE
from tests.unit.fake.conftest import MakeCloud
from tests.unit.fake.objects import volume

EXISTING = [
    {"name": "vpn", "destination_cidr": "172.16.0.0/12"},
    {"name": "mine", "destination_cidr": "10.244.9.0/24", "cluster": "c", "foreign": False, "blackhole": True},
    {"name": "theirs", "destination_cidr": "10.245.0.0/24", "cluster": "d", "foreign": False},
]


def routes(cloud: FakeCloud) -> Routes:
    found = cloud.routes()
    assert found is not None
    return found


def route(destination: str, target: str = "a") -> Route:
    return Route(name="", target_node=target, destination_cidr=destination)


def effects(cloud: FakeCloud) -> list[str]:
    return [call.effect for call in cloud.calls.log("create_route", "delete_route")]


def test_create_list_delete_and_repeat(make_both: MakeCloud) -> None:
    cloud = make_both()
    for _ in range(2):
        routes(cloud).create_route("c", "uid-1", route("10.244.1.0/24"))
        routes(cloud).create_route("c", "uid-1", route("fd00:1::/64"))
    listed = routes(cloud).list_routes("c")
    assert [(one.name, one.target_node, one.destination_cidr, one.blackhole) for one in listed] == [
        ("c-uid-1-10-244-1-0-24", "a", "10.244.1.0/24", False),
        ("c-uid-1-fd00-1-64", "a", "fd00:1::/64", False),
    ]
    assert not any(one.enable_node_addresses for one in listed)
    for _ in range(2):
        routes(cloud).delete_route("c", listed[0])
    assert [one.destination_cidr for one in routes(cloud).list_routes("c")] == ["fd00:1::/64"]
    assert effects(cloud) == ["created", "created", "unchanged", "unchanged", "deleted", "absent"]


def test_a_destination_has_one_rule(make_both: MakeCloud) -> None:
    cloud = make_both()
    routes(cloud).create_route("c", "h", route("10.244.1.0/24", "a"))
    with pytest.raises(BadRequest, match="already"):
        routes(cloud).create_route("c", "h", route("10.244.1.0/24", "b"))
    for bad in ("10.244.1.1/24", "nonsense", ""):
        with pytest.raises(BadRequest, match="CIDR"):
            routes(cloud).create_route("c", "h", route(bad))


def test_a_careless_provider_lists_foreign_rules_a_careful_one_does_not(make_both: MakeCloud) -> None:
    def names(**settings: object) -> list[str]:
        cloud = make_both(routes={"existing": EXISTING, **settings})
        return [one.name for one in routes(cloud).list_routes("c")]

    assert names() == ["mine", "vpn"]
    assert names(list_foreign=False) == ["mine"]


def test_deleting_names_the_rule(make_both: MakeCloud) -> None:
    cloud = make_both(routes={"existing": EXISTING})
    routes(cloud).delete_route("c", Route("vpn", "", "10.0.0.0/8"))
    routes(cloud).delete_route("c", Route("unknown", "", "172.16.0.0/12"))
    assert len(cloud.console.routes()) == 3, "neither name nor destination alone is enough"
    routes(cloud).delete_route("c", Route("mine", "", "10.244.9.0/24"))
    routes(cloud).delete_route("d", Route("", "", "10.245.0.0/24"))
    assert [one.name for one in cloud.console.routes()] == ["vpn"]


def test_quota_counts_foreign_rules(make_both: MakeCloud) -> None:
    cloud = make_both(routes={"quota": 4, "existing": EXISTING})
    routes(cloud).create_route("c", "h", route("10.244.1.0/24"))
    routes(cloud).create_route("c", "h", route("10.244.1.0/24"))
    with pytest.raises(QuotaExceeded):
        routes(cloud).create_route("c", "h", route("10.244.2.0/24"))
    assert len(cloud.console.routes()) == 4


def test_node_addresses_where_the_cloud_knows_them(make_both: MakeCloud) -> None:
    address = V1NodeAddress(type="InternalIP", address="10.0.0.1")
    wanted = Route("", "a", "10.244.1.0/24", True, (address,))
    for known in (True, False):
        cloud = make_both(routes={"node_addresses": known})
        routes(cloud).create_route("c", "h", wanted)
        (listed,) = routes(cloud).list_routes("c")
        assert listed.enable_node_addresses is known
        assert listed.target_node_addresses == ((address,) if known else ())


def test_strict_targets(make_both: MakeCloud) -> None:
    cloud = make_both(routes={"strict_targets": True}, instances=[{"name": "a"}])
    routes(cloud).create_route("c", "h", route("10.244.1.0/24", "a"))
    with pytest.raises(InstanceNotFound):
        routes(cloud).create_route("c", "h", route("10.244.2.0/24", "b"))


@pytest.mark.parametrize("blackholes", [True, False])
def test_a_removed_machines_routes_lead_nowhere(make_both: MakeCloud, blackholes: bool) -> None:
    cloud = make_both(routes={"blackhole_on_removal": blackholes}, instances=[{"name": "a"}, {"name": "b"}])
    for number, name in enumerate("ab"):
        routes(cloud).create_route("c", name, route(f"10.244.{number}.0/24", name))
    cloud.console.add_route("by-hand", "10.9.0.0/16", target_node="a")
    cloud.console.remove_instance("a")
    found = {one.name: (one.target_node, one.blackhole) for one in routes(cloud).list_routes("c")}
    assert found == {
        "c-a-10-244-0-0-24": ("", True) if blackholes else ("a", False),
        "c-b-10-244-1-0-24": ("b", False),
        "by-hand": ("a", False),
    }


def test_volumes(make_both: MakeCloud) -> None:
    disks = [
        {"id": "vol-1", "zones": ["z2", "z1"], "region": "r", "labels": {"cloud.example/tier": "fast"}},
        {"id": "plain"},
    ]
    labeler = make_both(volumes=disks).pv_labeler()
    assert labeler is not None
    assert labeler.get_labels_for_volume(volume("pv", "vol-1")) == {
        "cloud.example/tier": "fast",
        LABEL_TOPOLOGY_ZONE: "z1__z2",
        LABEL_TOPOLOGY_REGION: "r",
    }
    assert labeler.get_labels_for_volume(volume("plain")) == {}
    with pytest.raises(DiskNotFound):
        labeler.get_labels_for_volume(volume("plain", "vol-2"))


def test_clusters(make_both: MakeCloud) -> None:
    cloud = make_both(clusters=[{"name": "b", "master": "10.0.0.1"}])
    cloud.console.add_cluster("a")
    clusters = cloud.clusters()
    assert clusters is not None
    assert clusters.list_clusters() == ("a", "b")
    assert clusters.master("b") == "10.0.0.1"
    with pytest.raises(BadRequest):
        clusters.master("c")
