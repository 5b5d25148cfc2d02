"""With `node-info` a node joins complete: what the kubelet registers, and what is left for the
manager to write."""

from __future__ import annotations

from collections.abc import Callable

from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP, TAINT_EXTERNAL_CLOUD_PROVIDER
from tests.integration.kubelet.conftest import NAME, REAL_KUBELET, RealNode
from tests.lab.envtest.machine import host_ip

pytestmark = REAL_KUBELET
PLACED = {
    "node.kubernetes.io/instance-type": "m-2",
    "topology.kubernetes.io/zone": "zone-a",
    "topology.kubernetes.io/region": "region-1",
}


def test_a_node_joins_complete_and_the_manager_only_unlocks_it(
    real_node: RealNode, record_property: Callable[[str, object], None]
) -> None:
    node_ip = host_ip()
    assert node_ip is not None  # check_machine saw to it
    real_node.start_manager()
    real_node.cloud.console.change_instance(NAME, addresses=[("InternalIP", node_ip), ("Hostname", NAME)])
    flags = real_node.node_info()
    assert {flag.partition("=")[0] for flag in flags} == {
        "--hostname-override", "--provider-id", "--node-ip", "--node-labels"
    }  # fmt: skip

    real_node.start_kubelet(flags=flags)
    real_node.until(real_node.initialised)
    [registered] = real_node.registrations()
    assert registered["spec"]["providerID"] == f"fake://i-{NAME}"
    assert PLACED.items() <= registered["metadata"]["labels"].items()
    assert TAINT_EXTERNAL_CLOUD_PROVIDER in {taint["key"] for taint in registered["spec"]["taints"]}
    assert registered["metadata"]["annotations"][ANNOTATION_PROVIDED_NODE_IP] == node_ip
    addresses = [(one["type"], one["address"]) for one in registered["status"]["addresses"]]
    assert addresses == [("InternalIP", node_ip), ("Hostname", NAME)]

    real_node.until(real_node.ready)
    real_node.pass_updates(4)
    record_property("taint_seconds_with_node_info", real_node.taint_seconds())
    assert len(real_node.writes()) == 1
    node = real_node.node()
    [written] = [one for one in node["metadata"]["managedFields"] if one["manager"] == "cloud-controller-manager"]
    changed = written["fieldsV1"]
    assert "f:providerID" not in changed["f:spec"], "it was there"
    assert not {f"f:{key}" for key in PLACED} & changed["f:metadata"]["f:labels"].keys(), "the deprecated twins alone"
    assert real_node.addresses() == addresses
    assert node["spec"]["providerID"] == f"fake://i-{NAME}"
