"""What providers read of every object: the value where there is one, and something empty where
there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client.models import (
    V1Node,
    V1NodeAddress,
    V1NodeSpec,
    V1NodeStatus,
    V1ObjectMeta,
    V1Service,
    V1ServicePort,
    V1ServiceSpec,
)

from cloudprovider.helpers import (
    ServicePort,
    addresses_of,
    annotations_of,
    external_ips,
    internal_ips,
    key_of,
    labels_of,
    node_name,
    pod_cidrs_of,
    ports_of,
    uid_of,
)

META = V1ObjectMeta(name="a", namespace="team", uid="u-1", labels={"l": "1"}, annotations={"n": "2"})
ADDRESSES = [
    V1NodeAddress(type="ExternalIP", address="192.0.2.1"),
    V1NodeAddress(type="InternalIP", address="10.0.0.1"),
    V1NodeAddress(type="InternalIP", address="fd00::1"),
    V1NodeAddress(type="Hostname", address="a"),
]
NODE = V1Node(
    metadata=META,
    spec=V1NodeSpec(pod_cidr="10.244.1.0/24", pod_cidrs=["10.244.1.0/24", "fd00:1::/64"]),
    status=V1NodeStatus(addresses=ADDRESSES),
)
BARE = [V1Node(), V1Node(metadata=V1ObjectMeta(), spec=V1NodeSpec(), status=V1NodeStatus())]


def test_what_is_there_is_read() -> None:
    assert (node_name(NODE), key_of(NODE), uid_of(NODE)) == ("a", "team/a", "u-1")
    assert (labels_of(NODE), annotations_of(NODE)) == ({"l": "1"}, {"n": "2"})
    assert addresses_of(NODE) == tuple(ADDRESSES)
    assert (internal_ips(NODE), external_ips(NODE)) == (("10.0.0.1", "fd00::1"), ("192.0.2.1",))
    assert pod_cidrs_of(NODE) == ("10.244.1.0/24", "fd00:1::/64")
    assert pod_cidrs_of(V1Node(spec=V1NodeSpec(pod_cidr="10.244.1.0/24"))) == ("10.244.1.0/24",)


@pytest.mark.parametrize("node", BARE)
@pytest.mark.parametrize(
    ("read", "empty"),
    [
        (uid_of, ""),
        (labels_of, {}),
        (annotations_of, {}),
        (addresses_of, ()),
        (internal_ips, ()),
        (external_ips, ()),
        (pod_cidrs_of, ()),
    ],
)
def test_what_is_absent_is_empty(node: V1Node, read: Callable[[V1Node], Any], empty: object) -> None:
    assert read(node) == empty


@pytest.mark.parametrize("node", BARE)
@pytest.mark.parametrize("read", [node_name, key_of])
def test_an_empty_name_is_never_given(node: V1Node, read: Callable[[V1Node], str]) -> None:
    with pytest.raises(ValueError, match="name"):
        read(node)


def test_a_key_without_a_namespace_is_the_name() -> None:
    assert key_of(V1Node(metadata=V1ObjectMeta(name="n"))) == "n"


def test_ports_have_the_apis_defaults() -> None:
    service = V1Service(
        spec=V1ServiceSpec(
            ports=[
                V1ServicePort(port=80),
                V1ServicePort(port=53, protocol="UDP", node_port=30053, name="dns", app_protocol="dns"),
            ]
        )
    )
    assert ports_of(service) == (ServicePort(80, "TCP", 0, "", ""), ServicePort(53, "UDP", 30053, "dns", "dns"))
    assert ports_of(V1Service()) == ports_of(V1Service(spec=V1ServiceSpec())) == ()
