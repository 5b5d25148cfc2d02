"""What a Service's load balancer must look like, before AWS is asked for anything. Pure.

In comes the Service, out comes a `Plan` or all problems at once. Names are made here: they never
change for a Service, and tell a target group that must be replaced (its port or protocol cannot be
modified) from the one that replaces it.

Follows: the Go provider in the names of load balancers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import asdict, frozen
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_spec import V1ServiceSpec

from aws_provider.annotations import Annotations
from aws_provider.healthcheck import TRAFFIC_PORT, HealthCheck, health_check
from aws_provider.tags import OWNED, SERVICE_NAME_TAG, SERVICE_UID_TAG, cluster_tag, is_reserved
from cloudprovider import InvalidService
from cloudprovider.errors import InvalidAnnotations
from cloudprovider.helpers import (
    ServicePort,
    annotations_of,
    default_load_balancer_name,
    health_check_path_port,
    key_of,
    load_balancer_source_ranges,
    ports_of,
    uid_of,
)
from cloudprovider.wellknown import ANNOTATION_LOAD_BALANCER_SOURCE_RANGES

if TYPE_CHECKING:
    from mypy_boto3_elbv2.literals import ProtocolEnumType

EVERYONE: Final = "0.0.0.0/0"

ATTRIBUTES: Final[Mapping[str, str]] = {
    "deregistration_delay.timeout_seconds": "300",
    "preserve_client_ip.enabled": "true",
    "proxy_protocol_v2.enabled": "false",
    "stickiness.enabled": "false",
}
"""The attributes of target groups that are kept as wished, with AWS's defaults for targets that are
instances."""
LOAD_BALANCER_ATTRIBUTES: Final[Mapping[str, str]] = {
    "load_balancing.cross_zone.enabled": "false",
    "access_logs.s3.enabled": "false",
    "access_logs.s3.bucket": "",
    "access_logs.s3.prefix": "",
}
"""The same of load balancers."""


@frozen
class PlannedPort:
    """A port of the load balancer: its listener, and the target group behind it."""

    port: int
    protocol: ProtocolEnumType
    """The listener's: TCP, UDP, TCP_UDP or TLS."""
    node_port: int
    target_protocol: ProtocolEnumType
    health_check: HealthCheck
    group: str
    """The target group's name."""
    certificate: str = ""
    ssl_policy: str = ""
    shares_health_check_port: bool = False
    """Whether other Services' health checks use the same port of the nodes: kube-proxy's, or one
    that users chose."""

    @property
    def health_check_port(self) -> int:
        """The port that instances are asked on."""
        return self.node_port if self.health_check.port == TRAFFIC_PORT else int(self.health_check.port)

    @property
    def transports(self) -> tuple[str, ...]:
        """tcp, udp or both: how traffic arrives at the node port."""
        return {"UDP": ("udp",), "TCP_UDP": ("tcp", "udp")}.get(self.target_protocol, ("tcp",))


@frozen
class Identity:
    """What a Service's load balancer is found by: follows from the Service's UID and name alone."""

    name: str
    """32 characters at most: "a" and the UID, as the Go provider names it."""
    group_prefix: str
    """What the names of its target groups, of all times, begin with, the Go provider's apart."""
    cluster: str
    service: str
    """ "namespace/name"."""
    uid: str

    @property
    def go_group_prefix(self) -> str:
        """What the names of the target groups begin with that the Go provider made for a Service of
        this name."""
        namespace, _, name = (re.sub("[^0-9A-Za-z]", "", word)[:8] for word in self.service.partition("/"))
        return f"k8s-{namespace}-{name}-"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of everything that is made for the Service."""
        return {cluster_tag(self.cluster): OWNED, SERVICE_NAME_TAG: self.service, SERVICE_UID_TAG: self.uid}


@frozen
class Plan(Identity):
    """A Service's load balancer."""

    annotations: Annotations
    ports: tuple[PlannedPort, ...]
    sources: tuple[str, ...] | None
    """The ranges of addresses that may come in; None for those of the network."""
    attributes: Mapping[str, str]
    """Of every target group."""

    @property
    def load_balancer_attributes(self) -> dict[str, str]:
        """Of the load balancer. Where logs go is told only while they are written: AWS refuses an
        empty bucket."""
        asked = self.annotations
        wanted = {"load_balancing.cross_zone.enabled": str(asked.cross_zone).lower()}
        if asked.has_access_log is not None:
            wanted["access_logs.s3.enabled"] = str(asked.has_access_log).lower()
        if asked.has_access_log:
            wanted["access_logs.s3.bucket"] = asked.access_log_bucket
            wanted["access_logs.s3.prefix"] = asked.access_log_prefix
        return wanted

    @property
    def all_tags(self) -> dict[str, str]:
        """With those that the Service asks for. Ours come last: a user cannot take their place."""
        return {**self.annotations.tags, **self.tags}


