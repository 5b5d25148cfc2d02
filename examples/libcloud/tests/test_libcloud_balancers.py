"""Load balancers: what a driver cannot do is refused before anything is built, nothing of somebody
else's is touched, and the drivers whose members are machines work too."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from attrs import define, evolve, field
from doubles import SECRET, Balancer, Double, served
from kubernetes.client.models import V1Service
from libcloud.common.cloudstack import CloudStackDriverMixIn
from libcloud.compute.drivers import ec2
from libcloud.loadbalancer.drivers import elb
from libcloud_provider import balancers, connections
from libcloud_provider.balancers import BALANCERS, BalancerProfile, plan
from libcloud_provider.config import Config
from libcloud_provider.provider import Libcloud
from libcloudlab import config_of, redirected
from moto.server import ThreadedMotoServer

from cloudprovider import CloudConfig, CloudProviderError, LoadBalancer, RetryError
from cloudprovider.errors import InvalidService
from cloudprovider.testing.conformance import new_node, new_service

UID = "5f0c6a1e-1111-4222-8333-444455556666"
NAME = "a5f0c6a1e111142228333444455556666"[:32]


def service(*ports: tuple[int, int], **changes: Any) -> V1Service:
    made = new_service("web", UID, ports=ports or ((80, 30080),))
    for name, value in changes.items():
        setattr(made.spec, name, value)
    return made


def udp(made: V1Service) -> V1Service:
    assert made.spec is not None
    for port in made.spec.ports or ():
        port.protocol = "UDP"
    return made


def balancers_of(provider: Libcloud) -> LoadBalancer:
    found = provider.load_balancer()
    assert found is not None
    return found


REFUSED: list[tuple[str, Callable[[], V1Service], str]] = [
    ("cloudstack", lambda: udp(service()), "port 80/UDP: .* cloudstack knows TCP"),
    ("cloudstack", lambda: service((80, 30080), (443, 30443)), "use one Service for each of the 2 ports"),
    ("elb", lambda: service((80, 30080)), "set port and nodePort to the same number"),
    ("rackspace", lambda: service(session_affinity="ClientIP"), "set sessionAffinity to None"),
    ("rackspace", lambda: service(external_traffic_policy="Local"), "set externalTrafficPolicy to Cluster"),
    ("rackspace", lambda: service(load_balancer_source_ranges=["10.0.0.0/8"]), "cannot limit who connects"),
    ("rackspace", lambda: service(load_balancer_source_ranges=["10.0.0.0/8", "::/0"]), "cannot limit who connects"),
    ("rackspace", lambda: service(load_balancer_source_ranges=["::/0"]), "cannot limit who connects"),
    ("rackspace", lambda: service(load_balancer_source_ranges=["10.0.0.0"]), "is not an IP range"),
    ("rackspace", lambda: service(load_balancer_ip="198.51.100.9"), "remove loadBalancerIP"),
    ("rackspace", lambda: service(ip_families=["IPv6"]), "has IPv4 alone"),
    ("rackspace", lambda: service((80, 0)), "has no node port: set allocateLoadBalancerNodePorts"),
]


@pytest.mark.parametrize(("driver", "asked", "text"), REFUSED)
def test_what_a_driver_cannot_do_is_refused(driver: str, asked: Callable[[], V1Service], text: str) -> None:
    with pytest.raises(InvalidService, match=text) as raised:
        plan(driver, BALANCERS[driver], NAME, asked())
    assert len(raised.value.problems) == 1


def test_all_problems_are_told_at_once() -> None:
    asked = udp(service((80, 30080), (443, 0), session_affinity="ClientIP", load_balancer_ip="198.51.100.9"))
    with pytest.raises(InvalidService) as raised:
        plan("cloudstack", BALANCERS["cloudstack"], NAME, asked)
    assert len(raised.value.problems) == 5


def test_udp_is_carried_where_the_driver_has_it() -> None:
    [port] = plan("rackspace", BALANCERS["rackspace"], NAME, udp(service((53, 30053))))
    assert (port.name, port.protocol) == (f"{NAME}-53-udp", "udp")


@pytest.fixture
def double() -> Iterator[Double]:
    with served(Double(numeric=False)) as made, redirected(made):
        yield made


@pytest.fixture
def rackspace(double: Double, tmp_path: Path) -> Libcloud:
    return Libcloud(Config.load(config_of("rackspace", double, tmp_path), environ={}))


def test_a_refused_service_costs_no_request(double: Double, rackspace: Libcloud) -> None:
    with pytest.raises(InvalidService):
        balancers_of(rackspace).ensure_load_balancer("blue", service(session_affinity="ClientIP"), [])
    assert double.requests == []


def test_ports_share_an_address_also_when_all_of_them_change(double: Double, rackspace: Libcloud) -> None:
    nodes = [new_node("n", f"openstack:///{double.create('n').id}")]
    lbs = balancers_of(rackspace)
    first = lbs.ensure_load_balancer("blue", service((80, 30080), (443, 30443)), nodes)
    then = lbs.ensure_load_balancer("blue", service((8080, 30080)), nodes)
    assert first == then
    assert [one.ip for one in first.ingress or ()] == [one.ip for one in then.ingress or ()]
    assert [one.name for one in double.balancers.values()] == [f"{NAME}-8080-tcp"]


def test_others_of_the_account_are_not_touched_and_doubles_are_an_error(double: Double, rackspace: Libcloud) -> None:
    nodes = [new_node("n", f"openstack:///{double.create('n').id}")]
    for number, name in enumerate(("theirs", f"{NAME}x", NAME[:-1])):
        double.balancers[number] = Balancer(number, name, 80, "TCP", number)
    lbs = balancers_of(rackspace)
    lbs.ensure_load_balancer("blue", service(), nodes)
    lbs.ensure_load_balancer_deleted("blue", service())
    assert sorted(one.name for one in double.balancers.values()) == sorted(["theirs", f"{NAME}x", NAME[:-1]])
    for number in (8, 9):
        double.balancers[number] = Balancer(number, f"{NAME}-80-tcp", 80, "TCP", number)
    with pytest.raises(CloudProviderError, match="several load balancers are called"):
        lbs.ensure_load_balancer_deleted("blue", service())
    assert {8, 9} <= double.balancers.keys()


def test_every_page_of_load_balancers_is_read(double: Double, rackspace: Libcloud) -> None:
    for number in range(205):
        double.balancers[number] = Balancer(number, f"other-{number}", 80, "TCP", number)
    double.balancers[999] = Balancer(999, f"{NAME}-80-tcp", 80, "TCP", 999)
    found = balancers_of(rackspace).get_load_balancer("blue", service())
    assert found is not None
    assert sum("GET /lb/loadbalancers?" in one for one in double.requests) == 3


def test_a_listing_that_may_be_cut_off_proves_nothing(
    double: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = evolve(
        BALANCERS["rackspace"], page=2, listed=lambda driver: driver.list_balancers(ex_params={"limit": 2, "offset": 0})
    )
    monkeypatch.setitem(balancers.BALANCERS, "rackspace", short)
    lbs = balancers_of(Libcloud(Config.load(config_of("rackspace", double, tmp_path), environ={})))
    assert lbs.get_load_balancer("blue", service()) is None
    for number in range(2):
        double.balancers[number] = Balancer(number, f"other-{number}", 80, "TCP", number)
    with pytest.raises(CloudProviderError, match="reads no more than 2: it cannot be said whether"):
        lbs.get_load_balancer("blue", service())


def test_nothing_is_built_before_there_is_a_node_and_an_unknown_machine_keeps_its_traffic(
    double: Double, rackspace: Libcloud
) -> None:
    lbs = balancers_of(rackspace)
    with pytest.raises(RetryError, match="as soon as there is a node"):
        lbs.ensure_load_balancer("blue", service(), [])
    servers = [double.create("a"), double.create("b")]
    nodes = [new_node(one.name, f"openstack:///{one.id}") for one in servers]
    lbs.ensure_load_balancer("blue", service(), nodes)
    double.hidden.add(servers[1].id)
    double.answers[f"/compute/servers/{servers[1].id}"] = (503, "{}")
    with pytest.raises(CloudProviderError):
        lbs.update_load_balancer("blue", service(), nodes)
    [built] = double.balancers.values()
    assert len(built.nodes) == 2


def test_a_driver_without_an_entry_is_refused() -> None:
    assert balancers.balancer_profile_of("new-one").refused
    assert BalancerProfile().refused == ""


@define
class Stack:
    """CloudStack's commands, as far as they are called."""

    rules: dict[str, dict[str, Any]] = field(factory=dict)
    members: dict[str, list[str]] = field(factory=dict)
    addresses: set[str] = field(factory=set)
    numbers: Iterator[int] = field(factory=lambda: itertools.count(1))

    def call(self, command: str, params: Any = None) -> Any:
        """The answer to a command."""
        params = params or {}
        key = str(params.get("id", ""))
        if command == "listVirtualMachines":
            return {"virtualmachine": [_machine(number) for number in "123"]}
        if command in ("listPublicIpAddresses", "listPortForwardingRules", "listIpForwardingRules"):
            return {}
        if command == "listZones":
            return {"zone": [{"id": "z"}]}
        if command == "associateIpAddress":
            self.addresses.add(f"ip-{next(self.numbers)}")
            return {"ipaddress": {"id": max(self.addresses)}}
        if command == "createLoadBalancerRule":
            own = f"rule-{next(self.numbers)}"
            self.members[own] = []
            self.rules[own] = {"id": own, "state": "Active", "publicip": "198.18.7.1", **params}
            return {"id": own}
        if command == "listLoadBalancerRules":
            return {"loadbalancerrule": list(self.rules.values())} if self.rules else {}
        if command == "listLoadBalancerRuleInstances":
            return {"loadbalancerruleinstance": [_machine(one) for one in self.members[key]]}
        if command == "assignToLoadBalancerRule":
            return self.members[key].append(params["virtualmachineids"])
        if command == "removeFromLoadBalancerRule":
            return self.members[key].remove(params["virtualmachineids"])
        if command == "disassociateIpAddress":
            self.addresses.remove(key)
            self.rules = {own: rule for own, rule in self.rules.items() if rule["publicipid"] != key}
            return {}
        raise AssertionError(command)


