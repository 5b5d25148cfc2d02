"""What the conformance tests do to AWS, which is moto's server: make and stop machines, break it,
look inside."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aws_provider.clients import Clients
from aws_provider.finder import provider_id
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from conftest import REGION, Account, furnish
from imds import MetadataService
from kubernetes.client.models import V1Node
from moto.ec2.models.instances import InstanceBackend
from typing_extensions import override

from cloudprovider import CloudConfig
from cloudprovider.testing.conformance import BalancerFacts, Lab, new_node

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import IpPermissionTypeDef, TagTypeDef

CLIENT_RULE = "kubernetes.io/rule/nlb/client="


class AWSLab(Lab):
    """Every hook that moto can serve. What is the cluster's is tagged for the second cluster
    too."""

    secrets = ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEXAMPLETOKEN")

    def __init__(self, service: MetadataService) -> None:
        self.service = service
        self.account: Account = furnish(Clients(REGION))
        self.tags: list[TagTypeDef] = [
            {"Key": f"kubernetes.io/cluster/{self.cluster_name}{number}", "Value": "shared"} for number in ("", "-2")
        ]
        ec2 = self.account.ec2
        ec2.create_tags(Resources=[*self.account.subnets.values(), self.account.security_group], Tags=self.tags)
        for tag in self.tags:  # a route table for each cluster
            table = ec2.create_route_table(VpcId=self.account.vpc)["RouteTable"]["RouteTableId"]
            ec2.create_tags(Resources=[table], Tags=[tag])

    @override
    def config(self) -> CloudConfig:
        return CloudConfig(path="", data=f"cluster: {self.cluster_name}".encode())

    @override
    def create_machine(self, name: str) -> V1Node:
        instance = self.account.launch()
        self.account.ec2.create_tags(Resources=[instance["InstanceId"]], Tags=self.tags)
        return new_node(instance["PrivateDnsName"])

    @override
    def local_machine(self) -> V1Node:
        if not self.service.texts:
            instance = self.account.launch()
            self.account.ec2.create_tags(Resources=[instance["InstanceId"]], Tags=self.tags)
            self.service.speak_for(instance, REGION)
        return new_node(self.service.texts["local-hostname"])

    @override
    def stop_machine(self, node: V1Node) -> None:
        self.account.ec2.stop_instances(InstanceIds=[self._instance(node)])

    @override
    def start_machine(self, node: V1Node) -> None:
        self.account.ec2.start_instances(InstanceIds=[self._instance(node)])

    @override
    @contextmanager
    def unlisted(self, node: V1Node) -> Iterator[None]:
        found, described = self._instance(node), InstanceBackend.describe_instances

        def lacks(backend: Any, filters: Any = None) -> Any:
            reservations = [copy.copy(one) for one in described(backend, filters)]
            for one in reservations:
                one.instances = [instance for instance in one.instances if instance.id != found]
            return reservations

        with patch.object(InstanceBackend, "describe_instances", lacks):
            yield

    @override
    def refused_annotations(self) -> Mapping[str, str]:
        return {"service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout": "60"}

    @override
    def delete_machine(self, node: V1Node) -> None:
        self.account.ec2.terminate_instances(InstanceIds=[self._instance(node)])

    @override
    @contextmanager
    def outage(self, after: int = 0) -> Iterator[None]:
        requests = itertools.count()
        send = URLLib3Session.send

        def fail(session: URLLib3Session, request: Any) -> Any:
            if next(requests) < after:
                return send(session, request)
            raise EndpointConnectionError(endpoint_url=request.url)

        with patch.object(URLLib3Session, "send", fail):
            yield

    @override
    @contextmanager
    def hang(self) -> Iterator[None]:
        def wait(session: Any, request: Any) -> Any:
            connect, read = session._timeout
            time.sleep(connect + read)
            raise ReadTimeoutError(endpoint_url=request.url)

        with patch.object(URLLib3Session, "send", wait):
            yield

    @override
    def resources(self) -> Collection[str]:
        elb = self.account.elb
        balancers = [one["LoadBalancerArn"] for one in elb.describe_load_balancers()["LoadBalancers"]]
        groups = [one["TargetGroupArn"] for one in elb.describe_target_groups()["TargetGroups"]]
        rules = [f"{protocol}/{port} for {text}" for protocol, port, _, text in self._rules()]
        return [*balancers, *groups, *rules]

    @override
    def load_balancer(self, name: str) -> BalancerFacts | None:
        elb = self.account.elb
        found = [one for one in elb.describe_load_balancers()["LoadBalancers"] if one["LoadBalancerName"] == name]
        if not found:
            return None
        listeners = elb.describe_listeners(LoadBalancerArn=found[0]["LoadBalancerArn"])["Listeners"]
        ports, targets = [], []
        for listener in listeners:
            arn = listener["DefaultActions"][0]["TargetGroupArn"]
            [group] = elb.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"]
            ports.append((listener["Port"], str(listener["Protocol"]), group["Port"]))
            health = elb.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
            targets += [provider_id(self.account.show(one["Target"]["Id"])) for one in health]
        sources = [cidr for _, _, cidr, text in self._rules() if text == CLIENT_RULE + name]
        return BalancerFacts(ports=ports, targets=targets, source_ranges=sources)

    @override
    def create_owned_resource(self, cluster_name: str) -> str:
        ec2 = self.account.ec2
        group = ec2.create_security_group(GroupName=cluster_name, Description="nodes", VpcId=self.account.vpc)[
            "GroupId"
        ]
        tag: TagTypeDef = {"Key": f"kubernetes.io/cluster/{cluster_name}", "Value": "owned"}
        ec2.create_tags(Resources=[group], Tags=[tag])
        own, theirs = f"{CLIENT_RULE}gone", "ssh"
        for port, text in ((30080, own), (22, theirs)):
            rule: IpPermissionTypeDef = {
                "IpProtocol": "tcp", "FromPort": port, "ToPort": port,
                "IpRanges": [{"CidrIp": "10.0.0.0/16", "Description": text}],
            }  # fmt: skip
            ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
        return f"{group}/tcp/30080/10.0.0.0/16"

    def _instance(self, node: V1Node) -> str:
        names = [{"Name": "private-dns-name", "Values": [node.metadata.name]}]  # type: ignore[union-attr]
        found = self.account.ec2.describe_instances(Filters=names)["Reservations"]  # type: ignore[arg-type]
        return found[0]["Instances"][0]["InstanceId"]

    def _rules(self) -> list[tuple[str, int, str, str]]:
        [group] = self.account.ec2.describe_security_groups(GroupIds=[self.account.security_group])["SecurityGroups"]
        return [
            (one["IpProtocol"], one["FromPort"], each["CidrIp"], each.get("Description", ""))
            for one in group["IpPermissions"]
            for each in one["IpRanges"]
        ]
