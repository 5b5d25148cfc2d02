"""Full-sized nodes are initialised while watches are cut, the API server restarts, a node is
malformed.

100 nodes; CHAOS_NODES=1000 is the long form.
"""

from __future__ import annotations

import os
from collections import Counter

from kubernetes.client.models.v1_node import V1Node

from cloudprovider.helpers import needs_initialization
from cloudprovider.testing.waiting import eventually
from controllers.node.controller import CloudNodeController
from controllers.runtime.api import ClientSettings
from controllers.runtime.cache import NODES as CACHED
from controllers.runtime.metrics import Metrics
from controllers.runtime.protobuf import JSON
from tests.integration.conftest import Cluster
from tests.lab.bench.ccm import BenchCloud
from tests.support.api import NODES, each
from tests.support.nodes import UNINITIALIZED, big_node
from tests.support.running import Running, node_controller

COUNT = int(os.environ.get("CHAOS_NODES", "100"))
SPOILT = f"node-{COUNT // 2:04d}"
THEIRS = {"key": "example.com/dedicated", "value": "gpu", "effect": "NoExecute"}


def test_nodes_survive_a_bad_network_and_a_restart(api: Cluster) -> None:
    names = [f"node-{number:04d}" for number in range(COUNT)]
    each(lambda name: api.create(NODES, _node(name)), names)
    with api.proxied() as (proxy, kubeconfig):
        proxy.spoil(SPOILT)
        json_only = ClientSettings(content_type=JSON)  # the proxy spoils the text of objects
        with node_controller(kubeconfig, BenchCloud(0.0, batch=True), settings=json_only) as running:
            eventually(lambda: _ready(running) >= COUNT // 5, timeout=60, message="a fifth ready")
            assert proxy.cut() > 0
            eventually(lambda: _ready(running) >= COUNT // 2, timeout=60, message="half of them ready after the cut")
            api.server.restart()
            eventually(lambda: _ready(running) >= COUNT - 1, timeout=90, message="all but the spoilt one ready")
            assert needs_initialization(_parsed(api, SPOILT))
            assert running.metrics.value("informer_quarantined_objects", resource="nodes") == 1
            proxy.spoil(None)
            api.patch(f"{NODES}/{SPOILT}", {"metadata": {"labels": {"heartbeat": "1"}}})
            eventually(lambda: _ready(running) == COUNT, timeout=60, message="the spoilt node is well again")
            eventually(
                lambda: _synced(api) >= set(names),
                timeout=60,
                message=lambda: f"no Event for {sorted(set(names) - _synced(api))}: {_event_metrics(running.metrics)}",
            )

    for node in api.items(NODES):
        name = node["metadata"]["name"]
        taints = {taint["key"]: taint for taint in node["spec"]["taints"]}
        assert UNINITIALIZED["key"] not in taints, name
        assert taints[THEIRS["key"]] == THEIRS, name
        assert node["spec"]["providerID"] == f"bench://{name}"
        assert [address["type"] for address in node["status"]["addresses"]] == ["InternalIP", "Hostname"], name
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-a"
        assert len(node["status"]["images"]) == 50, "the patch must not touch what the cache trims"
        assert len(node["status"]["conditions"]) == 4, name
    repeated = {name: count for name, count in Counter(_about(api)).items() if count > 2}
    assert not repeated, f"nodes initialised again and again: {repeated}"


def _node(name: str) -> dict[str, object]:
    node = big_node(name)
    node["spec"]["taints"] = [UNINITIALIZED, THEIRS]
    return node


def _ready(running: Running[CloudNodeController]) -> int:
    return sum(not needs_initialization(node) for node in running.informers.informer(CACHED).lister.list())


def _parsed(api: Cluster, name: str) -> V1Node:
    node = V1Node.from_dict(api.get(f"{NODES}/{name}"))
    assert node is not None
    return node


def _event_metrics(metrics: Metrics) -> list[str]:
    return [line for line in metrics.text().decode().splitlines() if "event" in line and not line.startswith("#")]


def _about(api: Cluster) -> list[str]:
    return [event["involvedObject"]["name"] for event in api.items("/api/v1/events") if event["reason"] == "Synced"]


def _synced(api: Cluster) -> set[str]:
    return set(_about(api))
