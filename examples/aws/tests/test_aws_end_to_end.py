"""Our whole manager with this provider, over the embedded API server and moto's server: nodes,
Services, routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from attrs import evolve
from aws_provider import loadbalancer
from aws_provider.clients import Clients
from aws_provider.finder import provider_id
from aws_provider.provider import new_provider
from conftest import CLUSTER, CLUSTER_TAG, REGION, Account, furnish

from cloudprovider import CloudConfig, Interface
from controllers.testing import Cluster, ManagerRun


@pytest.fixture
def account(endpoint: str) -> Account:
    made = furnish(Clients(REGION))
    table = made.ec2.create_route_table(VpcId=made.vpc)["RouteTable"]["RouteTableId"]
    made.ec2.create_tags(Resources=[table], Tags=[CLUSTER_TAG])
    return evolve(made, route_table=table)


@pytest.fixture
def provider(account: Account) -> Iterator[Interface]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loadbalancer, "PROVISIONING_SECONDS", 0.2)  # moto builds at once
        yield new_provider(CloudConfig(path="", data=f"cluster: {CLUSTER}\nvpc: {account.vpc}".encode()))


@pytest.fixture
def manager_flags() -> Sequence[str]:
    routes = ["--allocate-node-cidrs=true", "--configure-cloud-routes=true", "--cluster-cidr=10.244.0.0/16"]
    return [f"--cluster-name={CLUSTER}", *routes]


def test_a_node_lives_with_its_instance_and_a_service_with_its_load_balancer(
    account: Account, cluster: Cluster, manager: ManagerRun
) -> None:
    instance = account.launch()
    node = cluster.join(instance["PrivateDnsName"])
    cluster.wait_until(lambda: node.is_initialized)
    assert node.provider_id == provider_id(instance)
    assert ("InternalIP", instance["PrivateIpAddress"]) in node.addresses
    assert node.labels["topology.kubernetes.io/zone"] == f"{REGION}a"
    assert node.labels["topology.k8s.aws/zone-id"]
    cluster.wait_until(lambda: account.routed() == {instance["InstanceId"]})

    service = cluster.expose("web")
    cluster.wait_until(lambda: service.addresses)
    [balancer] = account.elb.describe_load_balancers()["LoadBalancers"]
    assert service.addresses == [balancer["DNSName"]]
    [group] = account.elb.describe_target_groups()["TargetGroups"]
    health = account.elb.describe_target_health(TargetGroupArn=group["TargetGroupArn"])["TargetHealthDescriptions"]
    assert [one["Target"]["Id"] for one in health] == [instance["InstanceId"]]

    service.delete()
    cluster.wait_until(lambda: not service.exists)
    assert account.elb.describe_load_balancers()["LoadBalancers"] == []
    assert account.elb.describe_target_groups()["TargetGroups"] == []

    account.ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    node.mark_not_ready()
    cluster.wait_until(lambda: not node.exists)


def test_a_mistake_in_an_annotation_is_told_with_the_service(
    account: Account, cluster: Cluster, manager: ManagerRun
) -> None:
    web = cluster.expose("web", annotations={"service.beta.kubernetes.io/aws-load-balancer-internal": "maybe"})
    cluster.wait_until(lambda: any("allowed: true or false" in event.message for event in cluster.events(web)))
