"""Helpers for providers and controllers: pure functions over the official client's objects, under
flat names.

Node addresses, taints and labels (`addresses`, `taints`, `labels`), what a kubelet accepts
(`kubelet`), provider IDs (`providerid`), Services (`service`) and their annotations (`annotations`,
`kinds`), volumes (`volumes`), IP addresses (`ips`), SSH keys (`sshkeys`), time limits of HTTP
clients (`timelimits`), and what is read of every object (`objects`). None of them changes an
argument; all may be called from many threads.

A module of these is imported with the first of its names that is used.
"""

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy

if TYPE_CHECKING:
    from cloudprovider.helpers import (  # noqa: F401 - attributes of this package, as ever
        addresses,
        annotations,
        ips,
        kinds,
        kubelet,
        labels,
        objects,
        providerid,
        service,
        sshkeys,
        taints,
        timelimits,
        volumes,
    )
    from cloudprovider.helpers.addresses import (
        InvalidNodeIP,
        NodeIPError,
        NodeIPMismatch,
        add_to_node_addresses,
        address_problems,
        describe_addresses,
        parse_provided_node_ip,
        preferred_addresses,
        provided_node_ip,
        same_addresses,
    )
    from cloudprovider.helpers.annotations import (
        Annotation,
        OptionalAnnotation,
        ServiceAnnotations,
        annotation,
    )
    from cloudprovider.helpers.ips import (
        IPAddress,
        IPNetwork,
        parse_ip,
        parse_network,
    )
    from cloudprovider.helpers.kinds import (
        BOOL,
        CIDR,
        JSON_OBJECT,
        PAIRS,
        TEXT,
        Duration,
        Integer,
        Kind,
        ListOf,
        Member,
        OneOf,
        Text,
        parse_duration,
        show_duration,
    )
    from cloudprovider.helpers.kubelet import (
        kubelet_hostname,
        kubelet_may_set,
        node_name_problems,
    )
    from cloudprovider.helpers.labels import (
        LABEL_PAIRS,
        instance_labels,
        is_kubernetes_label,
        label_key_problems,
        label_value_problems,
        missing_twins,
    )
    from cloudprovider.helpers.objects import (
        HasMetadata,
        ServicePort,
        addresses_of,
        annotations_of,
        external_ips,
        internal_ips,
        key_of,
        labels_of,
        node_name,
        pod_cidrs_of,
        ports_of,
        uid_of,
    )
    from cloudprovider.helpers.providerid import (
        Ownership,
        ProviderID,
        format_provider_id,
        get_instance_provider_id,
        is_owned,
        ownership,
        parse_provider_id,
        provider_id_of,
        provider_id_problems,
        same_provider_id,
    )
    from cloudprovider.helpers.service import (
        default_load_balancer_name,
        has_load_balancer_finalizer,
        health_check_path_port,
        load_balancer_source_ranges,
        load_balancer_status_equal,
        needs_health_check,
        requests_only_local_traffic,
        wants_load_balancer,
    )
    from cloudprovider.helpers.sshkeys import (
        SSHPublicKey,
        parse_ssh_public_key,
    )
    from cloudprovider.helpers.taints import (
        find_taint,
        get_node_condition,
        is_ready,
        needs_initialization,
        node_taints,
    )
    from cloudprovider.helpers.timelimits import (
        time_limit,
        time_limits,
    )
    from cloudprovider.helpers.volumes import (
        label_value_to_zone_list,
        zones_to_label_value,
    )
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    # addresses
    "InvalidNodeIP",
    "NodeIPError",
    "NodeIPMismatch",
    "add_to_node_addresses",
    "address_problems",
    "describe_addresses",
    "parse_provided_node_ip",
    "preferred_addresses",
    "provided_node_ip",
    "same_addresses",
    # annotations
    "Annotation",
    "OptionalAnnotation",
    "ServiceAnnotations",
    "annotation",
    # ips
    "IPAddress",
    "IPNetwork",
    "parse_ip",
    "parse_network",
    # kinds
    "BOOL",
    "CIDR",
    "JSON_OBJECT",
    "PAIRS",
    "TEXT",
    "Duration",
    "Integer",
    "Kind",
    "ListOf",
    "Member",
    "OneOf",
    "Text",
    "parse_duration",
    "show_duration",
    # kubelet
    "kubelet_hostname",
    "kubelet_may_set",
    "node_name_problems",
    # labels
    "LABEL_PAIRS",
    "instance_labels",
    "is_kubernetes_label",
    "label_key_problems",
    "label_value_problems",
    "missing_twins",
    # objects
    "HasMetadata",
    "ServicePort",
    "addresses_of",
    "annotations_of",
    "external_ips",
    "internal_ips",
    "key_of",
    "labels_of",
    "node_name",
    "pod_cidrs_of",
    "ports_of",
    "uid_of",
    # providerid
    "Ownership",
    "ProviderID",
    "format_provider_id",
    "get_instance_provider_id",
    "is_owned",
    "ownership",
    "parse_provider_id",
    "provider_id_of",
    "provider_id_problems",
    "same_provider_id",
    # service
    "default_load_balancer_name",
    "has_load_balancer_finalizer",
    "health_check_path_port",
    "load_balancer_source_ranges",
    "load_balancer_status_equal",
    "needs_health_check",
    "requests_only_local_traffic",
    "wants_load_balancer",
    # sshkeys
    "SSHPublicKey",
    "parse_ssh_public_key",
    # taints
    "find_taint",
    "get_node_condition",
    "is_ready",
    "needs_initialization",
    "node_taints",
    # timelimits
    "time_limit",
    "time_limits",
    # volumes
    "label_value_to_zone_list",
    "zones_to_label_value",
]
