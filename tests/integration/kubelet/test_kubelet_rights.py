"""What a kubelet can make us do with its own credentials, while it runs: nothing that it may not do
itself."""

from __future__ import annotations

import json

import pytest

from cloudprovider.wellknown import TAINT_EXTERNAL_CLOUD_PROVIDER
from controllers.node.kept import APPLIED_LABELS
from tests.integration.kubelet.conftest import NAME, REAL_KUBELET, RealNode
from tests.support.api import MERGE

pytestmark = REAL_KUBELET
GUARDED = {"node-restriction.kubernetes.io/tenant": "blue", "node-role.kubernetes.io/worker": ""}
"""Labels that NodeRestriction guards: an administrator sets them, a kubelet may not touch them."""


@pytest.mark.row("N17")
def test_a_kubelet_cannot_initialise_itself_nor_have_guarded_labels_removed(real_node: RealNode) -> None:
    real_node.start_kubelet()
    real_node.until(real_node.registered)
    kubelet, admin = real_node.cluster.kubelet(NAME), real_node.cluster
    admin.patch(real_node.path, {"metadata": {"labels": GUARDED}})
    for body in (
        {"spec": {"taints": None}},
        {"metadata": {"labels": dict.fromkeys(GUARDED)}},
    ):
        assert kubelet.request("PATCH", real_node.path, body, MERGE)[0] == 403
    assert TAINT_EXTERNAL_CLOUD_PROVIDER in real_node.taints()
    labels = real_node.node()["metadata"]["labels"]
    kubelet.patch(real_node.path, {"metadata": {"annotations": {APPLIED_LABELS: json.dumps(labels)}}})

    real_node.start_manager()
    real_node.until(real_node.initialised)
    real_node.until(real_node.ready)
    real_node.pass_updates(4)
    after = real_node.node()["metadata"]["labels"]
    assert labels.items() <= after.items()
