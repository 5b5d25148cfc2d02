"""What load balancer a Service asks for. Pure: the Service in, the cloud's document out, or every
problem at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_spec import V1ServiceSpec

from cloudprovider.errors import InvalidAnnotations, InvalidService
from cloudprovider.helpers import (
    ServicePort,
    health_check_path_port,
    key_of,
    load_balancer_source_ranges,
    parse_ip,
    ports_of,
    uid_of,
)
from localcloud_provider.annotations import LocalAnnotations
from localcloud_provider.resources import Balancer, Health, Mode, Port

LABEL_SERVICE = "kubernetes.io/service"
LABEL_UID = "kubernetes.io/service-uid"
LABEL_KEPT = "kubernetes.io/kept"
LABEL_KEPT_FOR = "kubernetes.io/kept-for"
"""How a load balancer says which Service it was made for, that it was kept when that was deleted,
and for which namespace. They must never change."""

AFFINITY_SECONDS = 10800
"""The default of `sessionAffinityConfig.clientIP.timeoutSeconds` in the API server, and in the
cloud."""

T = TypeVar("T")


def plan(name: str, cluster: str, service: V1Service, targets: Sequence[str]) -> tuple[Balancer, str]:
    """The load balancer, and the address that is asked for ("" for any).

    Raises `InvalidService` with every problem of the Service: its annotations, ports, addresses and
    ranges.
    """
    problems: list[str] = []
    spec = service.spec or V1ServiceSpec()
    asked = _collect(problems, lambda: LocalAnnotations.read(service))
    ports_asked = ports_of(service)
    mode = _mode(asked, ports_asked)
    address = (asked.address if asked is not None else None) or spec.load_balancer_ip or ""
    if address and ((ip := parse_ip(address)) is None or ip.version != 4):
        problems.append(f"{address} is asked for as the load balancer's address, and is no IPv4 address")
    if spec.ip_families and "IPv4" not in spec.ip_families:
        problems.append("spec.ipFamilies has no IPv4, the only family of this cloud's load balancers")
    ports = [_port(port, mode, problems) for port in ports_asked]
    ranges = _ranges(service, problems)
    health = health_check_path_port(service)
    if problems:
        raise InvalidService(*problems)
    sticky = spec.session_affinity == "ClientIP"
    return Balancer(
        name=name,
        owner=cluster,
        labels={LABEL_SERVICE: key_of(service), LABEL_UID: uid_of(service)},
        mode=mode,
        ports=tuple(ports),
        targets=tuple(targets),
        source_ranges=tuple(ranges),
        affinity="clientIP" if sticky else "none",
        affinity_seconds=_affinity_seconds(spec) if sticky else AFFINITY_SECONDS,
        health=Health(port=health[1], path=health[0]) if health is not None else None,
    ), address


def _collect(problems: list[str], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except InvalidAnnotations as exc:
        problems += exc.problems
    except ValueError as exc:
        problems.append(str(exc))
    return None


def _mode(asked: LocalAnnotations | None, ports: Sequence[ServicePort]) -> Mode:
    """As asked for. A port without a node port (allocateLoadBalancerNodePorts: false) can be
    reached directly only: kube-proxy knows the load balancer's own address on every node."""
    named = asked.mode if asked is not None else None
    if named == "proxy":
        return "proxy"
    if named == "direct" or (named is None and not all(port.node_port for port in ports)):
        return "direct"
    return "nat"


def _port(port: ServicePort, mode: Mode, problems: list[str]) -> Port:
    shown = f"port {port.port}/{port.protocol}"
    if port.protocol not in ("TCP", "UDP"):
        problems.append(f"{shown}: this cloud's load balancers know TCP and UDP")
    elif mode == "proxy" and port.protocol == "UDP":
        problems.append(f"{shown}: a load balancer of mode proxy knows TCP alone")
    if mode == "direct":
        return Port(protocol=port.protocol, port=port.port, target_port=port.port)
    if not port.node_port:
        problems.append(
            f"{shown} has no node port, which a load balancer of mode {mode} needs: set "
            "allocateLoadBalancerNodePorts, or the mode direct"
        )
    return Port(protocol=port.protocol, port=port.port, target_port=port.node_port)


def _ranges(service: V1Service, problems: list[str]) -> list[str]:
    """The IPv4 ranges. IPv6 clients cannot reach an IPv4 address, so their ranges say nothing; but
    if all are IPv6, nobody is meant to come in, which an empty list would not say."""
    found = _collect(problems, lambda: load_balancer_source_ranges(service))
    ranges = [str(one) for one in found or () if one.version == 4]
    if found and not ranges:
        problems.append("no range of spec.loadBalancerSourceRanges is of IPv4, the family of the load balancer")
    return ranges


def _affinity_seconds(spec: V1ServiceSpec) -> int:
    config = spec.session_affinity_config
    seconds = config.client_ip.timeout_seconds if config is not None and config.client_ip is not None else None
    return seconds or AFFINITY_SECONDS
