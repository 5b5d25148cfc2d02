"""Nodes and Nova's servers: one listing for many, states, names, addresses, regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from openstack_provider.config import Networking
from openstack_provider.instances import addresses
from openstack_provider.rest import JSON
from openstack_provider.servers import Interfaces, parse
from openstackdouble import Double, served
from osbench import node, provider

from cloudprovider import CloudProviderError, InstanceMetadata, InstanceNotFound, InstanceState

GONE = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def cloud() -> Iterator[Double]:
    with served() as double:
        yield double


def created(cloud: Double, count: int, prefix: str = "node") -> dict[str, str]:
    """Servers' IDs by name."""
    return {name: cloud.create_server(name) for name in (f"{prefix}-{number}" for number in range(count))}


def asked(cloud: Double, since: int = 0) -> Counter[str]:
    """Requests but for the login and the look at Nova's versions."""
    counts = cloud.counts(since)
    return Counter(
        {what: count for what, count in counts.items() if "tokens" not in what and not what.endswith("v2.1")}
    )


def test_many_nodes_cost_a_page_of_servers_and_a_page_of_ports_for_each(cloud: Double) -> None:
    servers = created(cloud, 300)
    batch = provider(cloud).instances_batch()
    found = batch.instances_metadata([node(name) for name in servers])
    assert {name: one.provider_id for name, one in found.items() if isinstance(one, InstanceMetadata)} == {
        name: f"openstack:///{server}" for name, server in servers.items()
    }
    assert asked(cloud) == {"nova GET /v2.1/servers/detail": 2, "neutron GET /v2.0/ports": 1}
    since = len(cloud.requests)
    states = batch.instances_state([node(name, server) for name, server in servers.items()])
    assert set(states.values()) == {InstanceState.RUNNING}
    assert asked(cloud, since) == {"nova GET /v2.1/servers/detail": 2}


def test_a_project_full_of_others_ports_is_not_listed(cloud: Double) -> None:
    for _ in range(3000):
        cloud.neutron.create_port(cloud.subnet, device_id="another's")
    servers = created(cloud, 120)
    found = provider(cloud).instances_batch().instances_metadata([node(*one) for one in servers.items()])
    assert all(isinstance(one, InstanceMetadata) and one.node_addresses for one in found.values())
    assert asked(cloud)["neutron GET /v2.0/ports"] == 3, "a page that told how it is, and two of 100 servers at most"


def test_a_listing_asks_for_what_the_names_have_in_common(cloud: Double) -> None:
    created(cloud, 5, "other")
    batch = provider(cloud).instances_batch()
    batch.instances_state([node(name) for name in created(cloud, 5, "web.a")])
    [listing] = [line for line in cloud.requests if "detail" in line]
    assert listing.endswith(r"&name=%5Eweb%5C.a%5C-")  # no "|": MySQL's means nothing to Nova
    since = len(cloud.requests)
    batch.instances_state([node("web.a-1"), node("other-1"), node("web.a-2"), node("other-2")])
    assert [line.partition("?")[2] for line in cloud.requests[since:]] == ["limit=250"]


def test_what_a_listing_lacks_is_asked_for_by_itself_before_it_is_gone(cloud: Double) -> None:
    servers = created(cloud, 6)
    cloud.nova.hidden = {servers["node-1"]}
    nodes = [node(name, server) for name, server in servers.items()]
    cloud.delete_server(servers["node-2"])
    states = provider(cloud).instances_batch().instances_state([*nodes, node("node-9")])
    assert states["node-1"] is InstanceState.RUNNING
    assert isinstance(states["node-2"], InstanceNotFound)
    assert isinstance(states["node-9"], InstanceNotFound)
    assert asked(cloud)["nova GET /v2.1/servers/ID"] == 2


def test_nodes_whose_servers_have_other_names_cost_no_request_each(cloud: Double) -> None:
    servers = created(cloud, 20, "k8s-worker")
    states = provider(cloud).instances_batch().instances_state([node(f"n{one}", one) for one in servers.values()])
    assert set(states.values()) == {InstanceState.RUNNING}
    assert asked(cloud) == {"nova GET /v2.1/servers/detail": 2}


def test_a_page_that_fails_is_never_a_short_listing(cloud: Double) -> None:
    servers = created(cloud, 300)
    cloud.answers["GET nova /v2.1/servers/detail?limit=250&name=%5Enode%5C-&marker"] = (503, {})
    with pytest.raises(CloudProviderError, match="503"):
        provider(cloud).instances_batch().instances_state([node(name) for name in servers])


