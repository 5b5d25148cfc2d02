"""Writes over the API: what the reference's list of semantics says, line by line, without a real server beside."""

from __future__ import annotations

import copy

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from tests.unit.apiserver.conftest import JSON, Client, node

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
READY = {"type": "Ready", "status": "True"}
NIL = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def made(client: Client) -> JSON:
    reply = client.post(NODES, node("a", status={"conditions": [READY]}))
    assert reply.code == 201
    body: JSON = reply.body
    return body


def lease(version: str | None = None, **spec: object) -> JSON:
    meta = {"name": "l"} if version is None else {"name": "l", "resourceVersion": version}
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": meta, "spec": spec}


def test_a_new_node_is_tainted_and_completed(made: JSON) -> None:
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert made["metadata"].keys() == {"name", "uid", "creationTimestamp", "resourceVersion"}
    assert made["status"]["conditions"] == [{**READY, "lastHeartbeatTime": None, "lastTransitionTime": None}]


@pytest.mark.parametrize("target", [f"{NODES}/a", f"{NODES}/a/status"])
def test_a_stale_version_is_a_conflict_even_when_nothing_would_change(client: Client, made: JSON, target: str) -> None:
    client.merge(f"{NODES}/a", {"metadata": {"labels": {"x": "y"}}})
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"x": "y"}}}
    reply = client.merge(target, stale)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.body["details"] == {"name": "a", "kind": "nodes"}


def test_a_patch_that_changes_nothing_keeps_the_version(client: Client, server: EmbeddedAPIServer, made: JSON) -> None:
    version = server.version
    for body in ({}, {"metadata": {"annotations": None}}, {"status": {"phase": "ignored here"}}):
        assert client.merge(f"{NODES}/a", body).body["metadata"]["resourceVersion"] == str(version)
    assert client.strategic(f"{NODES}/a/status", {"status": {"conditions": [READY]}}).code == 200
    assert server.version == version


def test_a_merge_patch_erases_ready_where_strategic_keeps_it(client: Client, made: JSON) -> None:
    network = {"type": "NetworkUnavailable", "status": "False"}
    kept = client.strategic(f"{NODES}/a/status", {"status": {"conditions": [network]}}).body["status"]["conditions"]
    assert {condition["type"] for condition in kept} == {"Ready", "NetworkUnavailable"}
    left = client.merge(f"{NODES}/a/status", {"status": {"conditions": [network]}}).body["status"]["conditions"]
    assert [condition["type"] for condition in left] == ["NetworkUnavailable"]


def test_spec_and_status_are_written_apart(client: Client, made: JSON) -> None:
    body = {"metadata": {"labels": {"l": "1"}}, "spec": {"unschedulable": True}, "status": {"phase": "Running"}}
    first = client.merge(f"{NODES}/a/status", body).body
    assert "unschedulable" not in first["spec"]
    assert (first["status"]["phase"], first["metadata"]["labels"]) == ("Running", {"l": "1"})
    second = client.merge(f"{NODES}/a", {"spec": {"unschedulable": True}, "status": {"phase": "Pending"}}).body
    assert (second["spec"]["unschedulable"], second["status"]["phase"]) == (True, "Running")


def test_another_uid_is_invalid_in_a_patch_and_a_conflict_in_a_put(client: Client, made: JSON) -> None:
    patched = client.merge(f"{NODES}/a", {"metadata": {"uid": NIL}})
    assert (patched.code, patched.reason) == (422, "Invalid")
    replaced = client.ask("PUT", f"{NODES}/a", node("a", metadata={"uid": NIL}))
    assert (replaced.code, replaced.reason) == (409, "Conflict")


def test_a_failed_json_patch_test_is_422(client: Client, made: JSON) -> None:
    wrong = [{"op": "test", "path": "/metadata/uid", "value": NIL}]
    assert client.ask("PATCH", f"{NODES}/a", wrong, "application/json-patch+json").code == 422


@pytest.mark.parametrize("field", ["podCIDR", "providerID"])
def test_pod_cidr_and_provider_id_are_set_once(client: Client, made: JSON, field: str) -> None:
    first, second = ("10.0.0.0/24", "10.0.1.0/24") if field == "podCIDR" else ("fake://1", "fake://2")
    assert client.merge(f"{NODES}/a", {"spec": {field: first}}).code == 200
    assert client.merge(f"{NODES}/a", {"spec": {field: first}}).code == 200
    body: JSON = {"spec": {field: second}}
    if field == "podCIDR":
        body["spec"]["podCIDRs"] = [second]
    refused = client.merge(f"{NODES}/a", body)
    assert (refused.code, refused.body["details"]["causes"][0]["reason"]) == (422, "FieldValueForbidden")


