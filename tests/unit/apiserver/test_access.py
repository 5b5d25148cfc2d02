"""Tokens, deny rules, the review APIs, discovery."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from tests.unit.apiserver.conftest import JSON, Client, node

NODES = "/api/v1/nodes"
AUTHN, AUTHZ = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"


def review(kind: str, **spec: Any) -> JSON:
    group = "authentication" if kind == "TokenReview" else "authorization"
    return {"kind": kind, "apiVersion": f"{group}.k8s.io/v1", "spec": spec}


@pytest.mark.parametrize("token", ["", "wrong"])
def test_unknown_credentials_are_401(client: Client, token: str) -> None:
    reply = client.get(NODES, token=token)
    assert (reply.code, reply.reason) == (401, "Unauthorized")
    assert client.get("/healthz", token=token).code == 401


def test_anonymous_may_see_health_and_nothing_else_where_let_in() -> None:
    client = Client(EmbeddedAPIServer(anonymous=True))
    assert client.get("/healthz", token="").code == 200
    assert client.get("/version", token="").code == 200
    refused = client.get(NODES, token="")
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.body["message"] == (
        'nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    assert client.get(NODES, token="wrong").code == 401


def test_a_deny_rule_is_403_until_it_is_lifted(client: Client, server: EmbeddedAPIServer) -> None:
    server.create(node("a"))
    server.access.add_user("t", "ccm", groups=("system:serviceaccounts",))
    rule = server.access.deny(user="ccm", verb="patch", resource="nodes/status")
    target, body, kind = f"{NODES}/a/status", {"status": {"phase": "Running"}}, "application/merge-patch+json"
    refused = client.ask("PATCH", target, body, kind, token="t")
    assert refused.body["message"] == (
        'nodes "a" is forbidden: User "ccm" cannot patch resource "nodes/status" in API group "" at the cluster scope'
    )
    assert client.ask("PATCH", target, body, kind).code == 200
    assert client.ask("PATCH", f"{NODES}/a", {}, kind, token="t").code == 200
    asked = review(
        "SelfSubjectAccessReview", resourceAttributes={"verb": "patch", "resource": "nodes", "subresource": "status"}
    )
    path = f"{AUTHZ}/selfsubjectaccessreviews"
    assert client.post(path, asked, token="t").body["status"] == {"allowed": False}
    assert client.post(path, asked).body["status"] == {"allowed": True}
    server.access.allow_again(rule)
    assert client.ask("PATCH", target, body, kind, token="t").code == 200
    server.access.revoke("t")
    assert client.ask("PATCH", target, body, kind, token="t").code == 401


def test_token_reviews(client: Client, server: EmbeddedAPIServer) -> None:
    path = f"{AUTHN}/tokenreviews"
    server.access.add_user("t", "jane", uid="7", groups=("dev",))
    status = client.post(path, review("TokenReview", token="t")).body["status"]
    assert status["authenticated"] is True
    assert status["user"] == {"username": "jane", "uid": "7", "groups": ["dev", "system:authenticated"]}
    unknown = client.post(path, review("TokenReview", token="x")).body["status"]
    assert "authenticated" not in unknown
    assert unknown["error"]
    elsewhere = client.post(path, review("TokenReview", token="t", audiences=["other"])).body["status"]
    assert "authenticated" not in elsewhere
    assert client.post(path, review("TokenReview")).code == 400


def test_a_denied_path_shows_in_subject_access_reviews(client: Client, server: EmbeddedAPIServer) -> None:
    def allowed() -> bool:
        asked = review("SubjectAccessReview", user="admin", nonResourceAttributes={"verb": "get", "path": "/metrics"})
        return bool(client.post(f"{AUTHZ}/subjectaccessreviews", asked).body["status"]["allowed"])

    assert allowed()
    server.access.deny(user="admin", path="/metrics")
    assert not allowed()


def test_discovery_lists_what_is_served(client: Client) -> None:
    core = client.get("/api/v1").body["resources"]
    assert {"nodes", "nodes/status", "services", "events", "serviceaccounts/token"} <= {entry["name"] for entry in core}
    pods = next(entry for entry in core if entry["name"] == "pods")
    assert pods["verbs"] == ["get", "list"]
    groups = {group["name"] for group in client.get("/apis").body["groups"]}
    assert {"coordination.k8s.io", "authentication.k8s.io", "authorization.k8s.io"} <= groups
    for group in groups:
        version = client.get(f"/apis/{group}").body["preferredVersion"]["groupVersion"]
        assert client.get(f"/apis/{version}").code == 200
    assert client.get("/version").body["minor"] == "36"
    assert client.get("/readyz").body == b"ok"
