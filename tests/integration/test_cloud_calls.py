"""What the gateway promises about calls to the cloud, seen from both ends: the provider's log and
the API server.

A hung batch that nothing can be compared with, a provider that scribbles on what it is handed,
answers that serve twice, and the rate limit of the manager's flags.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_taint import V1Taint

from cloudprovider import CloudProviderError, InstanceMetadata, InstancesBatch, InstanceState, Interface
from cloudprovider.testing.fake import CallRecord, FakeCloud, FakeConfig, hangs
from cloudprovider.testing.waiting import eventually
from controllers.cloudcalls import CloudCallOptions
from controllers.node.options import CloudNodeOptions
from tests.integration.conftest import Cluster, Share
from tests.support.api import NODES
from tests.support.nodes import UNINITIALIZED, small_node
from tests.support.process import MODULE, Start
from tests.support.running import Running, node_controller

NEVER = CloudNodeOptions(node_status_update_frequency=3600)
OFTEN = CloudNodeOptions(node_status_update_frequency=0.2)


def _names(count: int) -> list[str]:
    return [f"node-{number:04d}" for number in range(count)]


def _ready(api: Cluster) -> set[str]:
    """The nodes without the taint."""
    key = UNINITIALIZED["key"]
    return {
        node["metadata"]["name"]
        for node in api.items(NODES)
        if key not in [taint["key"] for taint in node["spec"].get("taints", ())]
    }


@contextmanager
def _cloud(**settings: Any) -> Iterator[FakeCloud]:
    with FakeCloud(FakeConfig.model_validate({"generate": [{"count": 30}], "log": "all", **settings})) as cloud:
        yield cloud


# ---- a lone batch that hangs


@pytest.mark.row("N5")
def test_a_lone_batch_that_hangs_is_split_long_before_its_deadline(api: Cluster) -> None:
    names = _names(20)
    for name in names:
        api.create(NODES, small_node(name))
    options = CloudCallOptions(timeout=120.0, lone_patience=0.5, patience=0.2, cache_ttl=0.0)
    with _cloud() as cloud:
        cloud.faults.on("instances_metadata", hangs(), key="node-0013")
        with node_controller(api.kubeconfig, cloud, options=NEVER, calls=options) as running:
            eventually(lambda: _ready(api) == {*names} - {"node-0013"}, timeout=30, message=lambda: _ready(api))
            calls = cloud.calls.log("instances_metadata")
            assert set(calls[0].keys) == set(names), "no other call of the method could tell that this one is slow"
            assert calls[1].started - calls[0].started >= options.lone_patience
            assert len(calls) <= 1 + 4 * 3, "split in parts, not asked one by one"
            assert {call.keys for call in cloud.calls.running()} >= {("node-0013",), calls[0].keys}
            assert not running.cloud.health().ok
            assert running.cloud.parked() == {}  # the node's own call has its 120 seconds
            cloud.faults.clear()
            eventually(lambda: _ready(api) == set(names), timeout=30)
            eventually(lambda: running.cloud.health().ok)


# ---- a provider that writes on what it is only to read


class Vandal(Interface):
    """Knows every node, and spoils every part of the object that it is handed, in place, once its
    answer is made."""

    def __init__(self) -> None:
        self.seen: list[V1Node] = []

    def provider_name(self) -> str:
        return "vandal"

    def instances_batch(self) -> InstancesBatch:
        return _VandalBatch(self)

    def answer(self, node: V1Node) -> InstanceMetadata:
        assert node.metadata is not None
        assert node.metadata.name is not None
        name = node.metadata.name
        spoilt = [
            label for label in node.metadata.labels or {} if label.startswith("vandal.example/")
        ]  # what an earlier call wrote would show here, were it kept
        metadata = InstanceMetadata(
            provider_id=f"vandal://{name}",
            instance_type="x-large" if spoilt else "small",
            additional_labels={"disk": "ssd"},
        )
        self.seen.append(node)
        node.metadata.labels = {**(node.metadata.labels or {}), "vandal.example/was-here": "true"}
        node.metadata.resource_version = "1"
        node.metadata.uid = "spoilt"
        if node.metadata.annotations:
            node.metadata.annotations.clear()
        assert node.spec is not None
        node.spec.provider_id = "vandal://spoilt"
        for taint in node.spec.taints or ():
            taint.key = "vandal.example/taint"
        (node.spec.taints or []).append(V1Taint(key="vandal.example/more", effect="NoExecute"))
        assert node.status is not None
        for address in node.status.addresses or ():
            address.address = "vandal.example"
        (node.status.addresses or []).clear()
        return metadata


class _VandalBatch(InstancesBatch):
    max_batch = 100

    def __init__(self, vandal: Vandal) -> None:
        self._vandal = vandal

    def instances_metadata(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceMetadata | CloudProviderError]:
        return {str(node.metadata and node.metadata.name): self._vandal.answer(node) for node in nodes}

    def instances_state(self, nodes: Sequence[V1Node]) -> Mapping[str, InstanceState | CloudProviderError]:
        return {}


def test_what_a_provider_scribbles_on_its_arguments_is_told_and_goes_nowhere(
    api: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    method = "instances_metadata"
    names = _names(3)
    other = {"key": "example.com/dedicated", "effect": "NoSchedule"}
    for name in names:
        annotations = {"example.com/note": "mine"}
        api.create(NODES, small_node(name, taints=[UNINITIALIZED, other], annotations=annotations))
    vandal = Vandal()
    with node_controller(api.kubeconfig, vandal, options=OFTEN) as running:
        eventually(lambda: _ready(api) == set(names), timeout=20, message=lambda: caplog.text)
        asked = len(vandal.seen)
        eventually(lambda: len(vandal.seen) >= asked + 2 * len(names), timeout=20)  # it does the same at each refresh
        labels = {"provider": "vandal", "method": method}
        told = running.metrics.value("cloudprovider_api_argument_mutations_total", **labels)
        assert told is not None
        assert told >= 2 * len(names)
        for name in names:
            raw = api.get(f"{NODES}/{name}")
            eventually(lambda name=name, raw=raw: _is_cached(running, name, raw))  # type: ignore[misc]  # bound now
            assert raw["spec"]["providerID"] == f"vandal://{name}"
            assert {taint["key"] for taint in raw["spec"]["taints"]} >= {other["key"]}
            assert "vandal" not in json.dumps([raw["spec"].get("taints"), raw["metadata"]["labels"]])
            assert raw["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "small"
            assert raw["metadata"]["annotations"]["example.com/note"] == "mine"
            assert raw["status"]["addresses"] == [{"type": "Hostname", "address": name}]
    lines = [record.getMessage() for record in caplog.records if "changed its argument" in record.getMessage()]
    assert len(lines) == 1
    assert f"while {method} was under way" in lines[0]


def _is_cached(running: Running, name: str, raw: dict[str, Any]) -> bool:
    """Whether the cache has the node as the API server has it."""
    node = running.lister.get(name)
    assert node is not None
    assert node.metadata is not None
    assert node.spec is not None
    assert node.status is not None
    return (
        node.metadata.resource_version == raw["metadata"]["resourceVersion"]
        and node.metadata.uid == raw["metadata"]["uid"]
        and node.metadata.labels == raw["metadata"]["labels"]
        and (node.metadata.annotations or {}).get("example.com/note") == "mine"
        and node.spec.provider_id == raw["spec"]["providerID"]
        and [taint.key for taint in node.spec.taints or ()] == [taint["key"] for taint in raw["spec"]["taints"]]
        and [one.address for one in node.status.addresses or ()]
        == [one["address"] for one in raw["status"]["addresses"]]
    )


# ---- answers that serve twice


@pytest.mark.row("N14")
def test_what_one_poll_learnt_answers_the_next_without_a_call_per_node(api: Cluster) -> None:
    names = _names(5)
    for name in names:
        api.create(NODES, small_node(name))
    calls = CloudCallOptions(cache_ttl=60.0)
    with (
        _cloud(capabilities=["instances_v2"]) as cloud,
        node_controller(api.kubeconfig, cloud, options=OFTEN, calls=calls) as running,
    ):
        eventually(lambda: _ready(api) == set(names), timeout=20)
        eventually(lambda: set(_asked_by_id(cloud)) == set(names), timeout=20)
        _refreshed(running, names, 2)
        assert {name: len(calls) for name, calls in _asked_by_id(cloud).items()} == dict.fromkeys(names, 1)


def _refreshed(running: Running, names: list[str], rounds: int) -> None:
    """Wait until the refreshes from now on amount to so many rounds of all nodes, and one more."""

    def done() -> float:
        return running.metrics.value("workqueue_work_duration_seconds_count", name="NodeRefresh") or 0.0

    before = done()
    eventually(lambda: done() >= before + (rounds + 1) * len(names), timeout=30, message=lambda: f"{done()} refreshed")


def _asked_by_id(cloud: FakeCloud) -> dict[str, list[CallRecord]]:
    """By node, the calls about it since it had its provider ID."""
    asked: dict[str, list[CallRecord]] = {}
    for call in cloud.calls.log("instance_metadata"):
        if len(call.keys) > 1:
            asked.setdefault(call.key, []).append(call)
    return asked


# ---- the rate that the operator allows


def test_the_manager_keeps_to_the_rate_of_its_flags(api: Cluster, start: Start, share: Share, tmp_path: Path) -> None:
    qps, burst, names = 10, 3, _names(25)
    for name in names:
        api.create(NODES, small_node(name))
    cloud = share({"generate": [{"count": 25}], "capabilities": ["instances_v2"], "log": "all"})
    process = start(
        "--cloud-provider=fake",
        f"--cloud-config={tmp_path / 'cloud.json'}",
        f"--kubeconfig={api.kubeconfig}",
        "--leader-elect=false",
        "--health-bind-address=127.0.0.1:0",
        f"--cloud-api-qps={qps}",
        f"--cloud-api-burst={burst}",
        command=MODULE,
    )
    eventually(lambda: _ready(api) == set(names), timeout=40, message=lambda: process.log)
    assert process.metric("cloudprovider_api_throttle_rate") == qps
    calls = cloud.calls.log()
    assert len([call for call in calls if call.method == "instance_metadata"]) >= len(names)
    assert _fastest(calls, burst) <= 1.5 * qps
    took = calls[-1].started - calls[0].started
    assert took >= 0.7 * (len(calls) - burst) / qps


def _fastest(calls: Sequence[CallRecord], burst: int) -> float:
    """The highest rate, in calls per second, over any second or more of the log, after a burst."""
    times = sorted(call.started for call in calls)
    rates = [
        (later - earlier + 1 - burst) / (times[later] - times[earlier])
        for earlier in range(len(times))
        for later in range(earlier + 1, len(times))
        if times[later] - times[earlier] >= 1.0
    ]
    return max(rates, default=0.0)
