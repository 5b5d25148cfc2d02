"""What load balancers must look like, and what is done about what is there: without any cloud."""

from __future__ import annotations

import fnmatch
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_node_status import V1NodeStatus
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_status import V1ServiceStatus
from openstack_provider.addresses import subnet_matches
from openstack_provider.annotations import Annotations, Internal
from openstack_provider.config import ClassConfig, Config, LoadBalancerConfig
from openstack_provider.ownership import Identity, identity, is_of, may_be_deleted, own, refusal, service_of, shows
from openstack_provider.plan import Plan, Target, plan, targets
from openstack_provider.securitygroups import rules_of
from openstack_provider.steps import Actual, Spot, created, join_step, leaving, members, steps

from cloudprovider import CloudConfig, CloudProviderError, InvalidService
from cloudprovider.errors import InvalidConfig
from cloudprovider.testing.conformance.lab import new_node, new_service

UID = "11111111-2222-4333-8444-555555555555"
SOME_ID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
PREFIX = "loadbalancer.openstack.org/"
TWO = [Target("a", "10.0.0.1", "s1"), Target("b", "10.0.0.2", "s2")]
WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)
Fact = dict[str, Any]


def a_service(**annotations: str) -> V1Service:
    named = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    return new_service("web", UID, annotations=named)


def planned(service: V1Service, config: LoadBalancerConfig | None = None, **classes: ClassConfig) -> Plan:
    return plan(identity("blue", "cluster-1", service), service, config or LoadBalancerConfig(), classes)


def problems(service: V1Service, config: LoadBalancerConfig | None = None) -> tuple[str, ...]:
    with pytest.raises(InvalidService) as caught:
        planned(service, config)
    return caught.value.problems


def as_built(wanted: Plan, chosen: list[Target]) -> Actual:
    """What Octavia has after the one request that creates it."""
    body = created(wanted, chosen, {"vip_subnet_id": "vip"}, ["IPv4"], [wanted.who.balancer, wanted.who.uid_tag])
    listeners, pools = [], []
    for number, one in enumerate(deepcopy(body["listeners"])):
        pool = one.pop("default_pool")
        pool["id"] = f"pool-{number}"
        pool["members"] = [{"weight": 1, "monitor_port": None, "subnet_id": None, **m} for m in pool["members"]]
        if monitor := pool.get("healthmonitor"):
            monitor["id"] = f"monitor-{number}"
        listeners.append({"default_tls_container_ref": None, "insert_headers": {}, **one, "id": f"listener-{number}",
                          "default_pool_id": pool["id"]})  # fmt: skip
        pools.append(pool)
    return Actual({"id": "lb", "name": body["name"]}, listeners, pools)


def what(wanted: Plan, actual: Actual, chosen: list[Target] = TWO) -> list[str]:
    return [f"{one.method} {one.path.removeprefix('/lbaas/')}" for one in steps(wanted, actual, chosen, ["IPv4"])]


# Names


def test_names_are_those_of_the_go_manager() -> None:
    who = identity("blue", "", a_service())
    assert who.balancer == "kube_service_blue_default_web"
    assert who.part("listener", 0) == "listener_0_kube_service_blue_default_web"
    assert who.go_group == f"lb-sg-{UID}-default-web"
    assert who.floating_description.startswith(
        "Floating IP for Kubernetes external service default/web from cluster blue"
    )


@given(st.text(min_size=1, max_size=300), WORDS, WORDS, st.uuids())
def test_names_fit_and_say_whose_they_are(cluster: str, namespace: str, name: str, uid: object) -> None:
    who = Identity(cluster, "", f"{namespace}/{name}", str(uid))
    texts = (who.balancer, who.host_name, who.part("pool", 12), who.go_group, who.floating_description, who.description)
    assert all(len(text) <= 255 for text in texts)
    assert who.host_name.endswith(str(uid))
    assert who.is_part("pool", who.part("pool", 12))
    assert not who.is_part("listener", who.part("pool", 12))
    if len(f"kube_service_{cluster}_{namespace}_{name}") <= 255:
        assert service_of(who.balancer, cluster) == f"{namespace}/{name}"
        assert service_of(who.balancer, cluster + "x") == ""