def test_preconditions_of_a_deletion(client: Client, made: JSON) -> None:
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    client.merge(f"{NODES}/a", {"metadata": {"labels": {"x": "y"}}})
    for wanted in ({"uid": NIL}, {"resourceVersion": version}, {"uid": uid, "resourceVersion": version}):
        reply = client.ask("DELETE", f"{NODES}/a", {"preconditions": wanted})
        assert (reply.code, reply.reason) == (409, "Conflict")
    done = client.ask("DELETE", f"{NODES}/a", {"preconditions": {"uid": uid}})
    assert (done.code, done.body["status"], done.body["details"]["uid"]) == (200, "Success", uid)
    assert client.ask("DELETE", f"{NODES}/a", {"preconditions": {"uid": uid}}).code == 404


def test_finalizers_hold_a_deletion_until_the_last_is_gone(client: Client, server: EmbeddedAPIServer) -> None:
    client.post(NODES, node("held", metadata={"finalizers": ["a.b/c", "d.e/f"]}))
    marked = client.ask("DELETE", f"{NODES}/held")
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 0
    stamp = marked.body["metadata"]["deletionTimestamp"]
    assert (
        client.merge(f"{NODES}/held", {"metadata": {"deletionTimestamp": None}}).body["metadata"]["deletionTimestamp"]
        == stamp
    )
    refused = client.strategic(f"{NODES}/held", {"metadata": {"finalizers": ["new.io/x"]}})
    assert "no new finalizers" in refused.body["message"]
    for finalizer in ("a.b/c", "d.e/f"):
        assert client.get(f"{NODES}/held").code == 200
        client.strategic(f"{NODES}/held", {"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}})
    assert client.get(f"{NODES}/held").code == 404
    assert client.post(NODES, node("held")).code == 201


def test_leases(client: Client) -> None:
    assert client.ask("PUT", f"{LEASES}/l", lease(holderIdentity="a")).code == 201
    assert client.ask("PUT", f"{LEASES}/l", lease(holderIdentity="b")).code == 422
    version = client.get(f"{LEASES}/l").body["metadata"]["resourceVersion"]
    assert client.ask("PUT", f"{LEASES}/l", lease(version, holderIdentity="b")).code == 200
    assert client.ask("PUT", f"{LEASES}/l", lease(version, holderIdentity="c")).code == 409
    assert client.merge(f"{LEASES}/l", {"spec": {"renewTime": "2026-01-01T00:00:00.000001Z"}}).code == 200
    assert client.merge(f"{LEASES}/l", {"spec": {"renewTime": "2026-01-01T00:00:00Z"}}).code == 422
    assert client.merge(f"{LEASES}/l", {"spec": {"leaseDurationSeconds": 0}}).code == 422


def test_generated_names_are_unique(client: Client) -> None:
    body = {"kind": "Event", "metadata": {"generateName": "e-"}, "involvedObject": {}}
    names = {client.post("/api/v1/namespaces/default/events", body).body["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("e-") and len(name) == 7 for name in names)


def test_namespaces_live_and_die(client: Client) -> None:
    spaces = "/api/v1/namespaces"
    assert client.get(f"{spaces}/kube-system").body["metadata"]["uid"]
    assert client.ask("DELETE", f"{spaces}/kube-system").code == 403
    assert client.post(f"{spaces}/none/events", {"involvedObject": {}, "metadata": {"name": "e"}}).code == 404
    client.post(spaces, {"metadata": {"name": "own"}})
    ended = client.ask("DELETE", f"{spaces}/own").body
    assert ended["status"]["phase"] == "Terminating"
    late = client.post(f"{spaces}/own/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}})
    assert (late.code, late.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    client.ask("PUT", f"{spaces}/own/finalize", {"metadata": {"name": "own"}})
    assert client.get(f"{spaces}/own").code == 404


def test_field_validation(client: Client) -> None:
    body = node("v", spec={"foo": 1})
    strict = client.post(f"{NODES}?fieldValidation=Strict", body)
    assert (strict.code, 'unknown field "spec.foo"' in strict.body["message"]) == (400, True)
    assert client.post(f"{NODES}?fieldValidation=Odd", body).code == 422
    warned = client.post(NODES, body)
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.foo\\""'
    assert "foo" not in warned.body["spec"]
    assert "Warning" not in client.post(f"{NODES}?fieldValidation=Ignore", node("w", spec={"foo": 1})).headers
    twice = b'{"metadata":{"name":"x","name":"y"}}'
    assert 'duplicate field "metadata.name"' in client.post(f"{NODES}?fieldValidation=Strict", twice).body["message"]
    assert client.post(NODES, twice).body["metadata"]["name"] == "y"


@pytest.mark.parametrize(
    ("method", "target", "body", "content_type", "code"),
    [
        ("PATCH", f"{NODES}/a", {}, "application/apply-patch+yaml", 501),
        ("POST", NODES, b"a: b", "application/yaml", 501),
        ("POST", NODES, b"k8s\0", "application/vnd.kubernetes.protobuf", 400),
        ("POST", NODES, b"\xd9\xd9\xf7\xa0", "application/cbor", 501),
        ("POST", "/api/v1/pods", {}, "application/json", 501),
        ("GET", "/api/v1/podtemplates", None, "application/json", 501),
        ("GET", "/apis/apps/v1/deployments", None, "application/json", 501),
        ("GET", "/openapi/v3", None, "application/json", 501),
        ("GET", "/api/v1/pods?watch=1", None, "application/json", 501),
        ("POST", NODES, b"x", "text/plain", 415),
        ("PATCH", f"{NODES}/a", {}, "application/json", 415),
        ("POST", NODES, b"{", "application/json", 400),
        ("POST", NODES, b" " * (3 * 1024 * 1024 + 1), "application/json", 413),
        ("PUT", NODES, {}, "application/json", 405),
        ("DELETE", f"{NODES}/a", {"propagationPolicy": "Odd"}, "application/json", 422),
    ],
)
def test_what_is_not_supported_is_said_so(
    client: Client, method: str, target: str, body: object, content_type: str, code: int
) -> None:
    client.post(NODES, node("a"))
    assert client.ask(method, target, body, content_type).code == code
    assert client.get(f"{NODES}/a").code == 200


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 501),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/vnd.kubernetes.protobuf", 501),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("text/html", 406),
        ("", 200),
    ],
)
def test_the_first_form_that_is_supported_is_given(client: Client, accept: str, code: int) -> None:
    assert client.get(NODES, accept=accept).code == code


def test_stored_objects_are_never_changed_in_place(client: Client, server: EmbeddedAPIServer, made: JSON) -> None:
    held = server.get("nodes", "a")
    before = copy.deepcopy(held)
    client.merge(f"{NODES}/a", {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": None}})
    client.strategic(f"{NODES}/a/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    client.ask("PATCH", f"{NODES}/a", [{"op": "remove", "path": "/metadata/labels/a"}], "application/json-patch+json")
    client.ask("DELETE", f"{NODES}/a")
    assert held == before


def test_a_malformed_object_can_be_put_in_and_healed(client: Client, server: EmbeddedAPIServer, made: JSON) -> None:
    server.put_raw("nodes", {**made, "status": {"addresses": "nonsense"}})
    assert client.get(NODES).body["items"][0]["status"] == {"addresses": "nonsense"}
    assert client.merge(f"{NODES}/a", {"metadata": {"labels": {"a": "b"}}}).code == 422
    healed = client.merge(f"{NODES}/a/status", {"status": {"addresses": None, "phase": "Running"}})
    assert (healed.code, healed.body["status"]["phase"]) == (200, "Running")


def test_a_dry_run_leaves_no_trace(client: Client) -> None:
    client.post(NODES, node("a"))
    port = {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30777}]}}
    services = "/api/v1/namespaces/default/services"
    before = client.server.version
    assert client.post(f"{NODES}?dryRun=All", node("b")).code == 201
    merge, status = "application/merge-patch+json", {"status": {"capacity": {"cpu": "1"}}}
    assert client.ask("PATCH", f"{NODES}/a?dryRun=All", {"metadata": {"labels": {"x": "y"}}}, merge).code == 200
    assert client.ask("PATCH", f"{NODES}/a/status?dryRun=All", status, merge).code == 200
    assert client.ask("DELETE", f"{NODES}/a?dryRun=All").code == 200
    assert client.ask("DELETE", f"{NODES}?dryRun=All").code == 200
    assert client.post(f"{services}?dryRun=All", {"metadata": {"name": "s"}, **port}).code == 201
    assert client.server.version == before
    assert client.post(services, {"metadata": {"name": "t"}, **port}).code == 201
