"""Node addresses: which ones, in which order, and what happens when the kubelet's wish cannot be
met."""

from __future__ import annotations

import ipaddress
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models import V1Node, V1NodeAddress, V1ObjectMeta

from cloudprovider.helpers import (
    InvalidNodeIP,
    NodeIPMismatch,
    add_to_node_addresses,
    address_problems,
    describe_addresses,
    parse_provided_node_ip,
    preferred_addresses,
    provided_node_ip,
    same_addresses,
)

INTERNAL, EXTERNAL, HOSTNAME = "InternalIP", "ExternalIP", "Hostname"
Pair = tuple[str, str]


def addresses(*pairs: Pair) -> list[V1NodeAddress]:
    return [V1NodeAddress(type=kind, address=value) for kind, value in pairs]


def pairs(result: tuple[V1NodeAddress, ...]) -> list[Pair]:
    return [(address.type, address.address) for address in result]


def preferred(offered: list[Pair], provided: str | None = None, current: list[Pair] | None = None) -> list[Pair]:
    return pairs(preferred_addresses(addresses(*offered), provided_node_ip=provided, current=addresses(*current or [])))


DUAL = [(INTERNAL, "10.0.0.1"), (INTERNAL, "fd00::1"), (EXTERNAL, "192.0.2.1"), (EXTERNAL, "2001:db8::1")]


# The annotation


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ("10.0.0.1", ["10.0.0.1"]),
        ("fd00::1", ["fd00::1"]),
        ("FD00:0:0::1", ["fd00::1"]),
        ("10.0.0.1,fd00::1", ["10.0.0.1", "fd00::1"]),
        ("fd00::1,10.0.0.1", ["fd00::1", "10.0.0.1"]),
        ("010.000.0.01", ["10.0.0.1"]),
        ("::ffff:10.0.0.1", ["10.0.0.1"]),
        ("::ffff:10.0.0.1,fd00::1", ["10.0.0.1", "fd00::1"]),
        ("0.0.0.0", ["0.0.0.0"]),
    ],
)
def test_the_annotation_holds_one_ip_or_one_of_each_family(value: str, parsed: list[str]) -> None:
    assert [str(ip) for ip in parse_provided_node_ip(value)] == parsed


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", "'' is no IP"),
        ("node-1", "'node-1' is no IP"),
        ("10.0.0.256", "is no IP"),
        ("10.0.0.1,", "'' is no IP"),
        ("10.0.0.1, fd00::1", "' fd00::1' is no IP"),
        ("fe80::1%eth0", "is no IP"),
        ("10.0.0.1,10.0.0.2", "one IPv4 and one IPv6"),
        ("::ffff:10.0.0.1,10.0.0.2", "one IPv4 and one IPv6"),
        ("fd00::1,fd00::2", "one IPv4 and one IPv6"),
        ("10.0.0.1,fd00::1,10.0.0.2", "one IPv4 and one IPv6"),
        ("0.0.0.0,fd00::1", r"0\.0\.0\.0 or ::"),
        ("10.0.0.1,::", r"0\.0\.0\.0 or ::"),
    ],
)
def test_anything_else_is_invalid(value: str, told: str) -> None:
    with pytest.raises(InvalidNodeIP, match=told) as caught:
        parse_provided_node_ip(value)
    assert caught.value.provided == value
    assert "alpha.kubernetes.io/provided-node-ip" in str(caught.value)


@given(st.lists(st.ip_addresses(), min_size=1, max_size=3))
def test_parsing_accepts_exactly_one_or_a_mixed_pair(
    ips: list[ipaddress.IPv4Address | ipaddress.IPv6Address],
) -> None:
    real = [getattr(ip, "ipv4_mapped", None) or ip for ip in ips]
    mixed = len(real) == 2 and real[0].version != real[1].version and not any(ip.is_unspecified for ip in real)
    text = ",".join(map(str, ips))
    if len(real) == 1 or mixed:
        assert list(parse_provided_node_ip(text)) == real
    else:
        with pytest.raises(InvalidNodeIP):
            parse_provided_node_ip(text)


def test_the_annotation_is_read_from_the_node() -> None:
    annotated = V1Node(metadata=V1ObjectMeta(annotations={"alpha.kubernetes.io/provided-node-ip": "10.0.0.1"}))
    assert provided_node_ip(annotated) == "10.0.0.1"
    assert provided_node_ip(V1Node(metadata=V1ObjectMeta(annotations={"a": "b"}))) is None
    assert provided_node_ip(V1Node(metadata=V1ObjectMeta())) is None
    assert provided_node_ip(V1Node()) is None


# The preferred list


def test_the_providers_list_and_spelling_stand() -> None:
    assert preferred(DUAL) == DUAL, "without a wish"
    assert preferred([]) == []
    assert preferred([(INTERNAL, "FD00::1")], "fd00:0::1") == [(INTERNAL, "FD00::1")]
    offered = [(INTERNAL, "10.0.0.2"), (INTERNAL, "10.0.0.1"), (EXTERNAL, "10.0.0.1"), (HOSTNAME, "web-1")]
    assert preferred(offered, "10.0.0.1") == offered[1:], "a provided IP may stand under two types"


