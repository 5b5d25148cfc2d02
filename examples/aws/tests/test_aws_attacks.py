"""What happens between two calls: rules and targets when nodes come late, answers that are old,
calls that fail half-way."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.memory import Built, Memory
from aws_provider.plan import identity
from aws_provider.provider import AWS
from aws_provider.shared import Shared
from aws_provider.tags import is_reserved
from botocore.exceptions import ClientError
from conftest import CLUSTER, Account, node_of
from kubernetes.client.models import V1LoadBalancerIngress, V1LoadBalancerStatus, V1ServiceStatus
from moto.ec2.models.instances import InstanceBackend
from nlb import ensure, failing_call, groups, on_each_call, rules, service

from cloudprovider import Call, CallDeadlineExceeded, CloudProviderError, call_scope

HEALTH = "kubernetes.io/rule/nlb/health="
OTHER = "9f3d5a7e-1111-2222-3333-444455556666"


@pytest.fixture
def aws(account: Account, clients: Clients) -> AWS:
    return AWS(Config(cluster=CLUSTER), clients)


@pytest.mark.row("P2")
class TestRulesFollowNodes:
    @pytest.mark.parametrize("restarted", [False, True])
    def test_nodes_that_come_after_the_load_balancer_are_open(
        self, account: Account, aws: AWS, restarted: bool
    ) -> None:
        ensure(aws, service(load_balancer_source_ranges=["192.0.2.0/24"]))
        assert rules(account) == set()
        later = AWS(Config(cluster=CLUSTER), aws.clients) if restarted else aws
        wanted = service(load_balancer_source_ranges=["192.0.2.0/24"])
        later.load_balancer().update_load_balancer(CLUSTER, wanted, [node_of(account.launch())])
        assert {(rule[1], rule[2]) for rule in rules(account)} == {
            (30080, "192.0.2.0/24"), (30080, "10.0.0.0/24"), (30080, "10.0.1.0/24"),
        }  # fmt: skip

    def test_a_short_answer_takes_no_rule_away(
        self, account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nodes = [node_of(account.launch())]
        ensure(aws, service(), nodes)
        before = rules(account)
        with monkeypatch.context() as patch:
            patch.setattr(InstanceBackend, "describe_instances", lambda *_, **__: [])
            aws.load_balancer().ensure_load_balancer(CLUSTER, service(), nodes)
        assert rules(account) == before != set()

    def test_nor_does_a_machine_that_is_switched_off(self, account: Account, aws: AWS) -> None:
        machine = account.launch()
        ensure(aws, service(), [node_of(machine)])
        before = rules(account)
        account.ec2.stop_instances(InstanceIds=[machine["InstanceId"]])
        aws.load_balancer().ensure_load_balancer(CLUSTER, service(), [node_of(machine)])
        assert rules(account) == before, "it serves as soon as it runs"

    def test_rules_that_do_not_fit_leave_those_that_are_there(self, account: Account, aws: AWS) -> None:
        nodes = [node_of(account.launch())]
        ensure(aws, service(), nodes)
        before = rules(account)
        crowded = service(load_balancer_source_ranges=[f"192.0.2.{number}/32" for number in range(61)])

        def refuse(model: Any, params: Any, **_: object) -> None:
            """moto takes as many as fit, AWS all or none."""
            asked = sum(".CidrIp" in key for key in params["body"])
            if model.name == "AuthorizeSecurityGroupIngress" and asked + len(rules(account)) > 60:
                raise ClientError({"Error": {"Code": "RulesPerSecurityGroupLimitExceeded"}}, model.name)

        with on_each_call(aws, refuse), pytest.raises(CloudProviderError, match="no room"):
            aws.load_balancer().ensure_load_balancer(CLUSTER, crowded, nodes)
        assert rules(account) == before

    def test_a_full_group_loses_the_old_ones_first(self, account: Account, aws: AWS) -> None:
        nodes = [node_of(account.launch())]
        first, second = ([f"192.0.{block}.{n}/32" for n in range(50)] for block in (2, 3))
        ensure(aws, service(load_balancer_source_ranges=first), nodes)
        ensure(aws, service(load_balancer_source_ranges=second), nodes)
        assert {rule[2] for rule in rules(account)} >= set(second)
        assert not {rule[2] for rule in rules(account)} & set(first)

    def test_new_rules_are_in_before_old_ones_go_out(self, account: Account, aws: AWS) -> None:
        nodes = [node_of(account.launch())]
        ensure(aws, service(), nodes)
        before = rules(account)
        changed = service(load_balancer_source_ranges=["192.0.2.0/24"])
        with (
            failing_call(aws, "AuthorizeSecurityGroupIngress", "RequestLimitExceeded"),
            pytest.raises(CloudProviderError),
        ):
            aws.load_balancer().ensure_load_balancer(CLUSTER, changed, nodes)
        assert rules(account) == before

    def test_ranges_of_ipv6_alone_open_nothing(self, account: Account, aws: AWS) -> None:
        wanted = service(load_balancer_source_ranges=["2001:db8::/32"])
        ensure(aws, wanted, [node_of(account.launch())])
        assert {rule[2] for rule in rules(account) if not rule[3].startswith(HEALTH)} == set()

    def test_a_shared_rule_that_another_service_sweeps_meanwhile_is_made_again(
        self, account: Account, aws: AWS
    ) -> None:
        """The one has seen the other's rule, and made none, when the other sweeps it."""
        nodes = [node_of(account.launch())]
        first, second = (service(annotations={"healthcheck-port": "9001"}, uid=uid) for uid in (OTHER, OTHER[::-1]))
        ensure(aws, first, nodes)
        swept = threading.Event()

        def sweep(model: Any, **_: object) -> None:
            if model.name == "CreateLoadBalancer" and not swept.is_set():
                swept.set()
                aws.load_balancer().ensure_load_balancer_deleted(CLUSTER, first)

        with on_each_call(aws, sweep):
            ensure(aws, second, nodes)
        assert swept.is_set()
        assert {rule[1] for rule in rules(account) if rule[3] == f"{HEALTH}shared"} == {9001}

    def test_rules_that_could_not_be_removed_at_once_are_removed_later(self, account: Account, aws: AWS) -> None:
        ensure(aws, service(), [node_of(account.launch())])
        later = AWS(Config(cluster=CLUSTER, manage_security_groups=False), aws.clients)
        with (
            failing_call(later, "RevokeSecurityGroupIngress", "RequestLimitExceeded"),
            pytest.raises(CloudProviderError),
        ):
            later.load_balancer().ensure_load_balancer_deleted(CLUSTER, service())
        assert later.load_balancer().get_load_balancer(CLUSTER, service()) is not None, "the host deletes again"


