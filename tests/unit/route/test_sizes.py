"""Node ranges of a size that no flag says: whose a route is, is shown by what nodes have or had."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from cloudprovider import CloudProviderError, Route
from cloudprovider.ips import IPNetwork
from controllers.route.changes import common_sizes, network
from tests.unit.route.objects import CREATED, Bench, route

ALLOCATORS = pytest.mark.parametrize("allocator", ["RangeAllocator", "CloudAllocator"])


def _kept(bench: Bench) -> list[tuple[str, str]]:
    return [(one.destination_cidr, "!" if one.blackhole else one.target_node) for one in bench.cloud.routes]


def _agreeing(*routes: Route, **settings: Any) -> Bench:
    """Three nodes with ranges of /26, and these routes beside theirs."""
    nodes = {f"n{number}": f"10.244.0.{64 * number}/26" for number in range(3)}
    bench = Bench(*(route(cidr, name) for name, cidr in nodes.items()), *routes, **settings)
    for name, cidr in nodes.items():
        bench.add(name, cidr, condition=CREATED)
    return bench


@pytest.mark.row("R15")
@ALLOCATORS
@pytest.mark.parametrize("stale", [route("10.244.1.0/26", "old"), route("10.244.1.0/26", blackhole=True)])
def test_a_range_that_a_node_now_has_is_cleared_for_it(stale: Route, allocator: str) -> None:
    bench = Bench(stale, allocator=allocator)
    bench.add("new", "10.244.1.0/26")
    bench.start()
    assert _kept(bench) == [("10.244.1.0/26", "new")]
    assert bench.conditions() == [("new", *CREATED)]


@pytest.mark.row("R15")
def test_also_for_a_node_that_joins_later() -> None:
    bench = _agreeing(route("10.244.1.0/26", "old"))
    bench.start()
    assert ("10.244.1.0/26", "old") in _kept(bench), "no node had that range"
    bench.add("new", "10.244.1.0/26")
    bench.work("new")
    assert ("10.244.1.0/26", "new") in _kept(bench)
    assert ("10.244.1.0/26", "old") not in _kept(bench)


@pytest.mark.row("R15")
def test_and_for_the_first_one() -> None:
    bench = Bench(route("10.244.1.0/26", "old"))
    bench.start()
    bench.add("new", "10.244.1.0/26")
    bench.work("new")
    assert _kept(bench) == [("10.244.1.0/26", "new")]


@pytest.mark.row("R15", "R16")
@ALLOCATORS
def test_what_was_a_nodes_range_is_remembered_until_no_route_leads_there(allocator: str) -> None:
    bench = _agreeing(allocator=allocator)
    bench.add("gone", "10.244.1.0/26")
    bench.start()
    bench.cloud.routes = [
        route(one.destination_cidr, blackhole=True) if one.target_node == "gone" else one for one in bench.cloud.routes
    ]
    bench.remove("gone")
    bench.work("gone")
    bench.later(300)
    bench.later(300)
    assert [target for _, target in _kept(bench)] == ["n0", "n1", "n2"]
    bench.cloud.routes.append(route("10.244.1.0/26", "by-hand"))
    bench.later(300)
    bench.later(300)
    assert ("10.244.1.0/26", "by-hand") in _kept(bench)


@pytest.mark.row("R16")
@ALLOCATORS
def test_a_blackhole_in_place_of_a_nodes_only_route_is_ours_at_any_size(allocator: str) -> None:
    """Of a size that few nodes have: this process made the route, or saw it alone there."""
    bench = _agreeing(route("10.244.2.0/28", "seen"), allocator=allocator)
    bench.add("made", "10.244.1.0/28")
    bench.add("seen", "10.244.2.0/28")
    bench.start()
    for cidr in ("10.244.1.0/28", "10.244.2.0/28"):
        bench.cloud.routes = [one for one in bench.cloud.routes if one.destination_cidr != cidr]
        bench.cloud.routes.append(route(cidr, blackhole=True))
    bench.later(300)
    assert sorted(_kept(bench))[-2:] == [("10.244.1.0/28", "made"), ("10.244.2.0/28", "seen")]


@pytest.mark.row("R8")
@ALLOCATORS
@pytest.mark.parametrize("theirs", [route("10.244.1.0/28", "appliance"), route("10.244.1.0/28", blackhole=True)])
def test_one_odd_kubelets_word_makes_nobodys_route_deletable(
    theirs: Route, allocator: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = _agreeing(theirs, allocator=allocator)
    bench.add("odd", "10.244.1.0/28")
    bench.cloud.fail[("create", "10.244.1.0/28")] = CloudProviderError("RouteAlreadyExists")
    for _ in range(3):
        with suppress(CloudProviderError):
            bench.start()
        bench.clock.advance(300)
    bench.remove("odd")
    bench.work("odd")
    bench.later(300)
    bench.later(300)
    assert theirs in bench.cloud.routes
    assert "--node-cidr-mask-size-ipv4 is not given" in caplog.text
    assert "--node-cidr-mask-size-ipv4 is not given" in bench.recorder.messages()[0]
    assert bench.metrics.value("route_controller_routes_left_alone") == 1


@pytest.mark.row("R16")
def test_blackholes_that_stay_are_told(caplog: pytest.LogCaptureFixture) -> None:
    bench = _agreeing(route("10.244.3.0/26", name="dead", blackhole=True))
    for _ in range(2):
        bench.start()
        bench.clock.advance(300)
    assert bench.cloud.count("delete") == 0
    assert bench.metrics.value("route_controller_routes_left_alone") == 1
    assert "dead (10.244.3.0/26 to nowhere (a blackhole), not of the size of nodes' ranges, /24" in caplog.text


@pytest.mark.row("R15")
def test_a_missing_flag_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = _agreeing()
    for _ in range(2):
        bench.start()
        bench.clock.advance(300)
    assert caplog.text.count("most nodes have pod CIDRs of the size /26") == 1
    assert "Fix: give --node-cidr-mask-size-ipv4=26, as" in caplog.text


@pytest.mark.row("R15")
@pytest.mark.parametrize("settings", [{"mask_sizes": {4: 26}}, {"allocator": "CloudAllocator"}])
def test_where_the_flags_say_it_or_the_cloud_chooses_nothing_is_missing(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    _agreeing(**settings).start()
    assert "most nodes" not in caplog.text


@pytest.mark.row("R15")
def test_the_common_size_is_that_of_more_than_half_in_each_family() -> None:
    def common(*cidrs: str) -> dict[int, int]:
        return common_sizes([[network(cidr)] for cidr in cidrs])

    assert common("10.0.0.0/26", "10.0.1.0/26", "10.0.2.0/24", "fd00::/64") == {4: 26, 6: 64}
    assert common("10.0.0.0/26", "10.0.2.0/24") == {4: -1}
    assert common() == {}


@pytest.mark.row("R15")
def test_sizes_of_which_none_is_common_are_counted_once_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    counted: list[int] = []

    def count(claims: Iterable[Iterable[IPNetwork]]) -> dict[int, int]:
        counted.append(1)
        return common_sizes(claims)

    monkeypatch.setattr("controllers.route.changes.common_sizes", count)
    for number in range(20):
        bench.add(f"n{number}", f"10.244.{number}.0/{25 + number % 2}")
    bench.start()
    assert len(bench.cloud.routes) == 20
    assert len(counted) == 1
    bench.later(300)
    assert len(counted) == 2