def _machine(number: str) -> dict[str, Any]:
    nic = [{"ipaddress": f"10.8.0.{number}"}]
    return {"id": number, "name": f"n-{number}", "state": "Running", "nic": nic, "created": "2026-01-02T03:04:05+0000"}


def test_cloudstack_has_machines_as_members_and_one_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack()

    def call(self: Any, command: str, action: Any = None, params: Any = None, **options: Any) -> Any:
        return stack.call(command, params)

    monkeypatch.setattr(CloudStackDriverMixIn, "_sync_request", call)
    monkeypatch.setattr(CloudStackDriverMixIn, "_async_request", call)
    (tmp_path / "secret").write_text(SECRET)
    config = (
        "driver: cloudstack\narguments: {key: k, host: cs.example, path: /client/api}\n"
        f"credentials: {{secret: {tmp_path / 'secret'}}}\nload_balancer: {{driver: cloudstack}}"
    )
    provider = Libcloud(Config.load(CloudConfig(path="", data=config.encode()), environ={}))
    nodes = [new_node(f"n-{one}", f"external-cloudstack://{one}") for one in "123"]
    lbs = balancers_of(provider)
    status = lbs.ensure_load_balancer("blue", service(), nodes[:2])
    assert [one.ip for one in status.ingress or ()] == ["198.18.7.1"]
    [rule] = stack.rules.values()
    assert (rule["name"], rule["publicport"], rule["privateport"]) == (NAME, 80, 30080)
    lbs.update_load_balancer("blue", service(), [*nodes[1:], new_node("forged", "external-cloudstack://")])
    assert [sorted(members) for members in stack.members.values()] == [["2", "3"]]
    assert lbs.ensure_load_balancer("blue", service((80, 30081)), nodes) == status
    assert [one["privateport"] for one in stack.rules.values()] == [30081]
    lbs.ensure_load_balancer_deleted("blue", service())
    assert (stack.rules, stack.addresses) == ({}, set())
    assert lbs.get_load_balancer("blue", service()) is None