def plan(cluster: str, service: V1Service) -> Plan:
    """The plan. Raises `InvalidService`, which names all that stands in the way."""
    spec = service.spec or V1ServiceSpec()
    problems: list[str] = []
    try:
        annotations = Annotations.read(service)
    except InvalidAnnotations as exc:
        problems += exc.problems
        annotations = Annotations.read(V1Service())
    found = identity(cluster, service)
    ports, more = _ports(service, annotations, found.group_prefix)
    problems += [*more, *_spec_problems(spec)]
    attributes = {**ATTRIBUTES, **annotations.attributes}
    if annotations.proxy_protocol:
        attributes["proxy_protocol_v2.enabled"] = "true"
    problems += _annotation_problems(annotations)
    unknown = sorted(attributes.keys() - ATTRIBUTES.keys())
    if unknown:
        problems.append(f"unknown target group attributes {', '.join(unknown)} (known: {', '.join(ATTRIBUTES)})")
    if spec.session_affinity == "ClientIP":
        attributes |= {"stickiness.enabled": "true", "stickiness.type": "source_ip"}
        if any(port.protocol == "TLS" for port in ports):
            problems.append("sessionAffinity ClientIP does not go together with TLS on a Network Load Balancer")
    sources: tuple[str, ...] | None = None
    try:
        # Its addresses are of IPv4, so ranges of IPv6 let nobody in.
        named = tuple(str(network) for network in load_balancer_source_ranges(service) if network.version == 4)
        sources = named if _names_sources(service) or not annotations.internal else None
    except ValueError as exc:
        problems.append(str(exc))
    if attributes["preserve_client_ip.enabled"] == "false" and sources not in (None, (EVERYONE,)):
        problems.append("source ranges need preserve_client_ip.enabled=true: the nodes see no other addresses then")
    if problems:
        raise InvalidService(*problems)
    return Plan(**asdict(found), annotations=annotations, ports=tuple(ports), sources=sources, attributes=attributes)


def identity(cluster: str, service: V1Service) -> Identity:
    """What the load balancer is found by, whatever the Service's ports and annotations are
    today."""
    uid = uid_of(service)
    prefix = f"k8s-{_digest(cluster, uid)}-"
    return Identity(default_load_balancer_name(service), prefix, cluster, key_of(service), uid)


def _names_sources(service: V1Service) -> bool:
    spec = service.spec or V1ServiceSpec()
    annotation = annotations_of(service).get(ANNOTATION_LOAD_BALANCER_SOURCE_RANGES, "")
    return bool(spec.load_balancer_source_ranges or annotation.strip())


def _annotation_problems(asked: Annotations) -> list[str]:
    """What cannot be together."""
    problems: list[str] = []
    if reserved := sorted(key for key in asked.tags if is_reserved(key)):
        problems.append(f"additional-resource-tags: {', '.join(reserved)} may not be set by a Service")
    if asked.has_access_log and not asked.access_log_bucket:
        problems.append("access-log-enabled needs access-log-s3-bucket-name")
    if asked.elastic_ips and asked.internal:
        problems.append("eip-allocations are for load balancers that are internet-facing, not internal")
    if asked.private_ips and not asked.internal:
        problems.append("private-ipv4-addresses are for internal load balancers")
    return problems


def _spec_problems(spec: V1ServiceSpec) -> list[str]:
    problems: list[str] = []
    if spec.load_balancer_ip:
        problems.append("spec.loadBalancerIP is set, but AWS chooses the addresses: remove it")
    if spec.ip_families and "IPv4" not in spec.ip_families:
        problems.append("the Service has no IPv4 address, and this provider builds IPv4 load balancers only")
    return problems


def _ports(service: V1Service, annotations: Annotations, prefix: str) -> tuple[list[PlannedPort], list[str]]:
    """One for each number: a load balancer's port is TCP, UDP, or both together."""
    problems: list[str] = []
    by_number: dict[int, list[ServicePort]] = {}
    for port in ports_of(service):
        by_number.setdefault(port.port, []).append(port)
        if port.protocol not in ("TCP", "UDP"):
            problems.append(f"port {port.port}: a Network Load Balancer has no {port.protocol}, only TCP and UDP")
        if not port.node_port:
            problems.append(f"port {port.port} has no node port: set allocateLoadBalancerNodePorts to true")
    if not by_number:
        problems.append("the Service has no ports")
    planned: list[PlannedPort] = []
    for number, same in by_number.items():
        if len({port.node_port for port in same}) > 1:
            problems.append(f"port {number} has one node port for TCP and another for UDP: give both the same nodePort")
        planned.append(_port(number, same, service, annotations, prefix))
    return planned, problems


def _port(
    number: int, same: Sequence[ServicePort], service: V1Service, annotations: Annotations, prefix: str
) -> PlannedPort:
    protocols = {port.protocol for port in same}
    target: ProtocolEnumType = "TCP_UDP" if len(protocols) > 1 else "UDP" if "UDP" in protocols else "TCP"
    listener = target
    certificate = annotations.certificate if annotations.is_secure(number, same[0].name) else ""
    if certificate and target == "TCP":
        listener, target = "TLS", "TLS" if annotations.backend_protocol == "ssl" else "TCP"
    node_port = same[0].node_port
    local = health_check_path_port(service)
    check = annotations.adjusted(health_check(local, target))
    # What cannot be modified is part of the name, so that a replacement can stand beside what it
    # replaces.
    identity = _digest(number, target, node_port, check.protocol, check.interval)
    is_tls = listener == "TLS"
    return PlannedPort(
        number,
        listener,
        node_port,
        target,
        check,
        f"{prefix}{identity}",
        certificate if is_tls else "",
        annotations.ssl_policy if is_tls else "",
        shares_health_check_port=check.port not in {TRAFFIC_PORT, str(node_port), str(local[1]) if local else ""},
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256("\x00".join(map(str, parts)).encode()).hexdigest()[:10]
