"""What a Service asks of its load balancer: predicates and readings, all pure (stages 3, 4 and 5).

Data comes from a `V1Service` in a cache or in a vendor's hands; the answers steer the service
controller and providers. Nothing is changed, and everything may be called from many threads.
`wanted_load_balancer` is for clouds whose load balancers do the usual: what they cannot do is
refused, and never ignored, as a Service whose source ranges were ignored would be open to everyone.

Follows: k8s.io/cloud-provider service/helpers/helper.go and controllers/service/controller.go.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import TYPE_CHECKING

from attrs import frozen

from cloudprovider.errors import InvalidService
from cloudprovider.helpers.objects import ServicePort, annotations_of, ports_of, uid_of
from cloudprovider.internal.fields import documented
from cloudprovider.ips import IPNetwork, parse_network
from cloudprovider.wellknown import (
    ANNOTATION_LOAD_BALANCER_SOURCE_RANGES,
    LOAD_BALANCER_CLEANUP_FINALIZER,
    SERVICE_TYPE_LOAD_BALANCER,
    SERVICE_TYPE_NODE_PORT,
)

if TYPE_CHECKING:
    from kubernetes.client.models.v1_endpoint_slice import V1EndpointSlice
    from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
    from kubernetes.client.models.v1_service import V1Service

__all__ = [
    "WantedLoadBalancer",
    "allows_everyone",
    "default_load_balancer_name",
    "has_load_balancer_finalizer",
    "health_check_path_port",
    "load_balancer_source_ranges",
    "load_balancer_status_equal",
    "needs_health_check",
    "nodes_with_ready_endpoints",
    "requests_only_local_traffic",
    "wanted_load_balancer",
    "wants_load_balancer",
]

_DEFAULT_NAME_LENGTH = 32
_HEALTH_CHECK_PATH = "/healthz"


def default_load_balancer_name(service: V1Service) -> str:
    """The name that load balancers have by default: "a" and the UID without dashes, 32 characters
    at most.

    Raises ValueError when the Service has no UID: all such Services would share one name. Never
    changes: load balancers in users' clouds are found again by it.

    Follows: DefaultLoadBalancerName in k8s.io/cloud-provider cloud.go.
    """
    uid = uid_of(service)
    if not uid:
        raise ValueError("a load balancer's default name needs the Service's metadata.uid, which is empty")
    # 32, as AWS's classic load balancers take no more; Go made it the rule for all clouds.
    return f"a{uid}".replace("-", "")[:_DEFAULT_NAME_LENGTH]


def wants_load_balancer(service: V1Service, classes: Container[str] = ("",)) -> bool:
    """Whether a service controller that serves these `classes` should keep a load balancer: type
    LoadBalancer, and a loadBalancerClass among them; "" stands for none. Another class asks for
    another controller. Says nothing about a Service under deletion."""
    spec = service.spec
    if spec is None or spec.type != SERVICE_TYPE_LOAD_BALANCER:
        return False
    wanted = spec.load_balancer_class
    # "" in `classes` stands for no class at all, and not for a class of that name.
    return "" in classes if wanted is None else bool(wanted) and wanted in classes


def has_load_balancer_finalizer(service: V1Service) -> bool:
    """Whether the Service carries the finalizer that stands for a load balancer, of ours or of
    another controller."""
    finalizers = service.metadata.finalizers if service.metadata is not None else None
    return LOAD_BALANCER_CLEANUP_FINALIZER in (finalizers or ())


def requests_only_local_traffic(service: V1Service) -> bool:
    """Whether outside traffic stays on the node that it reached (externalTrafficPolicy: Local)."""
    spec = service.spec
    # Of other types nothing comes from outside by a node's port, whatever the field says.
    if spec is None or spec.type not in (SERVICE_TYPE_LOAD_BALANCER, SERVICE_TYPE_NODE_PORT):
        return False
    return spec.external_traffic_policy == "Local"


def needs_health_check(service: V1Service) -> bool:
    """Whether the load balancer must ask each node whether it has endpoints: type LoadBalancer with
    local traffic."""
    spec = service.spec
    return spec is not None and spec.type == SERVICE_TYPE_LOAD_BALANCER and requests_only_local_traffic(service)


def health_check_path_port(service: V1Service) -> tuple[str, int] | None:
    """(HTTP path, node port) for the load balancer's health check; None when it needs none, or has
    no port yet."""
    if service.spec is None or not needs_health_check(service):
        return None
    port = service.spec.health_check_node_port
    return (_HEALTH_CHECK_PATH, port) if port else None


def load_balancer_source_ranges(service: V1Service) -> tuple[IPNetwork, ...]:
    """The ranges that may reach the load balancer, without duplicates, host bits cleared, in the
    order given.

    From spec.loadBalancerSourceRanges; while that is empty, from the annotation
    service.beta.kubernetes.io/load-balancer-source-ranges; without both, everyone of each family in
    spec.ipFamilies (0.0.0.0/0, ::/0). Raises ValueError, naming the place and the offending text:
    opening a load balancer to everyone over a typo would be worse.
    """
    field = service.spec.load_balancer_source_ranges if service.spec is not None else None
    # As Go: the field counts, and only without it the older annotation.
    if field:
        place, texts = "spec.loadBalancerSourceRanges", list(field)
    else:
        place = f"the annotation {ANNOTATION_LOAD_BALANCER_SOURCE_RANGES}"
        value = annotations_of(service).get(ANNOTATION_LOAD_BALANCER_SOURCE_RANGES, "")
        # As Go: a blank annotation is none. Taken for an empty list, it would shut everybody out.
        texts = value.split(",") if value.strip() else _everyone(service)
    try:
        return tuple(dict.fromkeys(parse_network(text.strip()) for text in texts))
    except ValueError as exc:
        raise ValueError(f"{place}: {exc}") from exc


def allows_everyone(ranges: Iterable[IPNetwork]) -> bool:
    """Whether such source ranges limit nobody: each family among them is there as a whole
    (0.0.0.0/0, ::/0). False for no ranges at all."""
    # By family: 0.0.0.0/0 alone leaves out everyone who comes over IPv6.
    whole: dict[int, bool] = {}
    for one in ranges:
        whole[one.version] = whole.get(one.version, False) or one.prefixlen == 0
    return bool(whole) and all(whole.values())


def _everyone(service: V1Service) -> list[str]:
    families = (service.spec.ip_families if service.spec is not None else None) or ["IPv4"]
    return ["::/0" if family == "IPv6" else "0.0.0.0/0" for family in families]


def nodes_with_ready_endpoints(slices: Iterable[V1EndpointSlice]) -> frozenset[str]:
    """The names of the nodes on which a ready endpoint runs, by a Service's EndpointSlices. With
    externalTrafficPolicy Local no other node passes its traffic on.

    Where an endpoint does not say on which node it runs, it counts for none. Each node once,
    whatever the number of slices and IP families.
    """
    # As for kube-proxy, an endpoint that does not say whether it is ready is ready.
    return frozenset(
        endpoint.node_name
        for one in slices
        for endpoint in one.endpoints or ()
        if endpoint.node_name and (endpoint.conditions is None or endpoint.conditions.ready is not False)
    )


def load_balancer_status_equal(left: V1LoadBalancerStatus | None, right: V1LoadBalancerStatus | None) -> bool:
    """Whether both statuses list the same ingress points in the same order; None and an empty list
    are alike, and so are no ipMode and the one that the API server puts in its place (VIP, for an
    IP)."""
    return _ingress(left) == _ingress(right)


def _ingress(status: V1LoadBalancerStatus | None) -> list[tuple[object, ...]]:
    points = (status.ingress if status is not None else None) or ()
    return [
        (
            point.ip or "",
            point.hostname or "",
            # The API server puts VIP where none was sent: no difference to write again and again.
            point.ip_mode or ("VIP" if point.ip else None),
            [(port.port, port.protocol, port.error) for port in point.ports or ()],
        )
        for point in points
    ]


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
        # Silently ignored, it would break sessions only under load, long after the deployment.
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