@pytest.mark.parametrize(
    "answer",
    [
        (404, "<html><body><h1>404 Not Found</h1>nginx</body></html>"),
        (404, {}),
        # of Nova, for a path that it does not have: a wrong endpoint in the catalog
        (404, {"message": "The resource could not be found.", "code": "404 Not Found", "title": "Not Found"}),
        (410, {}),
        (200, {}),
        (200, "<html>maintenance</html>"),
    ],
)
def test_only_novas_word_about_the_server_means_gone(cloud: Double, answer: tuple[int, Any]) -> None:
    server = cloud.create_server("web")
    asked_for = node("web", server)
    instances = provider(cloud)
    assert instances.instances_v2().instance_exists(asked_for)
    cloud.answers["GET nova /v2.1/servers"] = answer
    for method in (instances.instances_v2().instance_exists, instances.instances_v2().instance_metadata):
        with pytest.raises(CloudProviderError) as error:
            method(asked_for)
        assert not isinstance(error.value, InstanceNotFound)
    cloud.answers.clear()
    cloud.delete_server(server)
    assert not instances.instances_v2().instance_exists(asked_for)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("ACTIVE", InstanceState.RUNNING), ("BUILD", InstanceState.RUNNING), ("ERROR", InstanceState.RUNNING),
        ("PAUSED", InstanceState.RUNNING), ("SUSPENDED", InstanceState.RUNNING), ("RESCUE", InstanceState.RUNNING),
        ("UNKNOWN", InstanceState.RUNNING), ("SHUTOFF", InstanceState.SHUTDOWN), ("SHELVED", InstanceState.SHUTDOWN),
        ("SHELVED_OFFLOADED", InstanceState.SHUTDOWN), ("SOFT_DELETED", InstanceState.GONE),
    ],
)  # fmt: skip
def test_states_are_told_apart(cloud: Double, status: str, state: InstanceState) -> None:
    server = cloud.create_server("web")
    cloud.nova.set_state(server, status)
    instances = provider(cloud)
    assert instances.instances_batch().instances_state([node("web", server)]) == {"web": state}
    assert instances.instances_v2().instance_exists(node("web", server)) is (state is not InstanceState.GONE)
    if state is InstanceState.GONE:
        with pytest.raises(InstanceNotFound):
            instances.instances_v2().instance_shutdown(node("web", server))
        with pytest.raises(InstanceNotFound):
            instances.instances_v2().instance_metadata(node("web", server))
    else:
        assert instances.instances_v2().instance_shutdown(node("web", server)) is (state is InstanceState.SHUTDOWN)


def test_two_servers_of_one_name_are_an_error_and_no_guess(cloud: Double) -> None:
    servers = [*created(cloud, 4).values(), cloud.create_server("node-1")]
    for nodes in ([node("node-1")], [node(f"node-{number}") for number in range(4)]):
        answer = provider(cloud).instances_batch().instances_state(nodes)["node-1"]
        assert "2 servers are named node-1" in str(answer)
        assert servers[1] in str(answer)
        assert not isinstance(answer, InstanceNotFound)
    assert provider(cloud).instances_v2().instance_exists(node("node-1", servers[1]))


def test_a_node_without_an_id_is_gone_only_where_no_server_is_its_machine(cloud: Double) -> None:
    server = cloud.create_server("Web-1")
    instances = provider(cloud).instances_v2()
    assert not instances.instance_exists(node("web-2"))  # the Go manager answers an error, for ever
    assert not instances.instance_exists(node("web-2", uuid=GONE))
    with pytest.raises(CloudProviderError, match=f"no server is named web-2; .* {server}, is Web-1: give"):
        instances.instance_exists(node("web-2", uuid=server.upper()))


def test_a_server_in_capitals_is_found_by_its_machine_where_nova_tells_cases_apart(cloud: Double) -> None:
    server = cloud.create_server("Web-1")
    instances = provider(cloud).instances_v2()
    assert not instances.instance_exists(node("web-1"))  # MySQL finds it, PostgreSQL does not
    assert instances.instance_metadata(node("web-1", uuid=server)).provider_id == f"openstack:///{server}"
    cloud.nova.set_state(server, "SOFT_DELETED")
    assert not instances.instance_exists(node("web-1", uuid=server))


def test_a_server_whose_cell_is_down_is_there_and_nothing_else_is_said_of_it(cloud: Double) -> None:
    """All that Nova knows of it then: from microversion 2.69 on it answers without the cell."""
    servers = created(cloud, 5)
    lost = servers["node-1"]
    cloud.nova.servers[lost] = {
        key: cloud.nova.servers[lost][key] for key in ("id", "tenant_id", "created", "links")
    } | {"status": "UNKNOWN"}
    cloud.nova.hidden = {lost}  # a listing in pages, or by a name, leaves it out
    instances = provider(cloud)
    assert instances.instances_v2().instance_exists(node("node-1", lost))
    batch = [node(name, server) for name, server in servers.items()]
    assert set(instances.instances_batch().instances_state(batch).values()) == {InstanceState.RUNNING}
    found = dict(instances.instances_batch().instances_metadata(batch))
    assert "its cell is down" in str(found.pop("node-1"))
    assert all(isinstance(one, InstanceMetadata) for one in found.values())
    with pytest.raises(CloudProviderError, match=f"no server is named node-1; .* {lost}, is not shown by Nova now"):
        instances.instances_v2().instance_exists(node("node-1", uuid=lost))


