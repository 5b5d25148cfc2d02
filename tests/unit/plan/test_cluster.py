"""The API server's stand-in: answers as the server's, rows, and what later reads show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import CoreV1Api

from controllers.plan.clients import DryRunError, PlannedClients
from controllers.plan.cluster import DryRunInterceptor
from controllers.plan.requests import Changes, Place, Request, place_of
from controllers.plan.rows import Kind, Plan
from controllers.runtime.api import MERGE_PATCH, STRATEGIC_PATCH, ClientBuilder, ClientSettings, Forbidden, NotFound
from controllers.runtime.api.credentials import Fixed
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.wire import Endpoint
from tests.unit.runtime.loopback import Server as Loopback

NODES = "/api/v1/nodes"
N1 = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}, "spec": {}}


class Server:
    """The objects that there are, by path; counts reads."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {f"{NODES}/n1": N1}
        self.reads: list[str] = []

    def read(self, path: str) -> Any:
        self.reads.append(path)
        if path not in self.objects:
            raise NotFound(path, status=404)
        return json.loads(json.dumps(self.objects[path]))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def plan() -> Plan:
    return Plan()


@pytest.fixture
def stand_in(server: Server, plan: Plan) -> DryRunInterceptor:
    return DryRunInterceptor(
        plan, {"node-controller": ("nodes",)}, server.read, evidence=lambda name: f"{name} is gone"
    )


def ask(
    stand_in: DryRunInterceptor, method: str, path: str, body: Any = None, kind: str = MERGE_PATCH
) -> tuple[int, Any]:
    request = Request(client="node-controller", method=method, path=path, content_type=kind, body=body)
    answer = stand_in.answer(request)
    assert answer is not None
    return answer


def rows(plan: Plan, kind: str = Kind.CHANGE) -> list[tuple[str, str]]:
    return [(str(row.subject), row.action) for row in plan.rows() if row.kind == kind]


def label(value: str | None, **metadata: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"tier": value}, **metadata}}


def test_a_patch_is_answered_with_the_next_version_and_shows_in_reads(
    stand_in: DryRunInterceptor, server: Server, plan: Plan
) -> None:
    status, written = ask(stand_in, "PATCH", f"{NODES}/n1", label("gold", uid="u1", resourceVersion="7"))
    assert (status, written["metadata"]["resourceVersion"], written["metadata"]["labels"]) == (
        200,
        "8",
        {"tier": "gold"},
    )
    assert ask(stand_in, "GET", f"{NODES}/n1") == (200, written)
    listed = json.dumps({"items": [N1, {**N1, "metadata": {"name": "n2"}}]}).encode()
    shown = json.loads(stand_in.shown(NODES, listed))["items"]
    assert [item["metadata"].get("labels") for item in shown] == [{"tier": "gold"}, None]
    assert server.reads == [f"{NODES}/n1"]
    assert [(row.controller, row.action) for row in plan.rows()] == [("nodes", "label")]
    assert stand_in.original("/api/v1", "nodes", "n1") == N1


def test_a_patch_that_changes_nothing_is_no_row(stand_in: DryRunInterceptor, plan: Plan) -> None:
    assert ask(stand_in, "PATCH", f"{NODES}/n1", {"metadata": {"uid": "u1"}})[1]["metadata"]["resourceVersion"] == "7"
    assert plan.rows() == []


def test_preconditions_hold_as_on_the_server(stand_in: DryRunInterceptor, plan: Plan) -> None:
    status, answer = ask(stand_in, "PATCH", f"{NODES}/n1", label("x", resourceVersion="6"))
    assert (status, answer["reason"]) == (409, "Conflict")
    status, answer = ask(stand_in, "PATCH", f"{NODES}/n1", label("x", uid="other"))
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "metadata.uid")
    status, answer = ask(stand_in, "PATCH", f"{NODES}/n9", label("x"))
    assert (status, answer["reason"], answer["details"]["name"]) == (404, "NotFound", "n9")
    assert ask(stand_in, "DELETE", f"{NODES}/n1", {"preconditions": {"resourceVersion": "6"}})[0] == 409
    assert plan.rows() == []


