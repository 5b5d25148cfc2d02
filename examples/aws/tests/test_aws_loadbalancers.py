"""Network Load Balancers: what is built for a Service, kept in line, and wholly removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from aws_provider.annotations import PREFIX
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.listeners import Listeners
from aws_provider.ownership import NotOurs
from aws_provider.plan import identity, plan
from aws_provider.provider import AWS
from aws_provider.tags import tag_list
from botocore.stub import Stubber
from conftest import CLUSTER, REGION, Account, node, node_of
from kubernetes.client.models import V1ServicePort
from moto.elbv2.models import ELBv2Backend
from nlb import (
    CERTIFICATE,
    NAME,
    UID,
    backend,
    calls_of,
    ensure,
    failing_call,
    groups,
    listeners,
    port,
    rules,
    service,
    targets,
)

from cloudprovider import CloudProviderError, ImplementedElsewhere, InvalidService, OwnedLoadBalancer, RetryError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import TagTypeDef


@pytest.fixture
def aws(account: Account, clients: Clients) -> AWS:
    return AWS(Config(cluster=CLUSTER), clients)


# Building


def test_everything_is_built_and_tagged(account: Account, aws: AWS) -> None:
    first, second = account.launch(), account.launch(f"{REGION}b")
    with pytest.raises(RetryError, match="AWS is building"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [node_of(first)])
    hostname = ensure(aws, service(), [node_of(first), node_of(second)])
    [balancer] = account.elb.describe_load_balancers()["LoadBalancers"]
    assert hostname == balancer["DNSName"]
    assert (balancer["LoadBalancerName"], balancer["Type"], balancer["Scheme"]) == (NAME, "network", "internet-facing")
    assert len(balancer["LoadBalancerName"]) <= 32
    assert {zone["SubnetId"] for zone in balancer["AvailabilityZones"]} == set(account.subnets.values())
    assert targets(account) == {first["InstanceId"], second["InstanceId"]}
    [group] = account.elb.describe_target_groups()["TargetGroups"]
    assert (group["Protocol"], group["Port"], group["TargetType"]) == ("TCP", 30080, "instance")
    assert (group["HealthCheckProtocol"], group["HealthCheckPort"]) == ("TCP", "traffic-port")
    for arn in (balancer["LoadBalancerArn"], group["TargetGroupArn"]):
        [tags] = account.elb.describe_tags(ResourceArns=[arn])["TagDescriptions"]
        assert {tag["Key"]: tag["Value"] for tag in tags["Tags"]} == {
            f"kubernetes.io/cluster/{CLUSTER}": "owned",
            "kubernetes.io/service-name": "shop/web",
            "kubernetes.io/service-uid": UID,
        }
    assert rules(account) == {("tcp", 30080, "0.0.0.0/0", "kubernetes.io/rule/nlb/client=")}


def test_a_second_time_changes_nothing(account: Account, aws: AWS) -> None:
    nodes = [node_of(account.launch())]
    wanted = service(port(80), port(53, "UDP"), annotations={"cross-zone-load-balancing-enabled": "true"})
    ensure(aws, wanted, nodes)
    with calls_of(aws) as calls:
        ensure(aws, wanted, nodes)
        aws.load_balancer().update_load_balancer(CLUSTER, wanted, nodes)
    assert calls == []


@pytest.mark.parametrize(
    "failing", ["CreateTargetGroup", "RegisterTargets", "AuthorizeSecurityGroupIngress", "CreateListener"]
)
def test_what_an_interrupted_call_left_is_completed_and_not_doubled(account: Account, aws: AWS, failing: str) -> None:
    instance = account.launch()
    with failing_call(aws, failing), pytest.raises(CloudProviderError, match="InternalError"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [node_of(instance)])
    is_begun = failing != "AuthorizeSecurityGroupIngress"  # the rules come first
    assert (aws.load_balancer().get_load_balancer(CLUSTER, service()) is not None) == is_begun
    ensure(aws, service(), [node_of(instance)])
    assert len(account.elb.describe_load_balancers()["LoadBalancers"]) == 1
    assert len(groups(account)) == 1
    assert targets(account) == {instance["InstanceId"]}
    assert len(rules(account)) == 1


def test_local_traffic_is_checked_on_its_own_port_with_rules_for_the_subnets(account: Account, aws: AWS) -> None:
    wanted = service(
        external_traffic_policy="Local", health_check_node_port=32000, load_balancer_source_ranges=["192.0.2.0/24"]
    )
    ensure(aws, wanted, [node_of(account.launch())])
    [group] = account.elb.describe_target_groups()["TargetGroups"]
    assert (group["HealthCheckProtocol"], group["HealthCheckPort"], group["HealthCheckPath"]) == (
        "HTTP",
        "32000",
        "/healthz",
    )
    assert group["HealthCheckIntervalSeconds"] == 10
    assert rules(account) == {
        ("tcp", 30080, "192.0.2.0/24", "kubernetes.io/rule/nlb/client="),
        ("tcp", 32000, "10.0.0.0/24", "kubernetes.io/rule/nlb/health="),
        ("tcp", 32000, "10.0.1.0/24", "kubernetes.io/rule/nlb/health="),
    }


def test_protocols(account: Account, aws: AWS) -> None:
    wanted = service(
        port(443, name="https"), port(80), port(53), port(53, "UDP"), port(514, "UDP"),
        annotations={"ssl-cert": CERTIFICATE, "ssl-ports": "https"},
    )  # fmt: skip
    ensure(aws, wanted, [node_of(account.launch())])
    assert {number: protocol for number, (protocol, _) in listeners(account).items()} == {
        443: "TLS", 80: "TCP", 53: "TCP_UDP", 514: "UDP",
    }  # fmt: skip
    found = {one["Port"]: one for one in account.elb.describe_target_groups()["TargetGroups"]}
    assert {number: one["Protocol"] for number, one in found.items()} == {
        30443: "TCP", 30080: "TCP", 30053: "TCP_UDP", 30514: "UDP",
    }  # fmt: skip
    assert found[30514]["HealthCheckPort"] == "10256", "nothing answers TCP on a node port of UDP alone"
    assert ("udp", 30514, "0.0.0.0/0", "kubernetes.io/rule/nlb/client=") in rules(account)
    assert ("tcp", 10256, "10.0.0.0/24", "kubernetes.io/rule/nlb/health=shared") in rules(account)
    [tls] = [
        one
        for one in backend().load_balancers.values().__iter__().__next__().listeners.values()
        if one.protocol == "TLS"
    ]
    assert tls.certificates == [CERTIFICATE]


def test_a_port_that_users_chose_for_health_checks_is_open_as_long_as_one_is_checked_there(
    account: Account, aws: AWS
) -> None:
    """Otherwise whoever changes the annotation again and again fills the nodes' security group, and
    no load balancer can be built any more."""
    nodes = [node_of(account.launch())]
    other = service(port(81), uid=UID.replace("0f", "1f"), annotations={"healthcheck-port": "9003"})
    for number in (9001, 9002, 9003):
        ensure(aws, service(annotations={"healthcheck-port": str(number)}), nodes)
    ensure(aws, other, nodes)
    assert {rule[1] for rule in rules(account)} == {30080, 30081, 9003}
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert {rule[1] for rule in rules(account)} == {30081, 9003}, "the other one is checked there"
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, other)
    assert rules(account) == set()


def test_a_rule_that_a_service_needs_since_it_was_found_unused_comes_back(account: Account, aws: AWS) -> None:
    nodes = [node_of(account.launch())]
    ensure(aws, service(annotations={"healthcheck-port": "9001"}), nodes)
    other = service(port(81), uid=UID.replace("0f", "1f"), annotations={"healthcheck-port": "9001"})
    revoke = aws.clients.ec2.revoke_security_group_ingress
    security: list[bool] = []

    def late(**arguments: Any) -> Any:
        if arguments["IpPermissions"][0]["FromPort"] == 9001 and not security:
            security.append(True)
            ensure(aws, other, nodes)  # it sees the rule, and makes none
        return revoke(**arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws.clients.ec2, "revoke_security_group_ingress", late)
        aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert {rule[1] for rule in rules(account)} == {30081, 9001}


def test_a_certificate_turns_the_listener_into_tls_in_place(account: Account, aws: AWS) -> None:
    """moto refuses to change a listener to TLS, which AWS does."""
    ensure(aws, service())
    wanted = plan(CLUSTER, service(annotations={"ssl-cert": CERTIFICATE, "ssl-negotiation-policy": "p"}))
    arns = [
        "arn:aws:elasticloadbalancing:eu-west-1:1:" + kind for kind in ("loadbalancer/1", "listener/1", "targetgroup/1")
    ]
    present = {
        "ListenerArn": arns[1], "Port": 80, "Protocol": "TCP",
        "DefaultActions": [{"Type": "forward", "TargetGroupArn": arns[2]}],
    }  # fmt: skip
    changes = {
        "ListenerArn": arns[1], "Protocol": "TLS", "Certificates": [{"CertificateArn": CERTIFICATE}], "SslPolicy": "p",
    }  # fmt: skip
    with Stubber(aws.clients.elb) as stub:
        stub.add_response("describe_listeners", {"Listeners": [present]}, {"LoadBalancerArn": arns[0]})
        stub.add_response("modify_listener", {"Listeners": []}, changes)
        Listeners(aws.clients).ensure(arns[0], wanted, {80: arns[2]})
        stub.assert_no_pending_responses()


def test_changes_of_the_service_reach_aws(account: Account, aws: AWS) -> None:
    nodes = [node_of(account.launch())]
    ensure(aws, service(port(80), port(81)), nodes)
    before = listeners(account)
    ensure(aws, service(port(80, node_port=31080), port(82)), nodes)
    after = listeners(account)
    assert set(after) == {80, 82}
    assert after[80][1] != before[80][1], "the port of a target group cannot be modified: it is replaced"
    assert len(groups(account)) == 2
    assert {rule[1] for rule in rules(account)} == {31080, 30082}
    # From TCP to UDP the listener is replaced; a new health check is modified in place.
    ensure(aws, service(port(80, "UDP", 31080), port(82), annotations={"healthcheck-healthy-threshold": "5"}), nodes)
    assert listeners(account)[80][0] == "UDP"
    assert listeners(account)[82] == after[82]
    assert {one["HealthyThresholdCount"] for one in account.elb.describe_target_groups()["TargetGroups"]} == {5}


def test_what_was_changed_by_hand_is_repaired(account: Account, aws: AWS) -> None:
    nodes = [node_of(account.launch())]
    ensure(aws, service(), nodes)
    [balancer] = account.elb.describe_load_balancers()["LoadBalancers"]
    arn = balancer["LoadBalancerArn"]
    [listener] = account.elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]
    account.elb.delete_listener(ListenerArn=listener["ListenerArn"])
    [group] = account.elb.describe_target_groups()["TargetGroups"]
    account.elb.modify_target_group(TargetGroupArn=group["TargetGroupArn"], HealthCheckPort="99")
    account.elb.modify_target_group_attributes(
        TargetGroupArn=group["TargetGroupArn"], Attributes=[{"Key": "proxy_protocol_v2.enabled", "Value": "true"}]
    )
    account.elb.modify_load_balancer_attributes(
        LoadBalancerArn=arn, Attributes=[{"Key": "load_balancing.cross_zone.enabled", "Value": "true"}]
    )
    with calls_of(aws) as calls:
        ensure(aws, service(), nodes)
    assert sorted(calls) == [
        "CreateListener", "ModifyLoadBalancerAttributes", "ModifyTargetGroup", "ModifyTargetGroupAttributes",
    ]  # fmt: skip


def test_target_group_attributes_and_session_affinity(account: Account, aws: AWS) -> None:
    wanted = service(
        annotations={"target-group-attributes": "preserve_client_ip.enabled=false,proxy_protocol_v2.enabled=true"},
        session_affinity="ClientIP",
    )
    ensure(aws, wanted, [node_of(account.launch())])
    [group] = account.elb.describe_target_groups()["TargetGroups"]
    found = account.elb.describe_target_group_attributes(TargetGroupArn=group["TargetGroupArn"])["Attributes"]
    attributes = {one["Key"]: one["Value"] for one in found}
    assert attributes["preserve_client_ip.enabled"] == "false"
    assert attributes["proxy_protocol_v2.enabled"] == "true"
    assert (attributes["stickiness.enabled"], attributes["stickiness.type"]) == ("true", "source_ip")
    assert {rule[2] for rule in rules(account)} == {"10.0.0.0/24", "10.0.1.0/24"}, "the nodes see the subnets alone"


def test_an_internal_one_stands_in_other_subnets_and_a_change_builds_it_anew(account: Account, aws: AWS) -> None:
    account.ec2.delete_tags(
        Resources=[account.subnets[f"{REGION}a"]], Tags=[{"Key": "kubernetes.io/role/internal-elb"}]
    )
    ensure(aws, service())
    internal = service(annotations={"internal": "true"})
    with pytest.raises(RetryError, match="rebuilt"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, internal, [])
    ensure(aws, internal)
    [balancer] = account.elb.describe_load_balancers()["LoadBalancers"]
    assert balancer["Scheme"] == "internal"
    assert [zone["SubnetId"] for zone in balancer["AvailabilityZones"]] == [account.subnets[f"{REGION}b"]]
    assert len(groups(account)) == 1


def test_a_new_zone_is_added(account: Account, aws: AWS) -> None:
    role: TagTypeDef = {"Key": "kubernetes.io/role/elb"}
    subnet = account.subnets[f"{REGION}b"]
    account.ec2.delete_tags(Resources=[subnet], Tags=[role])
    ensure(aws, service())
    account.ec2.create_tags(Resources=[subnet], Tags=[{"Key": role["Key"], "Value": "1"}])
    ensure(aws, service())
    [balancer] = account.elb.describe_load_balancers()["LoadBalancers"]
    assert {zone["SubnetId"] for zone in balancer["AvailabilityZones"]} == set(account.subnets.values())


def test_subnets_by_annotation(account: Account, aws: AWS) -> None:
    chosen = account.subnets[f"{REGION}b"]
    account.ec2.create_tags(Resources=[chosen], Tags=[{"Key": "Name", "Value": "front"}])
    for asked in (chosen, "front"):
        ensure(aws, service(annotations={"subnets": asked}, uid=f"{asked}-uid"))
    for balancer in account.elb.describe_load_balancers()["LoadBalancers"]:
        assert [zone["SubnetId"] for zone in balancer["AvailabilityZones"]] == [chosen]
    with pytest.raises(CloudProviderError, match="2 subnets are asked for"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(annotations={"subnets": f"{chosen},none"}), [])


def test_without_tagged_subnets_the_tags_are_named(account: Account, aws: AWS) -> None:
    account.ec2.delete_tags(Resources=[*account.subnets.values()], Tags=[{"Key": "kubernetes.io/role/elb"}])
    with pytest.raises(CloudProviderError, match=r"both tags kubernetes\.io/role/elb and kubernetes\.io/cluster/blue"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [])


# Targets


def test_targets_follow_by_difference(account: Account, aws: AWS) -> None:
    old, kept, new = (account.launch() for _ in range(3))
    ensure(aws, service(), [node_of(old), node_of(kept)])
    with calls_of(aws) as calls:
        aws.load_balancer().update_load_balancer(CLUSTER, service(), [node_of(kept), node_of(new)])
    assert calls == ["RegisterTargets", "DeregisterTargets"]
    assert targets(account) == {kept["InstanceId"], new["InstanceId"]}


def test_who_is_left_out(account: Account, aws: AWS) -> None:
    good, stopped, unlabelled = (account.launch() for _ in range(3))
    account.ec2.stop_instances(InstanceIds=[stopped["InstanceId"]])
    labelled = [
        node_of(good),
        node_of(stopped),
        node("new"),
        node("foreign", "gce:///a/b"),
        node("gone", f"aws:///{REGION}a/i-0abc"),
        node("fargate", f"aws:///{REGION}a/0123-4567/fargate-ip-10-0-0-9.{REGION}.compute.internal"),
        node("far", "aws:///us-east-1a/i-0abc"),
        node("forged", "aws://"),
    ]
    for one in labelled:
        one.metadata.labels = {"pool": "web"}  # type: ignore[union-attr]
    ensure(aws, service(annotations={"target-node-labels": "pool=web"}), [*labelled, node_of(unlabelled)])
    assert targets(account) == {good["InstanceId"]}


def test_update_of_what_is_not_there_is_an_error(account: Account, aws: AWS) -> None:
    with pytest.raises(CloudProviderError, match="there is no load balancer"):
        aws.load_balancer().update_load_balancer(CLUSTER, service(), [])
    with failing_call(aws, "CreateTargetGroup"), pytest.raises(CloudProviderError, match="InternalError"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [])
    with pytest.raises(CloudProviderError, match="has no target groups"):
        aws.load_balancer().update_load_balancer(CLUSTER, service(), [])


def test_an_update_changes_targets_alone(account: Account, aws: AWS) -> None:
    instance = account.launch()
    ensure(aws, service(), [node_of(instance)])
    before = rules(account)
    aws.load_balancer().update_load_balancer(CLUSTER, service(port(81)), [node_of(instance)])
    assert set(listeners(account)) == {80}
    assert targets(account) == {instance["InstanceId"]}
    assert before <= rules(account), "what the listeners need stays open"


def test_rules_follow_the_nodes_groups_and_others_stay(account: Account, aws: AWS) -> None:
    theirs = {
        "IpProtocol": "tcp",
        "FromPort": 22,
        "ToPort": 22,
        "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "ssh"}],
    }
    account.ec2.authorize_security_group_ingress(GroupId=account.security_group, IpPermissions=[theirs])  # type: ignore[list-item]
    ensure(aws, service(), [node_of(account.launch())])
    ensure(aws, service(port(443), uid="another"), [node_of(account.launch())])
    assert {rule[1] for rule in rules(account)} == {22, 30080, 30443}
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert {rule[1] for rule in rules(account)} == {22, 30443}
    ensure(aws, service(port(443), uid="another"), [])
    assert {rule[1] for rule in rules(account)} == {22}, "no node, no rule"


def test_a_range_that_is_also_a_subnets_stays_open_to_its_health_checks(account: Account, aws: AWS) -> None:
    """AWS takes a range and a port once, whatever the description is."""
    nodes = [node_of(account.launch())]
    inside, outside = (service(load_balancer_source_ranges=[one]) for one in ("10.0.0.0/24", "192.0.2.0/24"))
    ensure(aws, inside, nodes)
    ensure(aws, outside, nodes)
    assert rules(account) == {
        ("tcp", 30080, "192.0.2.0/24", "kubernetes.io/rule/nlb/client="),
        ("tcp", 30080, "10.0.0.0/24", "kubernetes.io/rule/nlb/health="),
        ("tcp", 30080, "10.0.1.0/24", "kubernetes.io/rule/nlb/health="),
    }
    ensure(aws, inside, nodes)
    assert rules(account) == {
        ("tcp", 30080, "10.0.0.0/24", "kubernetes.io/rule/nlb/client="),
        ("tcp", 30080, "10.0.1.0/24", "kubernetes.io/rule/nlb/health="),
    }


def test_ports_that_are_checked_on_one_port_share_its_rule(account: Account, aws: AWS) -> None:
    """AWS refuses a request that has a range and a port twice."""
    wanted = service(
        port(81), port(80), annotations={"healthcheck-port": "30080"}, load_balancer_source_ranges=["192.0.2.0/24"]
    )
    ensure(aws, wanted, [node_of(account.launch())])
    assert rules(account) == {
        ("tcp", 30080, "192.0.2.0/24", "kubernetes.io/rule/nlb/client="),
        ("tcp", 30081, "192.0.2.0/24", "kubernetes.io/rule/nlb/client="),
        ("tcp", 30080, "10.0.0.0/24", "kubernetes.io/rule/nlb/health="),
        ("tcp", 30080, "10.0.1.0/24", "kubernetes.io/rule/nlb/health="),
    }


def test_nodes_without_a_tagged_group(account: Account, clients: Clients, aws: AWS) -> None:
    instance = account.launch()
    account.ec2.delete_tags(Resources=[account.security_group], Tags=[{"Key": f"kubernetes.io/cluster/{CLUSTER}"}])
    with pytest.raises(CloudProviderError, match="has no security group with the tag"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [node_of(instance)])
    ensure(AWS(Config(cluster=CLUSTER, manage_security_groups=False), clients), service(), [node_of(instance)])
    assert rules(account) == set()


def test_one_node_without_a_tagged_group_spoils_no_other(
    account: Account, aws: AWS, caplog: pytest.LogCaptureFixture
) -> None:
    good, other = account.launch(), account.launch()
    group = account.ec2.create_security_group(GroupName="other", Description="other", VpcId=account.vpc)["GroupId"]
    account.ec2.modify_instance_attribute(InstanceId=other["InstanceId"], Groups=[group])
    ensure(aws, service(), [node_of(good), node_of(other)])
    assert rules(account) == {("tcp", 30080, "0.0.0.0/0", "kubernetes.io/rule/nlb/client=")}
    assert set(listeners(account)) == {80}
    assert f"{other['InstanceId']} (its groups: {group}) has no security group with the tag" in caplog.text


# Deleting


def test_nothing_is_left_after_deletion(account: Account, aws: AWS) -> None:
    wanted = service(port(80), port(53, "UDP"))
    ensure(aws, wanted, [node_of(account.launch())])
    balancers = aws.load_balancer()
    balancers.ensure_load_balancer_deleted(CLUSTER, wanted)
    assert balancers.get_load_balancer(CLUSTER, wanted) is None
    assert account.elb.describe_load_balancers()["LoadBalancers"] == []
    assert groups(account) == []
    assert {rule[3] for rule in rules(account)} == {"kubernetes.io/rule/nlb/health=shared"}
    with calls_of(aws) as calls:
        balancers.ensure_load_balancer_deleted(CLUSTER, wanted)
    assert calls == []


@pytest.mark.parametrize("failing", ["DeleteLoadBalancer", "DeleteTargetGroup", "RevokeSecurityGroupIngress"])
def test_what_an_interrupted_deletion_left_is_seen_and_removed(account: Account, aws: AWS, failing: str) -> None:
    ensure(aws, service(), [node_of(account.launch())])
    balancers = aws.load_balancer()
    with failing_call(aws, failing), pytest.raises(CloudProviderError, match="InternalError"):
        balancers.ensure_load_balancer_deleted(CLUSTER, service())
    assert balancers.get_load_balancer(CLUSTER, service()) is not None, "None would be taken for done"
    balancers.ensure_load_balancer_deleted(CLUSTER, service())
    assert balancers.get_load_balancer(CLUSTER, service()) is None
    assert (groups(account), rules(account)) == ([], set())


def test_a_target_group_that_aws_still_counts_as_in_use_comes_later(
    account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto frees a target group at once; AWS takes a moment after the listener is gone."""
    ensure(aws, service())
    with monkeypatch.context() as patch:
        patch.setattr(ELBv2Backend, "_any_listener_using", lambda *_: True)
        with pytest.raises(RetryError, match="in use") as raised:
            aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert raised.value.retry_after == 5.0
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert groups(account) == []


