"""The cloud is out for a while, with many nodes and Services waiting: few lines in the log, and
everyone is served soon after its return. `CLOUD_OUTAGE=1000,200` runs it with 1,000 nodes and 200
Services."""

from __future__ import annotations

import os
import re

import pytest

from cloudprovider.testing.fake import raises
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, Cluster, Share
from tests.support.api import NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.process import Start
from tests.support.services import SERVICES, ingress, lb_service

NODE_COUNT, SERVICE_COUNT = map(int, os.environ.get("CLOUD_OUTAGE", "60,20").split(","))
LINES = 100
_PER_OBJECT = ("initialised node", "built the load balancer")  # one line for each object is meant to be there


def _waiting(api: Cluster) -> int:
    """Nodes with the taint, and Services without an address."""
    wanted = [service for service in api.items(SERVICES) if service["spec"].get("type") == "LoadBalancer"]
    return sum(map(is_tainted, api.items(NODES))) + sum(not ingress(service) for service in wanted)


@pytest.mark.row("K16", "O1", "O2", "O3", "O4")
@EMBEDDED
def test_an_outage_of_the_cloud_is_a_few_lines_and_over_when_it_is_over(
    api: Cluster, start: Start, share: Share
) -> None:
    cloud = share({"generate": [{"count": NODE_COUNT, "types": ["small"], "zones": ["zone-a"]}]})
    out = cloud.faults.on(("instance*", "*load_balancer*"), raises(ConnectionError))
    process = start.manager(api.kubeconfig, "--cluster-name=outage")
    eventually(lambda: process.ask("/readyz")[0] == 200, 60, lambda: process.log)
    for number in range(max(NODE_COUNT, SERVICE_COUNT)):
        if number < NODE_COUNT:
            api.create(NODES, small_node(f"node-{number:04d}"))
        if number < SERVICE_COUNT:
            api.create(SERVICES, lb_service(f"web-{number}"))
    eventually(lambda: "[-]cloud-calls failed: every call has failed for" in process.ask("/healthz")[1], 60)
    assert process.metric("node_controller_uninitialized_nodes") == NODE_COUNT
    assert process.metric("service_controller_services_without_address") == SERVICE_COUNT
    assert process.metric("node_controller_oldest_uninitialized_node_age_seconds") > 1
    assert process.metric("service_controller_oldest_service_without_address_age_seconds") > 1
    assert process.ask("/livez")[0] == 200, "a restart of this process mends no cloud"
    out.remove()
    # Lists of everything are a load of their own, so the server is asked when the process says that
    # all are served.
    gauges = ("node_controller_uninitialized_nodes", "service_controller_services_without_address")
    eventually(
        lambda: not any(map(process.metric, gauges)) and _waiting(api) == 0,
        60,
        lambda: f"{_waiting(api)} wait still:\n{process.log}",
    )
    eventually(lambda: process.ask("/healthz")[0] == 200, 10)
    delay = "service_controller_load_balancer_address_delay_seconds_count"
    eventually(lambda: process.metric(delay) == SERVICE_COUNT, 10)
    assert process.metric("node_controller_node_initialization_duration_seconds_count") == NODE_COUNT
    assert process.metric("service_controller_oldest_service_without_address_age_seconds") == 0
    built = re.findall(r"built the load balancer \S+ of Service default/web-", process.log)
    assert len(built) == SERVICE_COUNT
    assert len(re.findall(r"initialised node \S+: fake://\S+, [\d.]+ s after its creation", process.log)) == NODE_COUNT
    lines = [line for line in process.log.splitlines() if not any(part in line for part in _PER_OBJECT)]
    assert len(lines) < LINES, process.log
    assert any("such failures of" in line for line in lines)
    assert any(": over after " in line for line in lines)
