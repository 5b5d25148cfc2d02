"""Slow load balancers of one namespace hold up neither nodes that join nor another namespace's
Service.

`SLOW_BALANCERS=80,50` runs it with 80 load balancers of 50 s each.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import Cluster
from tests.support.api import NAMESPACES, NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.process import Start
from tests.support.services import ingress, lb_service

COUNT, SECONDS = map(int, os.environ.get("SLOW_BALANCERS", "80,5").split(","))
NODE_WITHIN = 2.0
"""Seconds that a node may take longer than without them."""
OTHER = "another-team"


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def _join(api: Cluster, name: str) -> float:
    """A node joins; the seconds until it is initialised."""
    began = time.monotonic()
    api.create(NODES, small_node(name))

    eventually(lambda: not is_tainted(api.get(f"{NODES}/{name}")), 60)
    return time.monotonic() - began


@pytest.mark.row("K3")
def test_slow_load_balancers_of_one_namespace_hold_up_nobody_else(api: Cluster, start: Start, tmp_path: Path) -> None:
    config = {
        "on_demand": {"types": ["m-2"]},
        "latency": {"ensure_load_balancer": SECONDS, "instance*": 0.05},
        "capabilities": ["instances_v2", "load_balancer"],
    }
    (tmp_path / "cloud.json").write_text(json.dumps(config))
    api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})
    process = start(
        f"--kubeconfig={api.kubeconfig}",
        f"--cloud-config={tmp_path / 'cloud.json'}",
        "--cluster-name=fair",
        "--leader-elect=false",
        "--health-bind-address=127.0.0.1:0",
    )
    eventually(lambda: process.ask("/readyz")[0] == 200, 30, lambda: process.log)
    alone = min(_join(api, "first"), _join(api, "second"))
    for number in range(COUNT):
        api.create(_path("default"), lb_service(f"web-{number}"))
    eventually(lambda: process.metric("cloudprovider_api_requests_in_flight") >= 30, 20)
    began = time.monotonic()
    api.create(_path(OTHER), lb_service("web"))
    with_them = _join(api, "third")

    eventually(lambda: ingress(api.get(f"{_path(OTHER)}/web")), 3 * SECONDS + 30, lambda: process.log)
    other = time.monotonic() - began
    print(f"node {alone:.2f} s alone, {with_them:.2f} s beside {COUNT} slow ones; the other namespace {other:.1f} s")
    assert with_them <= alone + NODE_WITHIN
    assert other <= SECONDS + 4.0, "its call began at once"
