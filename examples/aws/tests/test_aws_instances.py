"""Nodes and their EC2 instances: lookup, states, addresses, batches."""

from __future__ import annotations

from typing import Any

import pytest
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.finder import MAX_VALUES, provider_id
from aws_provider.metadata import addresses
from aws_provider.provider import AWS
from conftest import CLUSTER, CLUSTER_TAG, REGION, Account, node, node_of

from cloudprovider import CloudProviderError, InstanceNotFound, InstanceState


@pytest.fixture
def aws(account: Account, clients: Clients) -> AWS:
    return AWS(Config(cluster=CLUSTER), clients)


def test_metadata_says_what_the_go_provider_says(account: Account, aws: AWS) -> None:
    instance = account.launch(f"{REGION}b")
    found = aws.instances_v2().instance_metadata(node_of(instance))
    assert found.provider_id == f"aws:///{REGION}b/{instance['InstanceId']}"
    assert (found.instance_type, found.zone, found.region) == ("m5.large", f"{REGION}b", REGION)
    [zone] = account.ec2.describe_availability_zones(ZoneNames=[f"{REGION}b"])["AvailabilityZones"]
    assert found.additional_labels == {"topology.k8s.aws/zone-id": zone["ZoneId"]}
    assert [(one.type, one.address) for one in found.node_addresses] == [
        ("InternalIP", instance["PrivateIpAddress"]),
        ("InternalDNS", instance["PrivateDnsName"]),
        ("Hostname", instance["PrivateDnsName"]),
    ]


def test_addresses_of_every_interface_without_those_of_pods() -> None:
    first = {
        "Attachment": {"DeviceIndex": 0},
        "PrivateIpAddress": "10.0.0.1",
        "PrivateIpAddresses": [{"PrivateIpAddress": "10.0.0.1"}, {"PrivateIpAddress": "10.0.0.99"}],
        "Association": {"PublicIp": "198.51.100.1"},
        "Ipv6Addresses": [{"Ipv6Address": "2001:db8::1"}, {"Ipv6Address": "2001:db8::99"}],
    }
    second = {"Attachment": {"DeviceIndex": 1}, "PrivateIpAddress": "10.0.1.1"}
    detached = {"Status": "available", "PrivateIpAddress": "10.0.2.1"}
    instance = {
        "NetworkInterfaces": [second, detached, first],
        "PublicIpAddress": "198.51.100.1",
        "PrivateDnsName": "ip-10-0-0-1.ec2.internal",
        "PublicDnsName": "ec2-198-51-100-1.compute.amazonaws.com",
    }
    names = [
        ("InternalDNS", "ip-10-0-0-1.ec2.internal"),
        ("Hostname", "ip-10-0-0-1.ec2.internal"),
        ("ExternalDNS", "ec2-198-51-100-1.compute.amazonaws.com"),
    ]
    ipv4 = [("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.1.1"), ("ExternalIP", "198.51.100.1")]
    ipv6 = [("InternalIP", "2001:db8::1")]
    found = [(one.type, one.address) for one in addresses(instance)]  # type: ignore[arg-type]
    assert found == ipv4 + ipv6 + names


@pytest.mark.parametrize("form", ["{id}", "{id}.eu-west-1.compute.internal", "{dns}"])
def test_a_node_without_provider_id_is_found_by_both_conventions(account: Account, aws: AWS, form: str) -> None:
    instance = account.launch()
    name = form.format(id=instance["InstanceId"], dns=instance["PrivateDnsName"])
    assert aws.instances_v2().instance_metadata(node(name)).provider_id == provider_id(instance)


def test_names_are_looked_up_in_the_cluster_alone_and_must_be_unique(account: Account, aws: AWS) -> None:
    stranger = account.launch(tagged=False)
    with pytest.raises(InstanceNotFound):
        aws.instances_v2().instance_metadata(node(stranger["PrivateDnsName"]))
    # A provider ID is proof enough.
    assert aws.instances_v2().instance_exists(node_of(stranger))
    vpc = account.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = account.ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    one = account.launch(PrivateIpAddress="10.0.0.77")
    other = account.ec2.run_instances(
        ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=subnet, PrivateIpAddress="10.0.0.77",
        TagSpecifications=[{"ResourceType": "instance", "Tags": [CLUSTER_TAG]}],
    )["Instances"][0]  # fmt: skip
    with pytest.raises(CloudProviderError, match="2 instances of the cluster have the private DNS name") as raised:
        aws.instances_v2().instance_exists(node(one["PrivateDnsName"]))
    assert not isinstance(raised.value, InstanceNotFound)
    assert other["InstanceId"] in str(raised.value)


