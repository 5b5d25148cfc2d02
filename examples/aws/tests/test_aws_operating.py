"""What operators met: targets that vanish, rules that stay, names that differ, too many calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.provider import AWS
from aws_provider.shared import Shared
from conftest import CLUSTER, REGION, Account, node, node_of
from kubernetes.client.models import (
    V1LoadBalancerIngress,
    V1LoadBalancerStatus,
    V1Node,
    V1Service,
    V1ServiceStatus,
    V1Taint,
)
from moto.elbv2.models import FakeLoadBalancer
from nlb import NAME, backend, calls_of, ensure, failing_call, groups, listeners, port, rules, service, targets

from cloudprovider import Call, CallDeadlineExceeded, CloudProviderError, InvalidService, RetryError, call_scope


@pytest.fixture
def aws(account: Account, clients: Clients) -> AWS:
    return AWS(Config(cluster=CLUSTER), clients)


def update(aws: AWS, wanted: V1Service, nodes: list[V1Node]) -> None:
    aws.load_balancer().update_load_balancer(CLUSTER, wanted, nodes)


def with_address(wanted: V1Service, hostname: str) -> V1Service:
    """As the API server shows it once it was built."""
    ingress = [V1LoadBalancerIngress(hostname=hostname)]
    wanted.status = V1ServiceStatus(load_balancer=V1LoadBalancerStatus(ingress=ingress))
    return wanted


@contextmanager
def listing_nothing(aws: AWS) -> Iterator[None]:
    """DescribeInstances answers without the machines."""

    def shorten(parsed: Any, **_: object) -> None:
        parsed["Reservations"] = []

    event = "after-call.ec2.DescribeInstances"
    aws.clients.ec2.meta.events.register(event, shorten)
    yield
    aws.clients.ec2.meta.events.unregister(event, shorten)


# Targets (P1)


@pytest.mark.row("P1")
class TestTargets:
    def test_a_machine_that_is_switched_off_stays_and_serves_as_soon_as_it_runs(
        self, account: Account, aws: AWS
    ) -> None:
        off, other, new = (account.launch() for _ in range(3))
        ensure(aws, service(), [node_of(off), node_of(other)])
        account.ec2.stop_instances(InstanceIds=[off["InstanceId"]])
        update(aws, service(), [node_of(off), node_of(other), node_of(new)])
        ensure(aws, service(), [node_of(off), node_of(other), node_of(new)])
        assert targets(account) == {one["InstanceId"] for one in (off, other, new)}

    def test_one_that_was_off_from_the_start_is_asked_about_again(self, account: Account, aws: AWS) -> None:
        off, other = account.launch(), account.launch()
        account.ec2.stop_instances(InstanceIds=[off["InstanceId"]])
        nodes = [node_of(off), node_of(other)]
        assert ensure(aws, service(), nodes), "those that run get an address"
        times = []
        for _ in range(9):
            with pytest.raises(RetryError, match=f"{off['InstanceId']} \\(stopped\\): no targets") as raised:
                update(aws, service(), nodes)
            times.append(raised.value.retry_after)
        assert times[:4] == [10, 20, 40, 80]
        assert times[-1] == 600, "a machine may be off for weeks"
        account.ec2.start_instances(InstanceIds=[off["InstanceId"]])
        update(aws, service(), nodes)
        assert targets(account) == {off["InstanceId"], other["InstanceId"]}

    def test_a_node_that_was_switched_off_changes_its_traits_when_it_comes_back(self, aws: AWS) -> None:
        one = node("a", "aws:///a/i-1", pool="web")
        before = aws.load_balancer().target_traits(one)
        one.spec.taints = [V1Taint(key="node.cloudprovider.kubernetes.io/shutdown", effect="NoSchedule")]  # type: ignore[union-attr]
        assert aws.load_balancer().target_traits(one) != before
        assert aws.load_balancer().target_traits(node("a", "aws:///a/i-1", pool="db")) != before

    def test_an_answer_without_the_machines_takes_no_target_away(self, account: Account, aws: AWS) -> None:
        first, second, new = (account.launch() for _ in range(3))
        hostname = ensure(aws, service(), [node_of(first), node_of(second)])
        nodes = [node_of(one) for one in (first, second, new)]
        built = with_address(service(), hostname)
        with listing_nothing(aws):
            with pytest.raises(RetryError, match="AWS does not list it"):
                update(aws, built, nodes)
            with pytest.raises(RetryError, match="AWS does not list it"):
                aws.load_balancer().ensure_load_balancer(CLUSTER, built, nodes)
        assert targets(account) == {first["InstanceId"], second["InstanceId"]}
        update(aws, built, nodes)
        assert targets(account) == {one["InstanceId"] for one in (first, second, new)}

    def test_new_targets_are_in_before_old_ones_go_out(self, account: Account, aws: AWS) -> None:
        old, new = account.launch(), account.launch()
        ensure(aws, service(), [node_of(old)])
        with failing_call(aws, "RegisterTargets", "Throttling"), pytest.raises(CloudProviderError):
            update(aws, service(), [node_of(new)])
        assert targets(account) == {old["InstanceId"]}
        update(aws, service(), [node_of(new)])
        assert targets(account) == {new["InstanceId"]}

    def test_a_full_target_group_loses_the_old_ones_first(self, account: Account, aws: AWS) -> None:
        old, new = account.launch(), account.launch()
        ensure(aws, service(), [node_of(old)])
        is_full = pytest.raises(CloudProviderError, match="TooManyTargets")
        with calls_of(aws) as calls, failing_call(aws, "RegisterTargets", "TooManyTargets"), is_full:
            update(aws, service(), [node_of(new)])
        assert calls == ["RegisterTargets", "DeregisterTargets", "RegisterTargets"]
        update(aws, service(), [node_of(new)])
        assert targets(account) == {new["InstanceId"]}

    @pytest.mark.parametrize(
        "annotations", [{"intern": "true"}, {"healthcheck-interval": "1"}, {"type": "external"}], ids=str
    )
    def test_an_update_refuses_nothing(self, account: Account, aws: AWS, annotations: dict[str, str]) -> None:
        first, second = account.launch(), account.launch()
        ensure(aws, service(), [node_of(first)])
        update(aws, service(annotations=annotations), [node_of(first), node_of(second)])
        again = AWS(Config(cluster=CLUSTER), aws.clients)  # and in a process that did not build it
        update(again, service(annotations=annotations), [node_of(second)])
        assert targets(account) == {second["InstanceId"]}

    def test_labels_that_cannot_be_read_add_no_node(self, account: Account, aws: AWS) -> None:
        first, second, third = (account.launch() for _ in range(3))
        ensure(aws, service(), [node_of(first), node_of(second)])
        update(aws, service(annotations={"target-node-labels": "="}), [node_of(second), node_of(third)])
        assert targets(account) == {second["InstanceId"]}

    def test_a_nodes_group_gets_the_rules_that_the_others_have(self, account: Account, aws: AWS) -> None:
        first, second = account.launch(), account.launch()
        ensure(aws, service(annotations={"healthcheck-port": "9001"}), [node_of(first)])
        other = account.ec2.create_security_group(GroupName="other", Description="o", VpcId=account.vpc)["GroupId"]
        account.ec2.create_tags(Resources=[other], Tags=[{"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}])
        account.ec2.modify_instance_attribute(InstanceId=second["InstanceId"], Groups=[other])
        update(aws, service(), [node_of(first), node_of(second)])
        before = rules(account)
        account.ec2.modify_instance_attribute(InstanceId=second["InstanceId"], Groups=[account.security_group])
        [group] = account.ec2.describe_security_groups(GroupIds=[other])["SecurityGroups"]
        assert {one["FromPort"] for one in group["IpPermissions"]} == {30080, 9001}
        assert rules(account) == before


# Rules (P2)


@pytest.mark.row("P2")
class TestRules:
    def test_those_that_were_made_go_when_they_are_no_more_managed(
        self, account: Account, clients: Clients, aws: AWS
    ) -> None:
        ensure(aws, service(), [node_of(account.launch())])
        later = AWS(Config(cluster=CLUSTER, manage_security_groups=False), clients)
        ensure(later, service(), [node_of(account.launch())])
        assert rules(account), "while it lives, its traffic needs them"
        later.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
        assert rules(account) == set()

    def test_those_that_may_not_be_removed_any_more_are_told(
        self, account: Account, clients: Clients, aws: AWS, caplog: pytest.LogCaptureFixture
    ) -> None:
        ensure(aws, service(), [node_of(account.launch())])
        later = AWS(Config(cluster=CLUSTER, manage_security_groups=False), clients)
        with failing_call(later, "RevokeSecurityGroupIngress", "UnauthorizedOperation"):
            later.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
            with pytest.raises(CloudProviderError, match="does not allow"):
                aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
        assert f"remove them yourself: tcp/30080 from 0.0.0.0/0 in {account.security_group}" in caplog.text

    def test_an_internal_one_is_open_to_its_network_alone(self, account: Account, aws: AWS) -> None:
        account.ec2.associate_vpc_cidr_block(VpcId=account.vpc, CidrBlock="10.9.0.0/16")
        ensure(aws, service(annotations={"internal": "true"}), [node_of(account.launch())])
        assert {rule[2] for rule in rules(account)} == {"10.0.0.0/16", "10.9.0.0/16"}
        everyone = service(annotations={"internal": "true"}, load_balancer_source_ranges=["0.0.0.0/0"])
        ensure(aws, everyone, [node_of(account.launch())])
        assert {rule[2] for rule in rules(account)} == {"0.0.0.0/0"}, "said, so meant"

    def test_a_group_without_room_is_known_before_anything_is_built(self, account: Account, aws: AWS) -> None:
        ranges = [f"192.0.2.{number}/32" for number in range(61)]
        crowded = service(load_balancer_source_ranges=ranges)
        with pytest.raises(CloudProviderError, match=f"{account.security_group} has no room for 63 more rules"):
            aws.load_balancer().ensure_load_balancer(CLUSTER, crowded, [node_of(account.launch())])
        assert account.elb.describe_load_balancers()["LoadBalancers"] == []
        assert groups(account) == []


# Names, tags, and what the Go provider built (P3)


@pytest.mark.row("P3")
class TestNames:
    @pytest.mark.parametrize(
        "key",
        ["kubernetes.io/cluster/red", "elbv2.k8s.aws/cluster", "kubernetes.io/service-uid", "aws:x", "a.k8s.io/b"],
    )
    def test_a_service_may_not_set_tags_that_mean_something(self, account: Account, aws: AWS, key: str) -> None:
        wanted = service(annotations={"additional-resource-tags": f"{key}=owned,team=web"})
        with pytest.raises(InvalidService, match=f"{key} may not be set"):
            aws.load_balancer().ensure_load_balancer(CLUSTER, wanted, [])

    def test_changed_tags_reach_all_that_was_built(self, account: Account, aws: AWS) -> None:
        for team in ("web", "ops"):
            ensure(aws, service(annotations={"additional-resource-tags": f"team={team}"}))
        [balancer] = account.elb.describe_load_balancers()["LoadBalancers"]
        [listener] = account.elb.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
        arns = [balancer["LoadBalancerArn"], listener["ListenerArn"], listeners(account)[80][1]]
        found = account.elb.describe_tags(ResourceArns=arns)["TagDescriptions"]
        assert [[tag["Value"] for tag in one["Tags"] if tag["Key"] == "team"] for one in found] == [["ops"]] * 3

    def test_beside_a_classic_one_of_the_service_none_is_built(self, account: Account, aws: AWS) -> None:
        classic = aws.clients.classic
        classic.create_load_balancer(
            LoadBalancerName=NAME, Subnets=[*account.subnets.values()],
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 30080}],
            Tags=[
                {"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"},
                {"Key": "kubernetes.io/service-name", "Value": "shop/web"},
            ],
        )  # fmt: skip
        with pytest.raises(CloudProviderError, match=f"there is a Classic Load Balancer {NAME}"):
            aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [node_of(account.launch())])
        assert (account.elb.describe_load_balancers()["LoadBalancers"], rules(account)) == ([], set())
        [owned] = aws.load_balancer().owned_load_balancers(CLUSTER)  # type: ignore[attr-defined]
        assert (owned.name, owned.service) == (NAME, "shop/web")
        classic.delete_load_balancer(LoadBalancerName=NAME)
        ensure(aws, service())


# How often AWS is asked (P3)


def three_ports(number: int = 0) -> V1Service:
    ports = [port(80 + index, node_port=30000 + 3 * number + index) for index in range(3)]
    return service(*ports, uid=f"{number:08d}-2222-3333-4444-555555555555")


@pytest.mark.row("P3")
class TestCalls:
    def test_a_new_node_costs_one_call_for_each_port_and_two_for_all_services(
        self, account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, new = account.launch(), account.launch()
        wanted = [three_ports(number) for number in range(5)]
        for one in wanted:
            ensure(aws, one, [node_of(first)])
        monkeypatch.setattr("aws_provider.shared.SECONDS", 60.0)
        with calls_of(aws, looks=True) as calls:
            for one in wanted:
                update(aws, one, [node_of(first), node_of(new)])
        assert Counter(calls) == {"DescribeInstances": 1, "DescribeSecurityGroups": 1, "RegisterTargets": 15}

    def test_a_process_that_did_not_build_it_looks_once(self, account: Account, aws: AWS) -> None:
        first, new = account.launch(), account.launch()
        ensure(aws, service(), [node_of(first)])
        again = AWS(Config(cluster=CLUSTER), aws.clients)
        for nodes, expected in (([first], 7), ([first, new], 3)):
            with calls_of(again, looks=True) as calls:
                update(again, service(), [node_of(one) for one in nodes])
            assert len(calls) <= expected, calls

    def test_while_aws_builds_one_thing_is_asked(
        self, account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """moto has built it as soon as somebody looks."""
        monkeypatch.setattr(FakeLoadBalancer, "activate", lambda _: None)
        nodes = [node_of(account.launch())]
        balancers = aws.load_balancer()
        with pytest.raises(RetryError, match="AWS is building"):
            balancers.ensure_load_balancer(CLUSTER, three_ports(), nodes)
        [made] = backend().load_balancers.values()
        for _ in range(2):
            with calls_of(aws, looks=True) as calls, pytest.raises(RetryError, match="AWS is building"):
                balancers.ensure_load_balancer(CLUSTER, three_ports(), nodes)
            assert calls == ["DescribeLoadBalancers"]
        made.state = "active"
        with calls_of(aws, looks=True) as calls:
            assert balancers.ensure_load_balancer(CLUSTER, three_ports(), nodes).ingress
        assert calls == ["DescribeLoadBalancers"]
        with calls_of(aws, looks=True) as calls:
            balancers.ensure_load_balancer(CLUSTER, three_ports(), nodes)
        assert "DescribeListeners" in calls, "the next one repairs"

    @pytest.mark.parametrize("change", ["plan", "nodes"])
    def test_a_change_meanwhile_is_made(self, account: Account, aws: AWS, change: str) -> None:
        first, second = account.launch(), account.launch()
        with pytest.raises(RetryError):
            aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [node_of(first)])
        wanted, nodes = (service(port(81)), [first]) if change == "plan" else (service(), [first, second])
        ensure(aws, wanted, [node_of(one) for one in nodes])
        number = 81 if change == "plan" else 80
        assert targets(account, number) == {one["InstanceId"] for one in nodes}

    def test_what_somebody_else_deleted_is_looked_for_again(self, account: Account, aws: AWS) -> None:
        nodes = [node_of(account.launch())]
        ensure(aws, service(), nodes)
        [made] = account.elb.describe_load_balancers()["LoadBalancers"]
        account.elb.delete_load_balancer(LoadBalancerArn=made["LoadBalancerArn"])
        [group] = account.elb.describe_target_groups()["TargetGroups"]
        account.elb.delete_target_group(TargetGroupArn=group["TargetGroupArn"])
        with pytest.raises(CloudProviderError, match="there is no load balancer"):
            update(aws, service(), [*nodes, node_of(account.launch())])
        ensure(aws, service(), nodes)
        assert len(groups(account)) == 1


class TestShared:
    def test_an_answer_is_kept_for_a_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aws_provider.shared.SECONDS", 1.0)
        now, asked = [0.0], []

        def load(key: str) -> int:
            asked.append(key)
            return len(asked)

        shared = Shared(load, lambda: now[0])
        assert [shared.get("a"), shared.get("a"), shared.get("b")] == [1, 1, 2]
        now[0] = 1.1
        assert shared.get("a") == 3
        shared.forget()
        assert shared.get("a") == 4

    def test_a_failure_is_nobody_elses(self) -> None:
        def load(key: bool) -> str:
            if key and not tries:
                tries.append(1)
                raise CloudProviderError("no")
            return "yes"

        tries: list[int] = []
        shared = Shared(load)
        with pytest.raises(CloudProviderError):
            shared.get(True)
        assert shared.get(True) == "yes"

    def test_who_waits_for_anothers_answer_waits_no_longer_than_its_own_call(self) -> None:
        begun, over = threading.Event(), threading.Event()

        def load(_: str) -> str:
            begun.set()
            over.wait(10)
            return "yes"

        shared = Shared(load)
        other = threading.Thread(target=shared.get, args=("a",))
        other.start()
        assert begun.wait(10)
        with call_scope(Call(deadline=0.0, monotonic=lambda: 1.0)), pytest.raises(CallDeadlineExceeded):
            shared.get("a")
        over.set()
        other.join()


# Annotations of the Go provider's table


@pytest.mark.row("P3")
class TestAnnotations:
    def test_access_logs(self, account: Account, aws: AWS) -> None:
        written = {"access-log-enabled": "true", "access-log-s3-bucket-name": "logs"}
        with pytest.raises(InvalidService, match="needs access-log-s3-bucket-name"):
            ensure(aws, service(annotations={"access-log-enabled": "true"}))
        steps: list[dict[str, str]] = [written, {}, {"access-log-enabled": "false"}]
        for step in steps:
            ensure(aws, service(annotations=step))
            [made] = account.elb.describe_load_balancers()["LoadBalancers"]
            answer = account.elb.describe_load_balancer_attributes(LoadBalancerArn=made["LoadBalancerArn"])
            found = {one["Key"]: one["Value"] for one in answer["Attributes"]}
            assert found["access_logs.s3.bucket"] == "logs"
            on = step.get("access-log-enabled", "true")
            assert found["access_logs.s3.enabled"] == on, "without the annotation they stay as they are"

    def test_proxy_protocol(self, account: Account, aws: AWS) -> None:
        ensure(aws, service(annotations={"proxy-protocol": "*"}))
        answer = account.elb.describe_target_group_attributes(TargetGroupArn=listeners(account)[80][1])
        assert {"Key": "proxy_protocol_v2.enabled", "Value": "true"} in answer["Attributes"]

    def test_addresses_are_given_with_the_zones(
        self, account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[Any] = []
        create = aws.clients.elb.create_load_balancer

        def note(**arguments: Any) -> Any:
            made.append(arguments)
            return create(**arguments)

        monkeypatch.setattr(aws.clients.elb, "create_load_balancer", note)
        with pytest.raises(InvalidService, match="1 addresses are given for 2 zones"):
            ensure(aws, service(annotations={"eip-allocations": "eipalloc-1"}))
        ensure(aws, service(annotations={"eip-allocations": "eipalloc-1,eipalloc-2"}))
        private = service(annotations={"private-ipv4-addresses": "10.0.0.9,10.0.1.9", "internal": "true"}, uid="other")
        ensure(aws, private)
        zones = [account.subnets[f"{REGION}a"], account.subnets[f"{REGION}b"]]
        assert [one.get("SubnetMappings") for one in made] == [
            [{"SubnetId": zone, "AllocationId": f"eipalloc-{number}"} for number, zone in enumerate(zones, 1)],
            [{"SubnetId": zone, "PrivateIPv4Address": f"10.0.{n}.9"} for n, zone in enumerate(zones)],
        ]

    def test_addresses_cannot_be_changed(self, account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch) -> None:
        """moto shows no addresses, which AWS does."""
        ensure(aws, service(annotations={"eip-allocations": "eipalloc-1,eipalloc-2"}))
        describe = aws.clients.elb.describe_load_balancers

        def shown(**arguments: Any) -> Any:
            answer = describe(**arguments)
            for number, zone in enumerate(answer["LoadBalancers"][0]["AvailabilityZones"], 1):
                zone["LoadBalancerAddresses"] = [{"AllocationId": f"eipalloc-{number}"}]
            return answer

        monkeypatch.setattr(aws.clients.elb, "describe_load_balancers", shown)
        ensure(aws, service(annotations={"eip-allocations": "eipalloc-1,eipalloc-2"}))
        with pytest.raises(InvalidService, match="has the addresses eipalloc-1, eipalloc-2"):
            ensure(aws, service(annotations={"eip-allocations": "eipalloc-3,eipalloc-2"}))

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("extra-security-groups", "the nodes' group lets the traffic in"),
            ("connection-draining-timeout", "say deregistration_delay.timeout_seconds"),
            ("connection-idle-timeout", "is 350 seconds"),
        ],
    )
    def test_what_cannot_be_obeyed_is_refused_by_name(self, account: Account, aws: AWS, name: str, why: str) -> None:
        with pytest.raises(InvalidService, match=f"{name}.*nothing: .*{why}"):
            aws.load_balancer().ensure_load_balancer(CLUSTER, service(annotations={name: "60"}), [])

    @pytest.mark.parametrize(
        ("annotations", "why"),
        [
            ({"eip-allocations": "a,b", "internal": "true"}, "internet-facing"),
            ({"private-ipv4-addresses": "10.0.0.9"}, "for internal load balancers"),
        ],
    )
    def test_what_cannot_be_together(self, aws: AWS, annotations: dict[str, str], why: str) -> None:
        with pytest.raises(InvalidService, match=why):
            aws.load_balancer().ensure_load_balancer(CLUSTER, service(annotations=annotations), [])
