"""The provider, over HTTP against the daemon: what a Service becomes, and what each failure is for
the host."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.models import (
    V1ClientIPConfig,
    V1Endpoint,
    V1EndpointSlice,
    V1LoadBalancerStatus,
    V1Node,
    V1Service,
    V1ServicePort,
    V1SessionAffinityConfig,
)
from localcloud.inputs import BalancerBody, MachineBody
from localcloud.kernel import KernelError
from localcloud.model import HealthCheck, LoadBalancer, Port
from localcloud.ratelimit import RateLimit
from localcloud_provider.client import Client, CloudError, NotFound
from localcloud_provider.config import Config
from localcloud_provider.loadbalancer import LocalLoadBalancers, NotOurs
from localcloud_provider.provider import LocalCloud, new_provider
from localcloud_provider.resources import Balancer, Machine, Machines
from locallab import TOKEN, Daemon, daemon
from pydantic import SecretStr

from cloudprovider import CloudConfig, CloudProviderError, InstanceNotFound, OwnedLoadBalancers, Route, Taint, Throttled
from cloudprovider.errors import InvalidConfig, InvalidService, LoadBalancerKept
from cloudprovider.testing.conformance import new_node, new_service

CLUSTER = "blue"
UID = "6e1f8a52-0000-4000-8000-000000000001"
NAME = "a6e1f8a5200004000800000000000000"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path) as one:
        yield one


@pytest.fixture
def provider(made: Daemon) -> LocalCloud:
    provider = new_provider(made.config)
    assert isinstance(provider, LocalCloud)
    return provider


def node(made: Daemon, name: str) -> V1Node:
    """A node with a machine."""
    machine = made.cloud.create_machine(MachineBody(name=name)).machine
    return new_node(name, f"localcloud://{machine.id}")


def service(**spec: Any) -> V1Service:
    """A Service of type LoadBalancer with these fields."""
    one = new_service("web", UID)
    assert one.spec is not None
    for name, value in spec.items():
        setattr(one.spec, name, value)
    return one


def ensure(provider: LocalCloud, one: V1Service, *nodes: V1Node) -> V1LoadBalancerStatus:
    return provider.load_balancer().ensure_load_balancer(CLUSTER, one, nodes)


def only(made: Daemon) -> LoadBalancer:
    (found,) = made.cloud.load_balancers()
    return found


def test_everything_that_a_service_asks_for(made: Daemon, provider: LocalCloud) -> None:
    one = service(
        ports=[
            V1ServicePort(name="dns", port=53, protocol="UDP", node_port=30053),
            V1ServicePort(name="dns-tcp", port=53, protocol="TCP", node_port=30153),
        ],
        session_affinity="ClientIP",
        session_affinity_config=V1SessionAffinityConfig(client_ip=V1ClientIPConfig(timeout_seconds=77)),
        load_balancer_source_ranges=["192.0.2.0/24", "2001:db8::/32"],
        external_traffic_policy="Local",
        health_check_node_port=32100,
        load_balancer_ip="198.51.100.9",
    )
    status = ensure(provider, one, node(made, "b"), node(made, "a"))
    assert only(made) == LoadBalancer(
        name=NAME,
        owner=CLUSTER,
        address="198.51.100.9",
        labels={"kubernetes.io/service": "default/web", "kubernetes.io/service-uid": UID},
        ports=(Port(protocol="UDP", port=53, target_port=30053), Port(protocol="TCP", port=53, target_port=30153)),
        targets=("m1", "m2"),
        source_ranges=("192.0.2.0/24",),
        affinity="clientIP",
        affinity_seconds=77,
        health=HealthCheck(port=32100, path="/healthz"),
    )
    assert [(point.ip, point.ip_mode) for point in status.ingress or ()] == [("198.51.100.9", "VIP")]


def test_a_machines_taints_and_annotations_come_to_its_node(made: Daemon, provider: LocalCloud) -> None:
    marks = {
        "taints": ["example.com/gpu=a100:NoSchedule", "example.com/old:NoExecute"],
        "annotations": {"example.com/rack": "7 b"},
        "labels": {"example.com/not": "on the node"},
    }
    made.cloud.create_machine(MachineBody.model_validate({"name": "a", **marks}))
    found = provider.instances_v2().instance_metadata(new_node("a", "localcloud://m1"))
    assert found.taints == (
        Taint("example.com/gpu", "NoSchedule", "a100"),
        Taint("example.com/old", "NoExecute"),
    )
    assert (found.annotations, found.additional_labels) == (marks["annotations"], {})
    assert provider.instances_v2().instance_metadata(node(made, "b")).taints == ()


class Endpoints:
    """A lister of EndpointSlices with ready endpoints on these nodes, as the host's Listers."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes
        self.endpoint_slices = self

    def get(self, key: str) -> V1EndpointSlice | None:
        return None

    def list(self) -> Sequence[V1EndpointSlice]:
        return self.of_service("default", "web")

    def of_service(self, namespace: str, name: str) -> Sequence[V1EndpointSlice]:
        assert (namespace, name) == ("default", "web")
        endpoints = [V1Endpoint(addresses=["10.1.0.1"], node_name=node) for node in self.nodes]
        return [V1EndpointSlice(address_type="IPv4", endpoints=endpoints)]


