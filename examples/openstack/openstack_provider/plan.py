"""What a Service's load balancer must look like, before OpenStack is asked for anything. Pure.

In comes the Service, out comes a `Plan` or all problems at once. Bodies are those of Octavia's API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_spec import V1ServiceSpec

from cloudprovider import InvalidService
from cloudprovider.errors import InvalidAnnotations
from cloudprovider.helpers import (
    ServicePort,
    allows_everyone,
    external_ips,
    health_check_path_port,
    internal_ips,
    labels_of,
    load_balancer_source_ranges,
    node_name,
    parse_ip,
    ports_of,
    provider_id_of,
)
from openstack_provider.annotations import Annotations, is_internal
from openstack_provider.config import ClassConfig, LoadBalancerConfig
from openstack_provider.ownership import Identity

IPV4: Final = "IPv4"
IPV6: Final = "IPv6"
_VERSIONS: Final[Mapping[str, int]] = {IPV4: 4, IPV6: 6}
_MONITORS: Final = {"TCP": "TCP", "UDP": "UDP-CONNECT", "SCTP": "SCTP"}
_PROVIDER: Final = "openstack://"


@frozen
class Target:
    """A node that gets traffic. `address` is "" while it has none."""

    name: str
    address: str
    server: str
    """Its server's ID; "" where the node does not say."""


@frozen
class PlannedPort:
    """A port of the Service: its listener, and the pool behind it."""

    transport: str
    """TCP, UDP or SCTP: with the number, what there can be only one of."""
    listener: Mapping[str, Any]
    """Without what depends on the load balancer's addresses: see `Plan.sources`."""
    pool: Mapping[str, Any]
    monitor: Mapping[str, Any] | None
    node_port: int
    monitor_port: int | None
    """Where nodes are asked; None for the node port."""

    @property
    def number(self) -> int:
        """The port that clients use."""
        return int(self.listener["protocol_port"])


@frozen
class Networks:
    """Where addresses come from; each "" where nobody says."""

    floating_network: str
    floating_subnet: str
    floating_pattern: str
    floating_tags: str
    network: str
    subnet: str
    member_subnet: str
    port: str


@frozen
class Plan:
    """A Service's load balancer."""

    who: Identity
    annotations: Annotations
    is_internal: bool
    families: tuple[str, ...]
    """The first is that of the nodes' addresses."""
    needs_all_families: bool
    networks: Networks
    address: str
    """The floating IP, or the internal address, that the Service names; "" for any."""
    ports: tuple[PlannedPort, ...]
    ranges: tuple[str, ...]
    """Who may connect."""
    at_listeners: bool
    """Whether listeners limit that: else only the nodes' security group does."""

    def sources(self, families: Sequence[str]) -> list[str]:
        """The ranges of these families of addresses: Octavia refuses others. Raises
        `InvalidService` where there are none: without any, everyone may connect."""
        found = [one for one in self.ranges if (IPV6 if ":" in one else IPV4) in families]
        if not found and not any(one.endswith("/0") for one in self.ranges):
            raise InvalidService(
                f"none of the source ranges is of {' or '.join(families)}, as the load balancer's address is"
            )
        return found


