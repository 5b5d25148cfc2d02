"""Listeners: the ports of a load balancer, each forwarding to one target group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import frozen
from botocore.exceptions import ClientError

from aws_provider.clients import Clients
from aws_provider.errors import error_code
from aws_provider.plan import Plan, PlannedPort
from aws_provider.tags import tag_list

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import (
        ActionTypeDef,
        CreateListenerInputTypeDef,
        ListenerTypeDef,
        ModifyListenerInputTypeDef,
    )

_INTERCHANGEABLE = {"TCP", "TLS"}
"""Protocols that a listener may change between."""


@frozen
class Listeners:
    """The listeners of load balancers. Raises what botocore raises. Thread-safe for different load
    balancers."""

    clients: Clients

    def ensure(self, load_balancer: str, plan: Plan, groups: Mapping[int, str]) -> list[str]:
        """Have the planned listeners, and no others. `groups`: the ARN of each port's target
        group. Returns the ARNs of those that were there, and stay."""
        kept: list[str] = []
        pages = self.clients.elb.get_paginator("describe_listeners").paginate(LoadBalancerArn=load_balancer)
        present = {listener.get("Port", 0): listener for page in pages for listener in page["Listeners"]}
        for port in plan.ports:
            listener = present.pop(port.port, None)
            if listener is not None and not _can_become(listener, port):
                self._delete(listener)
                listener = None
            if listener is None:
                self._create(load_balancer, plan, port, groups[port.port])
            else:
                self._modify(listener, port, groups[port.port])
                kept.append(listener.get("ListenerArn", ""))
        for listener in present.values():
            self._delete(listener)
        return kept

    def _create(self, load_balancer: str, plan: Plan, port: PlannedPort, group: str) -> None:
        wanted: CreateListenerInputTypeDef = {
            "LoadBalancerArn": load_balancer,
            "Port": port.port,
            "Protocol": port.protocol,
            "DefaultActions": [_forward(group)],
            "Tags": tag_list(plan.all_tags),
        }
        if port.certificate:
            wanted["Certificates"] = [{"CertificateArn": port.certificate}]
        if port.ssl_policy:
            wanted["SslPolicy"] = port.ssl_policy
        self.clients.elb.create_listener(**wanted)

    def _modify(self, listener: ListenerTypeDef, port: PlannedPort, group: str) -> None:
        changes: ModifyListenerInputTypeDef = {"ListenerArn": listener.get("ListenerArn", "")}
        if listener.get("Protocol") != port.protocol:
            changes["Protocol"] = port.protocol
        if [action.get("TargetGroupArn") for action in listener.get("DefaultActions", [])] != [group]:
            changes["DefaultActions"] = [_forward(group)]
        certificates = [one.get("CertificateArn", "") for one in listener.get("Certificates", [])]
        if port.certificate and certificates != [port.certificate]:
            changes["Certificates"] = [{"CertificateArn": port.certificate}]
        if port.ssl_policy and listener.get("SslPolicy") != port.ssl_policy:
            changes["SslPolicy"] = port.ssl_policy
        if len(changes) > 1:
            self.clients.elb.modify_listener(**changes)

    def _delete(self, listener: ListenerTypeDef) -> None:
        try:
            self.clients.elb.delete_listener(ListenerArn=listener.get("ListenerArn", ""))
        except ClientError as exc:
            if error_code(exc) != "ListenerNotFound":
                raise


def _can_become(listener: ListenerTypeDef, port: PlannedPort) -> bool:
    """Whether the listener can be modified into the port: AWS changes TCP into TLS and back,
    nothing else."""
    present = listener.get("Protocol")
    return present == port.protocol or {present, port.protocol} <= _INTERCHANGEABLE


def _forward(group: str) -> ActionTypeDef:
    return {"Type": "forward", "TargetGroupArn": group}
