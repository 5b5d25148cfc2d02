"""Routes in a router, over the double: one update for many, others' routes and pairs untouched,
nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from attrs import define
from openstack_provider.gathering import Gathering
from openstack_provider.routes import OpenStackRoutes, _Change
from openstackdouble import Double, served
from osbench import Nodes, node, provider

from cloudprovider import (
    Call,
    CallCancelled,
    CloudProviderError,
    InstanceNotFound,
    Listers,
    QuotaExceeded,
    RetryError,
    Route,
    call_scope,
)

CLUSTER = "kubernetes"


@define
class Bench:
    """A cluster of some nodes, and the router."""

    cloud: Double
    servers: Mapping[str, str]
    cache: Nodes

    def manager(self) -> OpenStackRoutes:
        """The provider's routes, as after a restart; with time for all threads of a slow machine to
        join a batch."""
        made = provider(self.cloud, f"[Route]\nrouter-id = {self.cloud.router}\n")
        made.set_informers(cast("Listers", self.cache))
        routes = made.routes()
        assert isinstance(routes, OpenStackRoutes)
        routes._changes._linger = 0.5
        return routes

    def route(self, name: str, cidr: str) -> Route:
        return Route("", name, cidr, target_provider_id=f"openstack:///{self.servers[name]}")

    @property
    def table(self) -> set[tuple[str, str]]:
        """(destination, next hop)."""
        return {(one["destination"], one["nexthop"]) for one in self.router["routes"]}

    @property
    def router(self) -> dict[str, Any]:
        return self.cloud.neutron.things["routers"][self.cloud.router]

    def port(self, name: str) -> dict[str, Any]:
        [found] = [one for one in self.cloud.neutron.things["ports"].values() if one["device_id"] == self.servers[name]]
        return found

    def hop(self, name: str) -> str:
        return str(self.port(name)["fixed_ips"][0]["ip_address"])

    def allowed(self, name: str) -> list[str]:
        return [one["ip_address"] for one in self.port(name)["allowed_address_pairs"]]

    def forget(self, name: str) -> None:
        """The Node is deleted."""
        self.cache.known = [one for one in self.cache.known if one.metadata and one.metadata.name != name]

    def asked(self, since: int) -> list[str]:
        return sorted(line for line in self.cloud.counts(since).elements() if "tokens" not in line)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with served() as cloud:
        cloud.neutron.create_port(cloud.subnet, device_id=cloud.router, device_owner="network:router_interface")
        servers = {name: cloud.create_server(name) for name in ("a", "b", "c")}
        yield Bench(cloud, servers, Nodes(*(node(name, server) for name, server in servers.items())))


def together(calls: Sequence[Callable[[], object]]) -> list[object]:
    """What each returned or raised, all begun at once."""
    ready = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        ready.wait()
        try:
            return call()
        except CloudProviderError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def create(routes: OpenStackRoutes, route: Route) -> Callable[[], None]:
    return lambda: routes.create_route(CLUSTER, "hint", route)


def test_many_routes_are_one_update_and_so_is_their_end(bench: Bench) -> None:
    routes = bench.manager()
    wanted = [bench.route(name, f"10.244.{number}.0/24") for number, name in enumerate("abcabc")]
    assert together([create(routes, one) for one in wanted]) == [None] * 6
    assert bench.table == {(one.destination_cidr, bench.hop(one.target_node)) for one in wanted}
    assert sorted(bench.allowed("a")) == ["10.244.0.0/24", "10.244.3.0/24"]  # the threads have no order
    port_updates = ["neutron PUT /v2.0/ports/ID"] * 3
    looks = ["neutron GET /v2.0/ports", "neutron GET /v2.0/routers/ID"]
    assert bench.asked(0) == [*looks, *port_updates, "neutron PUT /v2.0/routers/ID/add_extraroutes"]

    listed = routes.list_routes(CLUSTER)
    assert {(one.destination_cidr, one.target_provider_id, one.owned, one.blackhole) for one in listed} == {
        (one.destination_cidr, one.target_provider_id, None, False) for one in wanted
    }
    since = len(bench.cloud.requests)
    assert routes.list_routes(CLUSTER) == listed
    assert bench.asked(since) == ["neutron GET /v2.0/routers/ID"]  # idle: one request

    since = len(bench.cloud.requests)
    assert together([lambda one=one: routes.delete_route(CLUSTER, one) for one in listed]) == [None] * 6  # type: ignore[misc]
    assert (bench.table, bench.allowed("a")) == (set(), [])
    assert bench.asked(since) == [*looks, *port_updates, "neutron PUT /v2.0/routers/ID/remove_extraroutes"]


def test_made_again_it_is_one_and_writes_nothing(bench: Bench) -> None:
    routes = bench.manager()
    since = 0
    for _ in range(2):
        since = len(bench.cloud.requests)
        routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    assert not [line for line in bench.asked(since) if "PUT" in line]
    [listed] = bench.manager().list_routes(CLUSTER)  # a restarted manager knows it
    routes.delete_route(CLUSTER, listed)
    routes.delete_route(CLUSTER, listed)
    assert bench.table == set()


def test_another_clusters_route_is_never_deleted(bench: Bench) -> None:
    """Fault 3 of the Go manager: it deletes a route of another cluster inside the cluster's
    range."""
    stranger = bench.cloud.create_server("stranger")
    [port] = [one for one in bench.cloud.neutron.things["ports"].values() if one["device_id"] == stranger]
    hop = port["fixed_ips"][0]["ip_address"]
    foreign = [("10.244.77.0/24", hop), ("10.244.78.0/24", "10.24.0.250"), ("192.168.0.0/16", "10.24.0.251")]
    bench.router["routes"] = [{"destination": cidr, "nexthop": to} for cidr, to in foreign]
    routes = bench.manager()
    routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    listed = routes.list_routes(CLUSTER)
    assert {one.destination_cidr for one in listed if one.owned is False} == {cidr for cidr, _ in foreign}
    for one in listed:
        if one.owned is False:
            with pytest.raises(CloudProviderError, match="leads to no node of this cluster: it stays"):
                routes.delete_route(CLUSTER, one)
    since = len(bench.cloud.requests)
    routes.list_routes(CLUSTER)
    assert bench.asked(since) == ["neutron GET /v2.0/routers/ID"]  # what others have costs nothing
    assert bench.table > set(foreign)
    with pytest.raises(CloudProviderError, match=rf"10.244.77.0/24 leads to {hop}, which is no node of this cluster"):
        routes.create_route(CLUSTER, "hint", bench.route("b", "10.244.77.0/24"))
    assert bench.allowed("b") == []


def test_a_next_hop_that_no_port_has_gives_way_to_the_node_with_that_range(bench: Bench) -> None:
    bench.router["routes"] = [{"destination": "10.244.1.0/24", "nexthop": "10.24.0.250"}]
    bench.manager().create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    assert bench.table == {("10.244.1.0/24", bench.hop("a"))}


def test_no_pair_is_left_when_a_node_is_deleted_and_its_server_lives(bench: Bench) -> None:
    """Fault 4 of the Go manager."""
    routes = bench.manager()
    bench.port("a")["allowed_address_pairs"] = [{"ip_address": "10.24.0.99", "mac_address": "m"}]
    routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    routes.list_routes(CLUSTER)
    bench.forget("a")
    [listed] = routes.list_routes(CLUSTER)
    assert (listed.target_provider_id, listed.owned, listed.blackhole) == (
        f"openstack:///{bench.servers['a']}", None, False,
    )  # fmt: skip
    routes.delete_route(CLUSTER, listed)
    assert bench.allowed("a") == ["10.24.0.99"]  # another program's stays
    assert bench.table == set()


def test_a_route_whose_server_is_gone_is_a_blackhole_and_goes(bench: Bench) -> None:
    routes = bench.manager()
    routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    routes.list_routes(CLUSTER)
    bench.cloud.delete_server(bench.servers["a"])
    bench.forget("a")
    [listed] = routes.list_routes(CLUSTER)
    assert listed.blackhole
    routes.delete_route(CLUSTER, listed)
    assert bench.table == set()
    with pytest.raises(InstanceNotFound):
        routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))


def test_a_port_that_somebody_else_changes_is_not_overwritten(bench: Bench) -> None:
    routes = bench.manager()
    key = bench.port("a")["id"]
    bench.cloud.answers[f"PUT neutron /v2.0/ports/{key}"] = (412, {"NeutronError": {"message": "revision"}})
    results = together([create(routes, bench.route(name, f"10.244.{name}.0/24".replace(name, str(ord(name)))))
                        for name in "ab"])  # fmt: skip
    assert isinstance(results[0], RetryError)
    assert results[1] is None
    assert {cidr for cidr, _ in bench.table} == {"10.244.98.0/24"}
    bench.cloud.answers.clear()
    lines = [line for line in bench.cloud.requests if f"PUT neutron /v2.0/ports/{key}" in line]
    assert len(lines) == 1


def test_a_port_without_port_security_takes_no_pairs(bench: Bench) -> None:
    bench.port("a")["port_security_enabled"] = False
    bench.manager().create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    assert (bench.allowed("a"), len(bench.table)) == ([], 1)


def test_a_full_router_keeps_what_finds_a_place(bench: Bench) -> None:
    bench.cloud.neutron.max_routes = 2
    routes = bench.manager()
    results = together([create(routes, bench.route("a", f"10.244.{number}.0/24")) for number in range(3)])
    assert sorted(type(one).__name__ for one in results) == ["NoneType", "NoneType", "QuotaExceeded"]
    [full] = [one for one in results if isinstance(one, QuotaExceeded)]
    assert "exceeds the maximum" in str(full)
    assert len(bench.table) == 2
    assert set(bench.allowed("a")) == {cidr for cidr, _ in bench.table}, "pairs of routes that are there"


def test_an_address_that_another_machine_has_now_leads_nowhere_of_ours(bench: Bench) -> None:
    """The node's server is gone, and Neutron gave its address to somebody else's."""
    routes = bench.manager()
    routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    routes.list_routes(CLUSTER)
    old, hop = bench.servers["a"], bench.hop("a")
    bench.cloud.delete_server(old)
    stranger = bench.cloud.create_server("stranger")
    [port] = [one for one in bench.cloud.neutron.things["ports"].values() if one["device_id"] == stranger]
    port["fixed_ips"][0]["ip_address"] = hop
    bench.forget("a")
    [listed] = routes.list_routes(CLUSTER)
    assert (listed.blackhole, listed.owned, listed.target_provider_id) == (True, None, f"openstack:///{old}")
    [unknown] = bench.manager().list_routes(CLUSTER)  # nothing proves it any more
    assert unknown.owned is False
    routes.delete_route(CLUSTER, listed)
    assert bench.table == set()
    assert port["allowed_address_pairs"] == []


def test_a_node_in_no_subnet_of_the_router_is_told(bench: Bench) -> None:
    bench.port("a")["fixed_ips"][0]["subnet_id"] = "elsewhere"
    with pytest.raises(CloudProviderError, match="has no IPv4 address in a subnet of the router: add an interface"):
        bench.manager().create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    with pytest.raises(CloudProviderError, match="has no IPv6 address"):
        bench.manager().create_route(CLUSTER, "hint", bench.route("b", "fd00:1::/64"))


def test_nothing_is_listed_before_the_nodes_are_known_and_an_outage_is_no_empty_table(bench: Bench) -> None:
    bench.cache.synced = False
    routes = bench.manager()
    with pytest.raises(CloudProviderError, match="the nodes are not listed yet"):
        routes.list_routes(CLUSTER)
    bench.cache.synced = True
    for place in ("GET neutron /v2.0/routers", "GET neutron /v2.0/ports"):
        bench.router["routes"] = [{"destination": "10.244.1.0/24", "nexthop": bench.hop("a")}]
        bench.cloud.answers[place] = (500, {})
        with pytest.raises(CloudProviderError, match="500"):
            routes.list_routes(CLUSTER)
        bench.cloud.answers.clear()


def test_without_a_router_there_are_no_routes(bench: Bench) -> None:
    assert provider(bench.cloud).routes() is None


def test_a_node_without_a_provider_id_is_found_by_its_name(bench: Bench) -> None:
    bench.manager().create_route(CLUSTER, "hint", Route("", "a", "10.244.1.0/24"))
    assert bench.table == {("10.244.1.0/24", bench.hop("a"))}


# ---- gathering


def test_who_comes_while_work_is_under_way_is_of_the_next_batch() -> None:
    began, go = threading.Event(), threading.Event()
    batches: list[list[int]] = []

    def work(items: Sequence[int]) -> Mapping[int, CloudProviderError]:
        batches.append(sorted(items))
        began.set()
        assert go.wait(10)
        return {one: CloudProviderError("odd") for one in items if one % 2}

    gathering = Gathering(work, linger=0.0)
    results: dict[int, object] = {}

    def do(item: int) -> None:
        try:
            gathering.do(item)
            results[item] = None
        except CloudProviderError as error:
            results[item] = str(error)

    threads = [threading.Thread(target=do, args=[0])]
    threads[0].start()
    assert began.wait(10)
    threads += [threading.Thread(target=do, args=[number]) for number in range(1, 4)]
    for thread in threads[1:]:
        thread.start()
    while len(gathering._waiting) < 3:  # all have joined
        threading.Event().wait(0.001)
    go.set()
    for thread in threads:
        thread.join(10)
    assert batches == [[0], [1, 2, 3]]
    assert results == {0: None, 1: "odd", 2: None, 3: "odd"}


def test_what_concerns_all_is_told_to_all_and_a_cancelled_call_does_nothing() -> None:
    def work(items: Sequence[int]) -> Mapping[int, CloudProviderError]:
        raise CloudProviderError("away")

    gathering = Gathering(work)
    results = together([lambda number=number: gathering.do(number) for number in range(3)])  # type: ignore[misc]
    assert [str(one) for one in results] == ["away"] * 3
    stopped = threading.Event()
    stopped.set()
    with call_scope(Call(cancelled=stopped)), pytest.raises(CallCancelled):
        gathering.do(1)


def test_a_full_quota_of_routes_is_told_in_one_line_and_asked_for_few_times(bench: Bench) -> None:
    """Neutron's answer where the quota router_route is full. Where one route finds no place, no
    other does."""
    routes = bench.manager()
    with bench.cloud.exhausted():
        results = together([create(routes, bench.route("a", f"10.244.{number}.0/24")) for number in range(8)])
    assert {type(one) for one in results} == {QuotaExceeded}
    told = str(results[0])
    assert "\n" not in told
    assert told.startswith(f"the router {bench.cloud.router} has no place for the route to 10.244.")
    assert "router_route" in told
    assert bench.cloud.counts()["neutron PUT /v2.0/routers/ID/add_extraroutes"] == 4
    assert (bench.table, bench.allowed("a")) == (set(), [])


def test_a_range_that_changes_its_next_hop_keeps_its_pair(bench: Bench) -> None:
    """The host may ask for the new route and for the end of the old one at once."""
    routes = bench.manager()
    routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    [old] = routes.list_routes(CLUSTER)
    bench.port("a")["fixed_ips"][0]["ip_address"] = "10.24.0.200"
    routes._changes._work(
        [
            _Change(CLUSTER, "a", "10.244.1.0/24", bench.servers["a"]),
            _Change(CLUSTER, "a", "10.244.1.0/24", bench.servers["a"], old.target_node_addresses[0].address),
        ]
    )
    assert bench.table == {("10.244.1.0/24", "10.24.0.200")}
    assert bench.allowed("a") == ["10.244.1.0/24"]


def test_a_port_of_another_project_with_a_nodes_server_gets_no_route(bench: Bench) -> None:
    """In a shared network anybody may write a server's ID on a port: packets would go there."""
    foreign = {"device_id": bench.servers["a"], "device_owner": "compute:nova", "project_id": "another"}
    claim = bench.cloud.neutron.create_port(bench.cloud.subnet, **foreign)
    ports = bench.cloud.neutron.things["ports"]
    bench.cloud.neutron.things["ports"] = {claim["id"]: claim, **ports}  # listed first
    routes = bench.manager()
    routes.create_route(CLUSTER, "hint", bench.route("a", "10.244.1.0/24"))
    assert bench.table == {("10.244.1.0/24", own_hop(bench, "a"))}
    [listed] = routes.list_routes(CLUSTER)
    routes.delete_route(CLUSTER, listed)
    assert (bench.table, claim["revision_number"]) == (set(), 1)


def own_hop(bench: Bench, name: str) -> str:
    """The address of the node's own port."""
    [found] = [
        one
        for one in bench.cloud.neutron.things["ports"].values()
        if one["device_id"] == bench.servers[name] and one["project_id"] != "another"
    ]
    return str(found["fixed_ips"][0]["ip_address"])
