"""A node's initialisation as admission and other writers of the Node see it: two patches of what is
ours, and admission is shown the whole object. Over the real API server, which alone has admission
and managedFields as users have them."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cloudprovider.testing.fake import FakeCloud, FakeConfig
from cloudprovider.testing.waiting import eventually
from controllers.node.registration import CloudNodeOptions
from tests.integration.conftest import REAL, Cluster
from tests.lab.envtest.server import RealAPIServer
from tests.support.api import MERGE, NODES, STRATEGIC
from tests.support.failover.audit import AuditLog, username
from tests.support.nodes import UNINITIALIZED, big_node, is_tainted
from tests.support.pki import Authority
from tests.support.rights import created
from tests.support.running import node_controller

pytestmark = pytest.mark.parametrize("api", [REAL], indirect=True)

NAME = "node-0000"
PATH = f"{NODES}/{NAME}"
NEVER = CloudNodeOptions(node_status_update_frequency=3600)
STAMP = "2026-01-02T03:04:05Z"
OURS = "cloud-controller-manager"
GPU = "example.com/gpu"


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


def initialise(api: Cluster, cloud: FakeCloud) -> dict[str, Any]:
    """The Node, once our controller has made it ready."""
    with node_controller(api.kubeconfig, cloud, options=NEVER):
        eventually(lambda: not is_tainted(api.get(PATH)))
    return api.get(PATH)


def delete(api: Cluster) -> None:
    api.patch(PATH, {"metadata": {"finalizers": None}}, MERGE)
    api.delete(PATH)


def test_nothing_else_of_a_node_changes(api: Cluster, cloud: FakeCloud) -> None:
    before = full_node(api)
    began = mark(api)
    after = initialise(api, cloud)
    eventually(lambda: requests(began) == {("patch", "status", 200): 1, ("patch", "", 200): 1})
    delete(api)
    metadata, old = after["metadata"], before["metadata"]
    assert {k: v for k, v in metadata["labels"].items() if k in old["labels"]} == old["labels"]
    assert {k: v for k, v in metadata["annotations"].items() if k in old["annotations"]} == old["annotations"]
    assert set(metadata["annotations"]) - set(old["annotations"]) == {"kubernetes-cloud-provider/applied-labels"}
    ours = ("labels", "annotations", "managedFields", "resourceVersion")
    assert {k: v for k, v in metadata.items() if k not in ours} == {k: v for k, v in old.items() if k not in ours}
    spec = dict(before["spec"])
    spec["taints"] = [taint for taint in spec["taints"] if taint["key"] != UNINITIALIZED["key"]]
    assert after["spec"] == {**spec, "providerID": after["spec"]["providerID"]}
    assert {**after["status"], "addresses": []} == {**before["status"], "addresses": []}
    # Who owns which fields: ours are two new entries; the others keep theirs, less what we changed.
    entries = {(one["manager"], one.get("subresource")): one for one in metadata["managedFields"]}
    assert {key for key in entries if key[0] == OURS} == {(OURS, None), (OURS, "status")}
    for one in old["managedFields"]:
        if one["manager"] in ("somebody", "applier"):
            assert entries[one["manager"], None] == one


class Hook:
    """A webhook that takes a Node's capacity for granted, and fails without it, as many do."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        """The requests of its reviews."""

    def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        review = json.loads(body)
        self.seen.append(review["request"])
        if "cpu" not in review["request"]["object"].get("status", {}).get("capacity", {}):
            return 500, {"message": "no capacity"}
        response = {"uid": review["request"]["uid"], "allowed": True}
        return 200, {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}

    def by(self, name: str) -> list[dict[str, Any]]:
        """Those about a Node."""
        return [one for one in self.seen if one["name"] == name]


@contextmanager
def served(hook: Hook, authority: Authority, folder: Path) -> Iterator[str]:
    """The URL of the webhook."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, answer = hook.answer(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on standard error."""

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.server_files(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}


@pytest.mark.row("K26", "K27")
def test_a_webhook_sees_of_our_write_what_it_sees_of_kubectls(api: Cluster, cloud: FakeCloud, tmp_path: Path) -> None:
    hook, authority = Hook(), Authority()
    node = big_node(NAME, images=2)
    node["spec"]["taints"] = [UNINITIALIZED]
    with served(hook, authority, tmp_path) as url:
        configuration = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "capacity"},
            "webhooks": [
                {
                    "name": "capacity.example.com",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "clientConfig": {"url": url, "caBundle": base64.b64encode(authority.pem).decode()},
                    "rules": [RULE],
                }
            ],
        }
        with created(api, [configuration]):
            api.create(NODES, node)
            eventually(lambda: _patched_by_a_person(api) and hook.by(NAME))
            person = hook.by(NAME)[-1]
            hook.seen.clear()
            began = mark(api)
            after = initialise(api, cloud)
    ours = hook.by(NAME)[-1]  # the API server may show admission one request more than once: requests() counts ours
    assert ours["object"]["status"] == ours["oldObject"]["status"] == after["status"]
    assert ours["object"].keys() == person["object"].keys()
    assert ours["object"]["status"].keys() == person["object"]["status"].keys()
    eventually(lambda: requests(began) == {("patch", "status", 200): 1, ("patch", "", 200): 1})


def _patched_by_a_person(api: Cluster) -> bool:
    return api.request("PATCH", PATH, {"metadata": {"labels": {"mine": "1"}}}, MERGE)[0] == 200


@pytest.mark.row("K27")
def test_a_label_that_a_policy_derives_from_the_capacity_stays(api: Cluster, cloud: FakeCloud) -> None:
    node = big_node(NAME, images=2)
    node["spec"]["taints"] = [UNINITIALIZED]
    node["status"]["capacity"][GPU] = "8"
    has = f"has(object.status) && has(object.status.capacity) && '{GPU}' in object.status.capacity"
    expression = f"Object{{metadata: Object.metadata{{labels: {{'gpu': {has} ? 'true' : 'false'}}}}}}"
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "gpu"}}
    policy = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [{**RULE, "operations": ["CREATE", "UPDATE"]}]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    with created(
        api,
        [
            {**kind, "kind": "MutatingAdmissionPolicy", "spec": policy},
            {**kind, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "gpu"}},
        ],
    ):
        eventually(lambda: _labelled_at_creation(api, node), 60)
        after = initialise(api, cloud)
    assert after["metadata"]["labels"]["gpu"] == "true"


def _labelled_at_creation(api: Cluster, node: dict[str, Any]) -> bool:
    """Whether the policy is in force: until then the node is created again."""
    made = api.create(NODES, node)
    if made["metadata"]["labels"].get("gpu") == "true":
        return True
    api.delete(PATH)
    return False
