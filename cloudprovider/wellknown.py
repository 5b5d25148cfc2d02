"""Strings that the cluster's components agree on. None may ever change: they are stored in users'
objects.

Read by the controllers, the helpers and vendors. Named as in Go, in capitals.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ANNOTATION_LOAD_BALANCER_SOURCE_RANGES",
    "ANNOTATION_PROVIDED_NODE_IP",
    "CONDITION_NETWORK_UNAVAILABLE",
    "EXTERNAL_PROVIDER_NAME",
    "LABEL_ARCH",
    "LABEL_EXCLUDE_BALANCERS",
    "LABEL_HANDS_OFF",
    "LABEL_HOSTNAME",
    "LABEL_INSTANCE_TYPE",
    "LABEL_INSTANCE_TYPE_BETA",
    "LABEL_MULTI_ZONE_DELIMITER",
    "LABEL_OS",
    "LABEL_REGION_BETA",
    "LABEL_TOPOLOGY_REGION",
    "LABEL_TOPOLOGY_ZONE",
    "LABEL_ZONE_BETA",
    "LOAD_BALANCER_CLEANUP_FINALIZER",
    "NODE_ADDRESS_EXTERNAL_DNS",
    "NODE_ADDRESS_EXTERNAL_IP",
    "NODE_ADDRESS_HOSTNAME",
    "NODE_ADDRESS_INTERNAL_DNS",
    "NODE_ADDRESS_INTERNAL_IP",
    "NODE_ADDRESS_TYPES",
    "PROVISIONED_VOLUME_NAME",
    "REASON_NO_ROUTE_CREATED",
    "REASON_ROUTE_CREATED",
    "SERVICE_TYPE_LOAD_BALANCER",
    "SERVICE_TYPE_NODE_PORT",
    "TAINT_EFFECT_NO_EXECUTE",
    "TAINT_EFFECT_NO_SCHEDULE",
    "TAINT_EFFECT_PREFER_NO_SCHEDULE",
    "TAINT_EXTERNAL_CLOUD_PROVIDER",
    "TAINT_NODE_NETWORK_UNAVAILABLE",
    "TAINT_NODE_NOT_READY",
    "TAINT_NODE_OUT_OF_SERVICE",
    "TAINT_NODE_SHUTDOWN",
    "TAINT_NODE_UNREACHABLE",
    "TAINT_NODE_UNSCHEDULABLE",
    "TAINT_TO_BE_DELETED",
]

# Taints. k8s.io/cloud-provider api/well_known_taints.go, k8s.io/api core/v1 well_known_taints.go.
TAINT_EXTERNAL_CLOUD_PROVIDER: Final = "node.cloudprovider.kubernetes.io/uninitialized"
"""Set by the kubelet (value "true", NoSchedule) until a cloud controller has initialised the
node."""
TAINT_NODE_SHUTDOWN: Final = "node.cloudprovider.kubernetes.io/shutdown"
"""The instance is switched off (NoSchedule)."""
TAINT_TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
"""The cluster autoscaler is about to delete the node: load balancers leave it out."""
TAINT_NODE_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
TAINT_NODE_NOT_READY: Final = "node.kubernetes.io/not-ready"
TAINT_NODE_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TAINT_NODE_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
TAINT_NODE_NETWORK_UNAVAILABLE: Final = "node.kubernetes.io/network-unavailable"
TAINT_EFFECT_NO_SCHEDULE: Final = "NoSchedule"
TAINT_EFFECT_PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
TAINT_EFFECT_NO_EXECUTE: Final = "NoExecute"

# Labels. k8s.io/api core/v1 well_known_labels.go; the deprecated ones still live on old objects.
LABEL_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
LABEL_INSTANCE_TYPE_BETA: Final = "beta.kubernetes.io/instance-type"
LABEL_TOPOLOGY_ZONE: Final = "topology.kubernetes.io/zone"
LABEL_ZONE_BETA: Final = "failure-domain.beta.kubernetes.io/zone"
LABEL_TOPOLOGY_REGION: Final = "topology.kubernetes.io/region"
LABEL_REGION_BETA: Final = "failure-domain.beta.kubernetes.io/region"
LABEL_EXCLUDE_BALANCERS: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Keeps a node out of load balancers, unless its value says false."""
LABEL_HANDS_OFF: Final = "cloud-provider.node-restriction.kubernetes.io/hands-off"
"""Ours. Keeps a node from being deleted or tainted because of what the cloud says of its machine,
unless its value is "false". NodeRestriction keeps kubelets from every label in a sub-domain of
node-restriction.kubernetes.io; see plugin/pkg/admission/noderestriction/admission.go."""
LABEL_HOSTNAME: Final = "kubernetes.io/hostname"
LABEL_OS: Final = "kubernetes.io/os"
LABEL_ARCH: Final = "kubernetes.io/arch"

# Annotations. k8s.io/cloud-provider api/well_known_annotations.go, k8s.io/api core/v1
# annotation_key_constants.go.
ANNOTATION_PROVIDED_NODE_IP: Final = "alpha.kubernetes.io/provided-node-ip"
"""The kubelet's --node-ip: one IP address, or one of each family with a comma between."""
ANNOTATION_LOAD_BALANCER_SOURCE_RANGES: Final = "service.beta.kubernetes.io/load-balancer-source-ranges"
"""CIDRs with commas between; counts only while spec.loadBalancerSourceRanges is empty."""

# Finalizer. k8s.io/cloud-provider service/helpers/helper.go.
LOAD_BALANCER_CLEANUP_FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"

# Node addresses, their types. k8s.io/api core/v1 types.go.
NODE_ADDRESS_HOSTNAME: Final = "Hostname"
NODE_ADDRESS_INTERNAL_IP: Final = "InternalIP"
NODE_ADDRESS_EXTERNAL_IP: Final = "ExternalIP"
NODE_ADDRESS_INTERNAL_DNS: Final = "InternalDNS"
NODE_ADDRESS_EXTERNAL_DNS: Final = "ExternalDNS"
NODE_ADDRESS_TYPES: Final = frozenset(
    {
        NODE_ADDRESS_HOSTNAME,
        NODE_ADDRESS_INTERNAL_IP,
        NODE_ADDRESS_EXTERNAL_IP,
        NODE_ADDRESS_INTERNAL_DNS,
        NODE_ADDRESS_EXTERNAL_DNS,
    }
)

# The node condition that the route controller writes: False/RouteCreated, True/NoRouteCreated.
CONDITION_NETWORK_UNAVAILABLE: Final = "NetworkUnavailable"
REASON_ROUTE_CREATED: Final = "RouteCreated"
REASON_NO_ROUTE_CREATED: Final = "NoRouteCreated"

# Services and volumes.
SERVICE_TYPE_LOAD_BALANCER: Final = "LoadBalancer"
SERVICE_TYPE_NODE_PORT: Final = "NodePort"
LABEL_MULTI_ZONE_DELIMITER: Final = "__"
"""Joins the zones of a volume that lies in several. k8s.io/cloud-provider volume/constants.go."""
PROVISIONED_VOLUME_NAME: Final = "placeholder-for-provisioning"
"""The name of a volume that is still being made and must be ignored."""

EXTERNAL_PROVIDER_NAME: Final = "external"
"""The value of --cloud-provider that says "some other program is the provider". Cannot be a
provider's name."""
