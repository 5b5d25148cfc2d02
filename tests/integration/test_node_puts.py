"""Nodes are initialised by a PUT of the object as the API server sent it: what changes, what does
not, and what becomes of it where that is not allowed. Over the real API server, which alone has
Protobuf."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from controllers.node.options import CloudNodeOptions
from controllers.runtime.api import ClientSettings, Conflict, RestClient
from controllers.runtime.protobuf import CONTENT_TYPE, JSON
from controllers.runtime.protobuf.replacing import kept
from controllers.runtime.protobuf.schema import open_envelope
from controllers.runtime.write import ObjectReplaced, Patch, Puts, apply
from tests.envtest.server import RealAPIServer
from tests.integration.conftest import REAL, Cluster
from tests.support.api import MERGE, NODES, STRATEGIC
from tests.support.failover.audit import AuditLog, username
from tests.support.nodes import UNINITIALIZED, big_node, is_tainted, small_node
from tests.support.process import Start
from tests.support.running import node_controller

pytestmark = pytest.mark.parametrize("api", [REAL], indirect=True)

NAME = "node-0000"
PATH = f"{NODES}/{NAME}"
NEVER = CloudNodeOptions(node_status_update_frequency=3600)
STAMP = "2026-01-02T03:04:05Z"
OURS = "cloud-controller-manager"
CHANGES_BY_ITSELF = ("uid", "resourceVersion", "creationTimestamp")


@pytest.fixture
def cloud() -> Any:
    with FakeCloud(FakeConfig.model_validate({"generate": [{"count": 50, "types": ["small"]}]})) as made:
        yield made


def full_node(api: Cluster) -> dict[str, Any]:
    """Create a Node that has all that a Node can have, written by several managers of fields."""
    node = big_node(NAME, images=12)
    owner = api.get("/api/v1/namespaces/default")["metadata"]["uid"]
    node["metadata"] |= {
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": '{"odd": "\\u00e9 \\n"}',
            "empty": "",
            "node.alpha.kubernetes.io/ttl": "0",
        },
        "finalizers": ["example.com/hold"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": owner, "controller": False},
        ],
    }
    node["metadata"]["labels"] |= {"example.com/Odd_label.1": "A-b_c.D", "empty": ""}
    node["spec"] |= {
        "podCIDR": "10.244.0.0/24",
        "podCIDRs": ["10.244.0.0/24", "fd00::/64"],
        "unschedulable": True,
        "taints": [
            {"key": "first", "value": "v", "effect": "NoExecute", "timeAdded": STAMP},
            UNINITIALIZED,
            {"key": "last", "effect": "PreferNoSchedule"},
        ],
    }
    status = node.pop("status")
    api.create(NODES, node)
    status |= {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.9"}],
        "volumesInUse": ["kubernetes.io/csi/a", "kubernetes.io/csi/b"],
        "volumesAttached": [{"name": "kubernetes.io/csi/a", "devicePath": "/dev/sdb"}],
        "runtimeHandlers": [{"name": "runc", "features": {"recursiveReadOnlyMounts": True}}],
        "features": {"supplementalGroupsPolicy": True},
    }
    status["nodeInfo"]["swap"] = {"capacity": 1 << 33}
    api.patch(f"{PATH}/status?fieldManager=kubelet", {"status": status}, STRATEGIC)
    api.patch(f"{PATH}?fieldManager=somebody", {"metadata": {"labels": {"theirs": "x"}}}, MERGE)
    applied = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME, "labels": {"applied": "y"}}}
    assert api.request("PATCH", f"{PATH}?fieldManager=applier", applied, "application/apply-patch+yaml")[0] == 200
    return api.get(PATH)


def initialised(api: Cluster, cloud: FakeCloud, content_type: str) -> dict[str, Any]:
    with node_controller(api.kubeconfig, cloud, options=NEVER, settings=ClientSettings(content_type=content_type)):
        eventually(lambda: not is_tainted(api.get(PATH)))
    return api.get(PATH)


def without(node: dict[str, Any]) -> dict[str, Any]:
    """The Node without what is another in each Node, and when which fields were written."""
    metadata = {name: value for name, value in node["metadata"].items() if name not in CHANGES_BY_ITSELF}
    entries = [{k: v for k, v in entry.items() if k != "time"} for entry in metadata.pop("managedFields")]
    entries.sort(key=json.dumps)
    return {**node, "metadata": {**metadata, "managedFields": entries}}


def delete(api: Cluster) -> None:
    api.patch(PATH, {"metadata": {"finalizers": None}}, MERGE)
    api.delete(PATH)


def requests(audit: AuditLog) -> Counter[tuple[str, str, int]]:
    """The manager's writes to Nodes: verb, subresource, code."""
    found: Counter[tuple[str, str, int]] = Counter()
    for one in audit.read():
        resource, _, subresource = one.resource.partition("/")
        if "manager" in one.who and resource == "nodes" and one.verb in ("update", "patch"):
            found[one.verb, subresource, one.code] += 1
    return found


def mark(api: Cluster) -> AuditLog:
    """What is asked for from now on."""
    assert isinstance(api.server, RealAPIServer)
    return AuditLog(api.server.audit_log, username)


