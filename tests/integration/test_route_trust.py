"""A hostile kubelet, a dead machine and a provider that lists nonsense, before the route
controller."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from attrs import evolve

from cloudprovider import Route
from cloudprovider.testing.fake import FakeCloud, FakeConfig, raises
from cloudprovider.testing.fake.others import FakeRoutes
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, REAL, Cluster
from tests.integration.test_route_controller import (
    CREATED,
    MISSING,
    _add_node,
    _cloud,
    _options,
    _reason,
    _running,
    _table,
)
from tests.support.api import NODES, STRATEGIC
from tests.support.nodes import small_node

PERIOD = 0.2


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with _cloud() as made:
        yield made


def _periods(cloud: FakeCloud, count: int = 4) -> None:
    listed = cloud.calls.counts().get("list_routes", 0)
    eventually(lambda: cloud.calls.counts()["list_routes"] >= listed + count)


# ---- R7, R8: what a kubelet says of its own Node


@pytest.mark.row("R7", "R8")
@pytest.mark.parametrize("api", [REAL], indirect=True)
def test_a_kubelet_gets_no_route_to_what_is_not_its_own(api: Cluster, cloud: FakeCloud) -> None:
    """The real server, NodeRestriction on: it takes every such Node. Each wears one kubelet's own
    credential."""
    name = "node-0000"
    kubelet = api.kubelet(name)

    def own_node(cidr: str) -> dict[str, Any]:
        return small_node(name, taints=[], cidrs=[cidr], labels={"kubernetes.io/hostname": name})

    cloud.console.add_route("firewall", "10.244.9.9/32", target_node="appliance", cluster="kubernetes", foreign=False)
    _add_node(api, "victim", "10.244.1.0/24")
    wanted = {"10.244.1.0/24": "victim", "10.244.9.9/32": "appliance"}
    options = _options(
        "10.244.0.0/16", route_reconciliation_period=PERIOD, list_interval=0.1, node_cidr_mask_size_ipv4=24
    )
    with _running(api.kubeconfig, cloud, options):
        eventually(lambda: _reason(api, "victim") == CREATED)
        for cidr, why in (
            ("169.254.169.254/32", "outside --cluster-cidr=10.244.0.0/16"),
            ("0.0.0.0/0", "outside"),
            ("fd00:10:244:1::/64", "outside"),
            ("10.244.0.0/16", "size"),
            ("10.244.9.8/32", "size"),
            ("10.244.1.0/24", "node victim has the same pod CIDR"),
        ):
            assert kubelet.request("POST", NODES, own_node(cidr))[0] == 201
            eventually(lambda: _reason(api, name) == MISSING)
            eventually(lambda why=why: any(why in one["message"] for one in api.events_of(name)))  # type: ignore[misc]
            _periods(cloud)
            assert _table(cloud) == wanted, cidr
            assert _reason(api, "victim") == CREATED
            api.delete(f"{NODES}/{name}")
            _periods(cloud)
            assert _table(cloud) == wanted, cidr
        # What is left to it: a range inside, of the right size, that nobody has. It goes with the
        # Node.
        assert kubelet.request("POST", NODES, own_node("10.244.77.0/24"))[0] == 201
        eventually(lambda: _table(cloud) == wanted | {"10.244.77.0/24": name})
        api.delete(f"{NODES}/{name}")
        eventually(lambda: _table(cloud) == wanted)


# ---- R9


@pytest.mark.row("R9")
@EMBEDDED
def test_a_second_try_is_seen_although_the_cache_is_behind(api: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from controllers.runtime.cache.informer import Informer

    lag = [0.0]
    take = Informer._take

    def late(self: Informer[Any], update: Any) -> None:
        if lag[0]:
            time.sleep(lag[0])  # a busy API server's watch
        take(self, update)

    monkeypatch.setattr(Informer, "_take", late)

    def move(ip: str) -> None:
        addresses = [{"$patch": "replace"}, {"type": "InternalIP", "address": ip}]
        api.patch(f"{NODES}/n1/status", {"status": {"addresses": addresses}}, STRATEGIC)

    _add_node(api, "n1", "10.244.1.0/24")
    move("10.0.0.1")
    with _cloud(routes={"node_addresses": True}) as cloud, _running(api.kubeconfig, cloud, _options(list_interval=0.1)):
        eventually(lambda: _reason(api, "n1") == CREATED)
        eventually(lambda: len(_table(cloud)) == 1)
        lag[0] = 1.0
        cloud.faults.on("create_route", raises(), times=1)
        move("10.0.0.9")
        eventually(lambda: _reason(api, "n1") == MISSING, timeout=10)
        eventually(lambda: cloud.calls.counts()["create_route"] == 3)
        eventually(lambda: _reason(api, "n1") == CREATED, timeout=5)
        lag[0] = 0.0


# ---- R13


class SlowToDelete(FakeRoutes):
    """Knows a route by its destination alone, and is listed twice before a deletion ends."""

    def delete_route(self, cluster_name: str, route: Route) -> None:
        super().delete_route(cluster_name, evolve(route, name=""))
        listed = self._gate.calls.counts()["list_routes"]
        # The next listing begins when the one before it was taken in.
        eventually(lambda: self._gate.calls.counts()["list_routes"] >= listed + 2)


@pytest.mark.row("R13")
def test_a_listing_during_a_deletion_costs_the_new_route_nothing(api: Cluster) -> None:
    """The machine of a Node was replaced; its route is a blackhole, and is replaced."""
    options = _options(route_reconciliation_period=PERIOD, list_interval=0.1)
    _add_node(api, "n1", "10.244.1.0/24")
    with _cloud() as cloud:
        routes = cloud.routes()
        assert routes is not None
        routes.__class__ = SlowToDelete
        cloud.console.add_route("old", "10.244.1.0/24", blackhole=True, cluster="kubernetes", foreign=False)
        with _running(api.kubeconfig, cloud, options):
            eventually(lambda: _table(cloud) == {"10.244.1.0/24": "n1"})
            _periods(cloud)
            assert _table(cloud) == {"10.244.1.0/24": "n1"}
            assert cloud.calls.counts()["delete_route"] == 1
            assert _reason(api, "n1") == CREATED


# ---- P5


@pytest.mark.row("P5")
def test_a_machine_with_another_name_keeps_its_nodes_routes(api: Cluster) -> None:
    """Two machines swap their names, and a third gets one that no node has."""
    options = _options(route_reconciliation_period=PERIOD, list_interval=0.1)
    cidrs = {f"n{i}": f"10.244.{i}.0/24" for i in range(3)}
    with _cloud(routes={"strict_targets": True}) as cloud:
        for name, cidr in cidrs.items():
            machine = cloud.console.add_instance(name)
            api.create(NODES, small_node(name, taints=[], cidrs=[cidr], provider_id=f"fake://{machine.id}"))
        with _running(api.kubeconfig, cloud, options):
            eventually(lambda: all(_reason(api, name) == CREATED for name in cidrs))
            for name, new in (("n0", "swap"), ("n1", "n0"), ("swap", "n1"), ("n2", "Shop window")):
                cloud.console.rename_instance(name, new)
            _periods(cloud)
        renamed = {"10.244.0.0/24": "n1", "10.244.1.0/24": "n0", "10.244.2.0/24": "Shop window"}
        with _running(api.kubeconfig, cloud, options):  # another process
            _periods(cloud)
            assert _table(cloud) == renamed
            assert "delete_route" not in cloud.calls.counts()
            assert cloud.calls.counts()["create_route"] == 3
            for name in ("n0", "n2"):
                api.delete(f"{NODES}/{name}")
            api.create(NODES, small_node("n3", taints=[], cidrs=["10.244.3.0/24"], provider_id="fake://i-n2"))
            eventually(lambda: _table(cloud) == {"10.244.1.0/24": "n0", "10.244.3.0/24": "Shop window"})
            eventually(lambda: _reason(api, "n3") == CREATED)
            assert _reason(api, "n1") == CREATED


# ---- R10, R11


class Sloppy(FakeRoutes):
    """Lists destinations without their prefix length."""

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return [
            Route(one.name, one.target_node, one.destination_cidr.partition("/")[0])
            for one in super().list_routes(cluster_name)
        ]


@pytest.mark.row("R10")
@EMBEDDED
def test_beside_routes_that_cannot_be_read_nothing_is_created_and_health_names_them(api: Cluster) -> None:
    _add_node(api, "n1", "10.244.1.0/24")
    with FakeCloud(FakeConfig.model_validate({"log": "all"})) as cloud:
        with _running(api.kubeconfig, cloud):
            eventually(lambda: _reason(api, "n1") == CREATED)
        created = cloud.calls.counts()["create_route"]
        routes = cloud.routes()
        assert routes is not None
        routes.__class__ = Sloppy
        _add_node(api, "n2", "10.244.2.0/24")
        with _running(api.kubeconfig, cloud, _options(route_reconciliation_period=PERIOD)) as running:
            ((name, well, detail),) = eventually(lambda: [one for one in running.controller.notes() if not one[1]])
            assert (name, well) == ("routes", False)
            assert "to node 'n1': the destination_cidr '10.244.1.0' has no prefix length" in detail
            _periods(cloud, 2)
            assert cloud.calls.counts()["create_route"] == created
            assert _condition_is_absent(api, "n2")
            routes.__class__ = FakeRoutes
            eventually(lambda: _reason(api, "n2") == CREATED, timeout=60)
            assert running.controller.notes() == [("routes", True, "")]


def _condition_is_absent(api: Cluster, name: str) -> bool:
    return _reason(api, name) == (None, None)
