"""A node's whole life, with a real kubelet: it joins, is initialised, stopped, started, deleted,
and joins again."""

from __future__ import annotations

from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER, TAINT_NODE_SHUTDOWN
from tests.integration.kubelet.conftest import ADDRESSES, NAME, REAL_KUBELET, RealNode
from tests.lab.envtest.server import MANAGER_USER

pytestmark = REAL_KUBELET
STATUS_UPDATES = 10
OURS = [*ADDRESSES, ("Hostname", NAME)]
"""The cloud's addresses, and the name that the kubelet gave the node."""


def test_a_node_joins_is_initialised_and_keeps_its_addresses(real_node: RealNode) -> None:
    real_node.start_kubelet()
    real_node.until(real_node.registered)
    joined = real_node.node()
    assert TAINT_EXTERNAL_CLOUD_PROVIDER in real_node.taints()
    assert "providerID" not in joined["spec"]
    assert real_node.addresses() == [("Hostname", NAME)], "a kubelet waits for its cloud's addresses"

    real_node.start_manager()
    real_node.until(real_node.initialised)
    real_node.until(lambda: "Synced" in real_node.events())
    node = real_node.node()
    assert node["metadata"]["uid"] == joined["metadata"]["uid"]
    assert node["spec"]["providerID"] == f"fake://i-{NAME}"
    assert real_node.addresses() == OURS
    expected = {"instance-type": "m-2", "zone": "zone-a", "region": "region-1"}
    labels = {key.rpartition("/")[2]: value for key, value in node["metadata"]["labels"].items()}
    assert expected.items() <= labels.items()
    assert labels["hostname"] == NAME, "the kubelet's own labels stay"
    real_node.until(real_node.ready)
    real_node.until(lambda: len(real_node.writes()) >= 2)

    before = len(real_node.updates())
    while len(real_node.updates()) < before + STATUS_UPDATES:
        assert real_node.addresses() == OURS
        real_node.pass_updates(1)
    assert real_node.addresses() == OURS
    assert real_node.ready()
    assert len(real_node.node()["status"]["conditions"]) == len(joined["status"]["conditions"])
    assert len(real_node.writes()) == 2, "addresses; then labels, provider ID and taint in one; no more since"


def test_a_node_is_shut_down_comes_back_is_deleted_and_joins_again(real_node: RealNode) -> None:
    real_node.add_neighbour()
    real_node.start_manager()
    console = real_node.cloud.console
    real_node.start_kubelet()
    real_node.until(real_node.initialised)
    real_node.until(real_node.ready)
    first = real_node.node()["metadata"]["uid"]

    console.set_shutdown(NAME)
    real_node.stop()
    real_node.until(lambda: TAINT_NODE_SHUTDOWN in real_node.taints())
    console.set_shutdown(NAME, False)
    real_node.start_kubelet()
    real_node.until(real_node.ready)
    real_node.until(lambda: TAINT_NODE_SHUTDOWN not in real_node.taints())
    assert real_node.node()["metadata"]["uid"] == first
    assert TAINT_EXTERNAL_CLOUD_PROVIDER not in real_node.taints()
    assert real_node.addresses() == OURS

    real_node.stop()
    console.remove_instance(NAME)
    real_node.until(lambda: real_node.cluster.find(real_node.path) is None)
    real_node.until(lambda: "DeletingNode" in real_node.events())  # written beside the deletion
    told = real_node.events()["DeletingNode"]
    assert told["source"]["component"] == "cloud-node-lifecycle-controller"
    real_node.until(real_node.deleted_by)
    assert real_node.deleted_by() == [MANAGER_USER]

    console.add_instance(NAME, zone="zone-b", addresses=ADDRESSES)
    real_node.start_kubelet()
    real_node.until(real_node.initialised)
    node = real_node.node()
    assert node["metadata"]["uid"] != first
    assert node["spec"]["providerID"] == f"fake://i-{NAME}-2"
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-b"
    assert real_node.addresses() == OURS
    real_node.until(lambda: len(real_node.registrations()) == 2)
    for sent in real_node.registrations():
        assert TAINT_EXTERNAL_CLOUD_PROVIDER in {taint["key"] for taint in sent["spec"]["taints"]}