@pytest.mark.parametrize(
    ("pattern", "tags", "fits"),
    [
        ("", "", {"public-a", "public-b", "storage"}),
        ("public-a", "", {"public-a"}),
        ("public-*", "", {"public-a", "public-b"}),
        ("!public-*", "", {"storage"}),
        ("~public-[b-z]", "", {"public-b"}),
        ("~public", "", set()),
        ("!~public.*", "", {"storage"}),
        ("", "fast", {"public-a", "storage"}),
        ("", "fast,cheap", {"public-a", "public-b", "storage"}),
        ("", "&fast,cheap", {"storage"}),
        ("", "!fast", {"public-b"}),
        ("", "!&fast, cheap", {"public-a", "public-b"}),
        ("public-*", "cheap", {"public-b"}),
    ],
)
def test_subnets_are_chosen_as_by_the_go_manager(pattern: str, tags: str, fits: set[str]) -> None:
    there = {"public-a": ["fast"], "public-b": ["cheap"], "storage": ["fast", "cheap"]}
    assert {name for name, own in there.items() if subnet_matches(name, own, pattern, tags)} == fits


@given(WORDS, st.text("ab*?-", max_size=8))
def test_a_pattern_and_its_negation_divide_the_names(name: str, pattern: str) -> None:
    if pattern:
        assert subnet_matches(name, (), pattern) == fnmatch.fnmatchcase(name, pattern)
        assert subnet_matches(name, (), pattern) != subnet_matches(name, (), f"!{pattern}")


# What a Service asks for


def test_all_mistakes_come_out_at_once() -> None:
    service = a_service(
        lb_method="FASTEST", class_="", subnet_id="../ports", proxy_protocol="v3", connection_limit="many",
        health_monitor_delay="2", health_monitor_timeout="9", typo="x", x_forwarded_for="yes", floating_subnet="~[",
    )  # fmt: skip
    assert service.metadata is not None
    assert service.metadata.annotations is not None
    assert service.spec is not None
    assert service.spec.ports is not None
    service.metadata.annotations["service.beta.kubernetes.io/openstack-internal-load-balancer"] = "maybe"
    service.spec.load_balancer_ip, service.spec.load_balancer_source_ranges = "nowhere", ["nonsense"]
    service.spec.ports[0].node_port = None
    found = "\n".join(problems(service))
    for word in (
        "lb-method", "subnet-id", "proxy-protocol", "connection-limit", "typo", "x-forwarded-for", "floating-subnet",
        "openstack-internal-load-balancer", "loadBalancerIP", "loadBalancerSourceRanges", "no node port",
    ):  # fmt: skip
        assert word in found, word


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"proxy_protocol": "v2", "x_forwarded_for": "true"}, "exclude each other"),
        ({"health_monitor_delay": "2", "health_monitor_timeout": "3"}, "must not be more than"),
        ({"class": "gold"}, "no load balancer class gold"),
    ],
)
def test_what_cannot_be_together_is_refused(annotations: dict[str, str], problem: str) -> None:
    [found] = problems(a_service(**annotations))
    assert problem in found


def test_a_monitor_is_always_there_for_local_traffic() -> None:
    """The Go manager's has none unless it is asked for: nodes without endpoints get traffic."""
    service = a_service()
    assert service.spec is not None
    assert planned(service).ports[0].monitor is None
    service.spec.external_traffic_policy, service.spec.health_check_node_port = "Local", 31234
    [port] = planned(service).ports
    assert port.monitor is not None
    assert (port.monitor["type"], port.monitor["url_path"], port.monitor_port) == ("HTTP", "/healthz", 31234)
    [port] = planned(service, LoadBalancerConfig(lb_provider="ovn")).ports
    assert port.monitor is not None
    assert (port.monitor["type"], port.monitor_port) == ("TCP", None)