@pytest.mark.row("P1")
def test_another_hostname_is_told_though_a_machine_is_missing(
    account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [node_of(account.launch())]
    rebuilt = service()
    old = V1LoadBalancerIngress(hostname="old.example")  # moto gives a second one the same name
    rebuilt.status = V1ServiceStatus(load_balancer=V1LoadBalancerStatus(ingress=[old]))
    with monkeypatch.context() as patch:
        patch.setattr(InstanceBackend, "describe_instances", lambda *_, **__: [])
        assert ensure(aws, rebuilt, nodes) != old.hostname


@pytest.mark.row("P3")
class TestOldAnswers:
    def test_an_answer_from_before_a_change_is_not_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aws_provider.shared.SECONDS", 60.0)
        begun, go_on, there = threading.Event(), threading.Event(), ["old"]

        def load(_: str) -> str:
            seen = there[0]
            begun.set()
            assert go_on.wait(10)
            return seen

        shared = Shared(load)
        other = threading.Thread(target=shared.get, args=("a",))
        other.start()
        assert begun.wait(10)
        there[0] = "new"
        shared.forget()
        go_on.set()
        other.join()
        assert shared.get("a") == "new"

    def test_deletion_finds_a_target_group_that_was_made_while_others_listed(
        self, account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("aws_provider.shared.SECONDS", 60.0)
        balancers = aws.load_balancer()

        def look(model: Any, **_: object) -> None:
            if model.name == "CreateTargetGroup":  # another Service's call, before AWS has made it
                assert balancers.get_load_balancer(CLUSTER, service(uid=OTHER)) is None

        with on_each_call(aws, look):
            ensure(aws, service(), [node_of(account.launch())])
        balancers.ensure_load_balancer_deleted(CLUSTER, service())
        assert groups(account) == []

    def test_rules_that_were_made_while_others_listed_are_known(
        self, account: Account, aws: AWS, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("aws_provider.shared.SECONDS", 60.0)
        nodes = [node_of(account.launch())]
        ensure(aws, service(uid=OTHER), nodes)

        def look(model: Any, **_: object) -> None:
            if model.name == "AuthorizeSecurityGroupIngress":
                aws.load_balancer().update_load_balancer(CLUSTER, service(uid=OTHER), nodes)

        with on_each_call(aws, look):
            ensure(aws, service(), nodes)
        ensure(aws, service(), nodes)

    def test_a_call_that_the_host_gave_up_is_not_remembered(self) -> None:
        memory, asked = Memory(), identity(CLUSTER, service())
        with call_scope(Call(deadline=0.0, monotonic=lambda: 1.0)), pytest.raises(CallDeadlineExceeded):
            memory.keep(asked, Built(None, {}, {}))  # type: ignore[arg-type]
        assert memory.get(asked) is None


@pytest.mark.parametrize("key", ["AWS:x", "Aws:cloudformation:stack-id", "KubernetesCluster", "a.kubernetes.io/x"])
def test_reserved_tags_as_aws_means_them(key: str) -> None:
    assert is_reserved(key)


def test_a_tag_of_a_like_domain_is_the_users() -> None:
    assert not is_reserved("mykubernetes.io/team")
