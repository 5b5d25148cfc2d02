"""A node's addresses and its route: the cloud's one next hop, listed or not."""

from __future__ import annotations

import pytest
from attrs import define, evolve
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import CloudProviderError, Route
from tests.unit.route.objects import CREATED, Bench, Cloud, addresses

CIDR = "10.244.1.0/24"
pytestmark = pytest.mark.row("R14")


@define
class Router(Cloud):
    """Leads a route to its node's first address, or to where somebody has it."""

    tells: bool = True
    elsewhere: str = ""

    def create(self, cluster_name: str, name_hint: str, route: Route, *, priority: int = 0) -> None:
        self.enter("create", route.destination_cidr)
        hop = self.elsewhere or route.target_node_addresses[0].address
        listed = addresses(hop) if self.tells else ()
        made = Route("r", route.target_node, route.destination_cidr, self.tells, listed)
        self.routes.append(made)


def _bench(**settings: object) -> tuple[Bench, Router]:
    cloud = Router(**settings)  # type: ignore[arg-type]  # of any of its fields
    bench = Bench(cloud=cloud)
    _at(bench, "10.0.0.5")
    bench.start()
    assert cloud.count("create") == 1
    return bench, cloud


def _at(bench: Bench, *ips: str) -> None:
    """The node has these addresses, and a host name as our own controller writes it."""
    bench.add("n1", CIDR, addresses=ips, condition=CREATED)
    status = bench.lister.objects["n1"].status
    assert status is not None
    status.addresses = [*(status.addresses or ()), V1NodeAddress(type="Hostname", address="n1")]


@pytest.mark.parametrize("tells", [True, False])
def test_nothing_changes_while_nothing_changes(tells: bool) -> None:
    bench, cloud = _bench(tells=tells)
    for _ in range(4):
        bench.later(300)
    _at(bench, "10.0.0.5", "192.168.0.7")  # another one beside it
    bench.work("n1")
    bench.later(300)
    assert (cloud.count("create"), cloud.count("delete")) == (1, 0)
    assert bench.recorder.events == []


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_a_new_address_means_a_new_route(tells: bool, listed: bool) -> None:
    """Whether a listing showed the route before or not."""
    bench, cloud = _bench(tells=tells)
    if listed:
        bench.later(300)
    _at(bench, "10.0.0.99")
    bench.work("n1")
    bench.later(10)
    assert (cloud.count("create"), cloud.count("delete")) == (2, 1)
    for _ in range(3):
        bench.later(300)
    assert (cloud.count("create"), cloud.count("delete")) == (2, 1)
    assert bench.recorder.events == []


def test_what_a_process_before_made_is_taken_as_it_is_found() -> None:
    _, cloud = _bench(tells=False)
    bench = Bench(cloud=cloud)
    _at(bench, "10.0.0.6")
    bench.start()
    assert cloud.count("delete") == 0
    _at(bench, "10.0.0.7")
    bench.work("n1")
    bench.later(10)
    assert (cloud.count("create"), cloud.count("delete")) == (2, 1)


def test_a_route_that_is_listed_elsewhere_again_is_kept_and_told() -> None:
    bench, cloud = _bench(elsewhere="10.9.9.9")
    for _ in range(5):
        bench.later(300)
    assert (cloud.count("create"), cloud.count("delete")) == (2, 1)
    assert set(bench.recorder.reasons("n1", type="Warning")) == {"RouteOutdated"}
    assert "it leads to 10.9.9.9, and the node's addresses are 10.0.0.5" in bench.recorder.messages()[0]
    assert bench.conditions() == []  # it is there, as far as is known


def test_a_creation_that_fails_in_between_changes_nothing_in_that() -> None:
    bench, cloud = _bench(elsewhere="10.9.9.9")
    cloud.fail["create"] = CloudProviderError("quota")
    with pytest.raises(CloudProviderError):
        bench.later(300)
    cloud.fail.clear()
    bench.work("n1")
    for _ in range(3):
        bench.later(300)
    assert (cloud.count("create"), cloud.count("delete")) == (3, 1)


def test_once_it_was_listed_right_it_may_be_made_again() -> None:
    bench, cloud = _bench()
    for times in (1, 2):
        cloud.routes = [evolve(one, target_node_addresses=addresses("10.9.9.9")) for one in cloud.routes]
        bench.later(300)
        assert cloud.count("delete") == times
        bench.later(300)
    assert bench.recorder.events == []


def test_an_address_beside_it_that_goes_costs_no_live_route() -> None:
    """A virtual IP that moves to another machine, say: the route may lead to the one that stays."""
    bench, cloud = _bench(tells=False)
    _at(bench, "10.0.0.5", "10.0.0.100")
    bench = Bench(cloud=cloud)
    _at(bench, "10.0.0.5", "10.0.0.100")
    bench.start()
    _at(bench, "10.0.0.5")
    bench.work("n1")
    bench.later(300)
    assert cloud.count("delete") == 0
    _at(bench, "10.0.0.7")
    bench.work("n1")
    bench.later(10)
    assert cloud.count("delete") == 1