def test_a_deleted_object_is_gone_with_its_evidence(stand_in: DryRunInterceptor, plan: Plan) -> None:
    assert ask(stand_in, "DELETE", f"{NODES}/n1", {"preconditions": {"uid": "u1"}})[0] == 200
    assert ask(stand_in, "GET", f"{NODES}/n1")[0] == 404
    assert ask(stand_in, "PATCH", f"{NODES}/n1", label("x"))[0] == 404
    assert json.loads(stand_in.shown(NODES, json.dumps({"items": [N1]}).encode()))["items"] == []
    assert [(row.action, row.note) for row in plan.rows()] == [("delete", "n1 is gone")]


def test_a_deletion_waits_for_finalizers_and_ends_with_the_last(
    stand_in: DryRunInterceptor, server: Server, plan: Plan
) -> None:
    path = "/api/v1/namespaces/default/services/web"
    metadata = {"name": "web", "namespace": "default", "resourceVersion": "1", "finalizers": ["ours"]}
    server.objects[path] = {"kind": "Service", "metadata": metadata}
    assert ask(stand_in, "DELETE", path)[0] == 200
    assert ask(stand_in, "GET", path)[1]["metadata"]["deletionTimestamp"]
    off = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["ours"]}}
    assert ask(stand_in, "PATCH", f"{path}/status", off, STRATEGIC_PATCH)[0] == 200
    assert ask(stand_in, "GET", path)[0] == 404
    assert rows(plan) == [("service/default/web", "delete"), ("service/default/web", "remove finalizer")]


def test_the_status_and_the_rest_are_written_apart(stand_in: DryRunInterceptor) -> None:
    both = {"spec": {"unschedulable": True}, "status": {"phase": "x"}}
    assert "status" not in ask(stand_in, "PATCH", f"{NODES}/n1", both)[1]
    other = {"spec": {"unschedulable": None}, "status": {"phase": "y"}}
    _, written = ask(stand_in, "PATCH", f"{NODES}/n1/status", other)
    assert (written["spec"], written["status"]) == ({"unschedulable": True}, {"phase": "y"})
    _, written = ask(stand_in, "PATCH", f"{NODES}/n1/approval", {"spec": None, "status": {"phase": "z"}})
    assert (written["spec"], written["status"]) == ({"unschedulable": True}, {"phase": "z"})


def test_creations(stand_in: DryRunInterceptor, plan: Plan) -> None:
    maps = "/api/v1/namespaces/kube-system/configmaps"
    status, made = ask(stand_in, "POST", maps, {"kind": "ConfigMap", "metadata": {"name": "acme"}, "data": {"a": "b"}})
    assert (status, made["metadata"]["namespace"]) == (201, "kube-system")
    assert ask(stand_in, "POST", maps, {"metadata": {"name": "acme"}})[1]["reason"] == "AlreadyExists"
    assert ask(stand_in, "GET", f"{maps}/acme") == (200, made)
    assert rows(plan) == [("configmap/kube-system/acme", "create")]


def test_events_are_answered_and_the_warnings_shown(stand_in: DryRunInterceptor, plan: Plan) -> None:
    about = {"kind": "Node", "name": "n1"}
    for kind, reason in (("Normal", "Synced"), ("Warning", "Oops")):
        body = {"involvedObject": about, "type": kind, "reason": reason, "message": "m"}
        assert ask(stand_in, "POST", "/api/v1/namespaces/default/events", body)[0] == 201
    assert rows(plan, Kind.WARNING) == [("node/n1", "Oops")]
    assert rows(plan) == []


def test_what_cannot_be_answered_is_refused_and_unknown(stand_in: DryRunInterceptor, plan: Plan) -> None:
    token = "/api/v1/namespaces/kube-system/serviceaccounts/acme/token"
    assert ask(stand_in, "POST", token, {})[0] == 403
    assert ask(stand_in, "DELETE", NODES)[0] == 403
    assert ask(stand_in, "PATCH", f"{NODES}/n1", {"spec": {}}, "application/apply-patch+yaml")[0] == 422
    assert ask(stand_in, "POST", "/metrics")[0] == 403
    assert [action for _, action in rows(plan, Kind.UNKNOWN)] == ["DELETE", "PATCH", "POST token"]

    def forbidden(path: str) -> Any:
        raise Forbidden("no right", status=403)

    refused = DryRunInterceptor(plan, {}, forbidden)
    assert ask(refused, "PATCH", f"{NODES}/n1", label("x"))[0] == 403