def test_a_load_balancer_that_is_still_being_deleted_comes_later(
    account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure(aws, service())
    with monkeypatch.context() as patch:
        patch.setattr(ELBv2Backend, "delete_load_balancer", lambda *_, **__: None)
        patch.setattr(ELBv2Backend, "_any_listener_using", lambda *_: False)
        with pytest.raises(RetryError, match="still deleting"):
            aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())


# Whose it is


@pytest.mark.parametrize(
    "tags",
    [
        {"Name": "by hand"},
        {"kubernetes.io/cluster/green": "owned", "kubernetes.io/service-uid": UID},
        {f"kubernetes.io/cluster/{CLUSTER}": "shared", "kubernetes.io/service-uid": UID},
        {f"kubernetes.io/cluster/{CLUSTER}": "owned", "kubernetes.io/service-uid": "another"},
        {f"kubernetes.io/cluster/{CLUSTER}": "owned", "kubernetes.io/service-name": "shop/other"},
    ],
)
def test_what_is_not_proved_ours_is_never_touched(account: Account, aws: AWS, tags: dict[str, str]) -> None:
    account.elb.create_load_balancer(
        Name=NAME, Type="network", Subnets=[*account.subnets.values()],
        Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
    )  # fmt: skip
    balancers = aws.load_balancer()
    with calls_of(aws) as calls:
        attempts: list[Callable[[], object]] = [
            lambda: balancers.ensure_load_balancer(CLUSTER, service(), []),
            lambda: balancers.update_load_balancer(CLUSTER, service(), []),
            lambda: balancers.ensure_load_balancer_deleted(CLUSTER, service()),
            lambda: balancers.get_load_balancer(CLUSTER, service()),
        ]
        for call in attempts:
            with pytest.raises(NotOurs, match="is left alone: its tags do not say"):
                call()
    assert calls == []