def test_the_nodes_own_spelling_of_its_provider_id_is_kept(cloud: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    server = cloud.create_server("web")
    instances = provider(cloud).instances_v2()
    for text in (f"openstack:///{server}", f"openstack://RegionOne/{server}"):
        assert instances.instance_metadata(node("web", provider_id=text)).provider_id == text
    for text in ("", server):
        assert instances.instance_metadata(node("web", provider_id=text)).provider_id == f"openstack:///{server}"
    monkeypatch.setenv("OS_CCM_REGIONAL", "true")
    made = provider(cloud).instances_v2().instance_metadata(node("web"))
    assert made.provider_id == f"openstack://RegionOne/{server}"
    with pytest.raises(CloudProviderError, match="lies in region RegionTwo, and this manager asks RegionOne: add"):
        instances.instance_exists(node("web", provider_id=f"openstack://RegionTwo/{server}"))


@pytest.mark.parametrize("text", ["aws:///a/i-1", "openstack:///", "openstack:///../x", "openstack://a/b/c", "web-1"])
def test_what_is_no_provider_id_of_ours_says_nothing(text: str) -> None:
    with pytest.raises(CloudProviderError, match="is not the provider ID of a server") as caught:
        parse(text)
    assert not isinstance(caught.value, InstanceNotFound)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        region, server = parse(text)
    except CloudProviderError:
        return
    assert len(server) == 36
    assert "/" not in region


def test_zone_and_type_are_label_values(cloud: Double) -> None:
    server = cloud.nova.servers[cloud.create_server("web")]
    server["OS-EXT-AZ:availability_zone"], server["flavor"]["original_name"] = "Zone 1 (north)", "m1 large"
    made = provider(cloud).instances_v2().instance_metadata(node("web"))
    assert (made.zone, made.region, made.instance_type) == ("Zone-1-north", "RegionOne", "m1-large")


# ---- addresses

SERVER: JSON = {
    "addresses": {
        "private": [
            {"addr": "10.0.0.5", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "b"},
            {"addr": "fd00::5", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "b"},
            {"addr": "203.0.113.5", "OS-EXT-IPS:type": "floating", "OS-EXT-IPS-MAC:mac_addr": "b"},
        ],
        "dmz": [{"addr": "192.0.2.5", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "a"}],
    },
    "accessIPv4": "198.51.100.5",
    "accessIPv6": "",
    "metadata": {"hostname": "web"},
}


def port(key: str, mac: str, *ips: str, status: str = "ACTIVE") -> JSON:
    return {"id": key, "mac_address": mac, "status": status, "fixed_ips": [{"ip_address": ip} for ip in ips]}


PORTS = Interfaces([port("1", "a", "192.0.2.5"), port("2", "b", "10.0.0.5", "fd00::5")])


def shown(networking: Networking, interfaces: Interfaces = PORTS, server: JSON = SERVER) -> list[str]:
    """As "Internal 10.0.0.5"."""
    return [f"{one.type.removesuffix('IP')} {one.address}" for one in addresses(server, interfaces, networking)]


def test_addresses_come_in_the_go_managers_order() -> None:
    assert shown(Networking()) == [
        "Internal 10.0.0.5", "Internal fd00::5", "Internal 192.0.2.5", "External 198.51.100.5",
        "External 203.0.113.5", "Hostname web",
    ]  # fmt: skip


def test_networks_say_what_is_public_and_what_is_left_out() -> None:
    assert shown(Networking(public_network_name=("dmz",), ipv6_support_disabled=True)) == [
        "Internal 10.0.0.5", "External 198.51.100.5", "External 192.0.2.5", "External 203.0.113.5", "Hostname web",
    ]  # fmt: skip
    assert shown(Networking(internal_network_name=("dmz",))) == [
        "Internal 192.0.2.5", "External 198.51.100.5", "External 203.0.113.5", "Hostname web",
    ]  # fmt: skip
    order = (ip_network("203.0.113.0/24"), ip_network("192.0.2.0/24"))
    assert shown(Networking(address_sort_order=order))[:2] == ["External 203.0.113.5", "Internal 192.0.2.5"]


def test_ports_that_are_down_and_subports_of_trunks() -> None:
    down = Interfaces([port("2", "b", "10.0.0.9", status="DOWN")], [("vlan", "10.9.0.5")])
    assert shown(Networking(), down, {"addresses": {}}) == ["Internal 10.9.0.5"]


IPS = st.ip_addresses().map(str)


@given(
    st.dictionaries(
        st.sampled_from("abc"), st.lists(st.tuples(IPS, st.sampled_from(["fixed", "floating"])), max_size=4)
    ),
    st.lists(IPS, max_size=4),
    st.sets(st.sampled_from("abc")),
    st.sets(st.sampled_from("abc")),
    st.booleans(),
)
def test_no_address_twice_and_none_of_a_network_that_is_left_out(
    networks: dict[str, list[tuple[str, str]]], ips: list[str], public: set[str], internal: set[str], no_ipv6: bool
) -> None:
    server = {
        "addresses": {
            name: [{"addr": ip, "OS-EXT-IPS:type": kind} for ip, kind in listed] for name, listed in networks.items()
        }
    }
    config = Networking(
        public_network_name=tuple(public), internal_network_name=tuple(internal), ipv6_support_disabled=no_ipv6
    )
    found = [(one.type, one.address) for one in addresses(server, Interfaces([port("1", "x", *ips)]), config)]
    assert len(found) == len(set(found))
    assert not (no_ipv6 and any(":" in ip for _, ip in found))
    floating = {ip for listed in networks.values() for ip, kind in listed if kind == "floating"}
    assert floating - {ip for ip in floating if no_ipv6 and ":" in ip} <= {
        ip for kind, ip in found if kind == "ExternalIP"
    }


def test_subports_of_trunks_are_looked_up_with_their_networks(cloud: Double) -> None:
    cloud.create_server("web")
    ports = cloud.neutron.things["ports"]
    [trunk] = [one for one in ports.values() if one["device_id"]][-1:]
    sub = cloud.neutron.create_port(cloud.external_subnet)
    trunk["trunk_details"] = {"trunk_id": "t", "sub_ports": [{"port_id": sub["id"]}]}
    made = provider(cloud, "[Networking]\npublic-network-name = public\n").instances_v2().instance_metadata(node("web"))
    assert ("ExternalIP", sub["fixed_ips"][0]["ip_address"]) in [(one.type, one.address) for one in made.node_addresses]


# ---- regions


@define
class Regions(Double):
    """A cloud whose catalog has another one as its region "Two"."""

    other: Double = field(factory=Double)

    def _keystone(self, method: str, path: str, body: Any) -> tuple[int, Any, dict[str, str]]:
        status, document, headers = super()._keystone(method, path, body)
        for entry in document["token"]["catalog"] if "token" in document else ():
            for endpoint in list(entry["endpoints"]):
                url = endpoint["url"].replace(self.base, self.other.base)
                entry["endpoints"].append({**endpoint, "region": "Two", "region_id": "Two", "url": url})
        self.other.tokens = self.tokens
        return status, document, headers


def test_several_regions_are_asked_and_named_and_one_that_is_away_costs_the_others_nothing() -> None:
    with served() as other, served(Regions(other=other)) as cloud:
        here, there = cloud.create_server("here"), other.create_server("there")
        batch = provider(cloud, "regions = Two").instances_batch()
        nodes = [node("here"), node("there"), node("nowhere"), node("lost", provider_id=f"openstack://Two/{here}")]
        found = batch.instances_metadata(nodes)
        assert [getattr(found[name], "provider_id", "") for name in ("here", "there")] == [
            f"openstack://RegionOne/{here}", f"openstack://Two/{there}",
        ]  # fmt: skip
        assert getattr(found["there"], "region", "") == "Two"
        assert isinstance(found["nowhere"], InstanceNotFound)
        assert isinstance(found["lost"], InstanceNotFound)

        other.answers["GET nova"] = (503, {})
        known = [node(name, provider_id=getattr(found[name], "provider_id", "")) for name in ("here", "there")]
        states = batch.instances_state([*known, node("nowhere"), node("old", here)])
        assert states["here"] is states["old"] is InstanceState.RUNNING
        for name in ("there", "nowhere"):
            assert not isinstance(states[name], InstanceState | InstanceNotFound)


def test_a_port_of_another_project_gives_a_node_no_address(cloud: Double) -> None:
    """In a shared network anybody may write a server's ID on a port, and its owner sees it."""
    server = cloud.create_server("node-1")
    cloud.neutron.create_port(cloud.subnet, device_id=server, project_id="another", status="ACTIVE")
    found = provider(cloud).instances_v2().instance_metadata(node("node-1"))
    assert len(found.node_addresses) == 1