def test_classic_load_balancers_of_aws_on_moto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    (tmp_path / "secret").write_text(SECRET)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        with urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")):
            pass  # moto's memory is the process's
        _to_moto(port, monkeypatch)
        _run_classic(port, tmp_path)
    finally:
        server.stop()


def _to_moto(port: int, patch: pytest.MonkeyPatch) -> None:
    """moto serves no path with the API's version in it, and knows EC2's namespace without its last
    slash."""
    request: Any = connections.BoundedConnection.request

    def to_moto(connection: Any, method: str, url: str, *args: Any, **options: Any) -> None:
        connection.host = f"http://127.0.0.1:{port}"
        request(connection, method, url.replace(elb.ROOT, "/"), *args, **options)

    patch.setattr(connections.BoundedConnection, "request", to_moto)
    patch.setattr(ec2, "NAMESPACE", ec2.NAMESPACE.rstrip("/"))


def _run_classic(port: int, folder: Path) -> None:
    options: Any = {
        "region_name": "eu-west-1", "endpoint_url": f"http://127.0.0.1:{port}",
        "aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": SECRET,
    }  # fmt: skip
    client: Any = boto3.client("elb", **options)
    client.describe_load_balancers()  # moto loads it with the first request, which takes a while
    made = boto3.client("ec2", **options).run_instances(ImageId="ami-12c6146b", MinCount=2, MaxCount=2)["Instances"]
    ids = sorted(one["InstanceId"] for one in made)
    nodes = [new_node(one, f"aws:///{made[0]['Placement']['AvailabilityZone']}/{one}") for one in ids]
    config = (
        "driver: ec2\nregion: eu-west-1\narguments: {key: AKIAIOSFODNN7EXAMPLE}\n"
        f"credentials: {{secret: {folder / 'secret'}}}\nload_balancer: {{driver: elb}}"
    )
    lbs = balancers_of(Libcloud(Config.load(CloudConfig(path="", data=config.encode()), environ={})))

    def shown() -> list[tuple[str, int, int, list[str]]]:
        found = client.describe_load_balancers()["LoadBalancerDescriptions"]
        return [
            (
                one["LoadBalancerName"],
                one["ListenerDescriptions"][0]["Listener"]["LoadBalancerPort"],
                one["ListenerDescriptions"][0]["Listener"]["InstancePort"],
                sorted(each["InstanceId"] for each in one["Instances"]),
            )
            for one in found
        ]

    assert lbs.get_load_balancer("blue", service((30080, 30080))) is None
    with pytest.raises(RetryError, match="is being built"):
        lbs.ensure_load_balancer("blue", service((30080, 30080)), nodes[:1])
    status = lbs.ensure_load_balancer("blue", service((30080, 30080)), nodes)
    assert [(one.ip, str(one.hostname).partition(".")[0]) for one in status.ingress or ()] == [(None, NAME)]
    assert shown() == [(NAME, 30080, 30080, ids)]
    far = new_node("far", "aws:///us-east-1a/i-0abc")
    lbs.update_load_balancer("blue", service((30080, 30080)), [*nodes[1:], far])
    assert shown() == [(NAME, 30080, 30080, ids[1:])]
    with pytest.raises(RetryError):
        lbs.ensure_load_balancer("blue", service((30081, 30081)), nodes)
    assert shown() == [(NAME, 30081, 30081, ids)]
    lbs.ensure_load_balancer_deleted("blue", service())
    assert shown() == []
