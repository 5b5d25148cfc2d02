"""A Service's Network Load Balancer in the tests' account: built, looked at, and broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aws_provider.annotations import PREFIX
from aws_provider.provider import AWS
from botocore.exceptions import ClientError
from conftest import CLUSTER, REGION, Account
from kubernetes.client.models import V1Node, V1ObjectMeta, V1Service, V1ServicePort, V1ServiceSpec
from moto.elbv2.models import ELBv2Backend, elbv2_backends

from cloudprovider import RetryError

UID = "0f3d5a7e-1111-2222-3333-444455556666"
NAME = "a0f3d5a7e11112222333344445555666"
CERTIFICATE = "arn:aws:iam::123456789012:server-certificate/web"


def service(*ports: V1ServicePort, uid: str = UID, annotations: dict[str, str] | None = None, **spec: Any) -> V1Service:
    return V1Service(
        metadata=V1ObjectMeta(
            namespace="shop", name="web", uid=uid, annotations={PREFIX + k: v for k, v in (annotations or {}).items()}
        ),
        spec=V1ServiceSpec(type="LoadBalancer", ports=list(ports) or [port(80)], **spec),
    )


def port(number: int, protocol: str = "TCP", node_port: int | None = None, name: str = "") -> V1ServicePort:
    return V1ServicePort(port=number, protocol=protocol, node_port=node_port or 30000 + number, name=name or None)


def ensure(aws: AWS, wanted: V1Service, nodes: Sequence[V1Node] = ()) -> str:
    """The hostname of the finished load balancer; AWS shows a new one as provisioning once."""
    balancers = aws.load_balancer()
    try:
        status = balancers.ensure_load_balancer(CLUSTER, wanted, nodes)
    except RetryError:
        status = balancers.ensure_load_balancer(CLUSTER, wanted, nodes)
    assert status.ingress is not None
    assert status.ingress == balancers.get_load_balancer(CLUSTER, wanted).ingress  # type: ignore[union-attr]
    return status.ingress[0].hostname or ""


@contextmanager
def calls_of(aws: AWS, *, looks: bool = False) -> Iterator[list[str]]:
    """The names of the API calls that change something, made in the body; with `looks`, of all."""
    made: list[str] = []

    def note(model: Any, **_: object) -> None:
        if looks or not model.name.startswith("Describe"):
            made.append(model.name)

    with on_each_call(aws, note):
        yield made


@contextmanager
def on_each_call(aws: AWS, handler: Callable[..., None]) -> Iterator[None]:
    """Before each API call."""
    clients: list[Any] = [aws.clients.ec2, aws.clients.elb, aws.clients.classic]
    for client in clients:
        client.meta.events.register("before-call", handler)
    yield
    for client in clients:
        client.meta.events.unregister("before-call", handler)


def listeners(account: Account) -> dict[int, tuple[str, str]]:
    """Protocol and target group of each port."""
    [balancer] = account.elb.describe_load_balancers(Names=[NAME])["LoadBalancers"]
    found = account.elb.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
    return {one["Port"]: (one["Protocol"], one["DefaultActions"][0]["TargetGroupArn"]) for one in found}


def targets(account: Account, number: int = 80) -> set[str]:
    health = account.elb.describe_target_health(TargetGroupArn=listeners(account)[number][1])
    return {one["Target"]["Id"] for one in health["TargetHealthDescriptions"]}


def rules(account: Account) -> set[tuple[str, int, str, str]]:
    """What the nodes' security group lets in."""
    [group] = account.ec2.describe_security_groups(GroupIds=[account.security_group])["SecurityGroups"]
    return {
        (one["IpProtocol"], one["FromPort"], each["CidrIp"], each.get("Description", "").removesuffix(NAME))
        for one in group["IpPermissions"]
        for each in one["IpRanges"]
    }


def groups(account: Account) -> list[str]:
    return [one["TargetGroupName"] for one in account.elb.describe_target_groups()["TargetGroups"]]


def backend() -> ELBv2Backend:
    return elbv2_backends["123456789012"][REGION]


@contextmanager
def failing_call(aws: AWS, name: str, code: str = "InternalError") -> Iterator[None]:
    """AWS refuses this API call."""

    def fail(model: Any, **_: object) -> None:
        if model.name == name:
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, name)

    with on_each_call(aws, fail):
        yield
