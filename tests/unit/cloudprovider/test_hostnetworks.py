"""A machine's address, and its pods' range, in a network that is all its own."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_object_meta import V1ObjectMeta

from cloudprovider.helpers import host_address, pod_range
from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP

NETWORKS = st.builds(
    lambda value, prefix: IPv6Network((value, prefix), strict=False),
    # ::/96 is left out, where Python and Kubernetes see IPv4.
    st.integers(0x2001 << 112, 2**128 - 1),
    st.integers(32, 128),
)


def node(wish: str | None) -> V1Node:
    return V1Node(metadata=V1ObjectMeta(annotations={} if wish is None else {ANNOTATION_PROVIDED_NODE_IP: wish}))


@pytest.mark.parametrize(
    ("network", "wish", "address"),
    [
        ("2001:db8:1::/64", None, "2001:db8:1::1"),
        ("2001:DB8:1:0::/64", "10.0.0.1", "2001:db8:1::1"),
        ("2001:db8:1::/64", "10.0.0.1,2001:db8:1::ce55", "2001:db8:1::ce55"),
        ("2001:db8:1::/64", "2001:db8:2::ce55", "2001:db8:1::1"),
        ("2001:db8:1::/64", "2001:db8:1::", "2001:db8:1::1"),
        ("2001:db8:1::/64", "nonsense,,", "2001:db8:1::1"),
        ("2001:db8:1::7/64", None, "2001:db8:1::7"),
        ("2001:db8:1::7/128", "2001:db8:1::8", "2001:db8:1::7"),
        ("2001:db8:1::/127", None, "2001:db8:1::1"),
    ],
)
def test_the_machines_address(network: str, wish: str | None, address: str) -> None:
    assert host_address(network, node(wish)) == address
    if wish is None:
        assert host_address(network) == address


@given(NETWORKS, st.integers(0, 2**128 - 1) | st.none(), st.integers(0, 2**96))
def test_it_is_one_of_the_network_whatever_the_kubelet_says(net: IPv6Network, wish: int | None, inside: int) -> None:
    mine = net.network_address + inside % net.num_addresses
    for text in (None if wish is None else str(IPv6Address(wish)), str(mine)):
        found = IPv6Address(host_address(str(net), node(text)))
        assert found in net
        assert net.num_addresses == 1 or found != net.network_address
        if text == str(mine) and mine != net.network_address:
            assert found == mine


@given(NETWORKS, st.integers(33, 128), st.integers(0, 2**96))
def test_the_pods_part_is_inside_and_has_no_address_of_the_machine(net: IPv6Network, prefix: int, inside: int) -> None:
    host = net.network_address + inside % net.num_addresses
    if prefix <= net.prefixlen:
        with pytest.raises(ValueError, match=f"has no part of /{prefix}"):
            pod_range(str(net), prefix)
        return
    try:
        part = IPv6Network(pod_range(str(net), prefix, host=str(host)))
    except ValueError:
        assert prefix - net.prefixlen <= 1, "there are two parts only"
        return
    assert part.subnet_of(net)
    assert part.prefixlen == prefix
    assert host not in part
    assert IPv6Address(host_address(str(net))) not in part
    assert pod_range(str(net), prefix, host=str(host)) == str(part)


def test_the_pods_part_by_default() -> None:
    assert pod_range("2001:db8:1::/64") == "2001:db8:1:0:1::/80"
    assert pod_range("2001:db8:1::/64", 112, host="2001:db8:1::1:5") == "2001:db8:1::2:0/112"
    assert pod_range("2001:db8:1::/64", 65, host="2001:db8:1::1") == "2001:db8:1:0:8000::/65"


@pytest.mark.parametrize("network", ["2001:db8:1::", "10.0.0.0/24", "2001:db8::/129", "", "::ffff:10.0.0.0/120"])
def test_what_is_no_ipv6_network_is_refused_and_quoted(network: str) -> None:
    for call in (host_address, pod_range):
        with pytest.raises(ValueError, match="is not an") as caught:
            call(network)
        assert repr(network) in str(caught.value)
    with pytest.raises(ValueError, match="'moon' is not an IP"):
        pod_range("2001:db8:1::/64", host="moon")
