"""The cloud-node controller over both API servers, against the fake cloud and what goes wrong with
it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP
from controllers.node.options import CloudNodeOptions
from tests.integration.conftest import EMBEDDED, REAL, Cluster
from tests.support.api import NODES
from tests.support.nodes import UNINITIALIZED, is_tainted, small_node
from tests.support.running import node_controller

OFTEN = CloudNodeOptions(node_status_update_frequency=0.3)
NEVER = CloudNodeOptions(node_status_update_frequency=3600)
OTHER = {"key": "example.com/dedicated", "effect": "NoSchedule"}
WITHOUT_BATCH = ["instances_v2", "zones"]
LEGACY = ["instances", "zones"]


@pytest.fixture
def cloud() -> Iterator[FakeCloud]:
    """Fifty instances, node-0000 to node-0049, that can be asked about in batches."""
    with _cloud() as made:
        yield made


def _cloud(**settings: Any) -> FakeCloud:
    generate = [{"count": 50, "types": ["small", "large"], "zones": ["zone-a", "zone-b"]}]
    return FakeCloud(FakeConfig.model_validate({"generate": generate, **settings}))


def _node(api: Cluster, name: str = "node-0000") -> dict[str, Any]:
    return api.get(f"{NODES}/{name}")


@pytest.mark.parametrize(
    ("api", "capabilities"),
    [
        pytest.param("real", ["instances_batch", "instances_v2"], marks=REAL.marks),
        ("embedded", WITHOUT_BATCH),
        ("embedded", LEGACY),
    ],
    indirect=["api"],
)
def test_a_node_gets_everything_in_two_writes(api: Cluster, capabilities: list[str]) -> None:
    api.create(NODES, small_node("node-0001", taints=[UNINITIALIZED, OTHER]))
    before = _node(api, "node-0001")
    with _cloud(capabilities=capabilities) as cloud, node_controller(api.kubeconfig, cloud, options=NEVER) as running:
        eventually(lambda: "Synced" in api.reasons("node-0001"))
        writes = [_count(running, method) for method in ("PATCH", "PUT")]
    node = _node(api, "node-0001")
    assert writes == [2, 0], "no object is ever sent whole"
    assert not is_tainted(node)
    assert OTHER["key"] in {taint["key"] for taint in node["spec"]["taints"]}
    assert node["spec"]["providerID"] == "fake://" + cloud_id(node)
    assert [address["type"] for address in node["status"]["addresses"]] == ["InternalIP", "Hostname"]
    labels = node["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == labels["beta.kubernetes.io/instance-type"] == "small"
    assert labels["topology.kubernetes.io/zone"] == labels["failure-domain.beta.kubernetes.io/zone"] == "zone-b"
    assert labels["topology.kubernetes.io/region"] == "region-1"
    assert node["metadata"]["uid"] == before["metadata"]["uid"]
    assert api.event_messages("node-0001") == {"Synced": "Node synced successfully"}


def cloud_id(node: dict[str, Any]) -> str:
    return str(node["spec"]["providerID"]).removeprefix("fake://")


def _count(running: Any, method: str) -> int:
    """The successful requests of that method."""
    lines = running.metrics.text().decode().splitlines()
    own = [line for line in lines if line.startswith("rest_client_requests_total{") and 'code="200"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in own if f'method="{method}"' in line)


@pytest.mark.row("N9")
@EMBEDDED
def test_a_refused_address_patch_leaves_the_node_tainted(api: Cluster, cloud: FakeCloud) -> None:
    api.create(NODES, small_node("node-0000"))
    with api.proxied() as (proxy, kubeconfig):
        proxy.refuse(r"PATCH .*/status")
        with node_controller(kubeconfig, cloud, options=NEVER):
            eventually(lambda: "FailedToInitializeNode" in api.reasons("node-0000"))
            assert is_tainted(_node(api))
            assert "providerID" not in _node(api)["spec"]
            proxy.refuse(None)
            eventually(lambda: not is_tainted(_node(api)))
    assert _node(api)["status"]["addresses"][0]["type"] == "InternalIP"


@pytest.mark.row("N12", "N20")
@pytest.mark.parametrize("offered", [(), ("10.0.0.8",)], ids=["nothing", "another"])
@EMBEDDED
def test_a_node_waits_for_the_ip_that_it_wishes_for_and_is_told(
    api: Cluster, cloud: FakeCloud, offered: tuple[str, ...]
) -> None:
    cloud.console.change_instance("node-0000", addresses=[("InternalIP", address) for address in offered])
    api.create(NODES, small_node("node-0000", annotations={ANNOTATION_PROVIDED_NODE_IP: "10.99.0.1"}))
    with node_controller(api.kubeconfig, cloud, options=NEVER):
        message = eventually(lambda: api.event_messages("node-0000").get("ProvidedNodeIPMismatch", ""))
        assert all(part in message for part in ("10.99.0.1", *(offered or ["no addresses"])))
        assert is_tainted(_node(api))
        cloud.console.change_instance("node-0000", addresses=[("InternalIP", "10.0.0.9"), ("InternalIP", "10.99.0.1")])
        eventually(lambda: not is_tainted(_node(api)), timeout=60)
    assert _node(api)["status"]["addresses"][0] == {"type": "InternalIP", "address": "10.99.0.1"}


@pytest.mark.row("N19")
@EMBEDDED
def test_an_initialised_node_without_provider_id_is_adopted_or_told(api: Cluster, cloud: FakeCloud) -> None:
    cloud.console.change_instance("node-0000", addresses=[("InternalIP", "10.0.0.7")])
    for name, address in (("node-0000", "10.0.0.7"), ("node-0001", "10.66.0.1"), ("stranger", "10.66.0.2")):
        node = small_node(name, taints=[])
        node["status"]["addresses"].append({"type": "InternalIP", "address": address})
        api.create(NODES, node)
    with node_controller(api.kubeconfig, cloud, options=OFTEN) as running:
        eventually(lambda: "providerID" in _node(api)["spec"])
        eventually(lambda: all("NodeWithoutProviderID" in api.reasons(name) for name in ("node-0001", "stranger")))
        for name, said in (("node-0001", "10.66.0.1"), ("stranger", "no instance of this name")):
            assert said in api.event_messages(name)["NodeWithoutProviderID"]
            assert "providerID" not in _node(api, name)["spec"]
            assert "topology.kubernetes.io/zone" not in _node(api, name)["metadata"].get("labels", {})
        assert running.metrics.value("node_controller_nodes_without_provider_id") == 2
        assert _node(api)["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-a"


@pytest.mark.row("N25")
@EMBEDDED
def test_a_foreign_node_is_left_alone_and_told_once(api: Cluster, cloud: FakeCloud) -> None:
    api.create(NODES, small_node("node-0000", taints=[UNINITIALIZED], provider_id="othercloud://x"))
    api.create(NODES, small_node("node-0001"))
    with node_controller(api.kubeconfig, cloud, options=OFTEN):
        eventually(lambda: "Synced" in api.reasons("node-0001"))
        message = eventually(lambda: api.event_messages("node-0000").get("ForeignProviderID", ""))
        for number in range(3):
            api.patch(f"{NODES}/node-0000", {"metadata": {"annotations": {ANNOTATION_PROVIDED_NODE_IP: str(number)}}})
        api.create(NODES, small_node("node-0002"))
        eventually(lambda: "Synced" in api.reasons("node-0002"))
    assert "othercloud://x" in message
    assert is_tainted(_node(api))
    [event] = api.events_of("node-0000")
    assert event.get("count", 1) == 1