@pytest.mark.row("S33")
def test_targets_are_where_a_ready_endpoint_runs_if_asked_for(made: Daemon, provider: LocalCloud) -> None:
    nodes = node(made, "a"), node(made, "b")
    local, everywhere = service(external_traffic_policy="Local", health_check_node_port=32100), service()
    config = Config(url=made.server.url, token=SecretStr(TOKEN), local_targets=True)
    asked = LocalCloud(config)

    def targets(of: LocalCloud, one: V1Service) -> tuple[str, ...]:
        ensure(of, one, *nodes)
        ensured = only(made).targets
        of.load_balancer().update_load_balancer(CLUSTER, one, nodes)
        assert only(made).targets == ensured
        return ensured

    provider.set_informers(None)  # type: ignore[arg-type]  # it asks for nothing
    assert targets(provider, local) == targets(asked, local) == ("m1", "m2")
    assert (provider.load_balancer().depends_on(local), asked.load_balancer().depends_on(local)) == ("", "")
    slices = Endpoints("b", "gone")
    asked.set_informers(slices)  # type: ignore[arg-type]
    assert asked.load_balancer().depends_on(local) == "b gone"
    assert (targets(asked, local), targets(asked, everywhere)) == (("m2",), ("m1", "m2"))
    slices.nodes = ("a",)
    asked.load_balancer().update_load_balancer(CLUSTER, local, nodes)
    assert only(made).targets == ("m1",)
    slices.nodes = ()
    assert targets(asked, local) == ("m1", "m2")


def test_annotations_ask_for_a_proxy_and_an_address(made: Daemon, provider: LocalCloud) -> None:
    one = service(load_balancer_ip="198.51.100.9")
    assert one.metadata is not None
    one.metadata.annotations = {"localcloud.example/mode": "proxy", "localcloud.example/address": "198.51.100.8"}
    [point] = ensure(provider, one).ingress or []
    assert (point.ip, point.ip_mode, only(made).mode) == ("198.51.100.8", "Proxy", "proxy")
    one.metadata.annotations = {}
    assert one.spec is not None
    one.spec.load_balancer_ip = None
    [point] = ensure(provider, one).ingress or []
    assert (point.ip, point.ip_mode, only(made).mode) == ("198.51.100.8", "VIP", "nat")


