"""What may be deleted, what must be created, and when the condition is written: pure."""

from __future__ import annotations

import weakref
from ipaddress import IPv4Network, ip_network
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import Route
from cloudprovider.ips import IPNetwork
from controllers.options.podnetwork import CIDRS
from controllers.route import changes
from controllers.route.changes import (
    Entry,
    Held,
    Scope,
    State,
    Step,
    next_hops,
    pod_cidrs,
    step,
)
from tests.unit.route.objects import addresses, node, route

NET = ip_network("10.244.1.0/24")
SIZES = {4: 24, 6: 64}
SCOPE = Scope(CIDRS.parse("10.244.0.0/16,fd00:10:244::/56"), SIZES, SIZES, frozenset({"node-1", "node-2"}))


def _step(*entries: Entry | Route, cidr: str = str(NET), owner: V1Node | None = None, **settings: Any) -> Step:
    listed = [entry if isinstance(entry, Entry) else Entry(entry) for entry in entries]
    subject = owner or node("node-1", str(NET), addresses=["10.0.0.1"])
    given = {"claimed_by": lambda name: False, **settings}
    return step(NET, cidr, "node-1", subject, listed, SCOPE, **given)


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), (" ", 0), ("10.244.0.0/16", 1), ("10.244.0.0/16, fd00::/56", 2), ("fd00::/56,10.0.0.0/8", 2)],
)
def test_cluster_cidrs(text: str, count: int) -> None:
    assert len(CIDRS.parse(text)) == count


def test_a_missing_route_is_created_and_a_present_one_kept() -> None:
    assert _step() == Step(NET, str(NET), create=True)
    assert not _step(route(str(NET), "node-1"))
    assert not _step(Entry(route(str(NET), "node-1"), State.CREATED))


def test_a_blackhole_goes_first_and_does_not_count_as_the_route() -> None:
    hole = Entry(route(str(NET), blackhole=True))
    assert _step(hole) == Step(NET, str(NET), delete=(hole,), create=True)
    own = Entry(route(str(NET), "node-1", blackhole=True))
    assert _step(own) == Step(NET, str(NET), delete=(own,), create=True)
    assert _step(hole, route(str(NET), "node-1")) == Step(NET, str(NET), delete=(hole,))


def _leading(*listed: str, types: tuple[str, ...] = ("InternalIP", "Hostname", "ExternalDNS")) -> Entry:
    """A route whose next hop the cloud lists, each word as an address of each type."""
    hops = tuple(V1NodeAddress(type=kind, address=one) for one in listed for kind in types)
    return Entry(route(str(NET), "node-1", enable_node_addresses=True, target_node_addresses=hops))


@pytest.mark.row("R14")
@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ((), ""),
        (("10.0.0.1",), ""),
        (("10.0.0.2", "10.0.0.1"), ""),
        (("node-1",), ""),
        (("10.0.0.9",), "it leads to 10.0.0.9, and the node's addresses are 10.0.0.1, 10.0.0.2, fd00::1"),
        (("10.0.0.1", "10.0.0.9"), "it leads to 10.0.0.9, and the node's addresses are 10.0.0.1, 10.0.0.2, fd00::1"),
        (("fd00:0:0::1",), ""),
    ],
)
def test_a_route_is_outdated_when_an_address_it_lists_is_none_of_the_nodes(listed: tuple[str, ...], why: str) -> None:
    """The node has more of them: a name of its own, and other addresses than the one next hop."""
    subject = node("node-1", str(NET), addresses=["10.0.0.1", "10.0.0.2", "fd00::1"])
    entry = _leading(*listed)
    found = _step(entry, owner=subject)
    assert found.outdated == why
    assert found == (Step(NET, str(NET), (entry,), create=True, outdated=why) if why else Step(NET, str(NET)))


@pytest.mark.row("R14")
def test_of_a_node_without_addresses_nothing_is_known() -> None:
    assert not _step(_leading("10.0.0.9"), owner=node("node-1", str(NET)))


@pytest.mark.row("R14")
@pytest.mark.parametrize("state", [State.LISTED, State.CREATED])
def test_where_the_cloud_lists_no_address_the_one_at_the_creation_counts(state: State) -> None:
    held = Held("node-1", next_hops(NET, node("node-1", addresses=["10.0.0.1", "fd00::1"])))
    silent = Entry(route(str(NET), "node-1", target_node_addresses=addresses("10.0.0.7")), state)
    assert not _step(silent, held=held)
    moved = node("node-1", str(NET), addresses=["10.0.0.2", "fd00::1"])
    assert _step(silent, owner=moved, held=held).create
    assert not _step(silent, owner=moved, held=Held("other", held.made_for))
    assert not _step(silent, owner=node("node-1", str(NET), addresses=["10.0.0.1", "fd00::2"]), held=held)


@pytest.mark.row("R14")
def test_a_route_is_not_made_again_twice_in_a_row_for_one_reason() -> None:
    entry = _leading("10.0.0.9")
    why = _step(entry).outdated
    assert _step(entry, held=Held("node-1", remade_for=why)) == Step(NET, str(NET), outdated=why)
    moved = node("node-1", str(NET), addresses=["10.0.0.3"])
    assert _step(entry, owner=moved, held=Held("node-1", remade_for=why)).create, "another reason"
    assert _step(entry, held=Held("node-2", remade_for=why)).create
    doubtful = evolve(entry, state=State.DOUBTFUL)
    assert _step(doubtful, held=Held("node-1", remade_for=why)).create, "its deletion is under way"


