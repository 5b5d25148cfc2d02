"""A new node and its route in one manager: no pod is placed before the route is there."""

from __future__ import annotations

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig, hangs
from cloudprovider.testing.waiting import eventually
from controllers.testing import ManagerRun
from tests.integration.conftest import EMBEDDED, Cluster
from tests.integration.test_route_controller import CREATED, MISSING, _condition, _reason
from tests.support.api import NODES, STRATEGIC
from tests.support.nodes import is_tainted, small_node

pytestmark = pytest.mark.row("N36")

ROUTED = ("--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--controllers=*,-nodeipam")


def _cloud() -> FakeCloud:
    return FakeCloud(FakeConfig.model_validate({"generate": [{"count": 1}], "log": "all"}))


def _is_open(api: Cluster) -> bool:
    return not is_tainted(api.get(f"{NODES}/node-0000"))


def test_a_node_is_unreachable_until_its_route_is_made(api: Cluster) -> None:
    with _cloud() as cloud, ManagerRun(api.kubeconfig, cloud, ROUTED):
        hung = cloud.faults.on("create_route", hangs())
        api.create(NODES, small_node("node-0000", cidrs=["10.244.1.0/24"]))
        eventually(lambda: _is_open(api), 60)
        assert _reason(api, "node-0000") == MISSING
        assert _condition(api, "node-0000")["message"] == "The node is new, and its route is not made yet"
        hung.remove()
        eventually(lambda: _reason(api, "node-0000") == CREATED)


@EMBEDDED
@pytest.mark.parametrize(
    ("flags", "cidr"),
    [
        ((*ROUTED, "--controllers=*,-route"), "10.244.1.0/24"),
        ((*ROUTED, "--configure-cloud-routes=false"), "10.244.1.0/24"),
        (ROUTED, "10.245.1.0/24"),
        (ROUTED, ""),
    ],
)
def test_where_no_route_will_be_made_nothing_is_said(api: Cluster, flags: tuple[str, ...], cidr: str) -> None:
    with _cloud() as cloud:
        hung = cloud.faults.on("list_routes", hangs())  # so the route controller says nothing either
        with ManagerRun(api.kubeconfig, cloud, flags):
            api.create(NODES, small_node("node-0000", cidrs=[cidr] if cidr else []))
            eventually(lambda: _is_open(api), 60)
            assert _reason(api, "node-0000") == (None, None)
            hung.remove()


@EMBEDDED
def test_what_another_program_wrote_stays(api: Cluster) -> None:
    node = api.create(NODES, small_node("node-0000", cidrs=["10.244.1.0/24"]))["metadata"]["name"]
    told = {"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp"}
    api.patch(f"{NODES}/{node}/status", {"status": {"conditions": [told]}}, STRATEGIC)
    with _cloud() as cloud, ManagerRun(api.kubeconfig, cloud, ROUTED):
        hung = cloud.faults.on("create_route", hangs())
        eventually(lambda: _is_open(api), 60)
        assert _reason(api, node) == ("False", "CalicoIsUp")
        hung.remove()