def test_protocols() -> None:
    assert planned(a_service(proxy_protocol="v2")).ports[0].pool["protocol"] == "PROXYV2"
    assert planned(a_service(proxy_protocol="true")).ports[0].pool["protocol"] == "PROXY"
    forwarded = planned(a_service(x_forwarded_for="true")).ports[0]
    assert (forwarded.listener["protocol"], forwarded.pool["protocol"]) == ("HTTP", "HTTP")
    assert forwarded.listener["insert_headers"] == {"X-Forwarded-For": "true"}
    secure = planned(a_service(default_tls_container_ref="https://keys/v1/containers/1")).ports[0]
    assert (secure.listener["protocol"], secure.pool["protocol"]) == ("TERMINATED_HTTPS", "HTTP")
    udp = new_service("dns", UID, ports=[(53, 30053, "UDP")], annotations={PREFIX + "proxy-protocol": "v1"})
    assert planned(udp).ports[0].pool["protocol"] == "UDP"


def test_source_ranges_by_family() -> None:
    service = a_service()
    assert service.spec is not None
    service.spec.load_balancer_source_ranges = ["2001:db8::/32"]
    assert "nobody could connect" in problems(service)[0]
    service.spec.load_balancer_source_ranges = ["2001:db8::/32", "192.0.2.0/24"]
    assert planned(service).sources(["IPv4"]) == ["192.0.2.0/24"]
    service.spec.ip_families, service.spec.ip_family_policy = ["IPv6", "IPv4"], "PreferDualStack"
    assert planned(service).sources(["IPv6", "IPv4"]) == ["2001:db8::/32", "192.0.2.0/24"]
    assert planned(service).sources(["IPv6"]) == ["2001:db8::/32"]
    ovn = LoadBalancerConfig(lb_provider="ovn")
    assert "manage-security-groups" in problems(service, ovn)[0]
    managed = planned(service, LoadBalancerConfig(lb_provider="ovn", manage_security_groups=True))
    assert "allowed_cidrs" not in created(managed, TWO, {}, ["IPv4"], [])["listeners"][0]
    # It keeps the clients' addresses: without theirs, the nodes would let nobody in but its checks.
    assert {one for _, _, one, _ in rules_of(managed, "10.0.0.0/24", "ovn")} == {*managed.ranges, "10.0.0.0/24"}


def test_networks_of_class_annotation_and_configuration() -> None:
    config = LoadBalancerConfig(floating_network_id="config", floating_subnet="config-*", subnet_id="config")
    assert planned(a_service(), config).networks.floating_pattern == "config-*"
    by_annotation = planned(a_service(floating_subnet_id=SOME_ID), config).networks
    assert (by_annotation.floating_subnet, by_annotation.floating_pattern) == (SOME_ID, "")
    gold = ClassConfig(floating_network_id="gold", floating_subnet_tags="gold", subnet_id="gold")
    by_class = planned(
        a_service(**{"class": "gold"}, floating_subnet_id=SOME_ID, subnet_id=SOME_ID), config, gold=gold
    ).networks
    assert (by_class.floating_network, by_class.floating_subnet, by_class.floating_tags) == ("gold", "", "gold")
    assert by_class.subnet == SOME_ID


def test_a_configuration_that_no_service_could_use_is_known_at_the_start() -> None:
    wrong = (
        "[LoadBalancer]\nnode-selector = =x\nfloating-subnet = ~[\nflavor-id = big\ndefault-tls-container-ref = x\n"
        '[LoadBalancerClass "gold"]\nfloating-subnet = !~(\n'
    )
    with pytest.raises(InvalidConfig) as caught:
        Config.load(CloudConfig("", wrong.encode()))
    found = "\n".join(caught.value.problems)
    for place in (
        "line 2: loadbalancer.node_selector: must be labels such as", "line 3: loadbalancer.floating_subnet: must be",
        "line 4: loadbalancer.flavor_id: must be an ID", "line 5: loadbalancer.default_tls_container_ref: must be",
        "line 7: loadbalancerclass.gold.floating_subnet: must be",
    ):  # fmt: skip
        assert place in found
    Config.load(CloudConfig("", b"[LoadBalancer]\nnode-selector =\nfloating-subnet =\nflavor-id =\n"))


# Nodes


