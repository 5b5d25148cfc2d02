"""Routes to the nodes' pod networks in the VPC's route tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from attrs import frozen
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.finder import provider_id
from aws_provider.provider import AWS
from conftest import CLUSTER, CLUSTER_TAG, Account, node
from kubernetes.client.models import V1Node
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.models.route_tables import Route as MotoRoute

from cloudprovider import CloudProviderError, InstanceNotFound, Route, Routes

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

CIDR = "10.244.1.0/24"


@pytest.fixture
def aws(account: Account, clients: Clients) -> AWS:
    return AWS(Config(cluster=CLUSTER), clients)


@pytest.fixture
def routes(aws: AWS) -> Routes:
    return aws.routes()


@pytest.fixture
def tables(account: Account) -> list[str]:
    """Two route tables of the cluster, as with one for each zone."""
    made = [account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"] for _ in range(2)]
    account.ec2.create_tags(Resources=made, Tags=[CLUSTER_TAG])
    return made


def to(instance: InstanceTypeDef, cidr: str = CIDR) -> Route:
    return Route("", instance["PrivateDnsName"], cidr, target_provider_id=provider_id(instance))


def listed(instance: InstanceTypeDef, cidr: str = CIDR) -> Route:
    return Route(cidr, "", cidr, target_provider_id=provider_id(instance))


def targets(account: Account, table: str, cidr: str = CIDR) -> list[str | None]:
    [found] = account.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"]
    return [one.get("InstanceId") for one in found["Routes"] if one.get("DestinationCidrBlock") == cidr]


def test_a_route_stands_in_every_table_and_is_listed_once(account: Account, routes: Routes, tables: list[str]) -> None:
    instance = account.launch()
    for _ in range(2):
        routes.create_route(CLUSTER, "hint", to(instance))
    assert [targets(account, table) for table in tables] == [[instance["InstanceId"]]] * 2
    assert routes.list_routes(CLUSTER) == [listed(instance)]
    attribute = account.ec2.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="sourceDestCheck")
    assert attribute["SourceDestCheck"] == {"Value": False}
    for _ in range(2):
        routes.delete_route(CLUSTER, listed(instance))
    assert routes.list_routes(CLUSTER) == []


def test_one_that_is_missing_in_a_table_is_completed(account: Account, routes: Routes, tables: list[str]) -> None:
    instance = account.launch()
    routes.create_route(CLUSTER, "hint", to(instance))
    account.ec2.delete_route(RouteTableId=tables[1], DestinationCidrBlock=CIDR)
    assert routes.list_routes(CLUSTER) == []
    routes.create_route(CLUSTER, "hint", to(instance))
    assert len(routes.list_routes(CLUSTER)) == 1


def test_what_is_nobodys_pod_network_is_never_listed_nor_deleted(
    account: Account, routes: Routes, tables: list[str]
) -> None:
    gateway = account.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    stranger = account.launch(tagged=False)
    for table in tables:
        account.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        account.ec2.create_route(RouteTableId=table, DestinationCidrBlock=CIDR, InstanceId=stranger["InstanceId"])
    assert routes.list_routes(CLUSTER) == []
    for cidr in (CIDR, "0.0.0.0/0", "10.0.0.0/16"):
        routes.delete_route(CLUSTER, listed(stranger, cidr))
    assert targets(account, tables[0]) == [stranger["InstanceId"]]
    with pytest.raises(CloudProviderError, match=f"leads to {stranger['InstanceId']}, not to"):
        routes.create_route(CLUSTER, "hint", to(account.launch()))


def test_a_route_whose_instance_is_gone_is_a_blackhole(account: Account, routes: Routes, tables: list[str]) -> None:
    instance = account.launch()
    routes.create_route(CLUSTER, "hint", to(instance))
    account.ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    [blackhole] = routes.list_routes(CLUSTER)
    assert blackhole == Route(CIDR, "", CIDR, blackhole=True)
    routes.delete_route(CLUSTER, blackhole)
    assert routes.list_routes(CLUSTER) == []


def test_an_answer_without_the_machine_takes_no_route_away(
    account: Account, routes: Routes, tables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = account.launch()
    routes.create_route(CLUSTER, "hint", to(instance))
    with monkeypatch.context() as patch:
        patch.setattr(InstanceBackend, "describe_instances", lambda *_, **__: [])
        assert routes.list_routes(CLUSTER) == []
        routes.delete_route(CLUSTER, Route(CIDR, "", CIDR, blackhole=True))
    assert routes.list_routes(CLUSTER) == [listed(instance)]


def test_as_aws_shows_a_blackhole_and_its_replacement(
    account: Account, routes: Routes, tables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto calls every route active; AWS says "blackhole" and drops the instance's ID."""
    old, new = account.launch(), account.launch()
    routes.create_route(CLUSTER, "hint", to(old))
    monkeypatch.setattr(
        MotoRoute, "state", property(lambda self: "blackhole" if self.instance_id == old["InstanceId"] else "active")
    )
    [blackhole] = routes.list_routes(CLUSTER)
    assert blackhole.blackhole
    routes.create_route(CLUSTER, "hint", to(new))
    routes.delete_route(CLUSTER, blackhole)  # listed before: another node has the range meanwhile
    assert [targets(account, table) for table in tables] == [[new["InstanceId"]]] * 2