def test_a_strangers_target_group_is_never_touched(account: Account, aws: AWS) -> None:
    ensure(aws, service())
    [name] = groups(account)
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    account.elb.create_target_group(Name=name, Protocol="TCP", Port=1, VpcId=account.vpc, TargetType="instance")
    with pytest.raises(NotOurs, match=f"target group {name}"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [])
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert groups(account) == [name]


def of_the_go_provider(account: Account) -> tuple[str, str]:
    """The hostname and the target group of a load balancer as the Go provider makes it."""
    tags: Any = [
        {"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"},
        {"Key": "kubernetes.io/service-name", "Value": "shop/web"},
    ]
    made = account.elb.create_load_balancer(Name=NAME, Type="network", Subnets=[*account.subnets.values()], Tags=tags)
    group = account.elb.create_target_group(
        Name="k8s-shop-web-0123456789", Protocol="TCP", Port=30080, VpcId=account.vpc, TargetType="instance", Tags=tags
    )["TargetGroups"][0]["TargetGroupArn"]
    account.elb.create_listener(
        LoadBalancerArn=made["LoadBalancers"][0]["LoadBalancerArn"], Protocol="TCP", Port=80,
        DefaultActions=[{"Type": "forward", "TargetGroupArn": group}],
    )  # fmt: skip
    return made["LoadBalancers"][0]["DNSName"], group


