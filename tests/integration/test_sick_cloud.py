"""The manager as a process over a sick cloud: it hangs on one node, raises on another, returns junk
on a third, throttles.

Everything is seen as an operator sees it: nodes and Events in the API server, health and metrics
over HTTP. The cloud is the fake one of this process, which breaks and mends it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

import pytest
from attrs import evolve
from kubernetes.client.models.v1_node_address import V1NodeAddress

from cloudprovider import Throttled
from cloudprovider.testing.fake import FakeCloud, Strike, answers, hangs, raises
from cloudprovider.testing.waiting import eventually
from tests.integration.conftest import EMBEDDED, Cluster, Share
from tests.support.api import EVENTS, NODES
from tests.support.nodes import is_tainted, small_node
from tests.support.process import Process, Start

HUNG, RAISING, JUNK = SICK = ("node-0003", "node-0017", "node-0042")
EARLY = [f"node-{number:04d}" for number in range(50)]
LATE = [f"node-{number:04d}" for number in range(50, 60)]
REFUSALS = 5
CLOUD = {"generate": [{"count": 60, "types": ["small"], "zones": ["zone-a"]}], "log": "all"}


def _ready(api: Cluster) -> set[str]:
    """The nodes without the taint."""
    return {node["metadata"]["name"] for node in api.items(NODES) if not is_tainted(node)}


def _synced(api: Cluster) -> set[str]:
    """The nodes of which an Event says that they are initialised."""
    return {event["involvedObject"]["name"] for event in api.items(EVENTS) if event["reason"] == "Synced"}


def _join(api: Cluster, names: Iterable[str]) -> None:
    for name in names:
        api.create(NODES, small_node(name))


def _sick(cloud: FakeCloud) -> None:
    bad = [V1NodeAddress(type="InternalIP", address="not-an-address")]
    cloud.faults.on("instance*_metadata", hangs(), key=HUNG)
    cloud.faults.on("instance*_metadata", raises(RuntimeError("no such luck")), key=RAISING)
    cloud.faults.on("instance*_metadata", answers(lambda truth: evolve(truth, node_addresses=bad)), key=JUNK)


def _see_the_three(api: Cluster, process: Process, method: str, counter: str) -> None:
    """All others are initialised at once, and of the three tell Events, health and metrics."""
    eventually(lambda: _ready(api) == set(EARLY) - set(SICK), 60, lambda: (_ready(api), process.log))
    eventually(lambda: "CloudCallOverdue" in api.event_messages(HUNG), 60, lambda: process.log)
    eventually(lambda: "FailedToInitializeNode" in api.event_messages(RAISING), 60, lambda: process.log)
    eventually(lambda: "InvalidInstanceMetadata" in api.event_messages(JUNK), 60, lambda: process.log)
    assert "no such luck" in api.event_messages(RAISING)["FailedToInitializeNode"]
    assert "not-an-address" in api.event_messages(JUNK)["InvalidInstanceMetadata"]
    assert not [event for event in api.items(EVENTS) if "not answered for a batch" in event["message"]], "no one else's"
    assert all(
        "the node stays tainted until this succeeds" in " ".join(api.event_messages(name).values()) for name in SICK
    )
    status, text = process.ask("/healthz")
    assert status == 500
    assert "[-]cloud-calls failed: overdue: " in text
    assert f"{method} for node/{HUNG} since" in text
    assert text.count("[-]") == 1
    assert process.ask("/livez") == (200, "ok")
    assert process.ask("/readyz") == (200, "ok")
    assert process.metric("cloudprovider_api_requests_parked", provider="fake") == 1
    assert process.metric("cloudprovider_api_requests_overdue", provider="fake") >= 1
    assert process.metric("cloudprovider_api_requests_total", method=method, outcome="overdue") >= 1
    assert process.metric("cloudprovider_api_request_duration_seconds_count", method=method) >= 1
    assert process.metric(counter, method=method, outcome="error") >= 1
    assert process.metric(counter, method=method, outcome="invalid") >= 1
    assert _ready(api) == set(EARLY) - set(SICK)


def _see_all_well(api: Cluster, process: Process, names: Iterable[str]) -> None:
    """Each of these nodes is initialised and said to be, health is good again, and a stop leaves
    nothing behind."""
    wanted = set(names)
    eventually(lambda: _ready(api) >= wanted, 60, lambda: (wanted - _ready(api), process.log))
    eventually(lambda: _synced(api) >= wanted, 60, lambda: (wanted - _synced(api), process.log))
    eventually(lambda: process.ask("/healthz") == (200, "ok"))
    eventually(lambda: process.metric("cloudprovider_api_requests_overdue") == 0)
    assert process.metric("cloudprovider_api_requests_parked") == 0
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert "nothing left behind" in process.log
    assert "Traceback" not in process.log


@pytest.mark.row("N5", "N8", "M3", "M6")
@EMBEDDED
def test_a_sick_cloud_costs_only_its_victims_and_everyone_is_told(api: Cluster, start: Start, share: Share) -> None:
    cloud = share(CLOUD | {"capabilities": ["instances_batch", "instances_v2"]})
    _sick(cloud)
    _join(api, EARLY)
    process = start.manager(api.kubeconfig, "--cloud-api-timeout=2s")
    _see_the_three(api, process, "instances_metadata", "cloudprovider_api_batch_items_total")
    # The three may recover, but now the cloud throttles everyone, just when more nodes join.
    cloud.faults.clear()
    throttled: list[float] = []

    def throttle(strike: Strike) -> object:
        if len(throttled) == REFUSALS:
            return strike.proceed()
        throttled.append(time.monotonic())
        raise Throttled("slow down", 1.0)

    cloud.faults.on("instance*", throttle)
    _join(api, LATE)
    eventually(lambda: process.metric("cloudprovider_api_requests_total", outcome="throttled") >= 2)
    assert 0 < process.metric("cloudprovider_api_throttle_rate") < 100
    eventually(lambda: process.ask("/healthz")[0] == 200)  # a cloud that asks for patience is not ill
    _see_all_well(api, process, [*EARLY, *LATE])
    assert throttled[-1] - throttled[0] >= (REFUSALS - 1) / 2, "asked again once a second, not more"