def test_all_mistakes_of_a_service_are_told_at_once(made: Daemon, provider: LocalCloud) -> None:
    one = service(
        ports=[
            V1ServicePort(port=1, protocol="SCTP", node_port=30001),
            V1ServicePort(port=2, protocol="UDP", node_port=30002),
            V1ServicePort(port=3, protocol="TCP", node_port=None),
        ],
        load_balancer_source_ranges=["2001:db8::/32"],
        load_balancer_ip="somewhere",
        ip_families=["IPv6"],
    )
    assert one.metadata is not None
    one.metadata.annotations = {"localcloud.example/mode": "proxy"}
    with pytest.raises(InvalidService) as caught:
        ensure(provider, one)
    assert caught.value.problems == (
        "somewhere is asked for as the load balancer's address, and is no IPv4 address",
        "spec.ipFamilies has no IPv4, the only family of this cloud's load balancers",
        "port 1/SCTP: this cloud's load balancers know TCP and UDP",
        "port 2/UDP: a load balancer of mode proxy knows TCP alone",
        "port 3/TCP has no node port, which a load balancer of mode proxy needs: set allocateLoadBalancerNodePorts, "
        "or the mode direct",
        "no range of spec.loadBalancerSourceRanges is of IPv4, the family of the load balancer",
    )
    one.metadata.annotations = {"localcloud.example/mode": "turbo", "localcloud.example/speed": "9"}
    assert one.spec is not None
    one.spec.load_balancer_source_ranges = ["everyone"]
    with pytest.raises(InvalidService) as caught:
        ensure(provider, one)
    assert [word for word in ("mode", "speed", "everyone") if word in str(caught.value)] == [
        "mode",
        "speed",
        "everyone",
    ]
    assert made.cloud.load_balancers() == []


def test_an_address_that_cannot_be_had(made: Daemon, provider: LocalCloud) -> None:
    with pytest.raises(InvalidService, match="is not in the pool"):
        ensure(provider, service(load_balancer_ip="192.0.2.1"))
    port = {"protocol": "TCP", "port": 80, "targetPort": 30080}
    body = BalancerBody.model_validate({"owner": "x", "ports": [port], "requestedAddress": "198.51.100.5"})
    made.cloud.put_load_balancer("other", body)
    with pytest.raises(CloudProviderError, match="belongs to the load balancer other") as caught:
        ensure(provider, service(load_balancer_ip="198.51.100.5"))
    assert not isinstance(caught.value, InvalidService), "it may become free: tried again"


