"""What a node's own kubelet can make us do by what it writes on its Node: row N17, over both API servers.

The kubelet has the token and the rights that it has in a cluster. The real server refuses it labels of
node-restriction.kubernetes.io and node-role.kubernetes.io, and taints; annotations of its own Node it may write.
"""

from __future__ import annotations

from tests.integration.conftest import Cluster
from tests.support.api import NODES
from tests.support.nodes import small_node

RESTRICTED = "node-restriction.kubernetes.io/tenant"
ROLE = "node-role.kubernetes.io/control-plane"


def test_a_kubelet_may_annotate_its_own_node_and_no_more(api: Cluster) -> None:
    """Shows that the identity is what it claims to be, so that the tests below prove something."""
    for name in ("node-0000", "node-0001"):
        api.create(NODES, small_node(name, taints=[], labels={RESTRICTED: "blue", ROLE: ""}))
    kubelet = api.kubelet("node-0000")
    own, other = f"{NODES}/node-0000", f"{NODES}/node-0001"
    note = {"metadata": {"annotations": {"example.com/note": "mine"}}}
    assert kubelet.patch(own, note)["metadata"]["annotations"] == {"example.com/note": "mine"}
    if not api.is_real:
        return  # the embedded server knows no admission
    merge = "application/merge-patch+json"
    for body in (
        {"metadata": {"labels": {RESTRICTED: None}}},
        {"metadata": {"labels": {ROLE: None}}},
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    ):
        assert kubelet.request("PATCH", own, body, merge)[0] == 403
    assert kubelet.request("PATCH", other, note, merge)[0] == 403
