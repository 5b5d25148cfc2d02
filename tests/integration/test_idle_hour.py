"""An hour in which nothing happens, on a clock moved by hand: no write, few calls to the cloud.

300 nodes, which are three batches; IDLE_HOUR=5000 is the long form.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from controllers.node.registration import CloudNodeOptions
from controllers.runtime.cache import NODES
from controllers.runtime.metrics import Metrics
from tests.lab.bench.ccm import BenchCloud
from tests.lab.bench.cluster import initialised
from tests.support.clock import FakeClock
from tests.support.nodes import small_node
from tests.support.running import node_controller

COUNT = int(os.environ.get("IDLE_HOUR", "300"))
PERIOD = 300.0


@pytest.mark.row("N14")
def test_an_idle_hour_writes_nothing_and_asks_in_batches(tmp_path: Path) -> None:
    clock = FakeClock()
    options = CloudNodeOptions(node_status_update_frequency=PERIOD)
    with EmbeddedAPIServer() as server:
        for number in range(COUNT):
            server.create(initialised(small_node(f"node-{number:04d}")))
        kubeconfig = Path(server.write_kubeconfig(tmp_path / "kubeconfig"))
        with node_controller(kubeconfig, BenchCloud(0.0, batch=True), options=options, clock=clock) as running:
            _await_rounds(running.metrics, 1)  # the refresh at the start
            for round_ in range(1, 13):
                clock.wait_for_timeout(PERIOD)
                clock.advance(PERIOD)
                _await_rounds(running.metrics, round_ + 1)
            assert len(running.informers.informer(NODES).lister.list()) == COUNT
    requests = [line for line in running.metrics.text().decode().splitlines() if "rest_client_requests_total{" in line]
    sent = [line for line in requests if not line.endswith(" 0.0")]
    assert sent
    assert all('method="GET"' in line for line in sent), requests


def _await_rounds(metrics: Metrics, rounds: int) -> None:
    """Wait until so many refreshes are worked off, and see that each took a call for a hundred
    nodes."""

    def refreshed() -> float:
        return metrics.value("workqueue_work_duration_seconds_count", name="NodeRefresh") or 0.0

    eventually(lambda: refreshed() >= COUNT * rounds, timeout=60, message=lambda: f"{refreshed()} refreshed")
    labels = {"provider": "bench", "method": "instances_metadata", "outcome": "success"}
    assert metrics.value("cloudprovider_api_requests_total", **labels) == COUNT / 100 * rounds
