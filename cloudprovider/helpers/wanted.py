"""What a Service asks of its load balancer, for clouds whose load balancers do the usual (stage 5).
Pure.

What they cannot do is refused, and never ignored: a Service whose source ranges were ignored would
be open to everyone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from attrs import frozen

from cloudprovider.errors import InvalidService
from cloudprovider.helpers.objects import ServicePort, ports_of
from cloudprovider.helpers.service import allows_everyone, health_check_path_port, load_balancer_source_ranges
from cloudprovider.internal.fields import documented

if TYPE_CHECKING:
    from kubernetes.client.models.v1_service import V1Service

__all__ = ["WantedLoadBalancer", "wanted_load_balancer"]


@documented
@frozen
class WantedLoadBalancer:
    """A load balancer as a Service asks for it."""

    ports: tuple[ServicePort, ...]
    """Each has a node port, and a protocol of those that are supported."""

    source_ranges: tuple[str, ...]
    """Who may connect, such as "192.0.2.0/24"; never empty. Everyone is "0.0.0.0/0", over IPv6
    "::/0"."""

    health_check: tuple[str, int] | None
    """The HTTP path and the port where a machine answers 200 if it may get traffic. None: every
    machine may."""


def wanted_load_balancer(
    service: V1Service,
    *,
    protocols: Collection[str] = ("TCP", "UDP"),
    source_ranges: bool = True,
    families: Collection[str] = ("IPv4",),
    address: bool = False,
    client_ip: bool = False,
) -> WantedLoadBalancer:
    """Reads the Service. The options say what your load balancers can do: the `protocols`, whether
    they limit who connects, the IP families of their one address, whether `spec.loadBalancerIP` and
    the session affinity ClientIP are served by you. Raises `InvalidService` with every problem."""
    problems: list[str] = []
    spec = service.spec
    if spec is not None:
        if spec.load_balancer_ip and not address:
            problems.append("spec.loadBalancerIP is not supported: the cloud chooses the address")
        if spec.session_affinity == "ClientIP" and not client_ip:
            problems.append("spec.sessionAffinity ClientIP is not supported: use None")
        if spec.ip_family_policy == "RequireDualStack" or not set(spec.ip_families or families) & set(families):
            problems.append(f"spec.ipFamilies: the load balancer has one address, of {' or '.join(families)}")
    ports = ports_of(service)
    for port in ports:
        if port.protocol not in protocols:
            problems.append(f"port {port.port}: the protocol {port.protocol} is not supported")
        # Without one there is no port of the machines to send the traffic to.
        if not port.node_port:
            problems.append(f"port {port.port} has no node port: set spec.allocateLoadBalancerNodePorts to true")
    ranges: tuple[str, ...] = ()
    try:
        networks = load_balancer_source_ranges(service)
        ranges = tuple(str(network) for network in networks)
        # Ignored ranges would leave open what its owner wanted closed.
        if not source_ranges and not allows_everyone(networks):
            problems.append("spec.loadBalancerSourceRanges is not supported: a load balancer is open to everyone")
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise InvalidService(*problems)
    return WantedLoadBalancer(ports, ranges, health_check_path_port(service))
