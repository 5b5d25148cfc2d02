"""IP addresses and ranges, read as Kubernetes reads them."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider.helpers import parse_ip, parse_network


@given(st.ip_addresses())
def test_every_address_is_read_back(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert parse_ip(str(ip)) == (getattr(ip, "ipv4_mapped", None) or ip)


@given(st.ip_addresses(v=4), st.integers(0, 3))
def test_leading_zeros_are_decimal(ip: ipaddress.IPv4Address, zeros: int) -> None:
    assert parse_ip(".".join("0" * zeros + part for part in str(ip).split("."))) == ip


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.4 ", "1.2.3.\uff14", "::1%lo", "1::2::3", "g::", "1.2.3.-4"],
)
def test_what_is_no_address_is_none(text: str) -> None:
    assert parse_ip(text) is None


@given(st.text())
def test_no_text_raises(text: str) -> None:
    ip = parse_ip(text)
    assert ip is None or parse_ip(str(ip)) == ip


@given(st.ip_addresses(), st.data())
def test_every_range_is_read_with_its_host_bits_cleared(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address, data: st.DataObject
) -> None:
    bits = data.draw(st.integers(0, ip.max_prefixlen))
    network = parse_network(f"{ip}/{bits}")
    plain = ipaddress.ip_network(f"{ip}/{bits}", strict=False)
    if getattr(ip, "ipv4_mapped", None) and bits >= 96:
        assert network.version == 4
        assert network.num_addresses == plain.num_addresses
    else:
        assert network == plain
    assert parse_network(str(network)) == network


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/8/8",
        "10.0.0.0/ 8",
        "10.0.0.0/\uff18",
        "fd00::/129",
        "fe80::%1/64",
        "foo/8",
        "/8",
        "*",
        "",
    ],
)
def test_what_is_no_range_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not an IP range") as caught:
        parse_network(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::ffff:10.01.2.03/128", "10.1.2.3/32"),
        ("::ffff:10.1.2.3/95", "::fffe:0:0/95"),
        ("::ffff:10.1.2.3/8", "::/8"),
    ],
)
def test_ranges_of_ipv4_inside_ipv6(text: str, wanted: str) -> None:
    assert str(parse_network(text)) == wanted


def test_leading_zeros_inside_ipv6_and_in_ranges() -> None:
    assert str(parse_ip("::ffff:1.2.3.04")) == "1.2.3.4"
    assert str(parse_ip("64:ff9b::010.0.0.1")) == "64:ff9b::a00:1"
    assert str(parse_network("010.001.0.0/08")) == "10.0.0.0/8"
