"""Whose a route is when its target is no node of this cluster: what goes, what waits and what
stays."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider import CloudProviderError, Route
from controllers.options.podnetwork import CIDRS
from controllers.route.planning import LIST
from controllers.route.registration import RouteOptions
from tests.unit.route.objects import CREATED, PREFIX, Bench, route, with_n1

STALE = route("10.244.2.0/24", "vanished", name="named-after-nothing")


def _bench(*routes: Route, **settings: Any) -> Bench:
    """n1 with its route, and the given ones."""
    return with_n1(route("10.244.1.0/24", "n1"), *routes, **settings)


def _targets(bench: Bench) -> list[str]:
    return [kept.target_node for kept in bench.cloud.routes]


@pytest.mark.row("R5")
def test_a_live_nodes_claim_removes_a_vanished_nodes_route_at_once() -> None:
    bench = _bench(STALE)
    bench.add("heir", "10.244.2.0/24")
    bench.start()
    assert [call for call, _ in bench.cloud.calls] == ["list", "delete", "create"]
    assert (f"{PREFIX}vanished", {}) in bench.server.gets  # no resourceVersion: a quorum read
    assert _targets(bench) == ["n1", "heir"]
    assert bench.conditions() == [("heir", *CREATED)]


@pytest.mark.row("R5")
def test_a_node_that_joins_later_needs_no_slow_listing_either() -> None:
    bench = _bench(STALE)
    bench.start()
    bench.clock.advance(200)  # of the 300 until the next one
    bench.add("heir", "10.244.2.0/24")
    bench.work("heir")
    assert _targets(bench) == ["n1", "heir"]
    assert bench.conditions() == [("heir", *CREATED)]


@pytest.mark.row("R5")
def test_without_a_claim_it_goes_when_the_next_slow_listing_still_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = _bench(STALE)
    bench.start()
    assert bench.cloud.count("delete") == 0
    assert (
        "named-after-nothing (10.244.2.0/24 to vanished, deleted if the next comparison still finds it)" in caplog.text
    )
    bench.queue.add(LIST)
    bench.later(20)
    assert bench.cloud.count("list") == 2
    assert bench.cloud.count("delete") == 0  # asked for by an event: too soon
    assert "vanished" in bench.later(300)
    assert _targets(bench) == ["n1"]
    assert bench.metrics.value("route_controller_routes_left_alone") == 0


@pytest.mark.row("R5")
def test_a_route_that_was_away_in_between_waits_anew() -> None:
    bench = _bench(STALE)
    bench.start()
    bench.cloud.routes.remove(STALE)
    bench.later(300)
    bench.cloud.routes.append(STALE)
    bench.later(300)
    assert bench.cloud.count("list") == 3
    assert bench.cloud.count("delete") == 0


@pytest.mark.row("R5")
@pytest.mark.parametrize("claimed", [True, False])
def test_a_target_that_the_api_server_has_keeps_its_route(claimed: bool) -> None:
    bench = _bench(STALE)
    bench.add("vanished", "10.244.2.0/24")
    del bench.lister.objects["vanished"]  # the cache is behind
    if claimed:
        bench.add("heir", "10.244.2.0/24")
    bench.queue.add(LIST)
    if claimed:
        with pytest.raises(Exception, match="which the API server still has"):
            bench.work()
    else:
        bench.work()
        bench.later(300)
    assert (f"{PREFIX}vanished", {}) in bench.server.gets
    assert bench.cloud.count("delete") == 0


@pytest.mark.row("R3")
@pytest.mark.parametrize("blackhole", [True, False])
def test_what_the_provider_calls_anothers_stays_for_ever(blackhole: bool) -> None:
    theirs = route("10.244.2.0/24", "" if blackhole else "vanished", blackhole=blackhole, owned=False)
    bench = _bench(theirs)
    bench.start()
    for _ in range(3):
        bench.later(300)
    bench.add("heir", "10.244.2.0/24")
    bench.queue.add("heir")
    bench.cloud.fail[("create", "10.244.2.0/24")] = CloudProviderError("there is such a route")
    with pytest.raises(CloudProviderError, match="such a route"):
        bench.work()
    assert bench.cloud.count("delete") == 0
    assert bench.conditions() == [("heir", "True", "NoRouteCreated")]


@pytest.mark.row("R3")
@pytest.mark.parametrize("target", ["", "VPN gateway", "eni-1/i-2", "Appliance", "x" * 254, "a..b"])
def test_what_leads_to_no_possible_node_stays_for_ever(target: str) -> None:
    bench = _bench(route("10.244.2.0/24", target))
    bench.start()
    for _ in range(3):
        bench.later(300)
    assert bench.cloud.count("delete") == 0
    assert bench.server.gets == []
    assert bench.metrics.value("route_controller_routes_left_alone") == 1


@pytest.mark.row("R3")
@pytest.mark.parametrize("claimed", [True, False])
def test_another_clusters_routes_are_not_fought_over(claimed: bool) -> None:
    """Two clusters that share a range: one deletion a day at most, whatever the other one does."""
    bench = _bench(STALE)
    if claimed:
        bench.add("heir", "10.244.2.0/24")
    bench.start()
    for _ in range(48):
        bench.clock.advance(300)
        bench.cloud.routes = [kept for kept in bench.cloud.routes if kept.target_node != "heir"]
        if STALE not in bench.cloud.routes:
            bench.cloud.routes.append(STALE)  # the other cluster makes it again
        bench.work()
    assert bench.cloud.count("delete") == 1
    bench.later(86_400)
    bench.later(300)
    assert bench.cloud.count("delete") == 2


@pytest.mark.row("R5")
def test_a_node_that_came_back_and_left_again_leaves_nothing_behind() -> None:
    bench = _bench(STALE)
    bench.add("heir", "10.244.2.0/24")
    bench.start()
    bench.remove("heir")
    bench.add("vanished", "10.244.2.0/24")
    bench.later(300)
    assert _targets(bench) == ["n1", "vanished"]
    bench.remove("vanished")
    bench.later(300)
    assert _targets(bench) == ["n1"]


@pytest.mark.row("R6")
@pytest.mark.parametrize(
    ("cidr", "goes"),
    [("10.244.2.0/24", True), ("fd00:10:244:7::/64", True), ("10.244.2.0/25", False), ("fd00:10:244:7::/80", False)],
)
def test_where_no_node_has_a_range_the_usual_size_counts(cidr: str, goes: bool) -> None:
    bench = Bench(route(cidr, "vanished"))
    bench.start()
    bench.later(300)
    assert _targets(bench) == ([] if goes else ["vanished"])


@pytest.mark.row("R6", "R8")
def test_the_flags_size_counts_whatever_the_nodes_have() -> None:
    bench = _bench(
        route("10.244.2.0/26", "old", owned=True),
        route("10.244.3.0/24", "gone", owned=True),
        route("10.244.4.0/25", "x", owned=True),
        route("fd00:10:244:7::/64", "y", owned=True),
        mask_sizes={4: 26},
    )
    bench.start()
    assert _targets(bench) == ["n1", "gone", "x"]


def test_mask_sizes_must_fit() -> None:
    cidrs = CIDRS.parse("10.244.0.0/16")
    for v4, v6 in ((0, 64), (15, 0), (24, 64)):
        options = RouteOptions(cluster_cidrs=cidrs, node_cidr_mask_size_ipv4=v4, node_cidr_mask_size_ipv6=v6)
        with pytest.raises(ValueError, match="cluster CIDR"):
            options.mask_sizes()
    with pytest.raises(ValueError, match="cluster CIDR"):
        RouteOptions(cluster_cidrs=cidrs, node_cidr_mask_size=33).mask_sizes()
    assert RouteOptions(cluster_cidrs=cidrs, node_cidr_mask_size=16).usual_sizes() == {4: 16, 6: 64}
    assert RouteOptions(cluster_cidrs=cidrs).mask_sizes() == {}
    assert RouteOptions(cluster_cidrs=cidrs).usual_sizes() == {4: 24, 6: 64}
    chosen = RouteOptions(cluster_cidrs=cidrs, cidr_allocator_type="CloudAllocator", node_cidr_mask_size=26)
    assert chosen.mask_sizes() == chosen.usual_sizes() == {4: 26}