def test_a_put_does_what_the_patch_does_and_nothing_else_changes(api: Cluster, cloud: FakeCloud) -> None:
    began = mark(api)
    before = full_node(api)
    by_put = initialised(api, cloud, CONTENT_TYPE)
    eventually(lambda: requests(began) == {("patch", "status", 200): 1, ("update", "", 200): 1})
    delete(api)
    began = mark(api)
    assert without(full_node(api)) == without(before), "the same again"
    by_patch = initialised(api, cloud, JSON)
    eventually(lambda: requests(began) == {("patch", "status", 200): 1, ("patch", "", 200): 1})
    delete(api)
    assert without(by_put) == without(by_patch)

    # And beside what is ours it is as it was.
    metadata, old = by_put["metadata"], before["metadata"]
    assert {k: v for k, v in metadata["labels"].items() if k in old["labels"]} == old["labels"]
    assert {k: v for k, v in metadata["annotations"].items() if k in old["annotations"]} == old["annotations"]
    assert set(metadata["annotations"]) - set(old["annotations"]) == {"kubernetes-cloud-provider/applied-labels"}
    ours = ("labels", "annotations", "managedFields", "resourceVersion")
    assert {k: v for k, v in metadata.items() if k not in ours} == {k: v for k, v in old.items() if k not in ours}
    spec = dict(before["spec"])
    spec["taints"] = [taint for taint in spec["taints"] if taint["key"] != UNINITIALIZED["key"]]
    assert by_put["spec"] == {**spec, "providerID": by_put["spec"]["providerID"]}
    assert {**by_put["status"], "addresses": []} == {**before["status"], "addresses": []}
    # Who owns which fields: ours are two new entries; the others keep theirs, less what we changed.
    entries = {(one["manager"], one.get("subresource")): one for one in metadata["managedFields"]}
    assert {key for key in entries if key[0] == OURS} == {(OURS, None), (OURS, "status")}
    for one in old["managedFields"]:
        if one["manager"] in ("somebody", "applier"):
            assert entries[one["manager"], None] == one


def rest_of(api: Cluster) -> RestClient:
    return api.clients().rest("node-controller")


def bytes_of(rest: RestClient) -> bytes:
    answer = rest.request("GET", PATH, accept=CONTENT_TYPE)
    found = kept(open_envelope(answer.data).raw)
    assert found is not None
    return found


LABEL = Patch({"metadata": {"labels": {"ours": "1"}}}, versioned=True)


def test_a_node_that_was_recreated_under_its_name_is_not_written(api: Cluster) -> None:
    api.create(NODES, small_node(NAME))
    rest = rest_of(api)
    first, small = api.get(PATH), bytes_of(rest)
    api.delete(PATH)
    api.create(NODES, small_node(NAME))
    began = mark(api)
    with pytest.raises(ObjectReplaced):
        apply(rest, PATH, first, lambda _: [LABEL], dict, puts=Puts(), kept=small)
    eventually(lambda: requests(began) == {("update", "", 409): 1})
    # Even with the version of the new one: the UID alone is a conflict.
    version = api.get(PATH)["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        Puts().send(rest, PATH, small, LABEL.body, uid=first["metadata"]["uid"], version=version)
    assert "ours" not in api.get(PATH)["metadata"].get("labels", {})


def test_a_node_that_was_changed_meanwhile_is_read_and_patched(api: Cluster) -> None:
    api.create(NODES, small_node(NAME))
    rest = rest_of(api)
    first, small = api.get(PATH), bytes_of(rest)
    api.patch(PATH, {"metadata": {"labels": {"theirs": "x"}}}, MERGE)
    began = mark(api)
    apply(rest, PATH, first, lambda _: [LABEL], dict, puts=Puts(), kept=small)
    eventually(lambda: requests(began) == {("update", "", 409): 1, ("patch", "", 200): 1})
    labels = api.get(PATH)["metadata"]["labels"]
    assert {"theirs": "x", "ours": "1"}.items() <= labels.items()


def test_a_put_that_is_sent_twice_is_applied_once(api: Cluster) -> None:
    """An answer was lost, and somebody has changed the same field since."""
    api.create(NODES, small_node(NAME))
    rest = rest_of(api)
    first, small = api.get(PATH)["metadata"], bytes_of(rest)
    given = {"uid": first["uid"], "version": first["resourceVersion"]}
    Puts().send(rest, PATH, small, LABEL.body, **given)
    api.patch(PATH, {"metadata": {"labels": {"ours": "theirs"}}}, MERGE)
    with pytest.raises(Conflict):
        Puts().send(rest, PATH, small, LABEL.body, **given)
    assert api.get(PATH)["metadata"]["labels"]["ours"] == "theirs"


def test_without_the_right_to_update_nodes_are_patched_and_one_line_says_so(
    api: Cluster, cloud: FakeCloud, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(12):
        api.create(NODES, small_node(f"node-{number:04d}"))
    began = mark(api)
    with api.lacking("update", "nodes", tmp_path / "restricted") as identity:
        with node_controller(identity.kubeconfig, cloud, options=NEVER), caplog.at_level(logging.INFO):
            eventually(lambda: not any(map(is_tainted, api.get(NODES)["items"])))
        eventually(
            lambda: requests(began) == {("patch", "status", 200): 12, ("patch", "", 200): 12, ("update", "", 403): 1}
        )
        [line] = [one for one in caplog.records if one.name.endswith(".puts")]
        assert line.levelno == logging.WARNING
        assert "resources [nodes], verbs [update]" in line.message
        # As a whole program: well, and nothing is called missing.
        process = start.manager(identity.kubeconfig)
        eventually(lambda: process.ask("/healthz")[0] == 200, 60, lambda: process.log)
        assert "missing permission" not in process.log
