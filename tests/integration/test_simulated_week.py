"""A week on a clock moved by hand: a refresh every five minutes; every hour a node leaves, and
another one joins. At the end there is nothing more in memory than after the first days.

12 nodes; SIMULATED_WEEK=1000 is the long form.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from cloudprovider.testing.waiting import eventually
from controllers.node.options import CloudNodeOptions
from tests.bench.ccm import BenchCloud
from tests.support.clock import FakeClock
from tests.support.nodes import small_node
from tests.support.running import Running, node_controller

COUNT = int(os.environ.get("SIMULATED_WEEK", "12"))
PERIOD = 300.0
HOURS = 7 * 24
ROUNDS_AN_HOUR = 12
STEP = 0.125
WARM_UP = 2 * 24
"""Hours."""
ALLOWED = 300
"""Objects that the garbage collector knows: so many more are noise."""


@pytest.mark.row("N14")
def test_after_a_week_there_is_no_more_in_memory_than_after_two_days(tmp_path: Path) -> None:
    clock = FakeClock()
    options = CloudNodeOptions(node_status_update_frequency=PERIOD)
    with EmbeddedAPIServer() as server:
        for number in range(COUNT):
            server.create(small_node(f"node-{number}"))
        kubeconfig = Path(server.write_kubeconfig(tmp_path / "kubeconfig"))
        with node_controller(kubeconfig, BenchCloud(0.0, batch=True), options=options, clock=clock) as running:
            warm: tuple[Counter[str], int] | None = None
            for hour in range(HOURS):
                passed = _await_initialised(running, clock, hour + COUNT)
                for round_ in range(ROUNDS_AN_HOUR):
                    _refresh(running, clock, PERIOD if round_ else PERIOD - passed)
                server.delete("nodes", f"node-{hour}")
                server.create(small_node(f"node-{hour + COUNT}"))
                if hour + 1 == WARM_UP:
                    warm = _held(running)
            _await_initialised(running, clock, HOURS + COUNT)
            ended = _held(running)
            assert len(running.lister.list()) == COUNT
            writes = _patches(running)
    assert warm is not None
    grown = ended[0] - warm[0]
    assert sum(ended[0].values()) - sum(warm[0].values()) < ALLOWED, grown.most_common(10)
    assert ended[1] == warm[1], "series of metrics"
    # Each node gets its addresses and the rest, once; a refresh writes nothing.
    assert writes == 2 * (HOURS + COUNT)


def _await_initialised(running: Running, clock: FakeClock, nodes: int) -> float:
    """Wait until so many were initialised, and all are there. Returns the seconds that passed: a
    queue waits a moment for others that come along."""
    began = clock.monotonic()

    def done() -> bool:
        there = running.lister.list()
        if len(there) == COUNT and all(node.spec is not None and node.spec.provider_id for node in there):
            return _patches(running) >= 2 * nodes
        clock.advance(STEP)
        return False

    eventually(done, 30, lambda: f"{_patches(running)} of {2 * nodes} patches")
    return clock.monotonic() - began


def _refresh(running: Running, clock: FakeClock, left: float) -> None:
    """Let the rest of the period pass, and wait until all nodes were refreshed."""
    before = _refreshed(running)
    clock.wait_for_timeout(left)
    clock.advance(left)
    eventually(lambda: _refreshed(running) >= before + COUNT, 30, lambda: f"{_refreshed(running)} after {before}")


def _refreshed(running: Running) -> float:
    return running.metrics.value("workqueue_work_duration_seconds_count", name="NodeRefresh") or 0.0


def _patches(running: Running) -> int:
    lines = running.metrics.text().decode().splitlines()
    found = [line for line in lines if line.startswith("rest_client_requests_total{") and 'method="PATCH"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in found))


def _held(running: Running) -> tuple[Counter[str], int]:
    """By type, what the garbage collector knows; and how many series of metrics there are."""
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects()), len(running.metrics.text().splitlines())