def test_duplicates_go_however_they_are_spelled() -> None:
    offered = [
        (INTERNAL, "10.0.0.1"),
        (EXTERNAL, "10.0.0.1"),
        (INTERNAL, "10.0.0.1"),
        (INTERNAL, "FD00::1"),
        (INTERNAL, "fd00:0::1"),
    ]
    assert preferred(offered) == [(INTERNAL, "10.0.0.1"), (EXTERNAL, "10.0.0.1"), (INTERNAL, "FD00::1")]
    assert pairs(add_to_node_addresses(addresses(*offered[:2]), addresses(*offered))) == preferred(offered)


def test_the_nodes_hostname_is_kept_where_the_provider_has_none() -> None:
    current = [(HOSTNAME, "web-1"), (INTERNAL, "10.9.9.9")]
    assert preferred([(INTERNAL, "10.0.0.1")], current=current) == [(INTERNAL, "10.0.0.1"), (HOSTNAME, "web-1")]
    own = [(INTERNAL, "10.0.0.1"), (HOSTNAME, "web-1.example")]
    assert preferred(own, current=current) == own
    assert preferred([], current=current) == []


@pytest.mark.parametrize(
    ("provided", "wanted"),
    [
        ("10.0.0.1", [(INTERNAL, "10.0.0.1"), (EXTERNAL, "192.0.2.1"), (EXTERNAL, "2001:db8::1")]),
        ("fd00::1", [(INTERNAL, "fd00::1"), (EXTERNAL, "192.0.2.1"), (EXTERNAL, "2001:db8::1")]),
        ("192.0.2.1", [(EXTERNAL, "192.0.2.1"), (INTERNAL, "10.0.0.1"), (INTERNAL, "fd00::1")]),
        (
            "fd00::1,10.0.0.1",
            [(INTERNAL, "fd00::1"), (INTERNAL, "10.0.0.1"), (EXTERNAL, "192.0.2.1"), (EXTERNAL, "2001:db8::1")],
        ),
        ("10.0.0.1,2001:db8::1", [(INTERNAL, "10.0.0.1"), (EXTERNAL, "2001:db8::1")]),
    ],
)
def test_provided_ips_come_first_and_alone_of_their_type(provided: str, wanted: list[Pair]) -> None:
    assert preferred(DUAL, provided) == wanted
    current = [(HOSTNAME, "web-1")]
    assert preferred(DUAL, provided, current) == [*wanted, (HOSTNAME, "web-1")]


@pytest.mark.row("N12")
def test_a_mismatch_shows_both_lists() -> None:
    with pytest.raises(NodeIPMismatch) as caught:
        preferred([(INTERNAL, "10.0.0.1"), (EXTERNAL, "192.0.2.1")], "10.0.0.1,fd00::9", [(HOSTNAME, "web-1")])
    error = caught.value
    assert error.provided == "10.0.0.1,fd00::9"
    assert pairs(error.offered) == [(INTERNAL, "10.0.0.1"), (EXTERNAL, "192.0.2.1")]
    for part in ("fd00::9", "10.0.0.1,fd00::9", "InternalIP 10.0.0.1, ExternalIP 192.0.2.1"):
        assert part in str(error)


@pytest.mark.row("N12")
@pytest.mark.parametrize(
    ("offered", "current", "told"),
    [
        ([], [], "no addresses"),
        ([(INTERNAL, "10.0.0.9")], [(HOSTNAME, "10.0.0.1")], "InternalIP 10.0.0.9"),  # the hostname is no match
        ([(HOSTNAME, "ip-10-0-0-1")], [], "Hostname ip-10-0-0-1"),
    ],
)
def test_without_the_wished_ip_it_is_a_mismatch(offered: list[Pair], current: list[Pair], told: str) -> None:
    with pytest.raises(NodeIPMismatch, match=told):
        preferred(offered, "10.0.0.1", current)


KINDS = [INTERNAL, EXTERNAL, HOSTNAME, "InternalDNS", "ExternalDNS"]
IPS = st.sampled_from(["10.0.0.1", "10.0.0.2", "192.0.2.1", "fd00::1", "fd00::2", "2001:db8::1"])
OFFERS = st.lists(st.tuples(st.sampled_from(KINDS[:2]), IPS) | st.tuples(st.sampled_from(KINDS[2:]), st.just("web-1")))
WISHES = st.none() | IPS | st.tuples(IPS, IPS).map(",".join)
CURRENT = st.lists(st.tuples(st.sampled_from(KINDS), IPS | st.just("web-1")), max_size=6)


