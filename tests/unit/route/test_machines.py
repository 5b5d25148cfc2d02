"""Routes that say which machine they lead to: the node is looked up by its provider ID."""

from __future__ import annotations

import pytest
from attrs import evolve

from cloudprovider import CloudProviderError, Route
from controllers.route.reconcile import RouteConflict
from tests.unit.route.objects import CREATED, MISSING, Bench, addresses, node, route

CIDR = "10.244.1.0/24"


def to(machine: str, cidr: str = CIDR, name: str = "") -> Route:
    """A route to a machine, which has this name in the cloud today."""
    return route(cidr, name, target_provider_id=machine)


def bench_of(*routes: Route, machine: str = "acme://i-1", period: float = 300.0) -> Bench:
    """n1 with its pod CIDR, on this machine, and these routes in the cloud."""
    bench = Bench(*routes, period=period)
    bench.add("n1", CIDR, provider_id=machine, condition=CREATED)
    return bench


def changes_of(bench: Bench) -> list[str]:
    """The calls that change the cloud."""
    return [method for method, _ in bench.cloud.calls if method != "list"]


def lists_of_nodes(bench: Bench) -> int:
    return sum(path.endswith("/nodes") for path, _ in bench.server.gets)


def test_a_route_is_made_for_the_nodes_machine() -> None:
    bench = bench_of()
    bench.start()
    (made,) = bench.cloud.routes
    assert (made.target_node, made.target_provider_id) == ("n1", "acme://i-1")


@pytest.mark.row("P5")
@pytest.mark.parametrize("name", ["", "renamed", "n2"])
@pytest.mark.parametrize("listed", ["acme://i-1", "acme:///I-1"])
def test_another_name_in_the_cloud_changes_nothing(name: str, listed: str) -> None:
    bench = bench_of(to(listed, name=name))
    bench.add("n2", "10.244.2.0/24", provider_id="acme://i-2", condition=CREATED)
    bench.cloud.routes.append(to("acme://i-2", "10.244.2.0/24", name="n1"))
    bench.start()
    assert bench.later(300.0) == ["*"]
    assert changes_of(bench) == []
    assert bench.conditions() == []


@pytest.mark.row("P5")
def test_the_route_of_a_node_that_is_gone_is_deleted_at_once_after_one_read() -> None:
    bench = bench_of(to("acme://i-1", name="renamed"))
    bench.start()
    bench.remove("n1")
    bench.server.gets.clear()
    bench.work("n1")
    assert changes_of(bench) == ["delete"]
    assert [path for path, _ in bench.server.gets] == ["/api/v1/nodes/n1"]


@pytest.mark.row("P5")
def test_routes_to_machines_that_no_node_has_cost_one_list_of_nodes() -> None:
    bench = bench_of(to("acme://i-1"), *(to(f"acme://gone-{i}", f"10.244.{i}.0/24") for i in range(2, 8)))
    bench.start()
    assert changes_of(bench) == []  # not at the first sight
    bench.later(300.0)
    assert changes_of(bench) == ["delete"] * 6
    assert [one.target_provider_id for one in bench.cloud.routes] == ["acme://i-1"]
    assert lists_of_nodes(bench) == 1
    bench.later(300.0)
    assert lists_of_nodes(bench) == 1


@pytest.mark.row("P5")
def test_the_cache_is_behind_and_the_machine_is_a_new_nodes() -> None:
    bench = bench_of(to("acme://i-1"), to("acme://i-2", "10.244.2.0/24"))
    bench.start()
    bench.add("n2", "10.244.2.0/24", provider_id="acme://i-2")
    del bench.lister.objects["n2"]
    bench.later(300.0)
    assert changes_of(bench) == []
    assert lists_of_nodes(bench) == 1


@pytest.mark.row("P5")
def test_a_node_without_a_provider_id_keeps_the_route_to_a_machine_that_no_node_has() -> None:
    bench = bench_of(to("acme://i-1"), machine="")
    bench.start()
    bench.later(300.0)
    assert changes_of(bench) == []
    bench.add("n1", CIDR, provider_id="acme://i-1", condition=CREATED)
    bench.work("n1")
    assert changes_of(bench) == []


@pytest.mark.row("P5")
def test_a_name_counts_for_a_node_without_a_provider_id() -> None:
    bench = bench_of(to("acme://i-1", name="another"), machine="")
    bench.start()
    assert changes_of(bench) == ["delete", "create"]


@pytest.mark.row("P5")
def test_two_nodes_of_one_machine_each_keep_their_route() -> None:
    bench = bench_of(to("acme://i-1"), to("acme://i-1", "10.244.2.0/24"))
    bench.add("n2", "10.244.2.0/24", provider_id="acme://i-1", condition=CREATED)
    bench.start()
    bench.later(300.0)
    assert changes_of(bench) == []