def a_node(name: str, *addresses: str, provider_id: str = "openstack:///" + SOME_ID, **labels: str) -> V1Node:
    node = new_node(name, provider_id)
    assert node.metadata is not None
    node.metadata.labels = labels
    node.status = V1NodeStatus(addresses=[V1NodeAddress(type="InternalIP", address=one) for one in addresses])
    return node


def test_nodes_are_chosen_by_cloud_family_and_labels() -> None:
    nodes = [
        a_node("plain", "10.0.0.1"),
        a_node("both", "2001:db8::2", "10.0.0.2", role="edge", ssd=""),
        a_node("new"),
        a_node("nameless", provider_id=""),
        a_node("early", "10.0.0.5", provider_id=""),
        a_node("on-premises", "10.0.0.6", provider_id="rack://6"),
        a_node("bare", "10.0.0.7", provider_id=SOME_ID),
    ]
    found = {one.name: one.address for one in targets(nodes, {}, "IPv4")}
    assert found == {"plain": "10.0.0.1", "both": "10.0.0.2", "new": "", "early": "10.0.0.5", "bare": "10.0.0.7"}
    assert [one.name for one in targets(nodes, {"role": "edge", "ssd": ""}, "IPv6")] == ["both"]
    assert targets(nodes, {"role": "core"}, "IPv4") == []


def test_members_keep_what_was_set_by_hand_and_nodes_without_an_address() -> None:
    spot = Spot("", 30080, 31234)
    present = [
        {
            "name": "a",
            "address": "10.0.0.1",
            "protocol_port": 30080,
            "monitor_port": 31234,
            "weight": 7,
            "backup": True,
        },
        {"name": "new", "address": "10.0.0.9", "protocol_port": 30080, "monitor_port": 31234, "weight": 0},
        {"name": "gone", "address": "10.0.0.8", "protocol_port": 30080, "monitor_port": 31234, "weight": 1},
    ]
    made = members(spot, present, [*TWO, Target("new", "", "s3")])
    assert made is not None
    assert {one["name"]: (one["address"], one.get("weight"), one["monitor_port"]) for one in made} == {
        "a": ("10.0.0.1", 7, 31234), "b": ("10.0.0.2", None, 31234), "new": ("10.0.0.9", 0, 31234),
    }  # fmt: skip
    assert members(spot, made, [*TWO, Target("new", "", "s3")]) is None
    assert members(spot, made, []) == []
    unchecked = members(Spot("", 30080, None), made, TWO)
    assert unchecked is not None
    assert all(one["monitor_port"] is None for one in unchecked if one["name"] == "a")


ADDRESSES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", ""]))


@given(ADDRESSES, ADDRESSES)
def test_one_member_is_added_only_where_that_is_all(before: dict[str, str], after: dict[str, str]) -> None:
    spot = Spot("", 30080, None)
    present = members(spot, [], [Target(name, address, name) for name, address in before.items()]) or []
    wanted = members(spot, present, [Target(name, address, name) for name, address in after.items()])
    step = None if wanted is None else join_step("p", present, wanted, 31234)
    if wanted is not None and step is not None:
        assert step.body["member"]["monitor_port"] == 31234
        both = [{(one["name"], one["address"]) for one in some} for some in ([*present, step.body["member"]], wanted)]
        assert both[0] == both[1]


# Steps


def a_plan(ports: int = 1, /, **annotations: str) -> Plan:
    named = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    spread = [(80 + number, 30080 + number) for number in range(ports)]
    return planned(new_service("web", UID, ports=spread, annotations=named))


@pytest.mark.parametrize("annotations", [{}, {"enable_health_monitor": "true"}, {"x_forwarded_for": "true"}])
def test_what_was_just_built_is_right(annotations: dict[str, str]) -> None:
    wanted = a_plan(2, **annotations)
    assert what(wanted, as_built(wanted, TWO)) == []


