"""Load balancers of one namespace that are not built keep neither nodes that join nor another
namespace's Service waiting."""

from __future__ import annotations

import pytest

from cloudprovider.testing.fake import hangs
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, Cluster, Share
from tests.support.api import NAMESPACES, NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.process import Start
from tests.support.services import SERVICES, ingress, lb_service

MANY = 80
"""More than the provider is asked at once."""


@pytest.mark.row("K3")
@EMBEDDED
def test_load_balancers_of_one_namespace_that_hang_hold_up_nobody_else(
    api: Cluster, start: Start, share: Share
) -> None:
    cloud = share({"on_demand": {"types": ["m-2"]}, "capabilities": ["instances_v2", "load_balancer"]})
    cloud.faults.on("ensure_load_balancer", hangs(), key="default/*")
    api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    process = start.manager(api.kubeconfig, "--cluster-name=fair")
    eventually(lambda: process.ask("/readyz")[0] == 200, 60, lambda: process.log)
    for number in range(MANY):
        api.create(SERVICES, lb_service(f"web-{number}"))
    eventually(lambda: process.metric("cloudprovider_api_requests_in_flight") >= 30, 60, lambda: process.log)
    others = "/api/v1/namespaces/other/services"
    api.create(others, lb_service("web"))
    api.create(NODES, small_node("late"))
    eventually(lambda: not is_tainted(api.get(f"{NODES}/late")), 60, lambda: process.log)
    eventually(lambda: ingress(api.get(f"{others}/web")), 60, lambda: process.log)
    assert process.metric("cloudprovider_api_requests_in_flight") >= 30, "the others hang still"
