"""The route controller over both API servers, against the fake cloud and what goes wrong with
it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from controllers.options.podnetwork import CIDRS
from controllers.route.controller import RouteController
from controllers.route.registration import RouteOptions
from tests.integration.conftest import EMBEDDED, Cluster
from tests.support.api import NODES, STRATEGIC
from tests.support.nodes import small_node
from tests.support.running import Running, at_work

CLUSTER_CIDRS = "10.244.0.0/16,fd00:10:244::/56"


def _options(cidrs: str = CLUSTER_CIDRS, **settings: Any) -> RouteOptions:
    """By default the slow check is far away: what is seen comes from events."""
    return RouteOptions(cluster_cidrs=CIDRS.parse(cidrs), **{"route_reconciliation_period": 3600.0, **settings})


def _cloud(**settings: Any) -> FakeCloud:
    return FakeCloud(FakeConfig.model_validate({"log": "all", **settings}))


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    with _cloud() as made:
        yield made


def _running(
    kubeconfig: Path, cloud: FakeCloud, options: RouteOptions | None = None
) -> AbstractContextManager[Running[RouteController]]:
    return at_work(RouteController, kubeconfig, cloud, options or _options())


def _add_node(api: Cluster, name: str, *cidrs: str) -> dict[str, Any]:
    return api.create(NODES, small_node(name, taints=[], cidrs=cidrs))


def _table(cloud: FakeCloud) -> dict[str, str]:
    """Destination to target, blackholes as "!"."""
    return {
        record.destination_cidr: "!" if record.blackhole else record.target_node for record in cloud.console.routes()
    }


def _condition(api: Cluster, name: str) -> dict[str, Any]:
    conditions = api.get(f"{NODES}/{name}")["status"].get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "NetworkUnavailable"), {})


def _reason(api: Cluster, name: str) -> tuple[str | None, str | None]:
    condition = _condition(api, name)
    return condition.get("status"), condition.get("reason")


CREATED, MISSING = ("False", "RouteCreated"), ("True", "NoRouteCreated")


def test_every_pod_cidr_gets_its_route_and_the_node_its_condition(api: Cluster, cloud: FakeCloud) -> None:
    dual = _add_node(api, "dual", "10.244.1.0/24", "fd00:10:244:1::/64")
    _add_node(api, "single", "10.244.2.0/24")
    _add_node(api, "bare")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    api.patch(f"{NODES}/dual/status", {"status": {"conditions": [ready]}}, STRATEGIC)
    with _running(api.kubeconfig, cloud) as running:
        eventually(lambda: _reason(api, "dual") == _reason(api, "single") == CREATED)
        assert cloud.calls.counts()["list_routes"] == 1
        syncs = "route_controller_route_sync_total"
        eventually(lambda: running.metrics.value(syncs, outcome="changed", trigger="periodic") == 2)
        assert running.metrics.value(syncs, outcome="error", trigger="periodic") == 0
    assert _table(cloud) == {
        "10.244.1.0/24": "dual",
        "fd00:10:244:1::/64": "dual",
        "10.244.2.0/24": "single",
    }
    assert all(dual["metadata"]["uid"] in route.name for route in cloud.console.routes() if route.target_node == "dual")
    assert _condition(api, "bare") == {}
    condition = _condition(api, "dual")
    assert condition["message"] == "RouteController created a route"
    assert condition["lastTransitionTime"]
    conditions = api.get(f"{NODES}/dual")["status"]["conditions"]
    assert {"Ready", "NetworkUnavailable"} == {one["type"] for one in conditions}


@EMBEDDED
def test_a_late_pod_cidr_a_leaving_node_and_its_successor_with_the_same_range(api: Cluster, cloud: FakeCloud) -> None:
    _add_node(api, "late")
    with _running(api.kubeconfig, cloud, _options(list_interval=0.2)):
        api.patch(f"{NODES}/late", {"spec": {"podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"]}})
        eventually(lambda: _reason(api, "late") == CREATED)
        api.delete(f"{NODES}/late")
        _add_node(api, "heir", "10.244.7.0/24")
        eventually(lambda: _table(cloud) == {"10.244.7.0/24": "heir"})
        eventually(lambda: _reason(api, "heir") == CREATED)
        api.delete(f"{NODES}/heir")
        eventually(lambda: _table(cloud) == {})


@pytest.mark.row("R1")
@EMBEDDED
def test_a_burst_costs_one_listing_and_an_idle_time_none(api: Cluster, cloud: FakeCloud) -> None:
    for number in range(30):
        _add_node(api, f"first-{number}", f"10.244.{number}.0/24")
    with _running(api.kubeconfig, cloud) as running:
        eventually(lambda: len(_table(cloud)) == 30)
        for number in range(30, 60):
            _add_node(api, f"second-{number}", f"10.244.{number}.0/24")
        eventually(lambda: all(_reason(api, f"second-{number}") == CREATED for number in range(30, 60)), timeout=60)
        assert cloud.calls.counts()["list_routes"] == 1
        calls = dict(cloud.calls.counts())
        before = running.metrics.value("workqueue_adds_total", name="Routes") or 0.0
        for name in api.versions(NODES):  # heartbeats
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [ready]}}, STRATEGIC)
        versions = api.versions(NODES)
        _add_node(api, "marker", "10.244.99.0/24")  # its event comes after those of the heartbeats
        eventually(lambda: _reason(api, "marker") == CREATED)
        assert versions.items() <= api.versions(NODES).items()
        assert dict(cloud.calls.counts()) == calls | {"create_route": calls["create_route"] + 1}
        assert running.metrics.value("workqueue_adds_total", name="Routes") == before + 1
