"""What Services hold, and kinds without rules. The rules of all kinds, and what they refuse: the
parity table has them, beside the real server's answers."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer, StatusError
from cloudprovider.testing.apiserver.kinds import services
from tests.unit.apiserver.conftest import JSON, Client

SERVICES = "/api/v1/namespaces/default/services"


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
