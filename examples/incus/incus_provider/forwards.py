"""What network forward a Service asks for. Pure: the Service in, ports and marks out, or every
problem at once.

A forward sends each port to one address. So all traffic of a Service goes to one node, and
kube-proxy there spreads it over the pods. Which node that is follows from the Service and the nodes
alone (rendezvous hashing): Services are spread over the nodes, and a node that joins or leaves
moves as few of them as possible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_spec import V1ServiceSpec

from cloudprovider.errors import InvalidService
from cloudprovider.helpers import (
    allows_everyone,
    key_of,
    load_balancer_source_ranges,
    parse_network,
    ports_of,
    requests_only_local_traffic,
    uid_of,
)
from incus_provider.resources import Forward, ForwardPort

CLUSTER = "user.kubernetes-cluster"
NAME = "user.kubernetes-load-balancer"
SERVICE = "user.kubernetes-service"
UID = "user.kubernetes-service-uid"
PORTS = "user.kubernetes-ports"
TARGET = "user.kubernetes-target"
"""How a forward says what it was made for, and what it is when it has no target. They must never
change."""


def marks(cluster: str, name: str, service: V1Service) -> Mapping[str, str]:
    """What the forward says of itself. Raises `InvalidService` with every problem of the
    Service."""
    spec = service.spec or V1ServiceSpec()
    problems, ports = [], []
    for port in ports_of(service):
        shown = f"port {port.port}/{port.protocol}"
        if port.protocol not in ("TCP", "UDP"):
            problems.append(f"{shown}: network forwards know TCP and UDP")
        if not port.node_port:
            problems.append(f"{shown} has no node port: set allocateLoadBalancerNodePorts")
        ports.append(f"{port.protocol.lower()}:{port.port}:{port.node_port}")
    if spec.ip_families and spec.ip_families[0] != "IPv4":
        problems.append("spec.ipFamilies begins with IPv6: the load balancers of this cloud are IPv4 only")
    if requests_only_local_traffic(service):
        problems.append(
            "externalTrafficPolicy Local: a network forward has no health checks, so it may lead to a node without "
            "a pod; set Cluster"
        )
    try:
        ranges = load_balancer_source_ranges(service)
    except ValueError as exc:
        problems.append(str(exc))
    else:
        # The address is of IPv4: ::/0 alone lets nobody in.
        nobody = "IPv4" in (spec.ip_families or ["IPv4"]) and all(one.version == 6 for one in ranges)
        if nobody or not allows_everyone(ranges):
            problems.append("loadBalancerSourceRanges: a network forward lets everybody in; use a network policy")
    if problems:
        raise InvalidService(*problems)
    return {
        CLUSTER: cluster,
        NAME: name,
        SERVICE: key_of(service),
        UID: uid_of(service),
        PORTS: ",".join(sorted(ports)),
    }


def is_of(forward: Forward, cluster: str, service: V1Service) -> bool:
    """Whether the forward was made for this Service."""
    return forward.config.get(CLUSTER) == cluster and forward.config.get(UID) == uid_of(service)


def with_target(forward: Forward, target: str, address: str) -> Forward:
    """The forward with its ports leading to an instance; with none if `target` is empty."""
    kept = {key: value for key, value in forward.config.items() if key != TARGET}
    ports: list[ForwardPort] = []
    for one in forward.config.get(PORTS, "").split(",") if target else ():
        protocol, port, node_port = one.split(":")
        ports.append(ForwardPort(protocol=protocol, listen_port=port, target_port=node_port, target_address=address))
    config = {**kept, TARGET: target} if target else kept
    return forward.model_copy(update={"config": config, "ports": tuple(ports)})


def same(one: Forward, other: Forward) -> bool:
    """Whether nothing is to be done. The order of ports says nothing."""
    return (dict(one.config), set(one.ports)) == (dict(other.config), set(other.ports))


def document(forward: Forward) -> dict[str, object]:
    """The body of the request that makes it, or brings it in line."""
    return forward.model_dump(mode="json")


def chosen(uid: str, targets: Iterable[str]) -> str:
    """The target of a Service; "" where there is none."""
    return max(targets, key=lambda target: hashlib.sha256(f"{uid} {target}".encode()).digest(), default="")


def free_addresses(ranges: Sequence[str], taken: Collection[str], wanted: str) -> list[str]:
    """The addresses that a new forward may have, `wanted` alone where it is given. Raises
    `InvalidService` where that is outside the ranges."""
    every = [str(address) for text in ranges for address in parse_network(text)]
    if wanted and wanted not in every:
        raise InvalidService(f"spec.loadBalancerIP {wanted} is not one of the load balancers' addresses")
    return [address for address in ([wanted] if wanted else every) if address not in taken]
