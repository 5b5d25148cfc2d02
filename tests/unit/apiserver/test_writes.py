"""Writes over the API that the parity table (tests/integration/parity) does not send."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer
from tests.unit.apiserver.conftest import JSON, Client, node

NODES = "/api/v1/nodes"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
READY = {"type": "Ready", "status": "True"}


@pytest.fixture
def made(client: Client) -> JSON:
    reply = client.post(NODES, node("a", status={"conditions": [READY]}))
    assert reply.code == 201
    body: JSON = reply.body
    return body


def test_an_unknown_fields_name_and_half_a_surrogate_pair_are_read_as_go_does(client: Client) -> None:
    texts = {"half": "a\ud800b\udc00", "whole": "\U0001f600"}
    reply = client.post(NODES, {"metadata": {"name": "odd", "annotations": texts}, 'a"b\r\nX-Forged: 1': 1})
    assert reply.code == 201
    assert reply.headers["Warning"] == r'299 - "unknown field \"a\\\"b\\r\\nX-Forged: 1\""'
    assert reply.body["metadata"]["annotations"] == {"half": "a\ufffdb\ufffd", "whole": "\U0001f600"}


def test_a_service_accounts_token_is_good_until_the_account_is_gone(client: Client, server: EmbeddedAPIServer) -> None:
    server.create({"kind": "ServiceAccount", "metadata": {"name": "x"}})
    answer = client.post(f"{ACCOUNTS}/x/token", {"spec": {"expirationSeconds": 600}})
    token = answer.body["status"]["token"]
    assert client.get(NODES, token=token).code == 200
    assert client.post(f"{ACCOUNTS}/x/token", {"spec": {"expirationSeconds": 599}}).code == 422
    other = client.post(f"{ACCOUNTS}/x/token", {"spec": {"audiences": ["other"]}}).body["status"]["token"]
    assert client.get(NODES, token=other).code == 401
    server.delete("serviceaccounts", "x")
    assert client.get(NODES, token=token).code == 401


@pytest.mark.parametrize(
    ("method", "target", "body", "content_type", "code"),
    [
        ("PATCH", f"{NODES}/a", {}, "application/apply-patch+yaml", 501),
        ("POST", NODES, b"k8s\0", "application/vnd.kubernetes.protobuf", 415),
        ("POST", f"{NODES}?dryRun=All", {}, "application/json", 501),
        ("DELETE", f"{NODES}/a", {"dryRun": ["All"]}, "application/json", 501),
        ("DELETE", NODES, None, "application/json", 501),
        ("GET", "/apis/events.k8s.io/v1/events", None, "application/json", 501),
        ("POST", "/api/v1/pods", {}, "application/json", 501),
        ("GET", "/api/v1/podtemplates", None, "application/json", 501),
        ("GET", "/apis/apps/v1/deployments", None, "application/json", 501),
        ("GET", "/openapi/v3", None, "application/json", 501),
        ("GET", "/", None, "application/json", 501),
        ("GET", "/api/v1/pods?watch=1", None, "application/json", 501),
        ("PATCH", f"{NODES}/a", {}, "application/json", 415),
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
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 406),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200),
        ("application/vnd.kubernetes.protobuf", 406),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", 501),
        ("text/html", 406),
        ("", 200),
    ],
)
def test_the_first_form_that_is_supported_is_given(client: Client, accept: str, code: int) -> None:
    assert client.get(NODES, accept=accept).code == code


def test_patches_from_many_threads_are_all_applied(client: Client, server: EmbeddedAPIServer, made: JSON) -> None:
    def work(worker: int) -> None:
        for at in range(25):
            assert client.merge(f"{NODES}/a", {"metadata": {"annotations": {f"{worker}-{at}": "x"}}}).code == 200

    version = server.version
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(server.get("nodes", "a")["metadata"]["annotations"]) == 200
    assert server.version == version + 200


def test_stored_objects_are_never_changed_in_place(client: Client, server: EmbeddedAPIServer, made: JSON) -> None:
    held = server.get("nodes", "a")
    before = copy.deepcopy(held)
    client.merge(f"{NODES}/a", {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": None}})
    client.strategic(f"{NODES}/a/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    client.ask("PATCH", f"{NODES}/a", [{"op": "remove", "path": "/metadata/labels/a"}], "application/json-patch+json")
    client.ask("DELETE", f"{NODES}/a")
    assert held == before