def test_a_route_whose_deletion_failed_is_made_anew() -> None:
    doubtful = Entry(route(str(NET), "node-1"), State.DOUBTFUL)
    assert _step(doubtful) == Step(NET, str(NET), delete=(doubtful,), create=True)


def test_the_former_holders_route_goes_unless_it_still_has_the_range() -> None:
    theirs = Entry(route(str(NET), "node-2"))
    assert _step(theirs) == Step(NET, str(NET), delete=(theirs,), create=True)
    assert _step(theirs, claimed_by=lambda name: name == "node-2") == Step(NET, str(NET), rival="node-2")
    foreign = Entry(route(str(NET), "appliance", owned=False))
    assert _step(foreign) == Step(NET, str(NET), create=True)


@pytest.mark.row("R3")
@pytest.mark.parametrize(
    "other",
    [
        route("10.244.0.0/16", "node-1"),
        route("10.244.0.0/20", "node-1"),
        route("10.244.1.0/25", "node-1"),
        route("10.0.0.0/8", blackhole=True),
        route("10.245.1.0/24", "node-1"),
        route("10.245.1.0/24", blackhole=True),
        route("10.244.1.0/24"),
        route("10.244.1.0/24", "vpn", owned=False),
        route("10.244.1.0/24", "node-1", owned=False),
        route("10.244.1.0/24", "VPN gateway", owned=True),
        route("10.244.1.0/24", blackhole=True, owned=False),
        route("fd00:10:244::/56", "node-1"),
        route("fd00:10:244:100::/64", "node-1"),
    ],
    ids=lambda one: f"{one.destination_cidr}-{one.target_node or one.blackhole}-{one.name[:12]}",
)
def test_what_is_not_ours_is_never_removable(other: Route) -> None:
    assert not SCOPE.removable(ip_network(other.destination_cidr), Entry(other))


@pytest.mark.parametrize(
    "ours",
    [
        route("10.244.9.0/24", "node-1", name="x"),
        route("10.244.9.0/24", "gone", name="x"),
        route("10.244.9.0/24", "gone", owned=True),
        route("10.244.9.0/24", blackhole=True, name="x"),
        route("fd00:10:244:7::/64", "node-2", name="x"),
    ],
    ids=lambda one: f"{one.destination_cidr}-{one.target_node}-{one.name}",
)
def test_what_is_ours_is_removable(ours: Route) -> None:
    assert SCOPE.removable(ip_network(ours.destination_cidr), Entry(ours))


NETWORKS = st.builds(
    lambda address, prefix: ip_network((address, prefix), strict=False), st.integers(0, 2**32 - 1), st.integers(0, 32)
) | st.builds(
    lambda address, prefix: ip_network((address, prefix), strict=False),
    st.integers(2**32, 2**128 - 1),
    st.integers(0, 128),
)


@pytest.mark.row("R3")
@given(
    net=NETWORKS,
    cluster=NETWORKS,
    shape=st.integers(0, 128),
    target=st.sampled_from(["", "node-1", "x", "X"]),
    hole=st.booleans(),
)
def test_only_ranges_inside_and_of_the_nodes_size_are_removable(
    net: IPNetwork, cluster: IPNetwork, shape: int, target: str, hole: bool
) -> None:
    sizes = {4: shape, 6: shape}
    scope = Scope((cluster,), sizes, sizes, frozenset({"node-1"}))
    inside = net.version == cluster.version and net.subnet_of(cluster)  # type: ignore[arg-type]  # same version
    assert scope.inside(net) is inside
    if scope.removable(net, Entry(Route("n", target, str(net), blackhole=hole))):
        assert inside
        assert net.prefixlen == shape
        assert hole or target in ("node-1", "x")


def test_a_node_that_lost_the_range_keeps_nothing_of_it() -> None:
    mine, hole = Entry(route(str(NET), "node-1")), Entry(route(str(NET), blackhole=True))
    assert _step(mine, hole, cidr="").delete == (hole, mine)
    assert not _step(route(str(NET), "node-2"), cidr="").delete


def test_pod_cidrs_come_from_either_field() -> None:
    assert pod_cidrs(node("n", "10.244.1.0/24", "fd00:10:244:1::/64")) == {
        NET: "10.244.1.0/24",
        ip_network("fd00:10:244:1::/64"): "fd00:10:244:1::/64",
    }
    old = V1Node.from_dict({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.244.1.0/24"}})
    assert old is not None
    assert list(pod_cidrs(old)) == [IPv4Network("10.244.1.0/24")]
    assert pod_cidrs(node("n")) == {}
    with pytest.raises(ValueError, match="nonsense"):
        pod_cidrs(node("n", "nonsense"))


def test_a_network_is_remembered_as_long_as_somebody_holds_it() -> None:
    """Of each pod CIDR that there ever was a network stayed before, 750 bytes."""
    held = changes.network("10.9.8.0/24")
    assert changes.network("10.9.8.0/24") is held
    freed = weakref.ref(held)
    del held
    assert freed() is None
    assert changes.network("10.9.8.0/24") == ip_network("10.9.8.0/24")
