"""The kubelets of the embedded cluster: what they renew, and what they leave as somebody set it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cloudprovider.internal.patching import STRATEGIC_PATCH
from cloudprovider.testing.apiserver import EmbeddedAPIServer, StatusError
from cloudprovider.testing.kubelets import LEASE_NAMESPACE, MOST_NODES, Kubelets
from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER

START = datetime(2026, 1, 1, tzinfo=UTC)


class Cluster:
    """An API server that does not listen, its kubelets, and their clock."""

    def __init__(self) -> None:
        self.time = START
        self.server = EmbeddedAPIServer()
        self.kubelets = Kubelets(self.server, now=lambda: self.time)

    def ready(self, name: str) -> dict[str, Any]:
        (found,) = (one for one in self.server.get("nodes", name)["status"]["conditions"] if one["type"] == "Ready")
        return dict(found)

    def renewed(self, name: str) -> str:
        return str(self.server.get("leases", name, LEASE_NAMESPACE)["spec"]["renewTime"])

    def set_ready(self, name: str, status: str) -> None:
        body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        self.server.patch("nodes", name, body, subresource="status", content_type=STRATEGIC_PATCH)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_node_joins_as_a_kubelet_registers_it(cluster: Cluster) -> None:
    cluster.kubelets.join("a", "acme://1")
    cluster.kubelets.join("b")
    a, b = cluster.server.get("nodes", "a"), cluster.server.get("nodes", "b")
    assert a["spec"]["providerID"] == "acme://1"
    assert "providerID" not in b["spec"]
    assert [taint["key"] for taint in a["spec"]["taints"]] == [TAINT_EXTERNAL_CLOUD_PROVIDER]
    assert [a["spec"]["podCIDR"], b["spec"]["podCIDR"]] == ["10.244.1.0/24", "10.244.2.0/24"]
    assert cluster.ready("a")["status"] == "True"
    assert cluster.renewed("a") == "2026-01-01T00:00:00.000000Z"
    with pytest.raises(StatusError):
        cluster.kubelets.join("a")


def test_every_node_has_a_range_of_its_own(cluster: Cluster) -> None:
    for number in range(MOST_NODES):
        cluster.kubelets.join(f"node-{number}")
    assert len({one["spec"]["podCIDR"] for one in cluster.server.list("nodes")}) == MOST_NODES
    with pytest.raises(ValueError, match="no range of pod addresses left for node one-more"):
        cluster.kubelets.join("one-more")


def test_a_lease_is_renewed_with_each_beat_and_ready_every_five_minutes(cluster: Cluster) -> None:
    cluster.kubelets.join("a")
    first = cluster.ready("a")["lastHeartbeatTime"]
    cluster.time += timedelta(seconds=10)
    cluster.kubelets.beat()
    assert cluster.renewed("a") == "2026-01-01T00:00:10.000000Z"
    assert cluster.ready("a")["lastHeartbeatTime"] == first
    cluster.time = START + timedelta(minutes=5)
    cluster.kubelets.beat()
    assert cluster.ready("a")["lastHeartbeatTime"] == "2026-01-01T00:05:00Z"
    assert cluster.ready("a")["reason"] == "KubeletReady"


def test_a_kubelet_that_was_silenced_stays_silent(cluster: Cluster) -> None:
    cluster.kubelets.join("a")
    cluster.set_ready("a", "Unknown")
    cluster.time += timedelta(minutes=6)
    cluster.kubelets.beat()
    assert cluster.ready("a")["status"] == "Unknown"
    assert cluster.renewed("a") == "2026-01-01T00:00:00.000000Z"
    cluster.set_ready("a", "True")
    cluster.kubelets.beat()
    assert cluster.renewed("a") == "2026-01-01T00:06:00.000000Z"


def test_a_deleted_node_stays_deleted_and_one_that_is_created_anew_becomes_ready(cluster: Cluster) -> None:
    cluster.kubelets.join("a")
    cluster.server.delete("nodes", "a")
    cluster.kubelets.beat()
    assert not cluster.server.list("nodes")
    cluster.server.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
    cluster.kubelets.beat()
    assert cluster.ready("a")["status"] == "True"
    cluster.kubelets.beat()
    assert not cluster.server.get("nodes", "a")["spec"].get("taints")


def test_nodes_of_other_names_are_let_alone(cluster: Cluster) -> None:
    cluster.server.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}})
    version = cluster.server.version
    cluster.kubelets.beat()
    assert cluster.server.version == version


def test_a_node_that_is_deleted_in_the_middle_of_a_beat_ends_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        cluster.kubelets.join(name)
    cluster.time += timedelta(minutes=6)
    get = cluster.server.get

    def deleted_behind(plural: str, name: str, namespace: str = "default") -> dict[str, Any]:
        found = get(plural, name, namespace)
        if (plural, name) == ("nodes", "a"):
            cluster.server.delete("nodes", "a")
        return found

    monkeypatch.setattr(cluster.server, "get", deleted_behind)
    cluster.kubelets.beat()
    assert [one["metadata"]["name"] for one in cluster.server.list("nodes")] == ["b"]
    assert cluster.renewed("b") == "2026-01-01T00:06:00.000000Z"