def test_everyone_is_written_in_several_ways() -> None:
    wanted = a_plan()
    for ranges in ([], None, ["0.0.0.0/0"], ["0.0.0.0/0", "10.0.0.0/8"]):
        actual = as_built(wanted, TWO)
        actual.listeners[0]["allowed_cidrs"] = ranges
        assert what(wanted, actual) == [], ranges
    actual = as_built(wanted, TWO)
    actual.listeners[0]["allowed_cidrs"] = ["10.0.0.0/8"]
    assert what(wanted, actual) == ["PUT listeners/listener-0"]
    limited = evolve(wanted, ranges=("10.0.0.0/8",))
    actual.listeners[0]["allowed_cidrs"] = ["0.0.0.0/0", "10.0.0.0/8"]
    assert what(limited, actual) == ["PUT listeners/listener-0"]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"connection_limit": "5", "timeout_client_data": "9"}, ["PUT listeners/listener-0"]),
        ({"lb_method": "SOURCE_IP"}, ["PUT pools/pool-0"]),
        ({"enable_health_monitor": "true"}, ["POST healthmonitors"]),
        ({"proxy_protocol": "v2"}, ["POST pools", "PUT ", "PUT listeners/listener-0", "DELETE pools/pool-0"]),
        (
            {"x_forwarded_for": "true"},
            ["DELETE listeners/listener-0", "POST pools", "PUT ", "POST listeners", "DELETE pools/pool-0"],
        ),
    ],
)
def test_a_change_is_carried_out_in_order(annotations: dict[str, str], expected: list[str]) -> None:
    assert what(a_plan(**annotations), as_built(a_plan(), TWO)) == expected


def test_a_port_more_and_a_port_less() -> None:
    assert what(a_plan(2), as_built(a_plan(1), TWO)) == ["POST pools", "PUT ", "POST listeners"]
    assert what(a_plan(1), as_built(a_plan(2), TWO)) == ["DELETE listeners/listener-1", "DELETE pools/pool-1"]


def test_a_pool_that_an_interrupted_call_left_is_used() -> None:
    actual = as_built(a_plan(2), TWO)
    half = evolve(actual, listeners=actual.listeners[:1], pools=[actual.pools[0], {**actual.pools[1], "members": []}])
    assert what(a_plan(2), half) == ["PUT pools/pool-1/members", "POST listeners"]
    assert what(a_plan(1), half) == ["DELETE pools/pool-1"]


def test_anothers_listener_is_left_alone_and_its_tags_are_kept() -> None:
    wanted, actual = a_plan(), as_built(a_plan(2), TWO)
    actual.listeners[1]["tags"] = ["kube_service_blue_default_other"]
    assert what(wanted, actual) == []
    actual.listeners[0]["tags"] = ["mine", wanted.who.balancer]
    assert what(wanted, actual) == []
    actual.listeners[0]["tags"] = ["mine"]
    [step] = steps(wanted, actual, TWO, ["IPv4"])
    assert step.body == {"listener": {"tags": ["mine", wanted.who.balancer], "name": wanted.who.part("listener", 0)}}
    # On a load balancer that users may name, what was made by hand is no Service's.
    with pytest.raises(InvalidService, match="in use"):
        what(wanted, evolve(actual, balancer={"id": "lb", "name": "the-shop"}))
    actual.listeners[0]["tags"] = ["kube_service_blue_default_other"]
    with pytest.raises(InvalidService, match="another Service"):
        what(wanted, actual)


def test_a_service_leaves_a_shared_load_balancer() -> None:
    actual = as_built(a_plan(2), TWO)
    actual.listeners[1]["tags"] = ["kube_service_blue_default_other"]
    actual.pools[1]["name"] = "pool_0_kube_service_blue_default_other"
    assert [f"{one.method} {one.path}" for one in leaving(a_plan().who, actual)] == [
        "DELETE /lbaas/listeners/listener-0", "DELETE /lbaas/pools/pool-0",
    ]  # fmt: skip
    actual.listeners[1]["default_pool_id"] = "pool-0"  # somebody put it behind another listener, too
    assert [one.path for one in leaving(a_plan().who, actual)] == ["/lbaas/listeners/listener-0"]


# Whose it is


WHO = Identity("blue", "cluster-1", "default/web", UID)


def balancer(*tags: str, name: str = WHO.balancer) -> Fact:
    return {"id": "lb", "name": name, "tags": list(tags)}