@pytest.mark.row("P5")
@pytest.mark.parametrize("forger", ["a-forger", "z-forger"])
def test_a_kubelet_that_takes_anothers_machine_and_range_costs_it_nothing(forger: str) -> None:
    bench = bench_of(to("acme://i-1"))
    bench.start()
    bench.add(forger, CIDR, provider_id="acme://i-1")
    bench.work("n1", forger)
    bench.later(300.0)
    bench.remove(forger)
    bench.work(forger)
    assert changes_of(bench) == []
    assert ("n1", *MISSING) not in bench.conditions()


@pytest.mark.row("P5")
@pytest.mark.parametrize("forger", ["a-forger", "z-forger"])
def test_nor_does_it_where_the_cloud_lists_next_hops_and_the_process_is_new(forger: str) -> None:
    here = addresses("10.0.0.1")
    bench = bench_of(evolve(to("acme://i-1"), enable_node_addresses=True, target_node_addresses=here))
    bench.add("n1", CIDR, provider_id="acme://i-1", condition=CREATED, addresses=("10.0.0.1",))
    bench.add(forger, CIDR, provider_id="acme://i-1", addresses=("10.0.0.9",))
    with pytest.raises(RouteConflict, match="node n1 has the same pod CIDR"):
        bench.start()
    bench.work("n1")
    assert changes_of(bench) == []
    assert ("n1", *MISSING) not in bench.conditions()


@pytest.mark.row("P5")
def test_a_retry_minutes_later_has_a_proof_of_its_own() -> None:
    bench = bench_of(to("acme://i-1"), to("acme://i-2", "10.244.2.0/24"))
    bench.start()
    bench.cloud.fail["delete"] = CloudProviderError("bang")
    with pytest.raises(CloudProviderError, match="bang"):
        bench.later(300.0)
    bench.cloud.fail.clear()
    bench.cloud.fail["list"] = CloudProviderError("bang")
    bench.add("n2", "10.244.2.0/24", provider_id="acme://i-2")
    del bench.lister.objects["n2"]  # the cache is behind
    bench.queue.add_rate_limited("acme://i-2")
    bench.clock.advance(60.0)
    bench.work()
    assert [one.target_provider_id for one in bench.cloud.routes] == ["acme://i-1", "acme://i-2"]


def test_a_name_that_looks_like_a_machine_is_no_nodes() -> None:
    bench = Bench(route(CIDR, "https://cloud.example/instances/nat"), period=10.0)
    bench.start()
    for _ in range(3):
        bench.later(10.0)
    assert changes_of(bench) == []


@pytest.mark.row("P5")
def test_another_machine_under_the_nodes_name_gets_the_route() -> None:
    bench = bench_of(to("acme://i-1", name="n1"))
    bench.start()
    bench.add("n1", CIDR, provider_id="acme://i-2", uid="another", condition=CREATED)
    bench.work("n1")
    assert changes_of(bench) == ["delete", "create"]
    assert [one.target_provider_id for one in bench.cloud.routes] == ["acme://i-2"]


@pytest.mark.row("P5")
def test_the_route_to_a_former_node_goes_before_the_new_ones() -> None:
    bench = bench_of(to("acme://old"))
    bench.start()
    assert changes_of(bench) == ["delete", "create"]
    assert lists_of_nodes(bench) == 1


def test_the_providers_word_on_two_spellings_keeps_a_route() -> None:
    bench = bench_of(to("acme://uuid-1"))
    bench.reconciler._same_id = lambda one, other: {one, other} == {"acme://i-1", "acme://uuid-1"}
    with pytest.raises(Exception, match="it leads to node n1"):
        bench.start()
    assert changes_of(bench) == []


def test_the_provider_is_not_asked_about_a_node_without_an_id() -> None:
    bench = bench_of(to("acme://old", name="another"), machine="")

    def same_id(one: str, other: str) -> bool:
        assert one, "no instance is named so"
        return one == other

    bench.reconciler._same_id = same_id
    bench.start()
    assert changes_of(bench) == ["delete", "create"]


def test_a_provider_of_names_alone_is_served_as_ever() -> None:
    bench = bench_of(route(CIDR, "n1"))
    bench.start()
    bench.remove("n1")
    bench.work("n1")
    assert changes_of(bench) == ["delete"]


def test_the_trigger_is_the_provider_id_too() -> None:
    bench = bench_of()
    from controllers.route.controller import RouteTriggers

    triggers = RouteTriggers(bench.queue)
    triggers.on_update(node("n1", CIDR), node("n1", CIDR, provider_id="acme://i-1"))
    assert bench.waiting() == ["n1"]