@pytest.mark.row("N13")
@given(offered=OFFERS, wish=WISHES, current=CURRENT, seed=st.integers(0, 99))
def test_the_result_is_stable(offered: list[Pair], wish: str | None, current: list[Pair], seed: int) -> None:
    try:
        first = preferred(offered, wish, current)
    except (InvalidNodeIP, NodeIPMismatch):
        return
    shuffled = offered[:]
    random.Random(seed).shuffle(shuffled)
    for answer in (offered, shuffled, [*shuffled, *shuffled]):
        assert preferred(answer, wish, first) == first, "a second poll would write"
        again = preferred_addresses(
            addresses(*answer), provided_node_ip=wish, current=addresses(*first), keep_order=False
        )
        assert same_addresses(addresses(*first), again, wish, ordered=False)
    assert len(set(first)) == len(first)


@given(offered=OFFERS, wish=WISHES, current=CURRENT)
def test_what_is_in_the_result(offered: list[Pair], wish: str | None, current: list[Pair]) -> None:
    before = addresses(*offered), addresses(*current)
    arguments = addresses(*offered), addresses(*current)
    try:
        result = pairs(preferred_addresses(arguments[0], provided_node_ip=wish, current=arguments[1]))
    except (InvalidNodeIP, NodeIPMismatch):
        return
    assert arguments == before, "arguments are read-only"
    hostnames = [pair for pair in current if pair[0] == HOSTNAME]
    assert set(result) <= {*offered, *hostnames}
    if not any(kind == HOSTNAME for kind, _ in offered) and offered:
        assert set(hostnames) <= set(result) or wish is not None
    if wish is None:
        assert set(offered) <= set(result)
        return
    wishes = wish.split(",")
    matched = [value for _, value in result[: len(wishes)]]
    assert matched[0] == wishes[0]
    taken = {kind for kind, value in offered if value in wishes}
    assert all(value in wishes for kind, value in result if kind in taken)
    assert {pair for pair in offered if pair[0] not in taken} <= set(result)


@pytest.mark.row("N13")
def test_a_shuffled_answer_keeps_the_nodes_order_and_a_changed_one_takes_the_clouds() -> None:
    shuffled = [DUAL[3], DUAL[1], DUAL[0], DUAL[2]]
    assert preferred(shuffled, current=DUAL) == DUAL
    grown = [*shuffled, (INTERNAL, "10.0.0.7")]
    assert preferred(grown, current=DUAL) == grown
    assert pairs(preferred_addresses(addresses(*shuffled), current=addresses(*DUAL), keep_order=False)) == shuffled


@pytest.mark.row("N13")
def test_a_new_wish_is_met_even_when_the_set_stays_the_same() -> None:
    pair = [(INTERNAL, "10.0.0.1"), (INTERNAL, "fd00::1")]
    assert preferred(pair, "fd00::1,10.0.0.1", pair) == pair[::-1]


# Comparing, describing, checking


@pytest.mark.row("N13")
def test_the_comparison_is_exact() -> None:
    dual = addresses(*DUAL)
    assert same_addresses(dual, addresses(*DUAL))
    assert not same_addresses(dual, dual[::-1])
    assert not same_addresses(dual, dual[:3])
    assert not same_addresses(dual, [*dual[:3], V1NodeAddress(type=EXTERNAL, address="2001:db8::2")])
    assert not same_addresses(dual, [*dual[:3], V1NodeAddress(type=INTERNAL, address="2001:db8::1")])
    assert same_addresses(None, [])


def test_an_unordered_comparison_still_minds_provided_ips() -> None:
    one = addresses((INTERNAL, "10.0.0.1"), (INTERNAL, "fd00::1"), (EXTERNAL, "192.0.2.1"), (HOSTNAME, "a"))
    tail = [one[0], one[1], one[3], one[2]]
    head = [one[1], one[0], one[2], one[3]]
    assert same_addresses(one, tail, "10.0.0.1,fd00::1", ordered=False)
    assert not same_addresses(one, head, "10.0.0.1,fd00::1", ordered=False)
    assert same_addresses(one, head, ordered=False)
    assert not same_addresses(one, one[:3], ordered=False)
    assert not same_addresses(one, [*one[:3], one[2]], ordered=False)


def test_addresses_can_be_described() -> None:
    assert describe_addresses(addresses(*DUAL[:2])) == "InternalIP 10.0.0.1, InternalIP fd00::1"
    assert describe_addresses([]) == ""


@pytest.mark.parametrize("pair", [*DUAL, (HOSTNAME, "web-1"), ("InternalDNS", "web-1.local"), ("ExternalDNS", "a.b")])
def test_good_addresses_have_no_problems(pair: Pair) -> None:
    assert address_problems(addresses(pair)[0]) == ()


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        (("PublicIP", "192.0.2.1"), "unknown address type 'PublicIP'"),
        ((INTERNAL, "web-1"), "InternalIP 'web-1' is no IP address"),
        ((EXTERNAL, ""), "ExternalIP '' is empty"),
        ((HOSTNAME, " web-1"), "blanks around it"),
        ((HOSTNAME, ""), "is empty"),
    ],
)
def test_bad_addresses_are_told(pair: Pair, told: str) -> None:
    assert told in "; ".join(address_problems(addresses(pair)[0]))