def plan(who: Identity, service: V1Service, config: LoadBalancerConfig, classes: Mapping[str, ClassConfig]) -> Plan:
    """The plan. Raises `InvalidService`, which names all that stands in the way."""
    spec = service.spec or V1ServiceSpec()
    problems: list[str] = []
    internal = False
    try:
        internal = is_internal(service, config)
    except InvalidAnnotations as error:
        problems += error.problems
    try:
        asked = Annotations.of(service, config)
    except InvalidAnnotations as error:
        problems += error.problems
        asked = Annotations.of(V1Service(), config)
    if asked.class_name and asked.class_name not in classes:
        known = ", ".join(sorted(classes)) or "none"
        problems.append(f"class: the configuration has no load balancer class {asked.class_name} (it has: {known})")
    families = tuple(spec.ip_families or (IPV4,))
    both = spec.ip_family_policy in ("PreferDualStack", "RequireDualStack")
    families = families if both else families[:1]
    problems += _problems(spec, asked, internal, families)
    ranges, more = _ranges(service, families, config)
    problems += more
    ports = [_port(who, index, port, asked, service, config) for index, port in enumerate(ports_of(service))]
    if not ports:
        problems.append("the Service has no ports")
    for port in ports_of(service):
        if port.protocol not in _MONITORS:
            problems.append(f"port {port.port}: Octavia has no {port.protocol}, only TCP, UDP and SCTP")
        if not port.node_port:
            problems.append(f"port {port.port} has no node port: set spec.allocateLoadBalancerNodePorts to true")
    if problems:
        raise InvalidService(*problems)
    chosen = classes.get(asked.class_name or "", ClassConfig())
    return Plan(
        who, asked, internal, families, spec.ip_family_policy == "RequireDualStack", networks(asked, config, chosen),
        str(parse_ip(spec.load_balancer_ip)) if spec.load_balancer_ip else "", tuple(ports), ranges,
        config.lb_provider != "ovn",
    )  # fmt: skip


def networks(asked: Annotations, config: LoadBalancerConfig, chosen: ClassConfig) -> Networks:
    """As the Go manager chooses: a class wins over annotations for floating IPs, and annotations
    over a class for the load balancer's own network."""
    floating = next(
        (
            one
            for one in (
                (chosen.floating_subnet_id, chosen.floating_subnet, chosen.floating_subnet_tags),
                (asked.floating_subnet_id, asked.floating_subnet, asked.floating_subnet_tags),
            )
            if any(one)
        ),
        (config.floating_subnet_id, config.floating_subnet, config.floating_subnet_tags),
    )
    subnet = asked.subnet_id or chosen.subnet_id or config.subnet_id
    return Networks(
        floating_network=chosen.floating_network_id or asked.floating_network_id or config.floating_network_id,
        floating_subnet=floating[0] or "",
        floating_pattern="" if floating[0] else floating[1] or "",
        floating_tags="" if floating[0] else floating[2] or "",
        network=asked.network_id or chosen.network_id or config.network_id,
        subnet=subnet,
        member_subnet=asked.member_subnet_id or chosen.member_subnet_id or config.member_subnet_id
        or config.subnet_id or subnet,
        port=asked.port_id or "",
    )  # fmt: skip


def targets(nodes: Sequence[V1Node], selector: Mapping[str, str], family: str) -> list[Target]:
    """The nodes that get traffic: those with the labels, of this cloud. One that has no address yet
    counts only if its provider ID says that it is a server here."""
    found: dict[str, Target] = {}
    for node in nodes:
        labels, provider_id = labels_of(node), provider_id_of(node)
        chosen = all(key in labels and value in ("", labels[key]) for key, value in selector.items())
        # A node of another cloud, on premises say, has addresses that lead elsewhere here.
        if not chosen or ("://" in provider_id and not provider_id.startswith(_PROVIDER)):
            continue
        address = address_of(node, family)
        if address or provider_id:
            found.setdefault(
                address or node_name(node), Target(node_name(node), address, provider_id.rpartition("/")[2])
            )
    return list(found.values())


def address_of(node: V1Node, family: str) -> str:
    """The address that load balancers send to; "" while the node has none of this family."""
    for text in (*internal_ips(node), *external_ips(node)):
        address = parse_ip(text)
        if address is not None and address.version == _VERSIONS[family]:
            return str(address)
    return ""


def families_of(addresses: Sequence[str]) -> list[str]:
    """The IP families of a load balancer's addresses."""
    return [IPV6 if ":" in address else IPV4 for address in addresses]