def test_an_update_writes_nothing_where_no_target_differs(
    made: Daemon, provider: LocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = node(made, "a"), node(made, "b")
    ensure(provider, service(), *nodes)
    monkeypatch.setattr(provider.client, "put", None)  # a call would fail
    provider.load_balancer().update_load_balancer(CLUSTER, service(), [*reversed(nodes)])


def test_what_the_kernel_refused_is_not_taken_for_done(made: Daemon, provider: LocalCloud) -> None:
    """The host asks again until it is."""
    one, target = service(), node(made, "a")
    route = Route(name="", target_node="a", destination_cidr="10.91.1.0/24")
    refused: list[Callable[[], object]] = [
        lambda: ensure(provider, one, target),
        lambda: provider.routes().create_route(CLUSTER, "hint", route),
    ]
    for call in refused:
        made.kernel.failure = KernelError("no such file")
        for _ in range(2):
            with pytest.raises(CloudProviderError, match="503"):
                call()
    assert list(provider.routes().list_routes(CLUSTER)) == [], "one that is listed is not created"
    made.kernel.failure = None
    for call in refused:
        call()
    assert [rule.destination for rule in made.kernel.routes] == ["10.91.1.0/24"]
    assert [rule.name for rule in made.kernel.load_balancers] == [NAME]


def test_a_change_by_hand_is_repaired(made: Daemon, provider: LocalCloud) -> None:
    one, target = service(), node(made, "a")
    ensure(provider, one, target)
    before = only(made)
    changes: list[dict[str, object]] = [
        {"draining": ["m1"]}, {"targets": []}, {"labels": {}}, {"mode": "proxy"}, {"weights": {"m1": 3}},
    ]  # fmt: skip
    for change in changes:
        port = {"protocol": "TCP", "port": 80, "targetPort": 30080}
        document = {"owner": CLUSTER, "ports": [port], "targets": ["m1"], "labels": dict(before.labels), **change}
        made.cloud.put_load_balancer(NAME, BalancerBody.model_validate(document))
        if "labels" in change:
            with pytest.raises(NotOurs, match="is left alone"):
                ensure(provider, one, target)
        else:
            ensure(provider, one, target)
            assert only(made) == before


def test_what_is_another_services_is_never_touched(made: Daemon, provider: LocalCloud) -> None:
    port = {"protocol": "TCP", "port": 1, "targetPort": 1}
    made.cloud.put_load_balancer(NAME, BalancerBody.model_validate({"owner": "green", "ports": [port]}))
    before, balancers = only(made), provider.load_balancer()
    calls: list[Callable[[], object]] = [
        lambda: ensure(provider, service()),
        lambda: balancers.update_load_balancer(CLUSTER, service(), []),
        lambda: balancers.ensure_load_balancer_deleted(CLUSTER, service()),
        lambda: balancers.get_load_balancer(CLUSTER, service()),
    ]
    for call in calls:
        with pytest.raises(NotOurs, match="its owner is 'green'"):
            call()
    assert only(made) == before


@pytest.mark.row("S31")
def test_an_address_alone_is_kept_and_adopted(made: Daemon, provider: LocalCloud) -> None:
    balancers, one = (
        provider.load_balancer(),
        new_service("web", UID, annotations={"localcloud.example/keep": "address"}),
    )
    status = ensure(provider, one, node(made, "a"))
    for _ in range(2):
        with pytest.raises(LoadBalancerKept, match=f"localcloud.example/adopt: {NAME}"):
            balancers.ensure_load_balancer_deleted(CLUSTER, one)
    assert only(made).targets == ()
    assert isinstance(balancers, OwnedLoadBalancers)
    [owned] = balancers.owned_load_balancers(CLUSTER)
    assert owned.kept
    taker = new_service("shop", "u-2", annotations={"localcloud.example/adopt": NAME})
    assert ensure(provider, taker, node(made, "b")) == status
    assert only(made).targets == ("m2",)
    with pytest.raises(CloudProviderError, match="in use by Service default/shop"):
        ensure(provider, one)
    balancers.ensure_load_balancer_deleted(CLUSTER, one)  # it is not this Service's any more, which may go
    balancers.ensure_load_balancer_deleted(CLUSTER, taker)
    assert not made.cloud.load_balancers()
    with pytest.raises(InvalidService, match="has no load balancer of it"):
        ensure(provider, taker)


@pytest.mark.row("S31")
def test_it_is_kept_for_one_namespace_its_own_unless_its_owner_names_another(
    made: Daemon, provider: LocalCloud
) -> None:
    keep = {"localcloud.example/keep": "load-balancer"}
    mine, moved, thief = (
        new_service(name, uid, annotations={"localcloud.example/adopt": NAME})
        for name, uid in (("mine", "u-2"), ("moved", "u-3"), ("thief", "u-4"))
    )
    for one, namespace in ((moved, "shop"), (thief, "evil")):
        assert one.metadata is not None
        one.metadata.namespace = namespace
    status = ensure(provider, new_service("web", UID, annotations=keep), node(made, "a"))
    for service in (new_service("web", UID, annotations=keep), mine):
        assert service.metadata is not None
        service.metadata.annotations = {**(service.metadata.annotations or {}), **keep}
        if service is mine:
            assert ensure(provider, mine) == status
            service.metadata.annotations["localcloud.example/keep-for"] = "shop"
        with pytest.raises(LoadBalancerKept):
            provider.load_balancer().ensure_load_balancer_deleted(CLUSTER, service)
        with pytest.raises(InvalidService, match="was kept for Services of the namespace"):
            ensure(provider, thief)
    with pytest.raises(InvalidService, match="was kept for Services of the namespace shop"):
        ensure(provider, new_service("late", "u-5", annotations={"localcloud.example/adopt": NAME}))
    assert ensure(provider, moved) == status


@pytest.mark.row("S31")
def test_its_former_service_and_another_one_do_not_both_get_it(
    made: Daemon, provider: LocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former one wants a load balancer again, at the moment in which another one adopts it."""
    one = new_service("web", UID, annotations={"localcloud.example/keep": "address"})
    taker = new_service("shop", "u-2", annotations={"localcloud.example/adopt": NAME})
    balancers = provider.load_balancer()
    ensure(provider, one)
    with pytest.raises(LoadBalancerKept):
        balancers.ensure_load_balancer_deleted(CLUSTER, one)
    put = LocalLoadBalancers._put
    got: list[object] = []
    threads: list[threading.Thread] = []

    def adopt() -> None:
        try:
            got.append(ensure(provider, taker))
        except CloudProviderError as error:
            got.append(error)

    def late(self: LocalLoadBalancers, wanted: Balancer, address: str = "") -> Balancer:
        if not threads:
            threads.append(threading.Thread(target=adopt))
            threads[0].start()
            threads[0].join(0.3)  # it ends here, or waits for this call
        return put(self, wanted, address)

    monkeypatch.setattr(LocalLoadBalancers, "_put", late)
    ensure(provider, one)
    threads[0].join()
    assert [str(answer) for answer in got if "in use by Service default/web" in str(answer)], got
    assert only(made).labels["kubernetes.io/service-uid"] == UID


def test_a_node_that_is_none_of_ours_spoils_nothing(made: Daemon, provider: LocalCloud) -> None:
    strangers = [
        new_node(f"n{i}", one) for i, one in enumerate(("", "aws:///i-1", "localcloud://", "localcloud://x,y"))
    ]
    ensure(provider, service(), *strangers, node(made, "a"))
    assert only(made).targets == ("m1",)


def test_a_provider_id_that_this_cloud_never_gives_is_not_gone(provider: LocalCloud) -> None:
    nodes = [
        new_node("a", "localcloud://x"),
        new_node("b", "aws:///i-1"),
        new_node("c", "localcloud://m9"),
        new_node("d"),
    ]
    for found in (
        provider.instances_batch().instances_state(nodes),
        provider.instances_batch().instances_metadata(nodes),
    ):
        gone = {name: isinstance(error, InstanceNotFound) for name, error in found.items()}
        assert gone == {"a": False, "b": False, "c": True, "d": True}
    with pytest.raises(CloudProviderError, match="no machine of this cloud"):
        provider.instances_v2().instance_exists(nodes[0])


def test_a_node_with_an_id_is_never_looked_for_by_name(made: Daemon, provider: LocalCloud) -> None:
    first = node(made, "a")
    made.cloud.delete_machine("m1")
    node(made, "a")
    assert not provider.instances_v2().instance_exists(first)


def test_a_route_of_a_dead_machine_is_a_blackhole(made: Daemon, provider: LocalCloud) -> None:
    node(made, "a")
    route = Route(name="", target_node="a", destination_cidr="10.91.1.0/24")
    provider.routes().create_route(CLUSTER, "hint", route)
    made.cloud.stop_machine("m1")
    (found,) = provider.routes().list_routes(CLUSTER)
    assert (found.name, found.blackhole, found.owned) == ("blue-10.91.1.0-24-m1", False, True)
    assert (found.target_node, found.target_provider_id) == ("", "localcloud://m1")
    made.cloud.delete_machine("m1")
    (found,) = provider.routes().list_routes(CLUSTER)
    assert (found.target_provider_id, found.blackhole) == ("localcloud://m1", True)
    node(made, "a")
    with pytest.raises(CloudProviderError, match="has the destination"):
        provider.routes().create_route(CLUSTER, "hint", route)
    provider.routes().delete_route(CLUSTER, found)
    provider.routes().create_route(CLUSTER, "hint", route)
    provider.routes().delete_route(CLUSTER, found)  # a late repetition hits nothing
    assert [one.machine for one in made.cloud.routes()] == ["m2"]


def test_throttling_is_told_with_its_time(tmp_path: Path) -> None:
    with daemon(tmp_path, limit=RateLimit(0.2, lambda: 0.0)) as made:
        client = Client(made.server.url, TOKEN)
        client.get(Machines, "/v1/machines")
        with pytest.raises(Throttled) as caught:
            client.get(Machines, "/v1/machines")
        assert (caught.value.retry_after, caught.value.whole_account) == (5.0, True)


def test_a_wrong_token_is_no_missing_machine(made: Daemon) -> None:
    provider = new_provider(CloudConfig(path="", data=f"url: {made.server.url}\ntoken: wrong".encode()))
    instances = provider.instances_v2()
    assert instances is not None
    with pytest.raises(CloudError, match=r"401.*Check `token` in the cloud config"):
        instances.instance_exists(new_node("a"))


class _Stranger(BaseHTTPRequestHandler):
    """A server that is not the cloud."""

    answers: tuple[int, bytes] = (404, b"")

    def do_GET(self) -> None:
        self.send_response(self.answers[0])
        self.send_header("Content-Length", str(len(self.answers[1])))
        self.end_headers()
        self.wfile.write(self.answers[1])

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b"<html>not found</html>", "404: Not Found"),
        (404, json.dumps({"error": {"code": "noSuchPath"}}).encode(), "404: Not Found"),
        (404, b'{"error": "notFound"}', "404: Not Found"),
        (302, b"", "302: Found"),
        (200, b"<html>", "cannot be read"),
        (200, b"{}", "machines: Field required"),
        (200, b'{"machines": [{"id": "m1", "name": "a", "state": "asleep"}]}', r"machines\.0\.state"),
        (500, b"", "500: Internal Server Error"),
    ],
)
def test_what_somebody_else_answers_says_nothing_about_machines(status: int, body: bytes, said: str) -> None:
    handler = type("Answering", (_Stranger,), {"answers": (status, body)})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            with pytest.raises(CloudProviderError, match=said) as caught:
                Client(f"http://127.0.0.1:{server.server_port}").get(Machines, "/v1/machines")
            assert not isinstance(caught.value, NotFound | InstanceNotFound)
        finally:
            server.shutdown()
            thread.join()


def test_no_answer_says_where_and_what_to_check() -> None:
    with pytest.raises(
        CloudProviderError, match=r"did not answer GET /v1/self .* at http://127.0.0.1:1: .*serve` runs"
    ):
        Client("http://127.0.0.1:1").get(Machine, "/v1/self")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["url"]),
        ("url: 10.90.255.1:8090\ntoken: a b\nregion: x", ["url", "token", "region"]),
        ("url: http://host/path", ["url"]),
    ],
)
def test_all_mistakes_of_the_configuration(text: str, problems: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Config.load(CloudConfig(path="", data=text.encode()), environ={})
    assert len(caught.value.problems) == len(problems)
    assert all(any(word in one for one in caught.value.problems) for word in problems), caught.value.problems


def test_the_token_comes_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    environ = {"LOCALCLOUD_URL": "http://10.90.255.1:8090/", "LOCALCLOUD_TOKEN_FILE": str(tmp_path / "token")}
    config = Config.load(None, environ=environ)
    assert (config.url, config.token.get_secret_value()) == ("http://10.90.255.1:8090", "abc")


def test_the_manager_needs_a_token_and_node_info_does_not(made: Daemon) -> None:
    provider = LocalCloud(Config.load(CloudConfig(path="", data=f"url: {made.server.url}".encode()), environ={}))
    with pytest.raises(InvalidConfig, match="token is not set"):
        provider.initialize(None, threading.Event())  # type: ignore[arg-type]
    with pytest.raises(InstanceNotFound, match=r"127\.0\.0\.1 is no machine's address"):
        provider.local_instance().local_metadata()
