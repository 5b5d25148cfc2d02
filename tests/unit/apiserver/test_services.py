"""Services: addresses and ports are given out, kept, and taken back."""

from __future__ import annotations

from typing import Any

import pytest

from cloudprovider.testing.apiserver import EmbeddedAPIServer, StatusError
from cloudprovider.testing.apiserver.allocation import AddressPool, PortPool
from tests.unit.apiserver.conftest import JSON, Client

SERVICES = "/api/v1/namespaces/default/services"


def service(name: str, **spec: Any) -> JSON:
    return {"kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"name": "p", "port": 80}], **spec}}


def spec_of(client: Client, name: str) -> JSON:
    spec: JSON = client.get(f"{SERVICES}/{name}").body["spec"]
    return spec


def test_a_load_balancer_gets_everything(client: Client) -> None:
    spec = client.post(SERVICES, service("a", type="LoadBalancer", externalTrafficPolicy="Local")).body["spec"]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert (spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("None", "Cluster")
    assert spec["allocateLoadBalancerNodePorts"] is True
    (port,) = spec["ports"]
    assert (port["protocol"], port["targetPort"]) == ("TCP", 80)
    assert 30000 <= port["nodePort"] <= 32767
    assert 30000 <= spec["healthCheckNodePort"] <= 32767
    assert spec["healthCheckNodePort"] != port["nodePort"]


def test_nothing_is_given_out_twice(client: Client) -> None:
    specs = [client.post(SERVICES, service(f"s{at}", type="NodePort")).body["spec"] for at in range(50)]
    assert len({spec["clusterIP"] for spec in specs}) == 50
    assert len({spec["ports"][0]["nodePort"] for spec in specs}) == 50


def test_what_was_held_is_free_again_after_deletion_and_after_a_refused_write(client: Client) -> None:
    wish = service("a", type="NodePort", ports=[{"port": 80, "nodePort": 30123}], clusterIP="10.96.7.7")
    assert client.post(SERVICES, {**wish, "spec": {**wish["spec"], "sessionAffinity": "Odd"}}).code == 422
    assert client.post(SERVICES, wish).code == 201
    other = {**wish, "metadata": {"name": "b"}}
    assert client.post(SERVICES, other).code == 422
    client.ask("DELETE", f"{SERVICES}/a")
    assert client.post(SERVICES, other).code == 201


def test_type_changes_drop_and_give_back_ports(client: Client) -> None:
    client.post(SERVICES, service("a", type="LoadBalancer", externalTrafficPolicy="Local"))
    before = spec_of(client, "a")
    client.merge(f"{SERVICES}/a/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
    changed = client.merge(f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}}).body
    assert changed["status"] == {"loadBalancer": {}}
    assert changed["spec"]["clusterIP"] == before["clusterIP"]
    gone = ("healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts")
    assert not [field for field in gone if field in changed["spec"]]
    assert "nodePort" not in changed["spec"]["ports"][0]
    taken = service("b", type="NodePort", ports=[{"port": 80, "nodePort": before["ports"][0]["nodePort"]}])
    assert client.post(SERVICES, taken).code == 201


def test_a_put_that_leaves_out_what_was_allocated_keeps_it(client: Client) -> None:
    client.post(SERVICES, service("a", type="NodePort"))
    before = spec_of(client, "a")
    assert client.ask("PUT", f"{SERVICES}/a", service("a", type="NodePort")).body["spec"] == before


def test_the_balancer_class_changes_only_by_way_of_another_type(client: Client) -> None:
    client.post(SERVICES, service("a", type="LoadBalancer"))
    assert client.merge(f"{SERVICES}/a", {"spec": {"loadBalancerClass": "a.b/c"}}).code == 422
    assert client.merge(f"{SERVICES}/a", {"spec": {"type": "NodePort"}}).code == 200
    assert client.merge(f"{SERVICES}/a", {"spec": {"type": "LoadBalancer", "loadBalancerClass": "a.b/c"}}).code == 200


def test_a_status_patch_writes_status_and_metadata_and_ignores_the_spec(
    client: Client, server: EmbeddedAPIServer
) -> None:
    client.post(SERVICES, service("a", type="LoadBalancer"))
    version = server.version
    body = {
        "metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}, "finalizers": ["x.y/z"]},
        "spec": {"sessionAffinity": "ClientIP"},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    }
    done = client.merge(f"{SERVICES}/a/status", body).body
    assert server.version == version + 1
    assert done["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4", "ipMode": "VIP"}]
    assert done["spec"]["sessionAffinity"] == "None"
    assert done["metadata"]["finalizers"] == ["x.y/z"]
    assert (done["metadata"]["annotations"], done["metadata"]["labels"]) == ({"a": "b"}, {"c": "d"})


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "Odd"},
        {"ports": []},
        {"type": "LoadBalancer", "clusterIP": "None"},
        {"loadBalancerClass": "a/b"},
        {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]},
        {"externalTrafficPolicy": "Local"},
        {"clusterIP": "1.2.3.4"},
        {"clusterIP": "x"},
        {"ipFamilyPolicy": "RequireDualStack"},
        {"type": "NodePort", "ports": [{"port": 80, "nodePort": 29999}]},
        {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]},
    ],
)
def test_what_is_refused_leaves_no_trace(client: Client, server: EmbeddedAPIServer, spec: JSON) -> None:
    version = server.version
    reply = client.post(SERVICES, service("bad", **spec))
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert server.version == version


def test_a_small_pool_runs_dry_and_recovers() -> None:
    pool = AddressPool("10.0.0.0/29")
    given = []
    for _ in range(5):
        address = pool.free()
        pool.take(address)
        given.append(address)
    assert sorted(given) == [f"10.0.0.{at}" for at in range(2, 7)]
    with pytest.raises(StatusError) as caught:
        pool.free()
    assert caught.value.code == 500
    pool.release("10.0.0.4")
    assert pool.free() == "10.0.0.4"
    assert "does not match" in pool.problem("10.0.1.1")
    assert pool.problem("10.0.0.5") == "provided IP is already allocated"


def test_ports_wanted_in_the_same_write_are_not_given_out() -> None:
    pool = PortPool()
    first = pool.free(set())
    assert pool.free({first + 1}) == first + 2
