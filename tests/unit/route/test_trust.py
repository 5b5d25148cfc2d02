"""A pod CIDR is what a kubelet can write: which routes are made and deleted on its word, and which
are not."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudprovider import CloudProviderError, Route
from cloudprovider.ips import IPNetwork
from controllers.options.podnetwork import CIDRS
from controllers.route.changes import Entry, Held, Scope, step
from controllers.route.planning import LIST, LISTING
from controllers.route.reconcile import RouteConflict, RouteRefused
from tests.unit.route.objects import CREATED, MISSING, Bench, addressed, node, route, with_n1
from tests.unit.route.test_changes import NETWORKS

SIZES = {4: 24, 6: 64}


def _refuses(bench: Bench, match: str) -> None:
    """The routes are compared, and a node gets none; the rest is worked off."""
    bench.queue.add(LIST, LISTING)
    with pytest.raises(RouteRefused, match=match):
        bench.work()
    bench.work()


def _destinations(bench: Bench) -> list[str]:
    return [kept.destination_cidr for kept in bench.cloud.routes]


@pytest.mark.row("R7")
@pytest.mark.parametrize(
    ("cidr", "why"),
    [
        ("169.254.169.254/32", "outside --cluster-cidr=10.244.0.0/16,fd00:10:244::/56"),
        ("0.0.0.0/0", "outside"),
        ("::/0", "outside"),
        ("10.245.1.0/24", "outside"),
        ("fd00:10:245::/64", "outside"),
        ("::ffff:169.254.169.0/120", "169.254.169.0/24 is outside"),
        ("10.244.0.0/16", "not of the size /24"),
        ("10.244.1.0/25", "--node-cidr-mask-size-ipv4=25"),
        ("10.244.1.7/32", "not of the size /24"),
        ("fd00:10:244::/56", "not of the size /64"),
    ],
)
def test_no_route_is_made_for_what_the_flags_do_not_allow(cidr: str, why: str) -> None:
    bench = Bench(mask_sizes=SIZES)
    bench.add("hostile", cidr)
    bench.add("n1", "10.244.2.0/24")
    _refuses(bench, why)
    assert _destinations(bench) == ["10.244.2.0/24"]
    assert sorted(bench.conditions()) == [("hostile", *MISSING), ("n1", *CREATED)]
    ((_, kind, reason, message),) = bench.recorder.events
    assert (kind, reason) == ("Warning", "FailedToCreateRoute")
    assert why in message
    assert "Fix: " in message


@pytest.mark.row("R7")
def test_a_refused_range_costs_the_nodes_other_one_nothing_and_is_told_again_by_each_comparison() -> None:
    bench = Bench()
    bench.add("dual", "10.244.1.0/24", "fd00:10:245::/64")
    _refuses(bench, "outside")
    assert _destinations(bench) == ["10.244.1.0/24"]
    assert bench.conditions() == [("dual", *MISSING)]
    assert bench.waiting() == []  # it is not tried again before that
    with pytest.raises(RouteRefused):
        bench.later(300)
    assert len(bench.recorder.events) == 2


@pytest.mark.row("R7")
def test_what_can_be_tried_again_says_when_the_node_comes_back() -> None:
    bench = Bench()
    bench.add("dual", "fd00:10:245::/64", "10.244.1.0/24")
    bench.cloud.fail["create"] = CloudProviderError("quota")
    with pytest.raises(CloudProviderError, match="quota"):
        bench.start()


@pytest.mark.row("R7")
def test_host_bits_of_a_pod_cidr_go_nowhere() -> None:
    bench = Bench()
    bench.add("n1", "10.244.1.7/24")
    bench.start()
    assert _destinations(bench) == ["10.244.1.0/24"]
    bench.later(300)
    assert bench.cloud.count("create") == 1


@pytest.mark.row("R7")
def test_what_was_made_earlier_stays_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """By an older version or Go's manager, for a node that lives: never taken from it, nor left
    without a word."""
    bench = Bench(
        route("169.254.169.254/32", "hostile", name="metadata"),
        route("10.244.5.0/25", "small", name="half"),
        route("192.168.0.0/24", "vanished", name="old"),
        route("192.168.1.0/24", "vpn", name="theirs", owned=False),
        route("192.168.2.0/24", "VPN gateway", name="vpn"),
        mask_sizes=SIZES,
    )
    bench.add("hostile", "169.254.169.254/32", condition=CREATED)
    bench.add("small", "10.244.5.0/25", condition=CREATED)
    assert bench.start() == [LIST]
    assert bench.cloud.count("delete") == 0
    assert "metadata (169.254.169.254/32 to hostile, its node's pod CIDR, outside --cluster-cidr)" in caplog.text
    assert "half (10.244.5.0/25 to small, its node's pod CIDR, not of the size that the flags say)" in caplog.text
    assert "old (192.168.0.0/24 to vanished, outside --cluster-cidr)" in caplog.text
    assert "left alone 3 routes" in caplog.text
    assert "theirs" not in caplog.text
    assert "VPN gateway" not in caplog.text
    assert bench.metrics.value("route_controller_routes_left_alone") == 3
    bench.remove("hostile")
    bench.queue.add("hostile")
    bench.later(600)
    bench.later(600)
    assert len(bench.cloud.routes) == 5
    assert bench.metrics.value("route_controller_routes_left_alone") == 3


@pytest.mark.row("R7")
def test_a_route_of_a_former_size_is_kept_in_order_while_its_node_lives() -> None:
    """--node-cidr-mask-size was changed: nodes keep their ranges, and lost or outdated routes are
    made again."""
    old = addressed("10.244.5.0/25", "n1", "10.0.0.1")
    bench = Bench(old, mask_sizes=SIZES)
    bench.add("n1", "10.244.5.0/25", addresses=["10.0.0.1"], condition=CREATED)
    bench.start()
    bench.cloud.routes.clear()
    bench.later(300)
    assert _destinations(bench) == ["10.244.5.0/25"]
    bench.remove("n1")
    bench.work("n1")
    bench.later(10)
    assert bench.cloud.routes == []  # it was that node's own: deleted when the node is gone


@pytest.mark.row("R7")
def test_a_live_nodes_route_is_never_taken_even_while_it_is_missing() -> None:
    old = addressed("10.244.1.0/24", "n1", "10.0.0.1")
    bench = Bench(old)
    bench.add("n1", "10.244.1.0/24", addresses=["10.0.0.2"], condition=CREATED)
    bench.cloud.fail["create"] = CloudProviderError("quota")
    with pytest.raises(CloudProviderError, match="quota"):
        bench.start()
    assert bench.cloud.routes == []
    bench.cloud.fail.clear()
    bench.add("thief", "10.244.1.0/24")
    with pytest.raises(RouteConflict, match="node n1 has the same pod CIDR"):
        bench.work("thief")
    assert bench.cloud.routes == []
    bench.work("n1")
    assert [one.target_node for one in bench.cloud.routes] == ["n1"]
    bench.remove("n1")
    bench.queue.add("n1")
    bench.later(10)
    bench.queue.add("thief")  # nobody else has the range now
    bench.work()
    assert [one.target_node for one in bench.cloud.routes] == ["thief"]


@pytest.mark.row("R7")
def test_nor_is_it_taken_while_it_is_a_blackhole() -> None:
    bench = with_n1(route("10.244.1.0/24", "n1"))
    bench.start()
    bench.cloud.routes = [route("10.244.1.0/24", blackhole=True)]
    bench.cloud.fail["delete"] = CloudProviderError("later")
    with pytest.raises(CloudProviderError):
        bench.later(300)
    bench.add("thief", "10.244.1.0/24")
    with pytest.raises(RouteConflict, match="n1"):
        bench.work("thief")


# ---- the flags say no size


@pytest.mark.row("R7")
@pytest.mark.parametrize("allocator", ["RangeAllocator", "CloudAllocator"])
@pytest.mark.parametrize("cidr", ["10.244.1.0/25", "10.244.1.7/32", "10.244.0.0/20", "fd00:10:244:1::/80"])
def test_without_a_size_any_inside_will_do(cidr: str, allocator: str) -> None:
    """kube-controller-manager's or the cloud's sizes need not be given, as Go's manager does not
    ask for them."""
    bench = Bench(allocator=allocator)
    bench.add("n1", cidr)
    bench.start()
    assert _destinations(bench) == [cidr]
    assert bench.conditions() == [("n1", *CREATED)]
    bench.later(300)
    assert bench.cloud.count("create") == 1


@pytest.mark.row("R7")
@pytest.mark.parametrize(
    ("cidr", "match"),
    [
        ("10.244.1.7/32", "n1"),
        ("10.244.0.0/20", "n1"),
        ("fd00:10:244:1::/64", "n1"),
        ("10.244.0.0/16", "a whole range of --cluster-cidr"),
        ("10.245.0.0/24", "outside"),
        ("10.0.0.0/8", "outside"),
    ],
)
@pytest.mark.parametrize("allocator", ["RangeAllocator", "CloudAllocator"])
def test_but_none_that_overlaps_with_another_nodes(cidr: str, match: str, allocator: str) -> None:
    bench = Bench(allocator=allocator)
    bench.add("n1", "10.244.1.0/24", "fd00:10:244:1::/80")
    bench.start()
    bench.add("hostile", cidr)
    with pytest.raises((RouteConflict, RouteRefused), match=match):
        bench.work("hostile")
    assert _destinations(bench) == ["10.244.1.0/24", "fd00:10:244:1::/80"]
    assert bench.conditions()[1:] == [("hostile", *MISSING)]


@pytest.mark.row("R7")
@pytest.mark.row("R8")
def test_of_several_ranges_of_a_family_each_counts_and_what_lies_between_does_not() -> None:
    bench = Bench(
        route("10.240.7.0/24", "gone"),
        route("10.248.7.0/24", "gone"),
        route("10.244.7.0/24", "gone"),
        route("10.244.1.0/24", "old"),
        clusters="10.240.0.0/16,10.248.0.0/24,fd00::/56,10.248.7.0/24",
    )
    bench.add("n1", "10.240.1.0/24", "fd00::/64")
    bench.add("n2", "10.248.0.0/24")  # a range with room for one node
    bench.add("old", "10.244.1.0/24")  # its range is not listed any more
    bench.start()
    bench.later(300)
    bench.later(300)
    left = ["10.244.1.0/24", "10.244.7.0/24"]
    assert sorted(_destinations(bench)) == ["10.240.1.0/24", *left, "10.248.0.0/24", "fd00::/64"]
    bench.add("late", "10.244.2.0/24")
    with pytest.raises(RouteRefused, match=r"10\.244\.2\.0/24 is outside --cluster-cidr=10\.240\.0\.0/16,10\.248"):
        bench.work("late")


@pytest.mark.row("R8")
def test_where_the_cloud_chooses_only_a_nodes_own_and_what_the_provider_vouches_for_is_deleted() -> None:
    bench = Bench(
        route("10.244.9.9/32", "appliance"),
        route("10.244.2.0/26", "gone", owned=True),
        route("10.244.3.0/26", blackhole=True),
        route("10.244.4.0/26", blackhole=True, owned=True),
        allocator="CloudAllocator",
    )
    bench.add("n1", "10.244.1.0/26")
    for _ in range(3):
        bench.start()
        bench.clock.advance(300)
    assert _destinations(bench) == ["10.244.9.9/32", "10.244.3.0/26", "10.244.1.0/26"]
    bench.remove("n1")
    bench.work("n1")
    bench.later(10)
    assert _destinations(bench) == ["10.244.9.9/32", "10.244.3.0/26"]


# ---- what may be deleted


@pytest.mark.row("R8")
@pytest.mark.parametrize("mask_sizes", [SIZES, {4: 24}])
@pytest.mark.parametrize("gone", [True, False])
def test_one_odd_node_makes_nobodys_route_deletable(gone: bool, mask_sizes: dict[int, int] | None) -> None:
    theirs = (
        route("10.244.9.9/32", "appliance"),
        route("10.244.9.10/32", blackhole=True),
        route("10.244.200.1/32", "other"),
        route("10.244.200.1/32", blackhole=True),
    )
    bench = Bench(*theirs, mask_sizes=mask_sizes)
    bench.add("odd", "10.244.200.1/32")
    bench.add("other")
    for _ in range(4):
        bench.queue.add(LIST, LISTING)
        if gone:
            bench.remove("odd")
            bench.work()
        else:
            with pytest.raises(RouteRefused):
                bench.work()
        bench.clock.advance(300)
    assert tuple(bench.cloud.routes) == theirs
    assert bench.cloud.count("create") == 0


@pytest.mark.row("R8")
def test_an_odd_nodes_own_route_goes_with_it() -> None:
    bench = Bench(route("10.244.200.0/28", "odd"), route("10.244.201.0/28", "other"))
    bench.add("odd", "10.244.200.0/28", condition=CREATED)
    bench.start()
    bench.remove("odd")
    for _ in range(3):
        bench.later(300)
    assert _destinations(bench) == ["10.244.201.0/28"]


@pytest.mark.row("R8")
def test_what_a_node_had_is_forgotten_with_its_route() -> None:
    bench = Bench(mask_sizes=SIZES)
    bench.add("odd", "10.244.200.1/32")
    bench.add("n1", "10.244.1.0/24")
    _refuses(bench, "size")
    bench.remove("odd")
    bench.later(300)
    bench.cloud.routes.append(route("10.244.200.1/32", "odd", name="by-hand"))
    for _ in range(3):
        bench.later(300)
    assert "10.244.200.1/32" in _destinations(bench)


# ---- the logic of addresses

CLUSTERS = CIDRS.parse("10.244.0.0/16,fd00:10:244::/56")


def _near(cluster: IPNetwork) -> st.SearchStrategy[IPNetwork]:
    """Ranges in, around and beside a cluster CIDR, as the drawn ones hardly ever are."""
    part = 2 ** (cluster.max_prefixlen - cluster.prefixlen - 4)
    return st.builds(
        lambda offset, prefix: type(cluster)((int(cluster.network_address) + offset * part, prefix), strict=False),
        st.integers(-4, 24),
        st.integers(cluster.prefixlen - 4, cluster.max_prefixlen),
    )


RANGES = st.one_of(NETWORKS, *(_near(cluster) for cluster in CLUSTERS))
ROUTES = st.builds(
    Route,
    st.just("r"),
    st.sampled_from(["", "n", "m", "X y"]),
    st.just("unused"),
    blackhole=st.booleans(),
    owned=st.sampled_from([None, True, False]),
)


@pytest.mark.row("R7", "R8")
@given(
    net=RANGES,
    sizes=st.sampled_from([{4: 24, 6: 64}, {4: 26, 6: 64}, {}, {4: 24}]),
    routes=st.lists(ROUTES, max_size=3),
    claims=st.sets(st.sampled_from(["n", "m"])),
    holder=st.sampled_from(["", "n", "m"]),
    wanted=st.booleans(),
    own=st.sets(RANGES, max_size=2),
    its_own=st.booleans(),
)
def test_whatever_nodes_say_nothing_is_touched_outside_and_nothing_taken_from_a_live_node(
    net: IPNetwork,
    sizes: dict[int, int],
    routes: list[Route],
    claims: set[str],
    holder: str,
    wanted: bool,
    own: set[IPNetwork],
    its_own: bool,
) -> None:
    own = own | {net} if its_own else own
    scope = Scope(CLUSTERS, sizes, sizes, frozenset({"n"}), own)
    arguments: dict[str, Any] = {
        "claimed_by": claims.__contains__, "held": Held(holder) if holder else None, "long_since": 0.0,
    }  # fmt: skip
    entries = [Entry(one, since=-1.0) for one in routes]
    found = step(net, str(net) if wanted else "", "n", node("n", str(net)), entries, scope, **arguments)
    inside = any(net.version == one.version and net.subnet_of(one) for one in CLUSTERS)  # type: ignore[arg-type]
    fits = net.prefixlen == sizes[net.version] if net.version in sizes else net not in CLUSTERS
    if found.create:
        assert wanted
        assert inside
        assert fits or holder == "n"
        assert holder in ("", "n") or holder not in claims
        for entry in entries:
            target = entry.route.target_node
            assert entry.route.blackhole or target in ("", "n") or target not in claims
    for entry in found.delete:
        one = entry.route
        assert inside
        assert one.owned is not False
        assert (
            net.prefixlen == sizes.get(net.version)
            or one.owned is True
            or net in own
            or (holder == "n" and one.target_node == "n")
        )
        assert one.blackhole or one.target_node in ("n", "m")
        assert not wanted or one.blackhole or one.target_node == "n" or one.target_node not in claims
    assert not (found.refused and (found.create or found.delete or found.rival))
    assert wanted or not (found.create or found.refused or found.rival)


def test_the_drawn_ranges_reach_every_case() -> None:
    scope = Scope(CLUSTERS, SIZES, SIZES, ())
    for text, shaped in (("10.244.255.0/24", True), ("10.245.0.0/24", False), ("10.240.0.0/12", False)):
        assert scope.has_pod_cidr_size(ip_network(text)) is shaped