@pytest.mark.parametrize(
    "of",
    [
        "gce:///europe/i-0abc",
        "aws:///eu-west-1a/fargate-ip-10-0-0-1.eu-west-1.compute.internal",
        "aws:///us-east-1a/i-0abc",
        "aws://",
    ],
)
def test_what_cannot_be_asked_here_is_unknown_and_never_gone(aws: AWS, of: str) -> None:
    with pytest.raises(CloudProviderError) as raised:
        aws.instances_v2().instance_exists(node("node-1", of))
    assert not isinstance(raised.value, InstanceNotFound)


def test_life_of_an_instance(account: Account, aws: AWS) -> None:
    instance = account.launch()
    asked = node_of(instance)
    cloud = aws.instances_v2()
    assert cloud.instance_exists(asked)
    assert not cloud.instance_shutdown(asked)
    account.ec2.stop_instances(InstanceIds=[instance["InstanceId"]])
    assert cloud.instance_exists(asked)
    assert cloud.instance_shutdown(asked)
    account.ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    _is_gone(aws, instance["PrivateDnsName"], provider_id(instance))


def test_an_instance_that_aws_forgot_is_gone(aws: AWS) -> None:
    _is_gone(aws, "node-1", f"aws:///{REGION}a/i-0123456789abcdef0")


def _is_gone(aws: AWS, name: str, of: str) -> None:
    asked = node(name, of)
    assert not aws.instances_v2().instance_exists(asked)
    with pytest.raises(InstanceNotFound):
        aws.instances_v2().instance_shutdown(asked)
    with pytest.raises(InstanceNotFound):
        aws.instances_v2().instance_metadata(asked)


@pytest.mark.parametrize("name", ["pending", "running", "shutting-down"])
def test_other_states_exist_and_run(name: str) -> None:
    from aws_provider.metadata import state

    assert state({"State": {"Name": name}}) is InstanceState.RUNNING  # type: ignore[typeddict-item]


def test_a_batch_is_one_call_and_each_problem_its_nodes_own(account: Account, aws: AWS) -> None:
    running, stopped, gone = (account.launch() for _ in range(3))
    account.ec2.stop_instances(InstanceIds=[stopped["InstanceId"]])
    account.ec2.terminate_instances(InstanceIds=[gone["InstanceId"]])
    nodes = [
        node("running", provider_id(running)), node("stopped", provider_id(stopped)), node("gone", provider_id(gone)),
        node("forgotten", f"aws:///{REGION}a/i-0123456789abcdef0"), node("malformed", f"aws:///{REGION}a/i-NO"),
    ]  # fmt: skip
    calls: list[str] = []
    aws.clients.ec2.meta.events.register("before-call", lambda model, **_: calls.append(model.name))
    states = aws.instances_batch().instances_state(nodes)
    assert calls == ["DescribeInstances"]
    assert states["running"] is InstanceState.RUNNING
    assert states["stopped"] is InstanceState.SHUTDOWN
    assert states["gone"] is InstanceState.GONE
    assert isinstance(states["forgotten"], InstanceNotFound)
    assert isinstance(states["malformed"], CloudProviderError)
    assert not isinstance(states["malformed"], InstanceNotFound)
    found = aws.instances_batch().instances_metadata(nodes)
    assert {name for name, value in found.items() if not isinstance(value, CloudProviderError)} == {
        "running",
        "stopped",
    }


def test_the_largest_batch_is_what_one_call_takes(aws: AWS) -> None:
    assert aws.instances_batch().max_batch == MAX_VALUES


def test_all_filters_together_have_no_more_values_than_aws_takes(aws: AWS) -> None:
    """AWS counts the values of a whole call: "the maximum number of filter values specified on a
    single call is 200"."""
    sizes: list[int] = []

    def note(params: dict[str, Any], **_: object) -> None:
        sizes.append(sum(len(one["Values"]) for one in params["Filters"]))

    aws.clients.ec2.meta.events.register("provide-client-params.ec2.DescribeInstances", note)
    names = [f"ip-10-0-0-{number}.{REGION}.compute.internal" for number in range(MAX_VALUES)]
    found = aws.instances_batch().instances_state([node(name) for name in names])
    aws.clients.ec2.meta.events.unregister("provide-client-params.ec2.DescribeInstances", note)
    assert found.keys() == set(names)
    assert all(isinstance(one, InstanceNotFound) for one in found.values())
    assert len(sizes) == 2
    assert max(sizes) == MAX_VALUES