def test_a_provider_s_write_below_a_base_path_is_answered_and_in_the_plan(plan: Plan) -> None:
    with Loopback(lambda peer: peer.answer(200, json.dumps(N1).encode()) if peer.request() else None) as there:
        access = Access(Endpoint.parse(f"{there.url}/k8s/clusters/c1"), Fixed())
        with ClientBuilder(access) as clients:
            cluster = DryRunInterceptor(plan, {}, clients.rest("x", guarded=False).get)
            planned = PlannedClients(clients, cluster)
            client = planned.client("acme")
            assert planned.client("acme") is client
            CoreV1Api(client).patch_node("n1", label("web"))
            with pytest.raises(DryRunError, match=r"acme: .* Fix in the provider: use ClientBuilder.client\(\)"):
                planned.config("acme")
        assert [one.method for one in there.requests] == ["GET"]
    assert rows(plan) == [("node/n1", "label")]


@pytest.mark.row("M8")
def test_no_client_asks_for_the_token_of_an_account(plan: Plan) -> None:
    with Loopback(lambda peer: peer.answer(200, json.dumps(N1).encode()) if peer.request() else None) as there:
        settings = ClientSettings(service_accounts="kube-system")
        with ClientBuilder(Access(Endpoint.parse(there.url), Fixed("own")), settings) as clients:
            planned = PlannedClients(clients, DryRunInterceptor(plan, {}, clients.rest("x", guarded=False).get))
            planned.rest("node-controller").get(f"{NODES}/n1")
            CoreV1Api(planned.client("node-controller")).read_node("n1")
        assert [one.method for one in there.requests] == ["GET", "GET"]
    assert plan.rows() == []


def test_a_watch_shows_what_would_be_written_and_then_stays_alive_by_bookmarks(
    stand_in: DryRunInterceptor, server: Server
) -> None:
    watch = Changes("100", bookmarks=0.001)
    stand_in.tell(Place("/api/v1", "nodes", "", "", ""), watch)
    stand_in.tell(Place("/api/v1", "services", "", "", ""), Changes("500", 1.0))
    ask(stand_in, "PATCH", f"{NODES}/n1", label("gold"))
    ask(stand_in, "POST", NODES, {"kind": "Node", "metadata": {"name": "n2"}})
    ask(stand_in, "DELETE", f"{NODES}/n1")
    events, version = [], "100"
    while (event := json.loads(next(watch)))["type"] != "BOOKMARK":
        assert stand_in.busy(), "what is taken is not in the cache until the next is asked for"
        events.append((event["type"], event["object"]["metadata"]["name"]))
        version = event["object"]["metadata"]["resourceVersion"]
    assert events == [("MODIFIED", "n1"), ("ADDED", "n2"), ("DELETED", "n1")]
    assert event["object"]["metadata"]["resourceVersion"] == version
    assert int(version) > 500, "later than all that the server has shown"
    assert not stand_in.busy()
    listed = json.loads(stand_in.shown(NODES, json.dumps({"metadata": {}, "items": [N1]}).encode()))
    assert listed == {"metadata": {"resourceVersion": version}, "items": []}
    watch.close()
    assert list(watch) == []


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", True),
        ("/apis/authentication.k8s.io/v1/tokenreviews", True),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x", False),
        ("/api/v1/nodes", False),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", False),
    ],
)
def test_only_questions_leave(stand_in: DryRunInterceptor, path: str, passes: bool) -> None:
    bodies: tuple[object, ...] = ({}, b"{}", b"no JSON", "", None)
    for body in bodies:
        request = Request(client="x", method="POST", path=path, content_type="", body=body)
        assert (stand_in.answer(request) is None) is passes


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/api/v1/nodes", Place("/api/v1", "nodes", "", "", "")),
        ("/api/v1/nodes/n1/status", Place("/api/v1", "nodes", "", "n1", "status")),
        ("/api/v1/namespaces/a/services/b%2Fc", Place("/api/v1", "services", "a", "b/c", "")),
        ("/api/v1/namespaces/a", Place("/api/v1", "namespaces", "", "a", "")),
        ("/api/v1/namespaces/a/finalize", Place("/api/v1", "namespaces", "", "a", "finalize")),
        ("/apis/g.io/v1/namespaces/a/things", Place("/apis/g.io/v1", "things", "a", "", "")),
        ("/readyz", None),
        ("/api/v1", None),
    ],
)
def test_paths(path: str, place: Place | None) -> None:
    assert place_of(path) == place
