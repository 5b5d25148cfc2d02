"""The rules of Services, Nodes, Leases and Events in short; the parity table has them in full,
beside the real server's answers."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer, StatusError
from cloudprovider.testing.apiserver.kinds import services
from tests.unit.apiserver.conftest import JSON, Client, node

NODES = "/api/v1/nodes"
SERVICES = "/api/v1/namespaces/default/services"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
EVENTS = "/api/v1/namespaces/default/events"
INGRESS = "status.loadBalancer.ingress[0]"


def service(name: str, **spec: Any) -> JSON:
    return {"kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"name": "p", "port": 80}], **spec}}


def balancer(name: str, **spec: Any) -> JSON:
    return service(name, type="LoadBalancer", **spec)


def ingress(**point: Any) -> JSON:
    return {"status": {"loadBalancer": {"ingress": [point]}}}


def test_a_load_balancer_gets_and_gives_back_what_its_type_needs(client: Client) -> None:
    spec = client.post(SERVICES, balancer("a", externalTrafficPolicy="Local")).body["spec"]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    (port,) = spec["ports"]
    assert len({port["nodePort"], spec["healthCheckNodePort"]} & set(range(30000, 32768))) == 2
    done = client.merge(f"{SERVICES}/a/status", ingress(ip="1.2.3.4")).body
    assert done["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4", "ipMode": "VIP"}]
    assert client.ask("PUT", f"{SERVICES}/a", balancer("a", externalTrafficPolicy="Local")).body["spec"] == spec
    changed = client.merge(f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}}).body
    assert changed["status"] == {"loadBalancer": {}}
    gone = ("healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts")
    assert not [field for field in gone if field in changed["spec"]]
    assert "nodePort" not in changed["spec"]["ports"][0]
    taken = service("b", type="NodePort", ports=[{"port": 80, "nodePort": port["nodePort"]}])
    assert client.post(SERVICES, taken).code == 201
    named = {"spec": {"type": "ExternalName", "externalName": "a.b"}}
    left = client.merge(f"{SERVICES}/a", named).body["spec"]
    assert left.keys() == {"type", "externalName", "ports", "sessionAffinity"}
    assert client.merge(f"{SERVICES}/a", {"spec": {"type": "NodePort"}}).body["spec"]["clusterIP"]


def test_nothing_is_given_out_twice_until_the_range_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CIDR", "10.0.0.0/29")
    client = Client(EmbeddedAPIServer())  # the Service kubernetes has one of the six
    specs = [client.post(SERVICES, service(f"s{at}", type="NodePort")).body["spec"] for at in range(5)]
    assert len({spec["clusterIP"] for spec in specs}) == 5
    assert len({spec["ports"][0]["nodePort"] for spec in specs}) == 5
    full = client.post(SERVICES, service("full"))
    assert (full.code, "range is full" in full.body["message"]) == (500, True)
    client.ask("DELETE", f"{SERVICES}/s2")
    assert client.post(SERVICES, service("next")).body["spec"]["clusterIP"] == specs[2]["clusterIP"]


@pytest.mark.parametrize(
    ("path", "obj", "field"),
    [
        (SERVICES, service("x", type="Odd"), "spec.type"),
        (SERVICES, service("x", ports=[]), "spec.ports"),
        (NODES, node("Np_Bad"), "metadata.name"),
        (NODES, node("x", metadata={"labels": {"a": "b c"}}), "metadata.labels"),
        (NODES, node("x", metadata={"annotations": {"a b": ""}}), "metadata.annotations"),
        (NODES, node("x", metadata={"finalizers": ["plain"]}), "metadata.finalizers[0]"),
        (NODES, node("x", metadata={"ownerReferences": [{"name": "y"}]}), "metadata.ownerReferences.apiVersion"),
        (NODES, node("x", spec={"taints": [{"key": "a b", "effect": "NoExecute"}]}), "metadata.taints[0].key"),
        (NODES, node("x", spec={"taints": [{"key": "a"}]}), "metadata.taints[0].effect"),
        (NODES, node("x", spec={"podCIDR": "10.0.0.0"}), "spec.podCIDRs[0]"),
        (NODES, node("x", spec={"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}), "spec.podCIDRs"),
        (LEASES, {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds"),
        (LEASES, {"metadata": {"name": "x"}, "spec": {"leaseTransitions": -1}}, "spec.leaseTransitions"),
        (EVENTS, {"metadata": {"name": "x"}, "involvedObject": {"namespace": "y"}}, "involvedObject.namespace"),
        (
            EVENTS,
            {"metadata": {"name": "x"}, "involvedObject": {}, "eventTime": "2026-01-01T00:00:00.000000Z"},
            "reportingComponent",
        ),
    ],
)
def test_what_is_refused_leaves_no_trace(
    client: Client, server: EmbeddedAPIServer, path: str, obj: JSON, field: str
) -> None:
    version = server.version
    reply = client.post(path, obj)
    assert (reply.code, reply.reason, reply.body["details"]["causes"][0]["field"]) == (422, "Invalid", field)
    assert server.version == version


@pytest.mark.parametrize(
    ("subresource", "patch", "field"),
    [
        ("", {"spec": {"loadBalancerClass": "a.b/c"}}, "spec.loadBalancerClass"),
        ("/status", ingress(ip="x"), f"{INGRESS}.ip"),
        ("/status", ingress(ip="1.2.3.4", ipMode="Odd"), f"{INGRESS}.ipMode"),
        ("/status", ingress(hostname="a", ipMode="VIP"), f"{INGRESS}.ipMode"),
        ("/status", ingress(hostname="1.2.3.4"), f"{INGRESS}.hostname"),
    ],
)
def test_steps_that_a_load_balancer_refuses(client: Client, subresource: str, patch: JSON, field: str) -> None:
    client.post(SERVICES, balancer("a", externalTrafficPolicy="Local"))
    reply = client.merge(f"{SERVICES}/a{subresource}", patch)
    assert (reply.code, reply.body["details"]["causes"][0]["field"]) == (422, field)


def test_steps_that_a_node_refuses(client: Client, server: EmbeddedAPIServer) -> None:
    server.create(node("a", spec={"podCIDR": "10.0.0.0/24", "providerID": "fake://1"}))
    for spec in ({"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}, {"providerID": "fake://2"}):
        refused = client.merge(f"{NODES}/a", {"spec": spec})
        assert (refused.code, refused.body["details"]["causes"][0]["reason"]) == (422, "FieldValueForbidden")
    twice = {"status": {"addresses": [{"type": "InternalIP", "address": "1"}] * 2}}
    assert client.merge(f"{NODES}/a/status", twice).code == 422


def test_kinds_without_rules_are_stored_as_they_come(client: Client, server: EmbeddedAPIServer) -> None:
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {"any": [1]},
        "status": {"phase": "X"},
    }
    made = server.create(volume)
    assert (made["spec"], made["status"]) == (volume["spec"], volume["status"])
    patched = client.strategic("/api/v1/persistentvolumes/v", {"metadata": {"finalizers": ["a.b/c"]}, "status": {}})
    assert (patched.body["status"], patched.body["metadata"]["finalizers"]) == (volume["status"], ["a.b/c"])
    with pytest.raises(StatusError):
        server.create({"kind": "Secret", "metadata": {"name": "Not_A_Name"}})
    assert client.ask("DELETE", "/api/v1/namespaces/kube-public").code == 200
    assert client.post("/api/v1/namespaces/kube-public/secrets", {"metadata": {"name": "s"}}).code == 404