def test_one_of_the_go_provider_is_taken_over(account: Account, aws: AWS) -> None:
    hostname, group = of_the_go_provider(account)
    assert ensure(aws, service()) == hostname
    assert listeners(account)[80][1] != group
    assert len(groups(account)) == 1
    assert aws.load_balancer().owned_load_balancers(CLUSTER) == [OwnedLoadBalancer(NAME, "shop/web", UID)]  # type: ignore[attr-defined]


def test_target_groups_of_the_go_provider_go_also_when_no_load_balancer_leads_to_them(
    account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_the_go_provider(account)
    with monkeypatch.context() as patch:
        patch.setattr(ELBv2Backend, "_any_listener_using", lambda *_: True)
        with pytest.raises(RetryError, match="in use"):
            aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert aws.load_balancer().get_load_balancer(CLUSTER, service()) is not None, "None would be taken for done"
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
    assert groups(account) == []


def test_owned_load_balancers_are_this_clusters_and_complete(account: Account, aws: AWS) -> None:
    balancers = aws.load_balancer()
    ensure(aws, service(uid="uid0"))
    for number in range(1, 22):  # tags come twenty at a time
        account.elb.create_load_balancer(
            Name=f"auid{number}", Type="network", Subnets=[*account.subnets.values()],
            Tags=tag_list(identity(CLUSTER, service(uid=f"uid{number}")).tags),
        )  # fmt: skip
    account.elb.create_load_balancer(Name="theirs", Type="network", Subnets=[*account.subnets.values()])
    account.elb.create_load_balancer(Name="web", Type="application", Subnets=[*account.subnets.values()])
    owned = balancers.owned_load_balancers(CLUSTER)  # type: ignore[attr-defined]
    assert {one.service_uid for one in owned} == {f"uid{number}" for number in range(22)}
    assert balancers.owned_load_balancers("green") == []  # type: ignore[attr-defined]


# What cannot be done


def test_all_problems_of_a_service_at_once(aws: AWS) -> None:
    wanted = service(
        port(80, "SCTP"), V1ServicePort(port=81), port(53), port(53, "UDP", 31053),
        annotations={
            "internal": "maybe", "healthcheck-interval": "1", "healthcheck-port": "0", "type": "classic",
        },
        load_balancer_ip="1.2.3.4", load_balancer_source_ranges=["192.0.2.0/24"], ip_families=["IPv6"],
    )  # fmt: skip
    with pytest.raises(InvalidService) as raised:
        aws.load_balancer().ensure_load_balancer(CLUSTER, wanted, [])
    for words in (
        "port 80: a Network Load Balancer has no SCTP", "port 81 has no node port", "port 53 has one node port for TCP",
        f"{PREFIX}internal: 'maybe' cannot be used; allowed: true or false", f"{PREFIX}healthcheck-interval: '1'",
        f"{PREFIX}healthcheck-port: '0' cannot", f"{PREFIX}type: 'classic'", "spec.loadBalancerIP", "no IPv4 address",
    ):  # fmt: skip
        assert words in str(raised.value)


@pytest.mark.parametrize(
    ("attributes", "spec", "problem"),
    [
        ("slow_start=1", {}, "unknown target group attributes slow_start"),
        ("preserve_client_ip.enabled=false", {"load_balancer_source_ranges": ["192.0.2.0/24"]}, "source ranges need"),
    ],
)
def test_target_group_attributes_that_cannot_be(
    account: Account, aws: AWS, attributes: str, spec: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidService, match=problem):
        aws.load_balancer().ensure_load_balancer(
            CLUSTER, service(annotations={"target-group-attributes": attributes}, **spec), []
        )


def test_an_annotation_that_nobody_knows_is_a_mistake(account: Account, aws: AWS) -> None:
    with pytest.raises(InvalidService, match="did you mean"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(annotations={"intern": "true"}), [])


@pytest.mark.parametrize("kind", ["external", "nlb-ip"])
def test_a_service_of_the_load_balancer_controller_is_left_to_it(account: Account, aws: AWS, kind: str) -> None:
    theirs = service(annotations={"type": kind})
    with pytest.raises(ImplementedElsewhere):
        aws.load_balancer().ensure_load_balancer(CLUSTER, theirs, [])
    with pytest.raises(ImplementedElsewhere):
        aws.load_balancer().update_load_balancer(CLUSTER, theirs, [])
    assert aws.load_balancer().get_load_balancer(CLUSTER, theirs) is None
    aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, theirs)


def test_one_that_aws_could_not_build_says_why(account: Account, aws: AWS) -> None:
    ensure(aws, service())
    [balancer] = backend().load_balancers.values()
    balancer.state = "failed"
    with pytest.raises(CloudProviderError, match="AWS could not build"):
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [])
