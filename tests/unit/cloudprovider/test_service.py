"""What a Service asks of its load balancer. The cases include those of Go's
service/helpers/helper_test.go."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models import (
    V1Endpoint,
    V1EndpointConditions,
    V1EndpointSlice,
    V1LoadBalancerIngress,
    V1LoadBalancerStatus,
    V1ObjectMeta,
    V1PortStatus,
    V1Service,
    V1ServiceSpec,
)

from cloudprovider import wellknown
from cloudprovider.helpers import (
    allows_everyone,
    default_load_balancer_name,
    has_load_balancer_finalizer,
    health_check_path_port,
    load_balancer_source_ranges,
    load_balancer_status_equal,
    needs_health_check,
    nodes_with_ready_endpoints,
    requests_only_local_traffic,
    wants_load_balancer,
)

OURS = wellknown.LOAD_BALANCER_CLEANUP_FINALIZER
RANGES = wellknown.ANNOTATION_LOAD_BALANCER_SOURCE_RANGES


def service(meta: dict[str, Any] | None = None, **spec: Any) -> V1Service:
    return V1Service(metadata=V1ObjectMeta(name="web", **(meta or {})), spec=V1ServiceSpec(**spec))


def ranges(text: str | None = None, field: list[str] | None = None) -> list[str]:
    annotations = {} if text is None else {RANGES: text}
    found = load_balancer_source_ranges(service(meta={"annotations": annotations}, load_balancer_source_ranges=field))
    return [str(network) for network in found]


# Source ranges


@pytest.mark.parametrize(
    "text", ["10.0.0.1/33", "foo.bar", "10.0.0.1/32,*", "10.0.0.1/32,", "10.0.0.1/32, ", "10.0.0.1"]
)
def test_bad_source_ranges_are_refused_in_both_places(text: str) -> None:
    with pytest.raises(ValueError, match=f"the annotation {RANGES}: '.*' is not an IP range"):
        ranges(text)
    with pytest.raises(ValueError, match=r"spec\.loadBalancerSourceRanges: '.*' is not an IP range"):
        ranges(field=text.split(","))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("192.168.0.1/32", ["192.168.0.1/32"]),
        ("192.168.0.1/32,192.168.0.1/32", ["192.168.0.1/32"]),
        ("192.168.0.1/24,192.168.0.2/24", ["192.168.0.0/24"]),
        ("192.168.0.2/32,192.168.0.1/32", ["192.168.0.2/32", "192.168.0.1/32"]),
        ("  192.168.0.1/32 , 192.168.0.2/32   ", ["192.168.0.1/32", "192.168.0.2/32"]),
        ("2001:DB8::1/64, 10.0.0.0/8", ["2001:db8::/64", "10.0.0.0/8"]),
    ],
)
def test_source_ranges_are_read_alike_in_both_places(text: str, wanted: list[str]) -> None:
    assert ranges(text) == wanted
    assert ranges(field=text.split(",")) == wanted


def test_the_field_wins_over_the_annotation() -> None:
    assert ranges("10.0.0.0/8", ["192.0.2.0/24"]) == ["192.0.2.0/24"]
    assert ranges("nonsense", ["192.0.2.0/24"]) == ["192.0.2.0/24"]
    assert ranges("10.0.0.0/8", []) == ["10.0.0.0/8"]


@pytest.mark.parametrize("text", [None, "", "  "])
def test_without_either_everyone_is_let_in(text: str | None) -> None:
    assert ranges(text) == ["0.0.0.0/0"]
    assert [str(one) for one in load_balancer_source_ranges(V1Service())] == ["0.0.0.0/0"]


@pytest.mark.row("S34")
@pytest.mark.parametrize(
    ("families", "wanted"),
    [
        (["IPv4"], ["0.0.0.0/0"]),
        (["IPv6"], ["::/0"]),
        (["IPv6", "IPv4"], ["::/0", "0.0.0.0/0"]),
    ],
)
def test_everyone_is_everyone_of_each_family_of_the_service(families: list[str], wanted: list[str]) -> None:
    found = load_balancer_source_ranges(service(ip_families=families))
    assert [str(one) for one in found] == wanted
    assert allows_everyone(found)


@pytest.mark.parametrize(
    ("text", "everyone"),
    [
        ("0.0.0.0/0", True),
        ("::/0", True),
        ("10.0.0.0/8, 0.0.0.0/0, ::/0", True),
        ("10.0.0.0/8", False),
        ("10.0.0.0/8, ::/0", False),
        ("0.0.0.0/0, 2001:db8::/64", False),
    ],
)
def test_ranges_that_limit_nobody(text: str, everyone: bool) -> None:
    found = load_balancer_source_ranges(service(load_balancer_source_ranges=text.split(", ")))
    assert allows_everyone(found) is everyone


NETWORKS = st.tuples(st.ip_addresses(), st.integers(0, 32)).map(lambda pair: f"{pair[0]}/{pair[1]}")


@given(st.lists(NETWORKS, min_size=1, max_size=6), st.sampled_from([",", " ,", ", ", " , "]))
def test_every_list_of_ranges_is_read_as_the_same_set(texts: list[str], separator: str) -> None:
    wanted = {str(ipaddress.ip_network(text, strict=False)) for text in texts}
    assert set(ranges(separator.join(texts))) == set(ranges(field=texts)) == wanted
    assert len(ranges(field=texts)) == len(wanted)


# Predicates

LOCAL: dict[str, Any] = {"external_traffic_policy": "Local"}
CLUSTER: dict[str, Any] = {"external_traffic_policy": "Cluster"}


@pytest.mark.parametrize(
    ("spec", "local", "health"),
    [
        ({}, False, False),
        ({"type": "ClusterIP"}, False, False),
        ({"type": "ClusterIP", **LOCAL}, False, False),
        ({"type": "ExternalName", **LOCAL}, False, False),
        ({"type": "NodePort"}, False, False),
        ({"type": "NodePort", **CLUSTER}, False, False),
        ({"type": "NodePort", **LOCAL}, True, False),
        ({"type": "LoadBalancer", **CLUSTER}, False, False),
        ({"type": "LoadBalancer", **LOCAL}, True, True),
    ],
)
def test_local_traffic_and_health_checks(spec: dict[str, Any], local: bool, health: bool) -> None:
    assert requests_only_local_traffic(service(**spec)) is local
    assert needs_health_check(service(**spec)) is health
    wanted = ("/healthz", 30123) if health else None
    assert health_check_path_port(service(health_check_node_port=30123, **spec)) == wanted


def test_a_service_without_a_spec_asks_for_nothing() -> None:
    empty = V1Service()
    assert not requests_only_local_traffic(empty)
    assert not needs_health_check(empty)
    assert not wants_load_balancer(empty)
    assert not has_load_balancer_finalizer(empty)
    portless = (service(type="LoadBalancer", health_check_node_port=port, **LOCAL) for port in (None, 0))
    assert [health_check_path_port(one) for one in (empty, *portless)] == [None, None, None]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"type": "LoadBalancer"}, True),
        ({"type": "LoadBalancer", "load_balancer_class": "other.example/lb"}, False),
        ({"type": "LoadBalancer", "load_balancer_class": ""}, False),
        ({"type": "ClusterIP"}, False),
        ({}, False),
    ],
)
def test_who_wants_a_load_balancer(spec: dict[str, Any], wanted: bool) -> None:
    assert wants_load_balancer(service(**spec)) is wanted


@pytest.mark.parametrize(
    ("finalizers", "there"), [(None, False), ([], False), (["other"], False), ([OURS], True), (["other", OURS], True)]
)
def test_our_finalizer(finalizers: list[str] | None, there: bool) -> None:
    assert has_load_balancer_finalizer(service(meta={"finalizers": finalizers})) is there


# Names


@given(st.uuids())
def test_the_default_name_fits_every_cloud(uid: object) -> None:
    name = default_load_balancer_name(service(meta={"uid": str(uid)}))
    assert name == f"a{str(uid).replace('-', '')}"[:32]
    assert default_load_balancer_name(service(meta={"uid": "1-2"})) == "a12"


@pytest.mark.parametrize("nameless", [V1Service(), service(), service(meta={"uid": ""})])
def test_without_a_uid_there_is_no_default_name(nameless: V1Service) -> None:
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        default_load_balancer_name(nameless)


# Status


def status(*points: V1LoadBalancerIngress) -> V1LoadBalancerStatus:
    return V1LoadBalancerStatus(ingress=list(points))


def point(ip: str = "192.0.2.1", *ports: V1PortStatus, **more: Any) -> V1LoadBalancerIngress:
    return V1LoadBalancerIngress(ip=ip, ports=list(ports), **more)


def port(number: int, protocol: str = "TCP", error: str | None = None) -> V1PortStatus:
    return V1PortStatus(port=number, protocol=protocol, error=error)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (status(), status()),
        (status(), None),
        (V1LoadBalancerStatus(), status()),
        (status(point()), status(V1LoadBalancerIngress(ip="192.0.2.1"))),
        (status(point(hostname="")), status(point(hostname=None))),
        (status(point(ip_mode="VIP")), status(point(ip_mode="VIP"))),
        (status(point()), status(point(ip_mode="VIP"))),
        (status(point("192.0.2.1", port(80))), status(point("192.0.2.1", port(80)))),
    ],
)
def test_equal_statuses(left: V1LoadBalancerStatus | None, right: V1LoadBalancerStatus | None) -> None:
    assert load_balancer_status_equal(left, right)
    assert load_balancer_status_equal(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (status(point()), None),
        (status(point()), status(point("192.0.2.2"))),
        (status(point()), status(point(hostname="a.example"))),
        (status(point()), status(point(), point("192.0.2.2"))),
        (status(point(), point("192.0.2.2")), status(point("192.0.2.2"), point())),
        (status(point(ip_mode="Proxy")), status(point(ip_mode="VIP"))),
        (status(point(ip_mode="Proxy")), status(point())),
        (status(point("192.0.2.1", port(80))), status(point("192.0.2.1", port(80, "UDP")))),
        (status(point("192.0.2.1", port(80))), status(point("192.0.2.1"))),
        (status(point("192.0.2.1", port(80, error="x"))), status(point("192.0.2.1", port(80)))),
    ],
)
def test_different_statuses(left: V1LoadBalancerStatus | None, right: V1LoadBalancerStatus | None) -> None:
    assert not load_balancer_status_equal(left, right)
    assert not load_balancer_status_equal(right, left)


def _slice(*endpoints: tuple[str | None, bool | None]) -> V1EndpointSlice:
    return V1EndpointSlice(
        address_type="IPv4",
        endpoints=[
            V1Endpoint(addresses=["10.1.0.1"], node_name=node, conditions=V1EndpointConditions(ready=ready))
            for node, ready in endpoints
        ],
    )


def test_nodes_with_ready_endpoints() -> None:
    slices = [
        _slice(("n1", True), ("n1", False), ("n2", False), ("n3", None), (None, True)),
        _slice(("n1", True), ("n4", True)),
        V1EndpointSlice(address_type="IPv4", endpoints=None),
        V1EndpointSlice(address_type="IPv4", endpoints=[V1Endpoint(addresses=["10.1.0.1"], node_name="n5")]),
    ]
    assert nodes_with_ready_endpoints(slices) == {"n1", "n3", "n4", "n5"}
    assert nodes_with_ready_endpoints([]) == frozenset()