def _problems(spec: V1ServiceSpec, asked: Annotations, internal: bool, families: Sequence[str]) -> list[str]:
    problems: list[str] = []
    if asked.proxy and asked.forwarded_for:
        problems.append("proxy-protocol and x-forwarded-for exclude each other: choose one")
    if (asked.monitor_timeout or 0) > (asked.monitor_delay or 0):
        problems.append(
            f"health-monitor-timeout ({asked.monitor_timeout} s) must not be more than health-monitor-delay "
            f"({asked.monitor_delay} s)"
        )
    if spec.load_balancer_ip:
        address = parse_ip(spec.load_balancer_ip)
        if address is None:
            problems.append(f"spec.loadBalancerIP: {spec.load_balancer_ip!r} is no IP address")
        elif address.version != _VERSIONS[families[0]]:
            kind = "address" if internal or families[0] == IPV6 else "floating IP"
            problems.append(f"spec.loadBalancerIP: the Service's {kind} is of {families[0]}")
    return problems


def _ranges(
    service: V1Service, families: Sequence[str], config: LoadBalancerConfig
) -> tuple[tuple[str, ...], list[str]]:
    try:
        named = load_balancer_source_ranges(service)
    except ValueError as error:
        return (), [str(error)]
    if config.lb_provider == "ovn" and not (allows_everyone(named) or config.manage_security_groups):
        return (), ["source ranges: the provider ovn obeys them only with manage-security-groups=true"]
    used = [one for one in named if one.version in {_VERSIONS[family] for family in families}]
    lacking = [family for family in families if not any(one.version == _VERSIONS[family] for one in used)]
    if lacking:  # an empty list would let everyone in
        return (), [f"the source ranges have none of {' and '.join(lacking)}, so nobody could connect by it"]
    return tuple(str(one) for one in used), []


def _port(
    who: Identity, index: int, port: ServicePort, asked: Annotations, service: V1Service, config: LoadBalancerConfig
) -> PlannedPort:
    is_tcp = port.protocol == "TCP"
    secure, headers = is_tcp and asked.tls_container, is_tcp and asked.forwarded_for
    listener: dict[str, Any] = {
        "name": who.part("listener", index),
        "protocol": "TERMINATED_HTTPS" if secure else "HTTP" if headers else port.protocol,
        "protocol_port": port.port,
        "connection_limit": asked.connection_limit,
        "timeout_client_data": asked.timeout_client_data,
        "timeout_member_connect": asked.timeout_member_connect,
        "timeout_member_data": asked.timeout_member_data,
        "timeout_tcp_inspect": asked.timeout_tcp_inspect,
        "tags": [who.balancer],
    }
    if config.lb_provider == "ovn":  # it knows none of them
        listener = {key: one for key, one in listener.items() if not key.startswith(("timeout_", "connection_"))}
    if headers:
        listener["insert_headers"] = {"X-Forwarded-For": "true"}
    if secure:
        listener["default_tls_container_ref"] = asked.tls_container
    affinity = service.spec is not None and service.spec.session_affinity == "ClientIP"
    pool = {
        "name": who.part("pool", index),
        "protocol": (is_tcp and asked.proxy) or ("HTTP" if secure or headers else port.protocol),
        "lb_algorithm": asked.method,
        "session_persistence": {"type": "SOURCE_IP"} if affinity else None,
    }
    # The provider ovn has no HTTP checks. A node without endpoints closes its node port, too.
    local = health_check_path_port(service) if config.lb_provider != "ovn" else None
    monitor: dict[str, Any] | None = None
    if asked.has_monitor or health_check_path_port(service):
        monitor = {
            "name": who.part("monitor", index),
            "type": "HTTP" if local else _MONITORS.get(port.protocol, "TCP"),
            "delay": asked.monitor_delay,
            "timeout": asked.monitor_timeout,
            "max_retries": asked.monitor_retries,
            "max_retries_down": asked.monitor_retries_down,
        }
        if local:
            monitor |= {"url_path": local[0], "http_method": "GET", "expected_codes": "200"}
    return PlannedPort(port.protocol, listener, pool, monitor, port.node_port, local[1] if local else None)
