"""Admission webhooks of the embedded server where it stands alone: threads, Services, what it cannot. That it answers
and asks as the real server does is compared by the parity table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer, StatusError
from cloudprovider.testing.apiserver.decoding import JSON_PATCH
from tests.support.hooks import Hooks, add, patch
from tests.unit.apiserver.conftest import Client

JSON = dict[str, Any]
ALLOWED: JSON = {"allowed": True}


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    with Hooks(tmp_path_factory.mktemp("hooks")).serving() as serving:
        yield serving


@pytest.fixture
def server() -> EmbeddedAPIServer:
    return EmbeddedAPIServer()


def configuration(kind: str, resource: str, client: JSON, **more: Any) -> JSON:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}
    hook = {
        "name": "a.example.org", "clientConfig": client, "rules": [rule],
        "sideEffects": "None", "admissionReviewVersions": ["v1"], **more,
    }  # fmt: skip
    return {"kind": f"{kind}WebhookConfiguration", "metadata": {"name": "test"}, "webhooks": [hook]}


def client(hooks: Hooks, path: str) -> JSON:
    return {"url": hooks.url + path, "caBundle": hooks.ca}


def service(name: str, **spec: Any) -> JSON:
    return {"kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_a_webhook_may_itself_write_while_it_is_asked(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    def answer(review: JSON) -> JSON:
        server.create({"kind": "ConfigMap", "metadata": {"name": "from-the-webhook"}})
        return ALLOWED

    hooks.answer["/writes"] = answer
    server.create(configuration("Validating", "nodes", client(hooks, "/writes")))
    server.create({"kind": "Node", "metadata": {"name": "n"}})
    assert server.get("configmaps", "from-the-webhook")


def test_a_write_that_is_overtaken_starts_again_on_the_new_state(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    server.create({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"count": "0"}})
    seen: list[str] = []

    def answer(review: JSON) -> JSON:
        old = review["request"]["oldObject"]["data"]["count"]
        seen.append(old)
        if old == "0":
            server.put_raw("configmaps", {**server.get("configmaps", "c"), "data": {"count": "1"}})
        return {"allowed": True, **patch(add("/data/after", old))}

    hooks.answer["/slow-one"] = answer
    server.create(configuration("Mutating", "configmaps", client(hooks, "/slow-one")))
    changed = server.patch("configmaps", "c", {"data": {"mine": "x"}})
    assert changed["data"] == {"count": "1", "mine": "x", "after": "1"}
    assert seen == ["0", "1"]


def test_an_object_deleted_meanwhile_is_not_found(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    server.create({"kind": "ConfigMap", "metadata": {"name": "c"}})

    def answer(review: JSON) -> JSON:
        if review["request"]["operation"] == "UPDATE":
            server.delete("configmaps", "c")
        return ALLOWED

    hooks.answer["/deletes"] = answer
    server.create(configuration("Validating", "configmaps", client(hooks, "/deletes")))
    with pytest.raises(StatusError) as caught:
        server.patch("configmaps", "c", {"data": {"a": "b"}})
    assert caught.value.code == 404


def test_ports_are_held_while_webhooks_are_asked_and_free_after_a_refusal(
    server: EmbeddedAPIServer, hooks: Hooks
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def answer(review: JSON) -> JSON:
        if review["request"]["name"] != "first":
            return ALLOWED
        asked.set()
        assert go_on.wait(20)
        return {"allowed": False}

    hooks.answer["/holds"] = answer
    server.create(configuration("Validating", "services", client(hooks, "/holds")))
    failed: list[StatusError] = []

    def create() -> None:
        try:
            server.create(service("first", type="NodePort", ports=[{"port": 80, "nodePort": 30500}]))
        except StatusError as error:
            failed.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    assert asked.wait(20)
    with pytest.raises(StatusError) as caught:
        server.create(service("second", type="NodePort", ports=[{"port": 80, "nodePort": 30500}]))
    assert "already allocated" in caught.value.message
    go_on.set()
    thread.join()
    assert [error.code for error in failed] == [400]
    assert server.create(service("third", type="NodePort", ports=[{"port": 80, "nodePort": 30500}]))


def test_a_refused_update_leaves_the_service_its_ports(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    server.create(service("s", type="NodePort", ports=[{"port": 80, "nodePort": 30600}]))
    server.create(configuration("Validating", "services", client(hooks, "/deny-bare")))
    move = [{"op": "replace", "path": "/spec/ports/0/nodePort", "value": 30601}]
    with pytest.raises(StatusError):
        server.patch("services", "s", move, content_type=JSON_PATCH)
    server.delete("validatingwebhookconfigurations", "test")
    with pytest.raises(StatusError) as caught:
        server.create(service("t", type="NodePort", ports=[{"port": 80, "nodePort": 30600}]))
    assert "already allocated" in caught.value.message
    assert server.create(service("u", type="NodePort", ports=[{"port": 80, "nodePort": 30601}]))


@pytest.mark.parametrize("name", ["hook", "another"])
def test_a_service_is_reached_at_the_address_that_stands_for_it(hooks: Hooks, name: str) -> None:
    server = EmbeddedAPIServer(webhook_services={f"kube-system/{name}:443": hooks.url.removeprefix("https://")})
    where = {"namespace": "kube-system", "name": name, "path": "/deny-bare"}
    server.create(configuration("Mutating", "nodes", {"service": where, "caBundle": hooks.ca}))
    with pytest.raises(StatusError) as caught:
        server.create({"kind": "Node", "metadata": {"name": "n"}})
    if name == "hook":
        assert caught.value.code == 400
    else:  # the certificate is for another name
        assert caught.value.code == 500
        assert "another.kube-system.svc" in caught.value.message


def test_a_service_with_an_external_name_is_reached_there(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    outside = {"type": "ExternalName", "externalName": "localhost"}
    server.create({**service("hook"), "metadata": {"name": "hook", "namespace": "kube-system"}, "spec": outside})
    where = {"namespace": "kube-system", "name": "hook", "port": int(hooks.url.rpartition(":")[2])}
    server.create(
        configuration("Mutating", "nodes", {"service": {**where, "path": "/deny-bare"}, "caBundle": hooks.ca})
    )
    with pytest.raises(StatusError) as caught:
        server.create({"kind": "Node", "metadata": {"name": "n"}})
    assert "denied the request" in caught.value.message


def test_a_service_without_an_address_is_told_how_to_get_one(server: EmbeddedAPIServer) -> None:
    where = {"namespace": "kube-system", "name": "hook", "port": 8443}
    server.create(configuration("Mutating", "nodes", {"service": where}))
    with pytest.raises(StatusError) as caught:
        server.create({"kind": "Node", "metadata": {"name": "n"}})
    assert caught.value.code == 500
    assert "kube-system/hook:8443" in caught.value.message
    assert "webhook_services" in caught.value.message


def test_match_conditions_are_refused_as_it_has_no_cel(server: EmbeddedAPIServer) -> None:
    conditions = [{"name": "c", "expression": "true"}]
    with pytest.raises(StatusError) as caught:
        server.create(configuration("Mutating", "nodes", {"url": "https://x/"}, matchConditions=conditions))
    assert caught.value.code == 501
    assert "CEL" in caught.value.message


def test_a_ca_bundle_that_is_none_fails_the_call(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    server.create(configuration("Mutating", "nodes", {**client(hooks, "/allow"), "caBundle": "YWJj"}))
    with pytest.raises(StatusError) as caught:
        server.create({"kind": "Node", "metadata": {"name": "n"}})
    assert "unable to parse bytes as PEM block" in caught.value.message


def test_the_webhook_configurations_themselves_are_never_submitted(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    server.create(configuration("Validating", "*", client(hooks, "/deny-bare")))
    server.delete("validatingwebhookconfigurations", "test")
    with pytest.raises(KeyError):
        server.get("validatingwebhookconfigurations", "test")


def test_equivalent_events_of_the_other_group_are_refused_rather_than_passed_over(
    server: EmbeddedAPIServer, hooks: Hooks
) -> None:
    made = configuration("Validating", "events", client(hooks, "/deny-bare"))
    made["webhooks"][0]["rules"][0]["apiGroups"] = ["events.k8s.io"]
    server.create(made)
    event = {"kind": "Event", "metadata": {"name": "e"}, "involvedObject": {}}
    with pytest.raises(StatusError) as caught:
        server.create(event)
    assert caught.value.code == 501
    exact = [{"op": "replace", "path": "/webhooks/0/matchPolicy", "value": "Exact"}]
    server.patch("validatingwebhookconfigurations", "test", exact, content_type=JSON_PATCH)
    assert server.create(event)


def test_a_dry_run_is_not_sent_to_a_webhook_with_side_effects(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    made = server.create(configuration("Mutating", "nodes", client(hooks, "/allow")))
    old = {**made, "webhooks": [{**made["webhooks"][0], "sideEffects": "Some"}]}  # as v1beta1 let it be once
    server.put_raw("mutatingwebhookconfigurations", old)
    hooks.take()
    answer = Client(server).post("/api/v1/nodes?dryRun=All", {"metadata": {"name": "n"}})
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.body["message"] == 'admission webhook "a.example.org" does not support dry run'
    assert hooks.take() == []
    assert Client(server).post("/api/v1/nodes", {"metadata": {"name": "n"}}).code == 201
    assert len(hooks.take()) == 1


def test_the_time_limit_is_for_the_whole_answer(server: EmbeddedAPIServer, hooks: Hooks) -> None:
    server.create(configuration("Mutating", "nodes", client(hooks, "/drip"), timeoutSeconds=1))
    began = time.monotonic()
    with pytest.raises(StatusError, match="context deadline exceeded"):
        server.create({"kind": "Node", "metadata": {"name": "n"}})
    assert time.monotonic() - began < 10  # the answer would take a minute