def test_a_second_manager_that_was_faster_is_no_error(
    account: Account, aws: AWS, tables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = account.launch()
    first = True

    def faster(params: dict[str, str], **_: object) -> None:
        nonlocal first
        if first:
            first = False
            account.ec2.create_route(
                RouteTableId=tables[0], DestinationCidrBlock=CIDR, InstanceId=instance["InstanceId"]
            )

    aws.clients.ec2.meta.events.register("provide-client-params.ec2.CreateRoute", faster)
    aws.routes().create_route(CLUSTER, "hint", to(instance))
    aws.clients.ec2.meta.events.unregister("provide-client-params.ec2.CreateRoute", faster)
    assert [targets(account, table) for table in tables] == [[instance["InstanceId"]]] * 2


@frozen
class Nodes:
    """The host's cache."""

    nodes: Nodes | None = None
    known: Sequence[V1Node] = ()

    def has_synced(self) -> bool:
        return True

    def list(self) -> Sequence[V1Node]:
        return self.known


def test_an_instance_without_the_tag_is_a_nodes(account: Account, aws: AWS, tables: list[str]) -> None:
    instance = account.launch(tagged=False)
    route = Route("", "worker-7", CIDR, target_provider_id=provider_id(instance))
    aws.routes().create_route(CLUSTER, "hint", route)
    assert aws.routes().list_routes(CLUSTER) == []
    cache = Nodes(known=[node("worker-7", provider_id(instance)), node("new")])
    aws.set_informers(Nodes(nodes=cache))  # type: ignore[arg-type]
    assert aws.routes().list_routes(CLUSTER) == [listed(instance)]


def test_a_node_without_a_provider_id_is_found_by_its_name(account: Account, aws: AWS, tables: list[str]) -> None:
    instance = account.launch()
    aws.routes().create_route(CLUSTER, "hint", Route("", instance["PrivateDnsName"], CIDR))
    assert aws.routes().list_routes(CLUSTER) == [listed(instance)]


def test_a_terminated_instance_gets_no_route(account: Account, aws: AWS, tables: list[str]) -> None:
    """AWS shows it for an hour; a route to it would lead nowhere, and be deleted and made again."""
    instance = account.launch()
    account.ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    for route in (to(instance), Route("", instance["InstanceId"], CIDR)):
        with pytest.raises(InstanceNotFound, match="is terminated"):
            aws.routes().create_route(CLUSTER, "hint", route)
    assert [targets(account, table) for table in tables] == [[], []]


def test_what_cannot_be_routed(account: Account, routes: Routes, tables: list[str]) -> None:
    with pytest.raises(InstanceNotFound):
        routes.create_route(CLUSTER, "hint", Route("", "nobody", CIDR))
    with pytest.raises(CloudProviderError, match=r"no route table has the tag kubernetes\.io/cluster/green"):
        routes.list_routes("green")


def test_routes_of_many_instances_are_listed_with_two_calls(account: Account, aws: AWS, tables: list[str]) -> None:
    for number in range(5):
        aws.routes().create_route(CLUSTER, "hint", to(account.launch(), f"10.244.{number}.0/24"))
    calls: list[str] = []

    def note(model: object, **_: object) -> None:
        calls.append(model.name)  # type: ignore[attr-defined]

    aws.clients.ec2.meta.events.register("before-call", note)
    assert len(aws.routes().list_routes(CLUSTER)) == 5
    aws.clients.ec2.meta.events.unregister("before-call", note)
    assert calls == ["DescribeRouteTables", "DescribeInstances"]
