"""What is read of every object again and again: names, labels, addresses, taints, conditions, ports
(stages 3 to 5). Pure.

The official client types nearly every field as optional. These readers give the plain value, empty
where the object has none, so that code which uses them needs no `None` checks under `mypy --strict`
or pyright. They return what the object holds, not copies: arguments of a provider's methods are
read-only, and so is what comes from them.

The list of taints is atomic in the API: write it whole, in a merge patch with
metadata.resourceVersion, every other taint kept.

Follows, for taints and conditions: k8s.io/cloud-provider node/helpers/taints.go and
k8s.io/component-helpers node/util/conditions.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from attrs import frozen

from cloudprovider.internal.fields import documented
from cloudprovider.wellknown import NODE_ADDRESS_EXTERNAL_IP, NODE_ADDRESS_INTERNAL_IP, TAINT_EXTERNAL_CLOUD_PROVIDER

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node
    from kubernetes.client.models.v1_node_address import V1NodeAddress
    from kubernetes.client.models.v1_node_condition import V1NodeCondition
    from kubernetes.client.models.v1_object_meta import V1ObjectMeta
    from kubernetes.client.models.v1_service import V1Service
    from kubernetes.client.models.v1_taint import V1Taint

__all__ = [
    "HasMetadata",
    "ServicePort",
    "addresses_of",
    "annotations_of",
    "external_ips",
    "find_taint",
    "get_node_condition",
    "internal_ips",
    "is_ready",
    "key_of",
    "labels_of",
    "needs_initialization",
    "node_name",
    "node_taints",
    "pod_cidrs_of",
    "ports_of",
    "uid_of",
]


class HasMetadata(Protocol):
    """Any object of the API: every model of the official client that stands for one fits."""

    @property
    def metadata(self) -> V1ObjectMeta | None:
        """Name, namespace, labels and the like."""
        ...


@documented
@frozen
class ServicePort:
    """One port of a Service, with the API's defaults in place of what is not set."""

    port: int
    """The port that the load balancer listens on."""

    protocol: str = "TCP"
    """TCP, UDP or SCTP."""

    node_port: int = 0
    """The port on every node to send the traffic to. 0: none is allocated
    (`allocateLoadBalancerNodePorts: false`)."""

    name: str = ""
    """The port's name, empty where the Service has only this one."""

    app_protocol: str = ""
    """The application's protocol (`appProtocol`), such as "http"; empty where the Service does not
    say."""


def node_name(node: V1Node) -> str:
    """The node's name. Raises ValueError without one: an empty name must never be taken for an
    instance's that is gone."""
    name = node.metadata.name if node.metadata is not None else None
    if not name:
        raise ValueError("a Node without metadata.name")
    return name


def key_of(obj: HasMetadata) -> str:
    """The key of an object: "namespace/name", or "name" for kinds without namespaces. ValueError
    without a name."""
    meta = obj.metadata
    # An empty key would stand for every such object, in the queue and in the cache.
    if meta is None or not meta.name:
        raise ValueError(f"{type(obj).__name__} without a name has no key")
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def uid_of(obj: HasMetadata) -> str:
    """The object's UID, "" where it has none."""
    meta = obj.metadata
    return (meta.uid or "") if meta is not None else ""


def labels_of(obj: HasMetadata) -> Mapping[str, str]:
    """The object's labels."""
    meta = obj.metadata
    return (meta.labels or {}) if meta is not None else {}


def annotations_of(obj: HasMetadata) -> Mapping[str, str]:
    """The object's annotations. For those that users set on Services see `ServiceAnnotations`."""
    meta = obj.metadata
    return (meta.annotations or {}) if meta is not None else {}


def addresses_of(node: V1Node) -> tuple[V1NodeAddress, ...]:
    """The addresses in the node's status, of every type, in their order."""
    return tuple(node.status.addresses or ()) if node.status is not None else ()


def internal_ips(node: V1Node) -> tuple[str, ...]:
    """The node's addresses of type InternalIP."""
    return tuple(one.address for one in addresses_of(node) if one.type == NODE_ADDRESS_INTERNAL_IP)


def external_ips(node: V1Node) -> tuple[str, ...]:
    """The node's addresses of type ExternalIP."""
    return tuple(one.address for one in addresses_of(node) if one.type == NODE_ADDRESS_EXTERNAL_IP)


def node_taints(node: V1Node) -> tuple[V1Taint, ...]:
    """The node's taints, empty when it has none."""
    return tuple(node.spec.taints or ()) if node.spec is not None else ()


def find_taint(taints: Iterable[V1Taint], key: str, effect: str | None = None) -> V1Taint | None:
    """The first taint with this key, and with this effect where one is given; None when there is
    none."""
    for taint in taints:
        if taint.key == key and effect in (None, taint.effect):
            return taint
    return None


def needs_initialization(node: V1Node) -> bool:
    """Whether a cloud controller has yet to initialise the node."""
    return any(taint.key == TAINT_EXTERNAL_CLOUD_PROVIDER for taint in node_taints(node))


def get_node_condition(node: V1Node, condition_type: str) -> V1NodeCondition | None:
    """The node's condition of this type; None when it carries none."""
    conditions = node.status.conditions if node.status is not None else None
    for condition in conditions or ():
        if condition.type == condition_type:
            return condition
    return None


def is_ready(node: V1Node) -> bool:
    """Whether the node's condition Ready is True. A node without the condition is not ready."""
    condition = get_node_condition(node, "Ready")
    # Not Unknown: the kubelet has been silent for a while.
    return condition is not None and condition.status == "True"


def pod_cidrs_of(node: V1Node) -> tuple[str, ...]:
    """The ranges of the node's pods, one for each IP family: `spec.podCIDRs`, else
    `spec.podCIDR`."""
    spec = node.spec
    if spec is None:
        return ()
    # The API server fills both fields; an object that never was there may have the older one alone.
    return tuple(spec.pod_cidrs or ((spec.pod_cidr,) if spec.pod_cidr else ()))


def ports_of(service: V1Service) -> tuple[ServicePort, ...]:
    """The Service's ports, in their order."""
    # The API server fills in its defaults; a Service that is made in a vendor's test has none.
    ports = (service.spec.ports if service.spec is not None else None) or ()
    return tuple(
        ServicePort(one.port, one.protocol or "TCP", one.node_port or 0, one.name or "", one.app_protocol or "")
        for one in ports
    )
