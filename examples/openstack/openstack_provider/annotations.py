"""The annotations of a Service that this provider reads: those of the Go manager. Pure.

Mistakes in them come out together, as one Warning Event on the Service; so does an annotation with
this prefix that is not known here. The Go manager ignores both, and builds another load balancer
than was asked for.
"""

from __future__ import annotations

from typing import Final

from kubernetes.client.models.v1_service import V1Service

from cloudprovider.errors import InvalidAnnotations
from cloudprovider.helpers import (
    BOOL,
    Integer,
    OneOf,
    ServiceAnnotations,
    Text,
    annotation,
    annotations_of,
)
from openstack_provider.config import CONTAINER, ID, PATTERN, SELECTOR, LoadBalancerConfig

PREFIX: Final = "loadbalancer.openstack.org/"
_MILLISECONDS: Final = Integer(0, 365 * 24 * 3600 * 1000)
_HOSTNAME: Final = Text(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", "a DNS name in lower case"
)
_PROXY: Final = {"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2", "false": ""}


class Internal(ServiceAnnotations, prefix="service.beta.kubernetes.io/openstack-internal-"):
    """The one annotation under another prefix."""

    internal = annotation("load-balancer", BOOL, default=False, help="No floating IP.")


class Annotations(ServiceAnnotations, prefix=PREFIX):
    """What a Service asks for beside its spec."""

    balancer_id = annotation("load-balancer-id", ID,
        help="Share this load balancer. The Go manager writes the ID of what it built here.")  # fmt: skip
    balancer_address = annotation("load-balancer-address", Text(), help="Written by the Go manager; not read.")
    floating_network_id = annotation("floating-network-id", ID, help="The external network of the floating IP.")
    floating_subnet_id = annotation("floating-subnet-id", ID, help="The subnet of the floating IP.")
    floating_subnet = annotation("floating-subnet", PATTERN, help="That subnet by its name.")
    floating_subnet_tags = annotation("floating-subnet-tags", Text(),
        help="That subnet by its tags: one of a,b; all of &a,b; with ! before it, the other subnets.")  # fmt: skip
    keep_floating_ip = annotation("keep-floatingip", BOOL, default=False,
        help="The floating IP stays when the Service goes.")  # fmt: skip
    hostname = annotation("hostname", _HOSTNAME, help="The Service's status shows this name instead of the address.")
    class_name = annotation("class", Text(), help="A [LoadBalancerClass] of the configuration: its networks.")
    network_id = annotation("network-id", ID, help="The network of the load balancer's address.")
    subnet_id = annotation("subnet-id", ID, help="The subnet of the load balancer's address.")
    member_subnet_id = annotation("member-subnet-id", ID, help="The subnet of the nodes.")
    port_id = annotation("port-id", ID, help="A port of Neutron whose address is the load balancer's.")
    proxy_protocol = annotation("proxy-protocol", OneOf(*_PROXY), default="false",
        help="Nodes get PROXY protocol on TCP ports: true and v1 are version 1.")  # fmt: skip
    forwarded_for = annotation("x-forwarded-for", BOOL, default=False,
        help="TCP ports become HTTP, with the client's address in X-Forwarded-For.")  # fmt: skip
    tls_container = annotation("default-tls-container-ref", CONTAINER,
        help="Barbican's URL of a certificate: TCP ports become HTTPS, ended at the load balancer.")  # fmt: skip
    connection_limit = annotation("connection-limit", Integer(-1, 2**31 - 1), default=-1,
        help="Connections of a port at once; -1: no limit.")  # fmt: skip
    timeout_client_data = annotation("timeout-client-data", _MILLISECONDS, default=50000,
        help="Milliseconds that a client may be silent.")  # fmt: skip
    timeout_member_connect = annotation("timeout-member-connect", _MILLISECONDS, default=5000,
        help="Milliseconds to connect to a node.")  # fmt: skip
    timeout_member_data = annotation("timeout-member-data", _MILLISECONDS, default=50000,
        help="Milliseconds that a node may be silent.")  # fmt: skip
    timeout_tcp_inspect = annotation("timeout-tcp-inspect", _MILLISECONDS, default=0,
        help="Milliseconds to wait for more of the first packet.")  # fmt: skip
    method = annotation("lb-method", OneOf("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"),
        help="How nodes are chosen.")  # fmt: skip
    has_monitor = annotation("enable-health-monitor", BOOL, default=False,
        help="Nodes are checked. Always with externalTrafficPolicy Local.")  # fmt: skip
    monitor_delay = annotation("health-monitor-delay", Integer(1), help="Seconds between two checks.")
    monitor_timeout = annotation("health-monitor-timeout", Integer(1),
        help="Seconds for an answer; not more than the delay.")  # fmt: skip
    monitor_retries = annotation("health-monitor-max-retries", Integer(1, 10), help="Good answers until traffic.")
    monitor_retries_down = annotation("health-monitor-max-retries-down", Integer(1, 10), help="Bad ones until none.")
    flavor_id = annotation("flavor-id", ID, help="The flavor of Octavia. Only when it is built.")
    availability_zone = annotation("availability-zone", Text(), help="The zone of Octavia. Only when it is built.")
    node_selector = annotation("node-selector", SELECTOR, default={}, help="Only nodes with these labels get traffic.")

    @property
    def proxy(self) -> str:
        """The pool's protocol with PROXY protocol, "" without."""
        return _PROXY[self.proxy_protocol]

    @classmethod
    def of(cls, service: V1Service, config: LoadBalancerConfig) -> Annotations:
        """With the configuration in place of what the Service does not say. Raises
        `InvalidAnnotations`."""
        return cls.read(service, defaults=_defaults(config))


def _defaults(config: LoadBalancerConfig) -> dict[str, object]:
    return {
        "method": config.lb_method,
        "has_monitor": config.create_monitor,
        "monitor_delay": max(1, int(config.monitor_delay)),
        "monitor_timeout": max(1, int(config.monitor_timeout)),
        "monitor_retries": config.monitor_max_retries,
        "monitor_retries_down": config.monitor_max_retries_down,
        "flavor_id": config.flavor_id or None,
        "availability_zone": config.availability_zone or None,
        "tls_container": config.default_tls_container_ref or None,
        "node_selector": config.node_selector,
    }


def lenient(service: V1Service, config: LoadBalancerConfig) -> Annotations:
    """What can be read of the annotations, without complaint: for calls that must refuse nothing.
    A wrong value counts as none."""
    given = annotations_of(service)
    values = {name: one.default for name, one in Annotations.declared.items()} | _defaults(config)
    for name, one in Annotations.declared.items():
        if one.name in given:
            try:
                values[name] = one.kind.parse(given[one.name].strip())
            except ValueError:
                continue
    return Annotations(values)


def is_internal(service: V1Service, config: LoadBalancerConfig) -> bool:
    """Whether it gets no floating IP. Raises `InvalidAnnotations`."""
    return config.internal_lb or Internal.read(service).internal


def was_internal(service: V1Service, config: LoadBalancerConfig) -> bool:
    """The same, without complaint."""
    try:
        return is_internal(service, config)
    except InvalidAnnotations:
        return False
