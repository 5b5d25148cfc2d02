"""What a node's own kubelet can make us do by what it writes on its Node: row N17, over both API
servers.

The kubelet has the token and the rights that it has in a cluster. The real server refuses it labels
of node-restriction.kubernetes.io and node-role.kubernetes.io, and taints; annotations of its own
Node it may write.
"""

from __future__ import annotations

import json

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from cloudprovider.wellknown import LABEL_HANDS_OFF
from controllers.node.kept import APPLIED_LABELS, PAIRED
from controllers.node.registration import CloudNodeOptions
from tests.integration.conftest import Cluster
from tests.support.api import MERGE, NODES
from tests.support.nodes import small_node
from tests.support.running import node_controller

OFTEN = CloudNodeOptions(node_status_update_frequency=0.3)

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
    for body in (
        {"metadata": {"labels": {RESTRICTED: None}}},
        {"metadata": {"labels": {ROLE: None}}},
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    ):
        assert kubelet.request("PATCH", own, body, MERGE)[0] == 403
    assert kubelet.request("PATCH", other, note, MERGE)[0] == 403


def test_a_kubelet_may_not_touch_the_label_that_keeps_its_node(api: Cluster) -> None:
    """With it a kubelet could keep the Node of its machine, which is gone, for ever."""
    api.create(NODES, small_node("node-0000", taints=[]))
    kubelet, path = api.kubelet("node-0000"), f"{NODES}/node-0000"
    if not api.is_real:
        return  # the embedded server knows no admission
    for value in ("true", "", "false"):
        status, answer = kubelet.request("PATCH", path, {"metadata": {"labels": {LABEL_HANDS_OFF: value}}}, MERGE)
        assert status == 403
        assert "is not allowed to modify labels" in answer["message"]
    api.patch(path, {"metadata": {"labels": {LABEL_HANDS_OFF: "true"}}})
    for change in (None, "false"):
        assert kubelet.request("PATCH", path, {"metadata": {"labels": {LABEL_HANDS_OFF: change}}}, MERGE)[0] == 403
    # Nor may it bring the label along as it registers.
    own = small_node("node-0001", taints=[], labels={LABEL_HANDS_OFF: "true"})
    assert api.kubelet("node-0001").request("POST", NODES, own)[0] == 403
    assert api.get(path)["metadata"]["labels"][LABEL_HANDS_OFF] == "true"


@pytest.mark.row("N17")
def test_a_forged_record_of_labels_makes_us_do_nothing_that_the_kubelet_may_not(api: Cluster) -> None:
    labels = {RESTRICTED: "blue", ROLE: "", "example.com/owner": "red"}
    api.create(NODES, small_node("node-0000", provider_id="fake://i-node-0000", labels=labels))
    kubelet, path = api.kubelet("node-0000"), f"{NODES}/node-0000"
    instances = [{"name": "node-0000", "labels": {"example.com/rack": "r1"}}]
    with FakeCloud(FakeConfig.model_validate({"instances": instances})) as cloud:
        with node_controller(api.kubeconfig, cloud, options=OFTEN):
            eventually(lambda: "example.com/rack" in api.get(path)["metadata"]["labels"])
            before = api.get(path)["metadata"]["labels"]
            record = json.dumps(before)
            kubelet.patch(path, {"metadata": {"annotations": {APPLIED_LABELS: record}}})
            _two_refreshes(cloud)
            assert api.get(path)["metadata"]["labels"] == before
        kubelet.patch(path, {"metadata": {"annotations": {APPLIED_LABELS: record}}})
        with node_controller(api.kubeconfig, cloud, options=OFTEN):  # a new process reads the record once
            _two_refreshes(cloud)
            assert api.get(path)["metadata"]["labels"] == before


def test_a_kubelet_may_set_instance_type_zone_and_region_itself(api: Cluster) -> None:
    """Why the record may still tell us to follow the cloud in these: it gives its writer no power
    that it lacks.

    The same is true of the provider ID, so that adoption gives a kubelet that lies about its
    addresses none either.
    """
    api.create(NODES, small_node("node-0000", taints=[]))
    labels = dict.fromkeys(PAIRED, "mine")
    body = {"metadata": {"labels": labels}, "spec": {"providerID": "fake://any"}}
    changed = api.kubelet("node-0000").patch(f"{NODES}/node-0000", body)
    assert labels.items() <= changed["metadata"]["labels"].items()
    assert changed["spec"]["providerID"] == "fake://any"


def _two_refreshes(cloud: FakeCloud) -> None:
    before = sum(cloud.calls.counts().values())
    eventually(lambda: sum(cloud.calls.counts().values()) >= before + 2)
