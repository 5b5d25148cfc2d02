"""An AWS account in this process: moto, with a network, subnets, a security group and instances of
one cluster."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import botocore.session
import pytest
from attrs import frozen
from aws_provider.clients import Clients
from aws_provider.finder import provider_id
from kubernetes.client.models import V1Node, V1NodeSpec, V1ObjectMeta
from moto import mock_aws
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, TagTypeDef
    from mypy_boto3_elbv2.client import ElasticLoadBalancingv2Client

REGION = "eu-west-1"
CLUSTER = "blue"
CLUSTER_TAG: TagTypeDef = {"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}


@frozen
class Account:
    """What a test changes behind the provider's back, and looks at."""

    ec2: EC2Client
    elb: ElasticLoadBalancingv2Client
    vpc: str
    subnets: dict[str, str]
    """By zone."""
    security_group: str
    route_table: str = ""

    def launch(self, zone: str = f"{REGION}a", *, tagged: bool = True, **settings: Any) -> InstanceTypeDef:
        """A running instance of the cluster, as DescribeInstances shows it."""
        tags: list[TagTypeDef] = [CLUSTER_TAG] if tagged else [{"Key": "Name", "Value": "other"}]
        made = self.ec2.run_instances(
            ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="m5.large", SubnetId=self.subnets[zone],
            SecurityGroupIds=[self.security_group],
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            **settings,
        )  # fmt: skip
        return self.show(made["Instances"][0]["InstanceId"])

    def show(self, instance_id: str) -> InstanceTypeDef:
        """The instance as it is now."""
        return self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]

    def routed(self) -> set[str]:
        """The instances that the route table's routes lead to."""
        [table] = self.ec2.describe_route_tables(RouteTableIds=[self.route_table])["RouteTables"]
        return {one["InstanceId"] for one in table["Routes"] if one.get("InstanceId")}


def node(name: str, of: str | None = None, **labels: str) -> V1Node:
    """A node with this provider ID."""
    return V1Node(metadata=V1ObjectMeta(name=name, labels=labels), spec=V1NodeSpec(provider_id=of))


def node_of(instance: InstanceTypeDef) -> V1Node:
    """The node that stands for the instance, named as AWS's address-based convention says."""
    return node(instance["PrivateDnsName"], provider_id(instance))


@pytest.fixture(scope="session", autouse=True)
def credentials() -> Iterator[None]:
    """Made-up credentials in the environment and nowhere else: no test can reach a real account."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_CLUSTER", "AWS_VPC", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
        patch.setenv("AWS_SESSION_TOKEN", "FwoGZXIvYXdzEXAMPLETOKEN")
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # half a second for each test
        patch.setattr("aws_provider.shared.SECONDS", -1.0)  # tests change AWS behind the provider's back
        patch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        # Each session of botocore reads the APIs' models, half a second of work: one reader
        # for all.
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="session")
def clients(credentials: None) -> Clients:
    """One for all tests: making the first client takes boto3 half a second."""
    return Clients(REGION)


def furnish(clients: Clients) -> Account:
    """A network with two zones, tagged as the README asks."""
    ec2, elb = clients.ec2, clients.elb
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = {}
    for number, letter in enumerate("ab"):
        zone = f"{REGION}{letter}"
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=zone)
        subnets[zone] = made["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    ec2.create_tags(Resources=[group], Tags=[CLUSTER_TAG])
    shared: TagTypeDef = {"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "shared"}
    roles: list[TagTypeDef] = [{"Key": f"kubernetes.io/role/{role}", "Value": "1"} for role in ("elb", "internal-elb")]
    ec2.create_tags(Resources=[*subnets.values()], Tags=[shared, *roles])
    return Account(ec2, elb, vpc, subnets, group)


@pytest.fixture
def account(clients: Clients) -> Iterator[Account]:
    """The account, in moto's memory."""
    with mock_aws():
        yield furnish(clients)


@pytest.fixture(scope="module")
def endpoint(credentials: None) -> Iterator[str]:
    """moto as a server: the URL of an empty AWS, where every client goes that is made from now
    on."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with urlopen(Request(f"{url}/moto-api/reset", method="POST")):
        pass  # moto's memory is the process's: tests before this one may have left something there
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        yield url
    server.stop()