def test_whose_a_load_balancer_is() -> None:
    """Fault 1 of the Go manager: it takes what another cluster of the same name built."""
    ours = balancer(WHO.balancer, WHO.uid_tag, WHO.cluster_tag)
    foreign = balancer(WHO.balancer, "kubernetes-service-uid=other", "kubernetes-cluster-uid=cluster-2")
    recreated = balancer(WHO.balancer, "kubernetes-service-uid=other", WHO.cluster_tag)
    assert own([ours, foreign, recreated], WHO) is ours
    assert own([foreign, recreated, balancer(WHO.balancer)], WHO) is None
    assert "another cluster" in str(refusal(foreign, WHO))
    assert "another Service" in str(refusal(recreated, WHO))
    assert f"--tag {WHO.uid_tag} lb" in str(refusal(balancer(), WHO))
    with pytest.raises(CloudProviderError, match="2 load balancers"):
        own([ours, ours], WHO)
    # A UID that somebody copied onto another cluster's is no proof against that cluster's mark.
    assert not is_of(balancer(WHO.uid_tag, "kubernetes-cluster-uid=cluster-2"), WHO)


@pytest.mark.parametrize(
    ("found", "goes"),
    [
        (balancer(WHO.balancer, WHO.uid_tag, WHO.cluster_tag), True),
        (balancer(WHO.balancer, WHO.uid_tag, WHO.cluster_tag, "kube_service_blue_default_b"), False),
        (balancer(WHO.balancer, WHO.uid_tag, WHO.cluster_tag, name="by-hand"), False),
        (balancer(WHO.balancer, WHO.uid_tag, name="kube_service_blue_default_b"), False),
        (balancer(WHO.balancer, WHO.uid_tag, WHO.cluster_tag, name="kube_service_blue_default_b"), True),
    ],
)
def test_which_load_balancers_go_with_the_service(found: Fact, goes: bool) -> None:
    assert may_be_deleted(found, WHO) is goes


def test_only_the_status_proves_that_an_unmarked_one_is_the_services() -> None:
    service = a_service(load_balancer_address="203.0.113.7", load_balancer_id=SOME_ID)
    assert not shows(service, ["203.0.113.7"], "nip.io")
    ingress = [V1LoadBalancerIngress(hostname="203.0.113.7.nip.io")]
    service.status = V1ServiceStatus(load_balancer=V1LoadBalancerStatus(ingress=ingress))
    assert shows(service, ["203.0.113.7"], "nip.io")
    assert not shows(service, ["203.0.113.8"], "nip.io")
    service.status = V1ServiceStatus(load_balancer=V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="")]))
    assert not shows(service, [], "nip.io")


PAGE = Path(__file__).parents[3] / "docs" / "guides" / "openstack-annotations.md"


def test_the_pages_table_of_annotations_is_current() -> None:
    told = PAGE.read_text().partition("<!-- annotations: as Annotations.markdown_table() has them -->\n")[2]
    assert told.partition("<!-- end -->")[0] == Annotations.markdown_table().replace(f"`{PREFIX}", "`")


def test_the_page_has_every_annotation() -> None:
    rows = PAGE.read_text().partition("<!-- checked: annotations -->")[2].partition("\n\n")[0]
    told = set(re.findall(r"`([^`]+)`", "\n".join(line.split("|")[1] for line in rows.strip().splitlines())))
    names = {one.name.removeprefix(PREFIX) for one in (*Annotations.declared.values(), *Internal.declared.values())}
    assert told - {"annotation"} == names


def test_source_ranges_of_another_family_than_the_load_balancer_open_it_to_nobody() -> None:
    """On a shared one, or a given port, of IPv4: an empty list of ranges would let everyone in."""
    service = a_service()
    assert service.spec is not None
    service.spec.ip_families, service.spec.load_balancer_source_ranges = ["IPv6"], ["2001:db8::/32"]
    wanted = planned(service)
    assert planned(new_service("web", UID)).sources(["IPv6"]) == []
    with pytest.raises(InvalidService, match="none of the source ranges is of IPv4"):
        steps(wanted, as_built(planned(a_service()), TWO), TWO, ["IPv4"])
