"""Who decides about a node's addresses: the kubelet's ``--node-ip``, the cloud, and neither
fights."""

from __future__ import annotations

import pytest

from cloudprovider.wellknown import ANNOTATION_PROVIDED_NODE_IP, TAINT_EXTERNAL_CLOUD_PROVIDER
from tests.integration.kubelet.conftest import ADDRESSES, NAME, REAL_KUBELET, RealNode
from tests.lab.envtest.machine import host_ip
from tests.support.api import STRATEGIC

pytestmark = REAL_KUBELET


@pytest.fixture
def node_ip() -> str:
    """An address of the machine that runs the tests; a kubelet accepts no other."""
    found = host_ip()
    assert found is not None  # check_machine saw to it
    return found


@pytest.mark.row("N20", "N12")
def test_the_kubelets_node_ip_chooses_among_the_clouds_addresses(real_node: RealNode, node_ip: str) -> None:
    real_node.start_manager()
    console = real_node.cloud.console
    console.change_instance(NAME, addresses=[])
    real_node.start_kubelet(node_ip=node_ip)
    real_node.until(lambda: "ProvidedNodeIPMismatch" in real_node.events())
    real_node.pass_updates(2)
    node = real_node.node()
    assert node["metadata"]["annotations"][ANNOTATION_PROVIDED_NODE_IP] == node_ip
    assert TAINT_EXTERNAL_CLOUD_PROVIDER in real_node.taints()
    assert real_node.addresses() == [("InternalIP", node_ip), ("Hostname", NAME)], "the kubelet's own, till then"

    console.change_instance(NAME, addresses=[*ADDRESSES, ("InternalIP", node_ip)])
    real_node.until(real_node.initialised)
    external = [pair for pair in ADDRESSES if pair[0] == "ExternalIP"]
    chosen = [("InternalIP", node_ip), *external, ("Hostname", NAME)]
    assert real_node.addresses() == chosen
    real_node.pass_updates(3)
    assert real_node.addresses() == chosen

    real_node.stop()
    real_node.start_kubelet()  # without the flag
    every = {*ADDRESSES, ("InternalIP", node_ip), ("Hostname", NAME)}
    real_node.until(lambda: set(real_node.addresses()) == every)
    assert ANNOTATION_PROVIDED_NODE_IP not in real_node.node()["metadata"]["annotations"]


def test_a_kubelet_that_writes_addresses_itself_is_not_fought(real_node: RealNode, node_ip: str) -> None:
    """A kubelet fills in addresses that are empty. Somebody empties them twice, and it writes at
    the same time as we.

    Each time the cloud's addresses come back. Then both are at peace.
    """
    ours = [("InternalIP", node_ip), ("ExternalIP", "203.0.113.7"), ("Hostname", NAME)]
    real_node.start_manager()
    real_node.cloud.console.change_instance(NAME, addresses=ours)
    real_node.start_kubelet(node_ip=node_ip)
    real_node.until(real_node.initialised)
    real_node.until(real_node.ready)
    real_node.until(lambda: len(real_node.writes()) >= 2)

    def filled_in() -> int:
        """How often the kubelet wrote addresses."""
        return sum("addresses" in body.get("status", {}) for body in real_node.updates())

    written, before = len(real_node.writes()), filled_in()
    rounds = 0
    while filled_in() < before + 2:
        rounds += 1
        assert rounds <= 6, f"the kubelet wrote addresses {filled_in() - before} times"
        real_node.cluster.patch(
            f"{real_node.path}/status", {"status": {"addresses": [{"$patch": "replace"}]}}, STRATEGIC
        )
        real_node.until(lambda: real_node.addresses() == ours)
        real_node.pass_updates(2)
        real_node.until(lambda: real_node.addresses() == ours)
    real_node.pass_updates(2)
    assert len(real_node.writes()) - written <= rounds + filled_in() - before, "one for each that changed them"
    peace = len(real_node.writes())
    real_node.pass_updates(6)
    assert real_node.addresses() == ours
    assert len(real_node.writes()) == peace
