"""The contract between Kubernetes and a cloud: what a vendor imports, under flat public names.

A vendor subclasses `Interface` and the capabilities that its cloud has (`InstancesV2`,
`InstancesBatch`, `LoadBalancer`, `Routes` ...), says what went wrong with the classes of `errors`,
and exposes a factory through the entry-point group `cloudprovider.providers`. `helpers` and
`wellknown` are for use on both sides.

Importing this package registers nothing, starts nothing, and leaves the official Kubernetes client
unimported. It fails when another package named `controllers` or `cloudprovider` stands in the way
(`importnames.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.internal.lazy import lazy
from cloudprovider.loading import importnames

if TYPE_CHECKING:
    from cloudprovider import helpers, wellknown
    from cloudprovider.call import Call, call_scope, current_call
    from cloudprovider.cloudconfig import CloudConfig
    from cloudprovider.errors import (
        CallCancelled,
        CallDeadlineExceeded,
        CallInterrupted,
        CloudProviderError,
        ConfigError,
        ConfigMissing,
        ConfigUnreadable,
        DiskNotFound,
        DuplicateProvider,
        ImplementedElsewhere,
        InstanceNotFound,
        InvalidAnnotations,
        InvalidConfig,
        InvalidProviderName,
        InvalidService,
        LoadBalancerKept,
        NotImplementedByProvider,
        Pending,
        ProviderFactoryError,
        ProviderLoadError,
        ProviderTypeError,
        QuotaExceeded,
        RegistryError,
        RetryError,
        Throttled,
        UnknownProvider,
    )
    from cloudprovider.host import (
        ClientBuilder,
        EndpointSliceLister,
        InformerUser,
        Lister,
        Listers,
        LookAgain,
        StopSignal,
    )
    from cloudprovider.instances import (
        InstanceMetadata,
        Instances,
        InstancesBatch,
        InstanceState,
        InstancesV2,
        Taint,
    )
    from cloudprovider.interface import Clusters, Interface
    from cloudprovider.loadbalancer import LoadBalancer, OwnedLoadBalancer, OwnedLoadBalancers
    from cloudprovider.loading.registry import (
        ENTRY_POINT_GROUP,
        Factory,
        cloud_providers,
        get_cloud_provider,
        init_cloud_provider,
        is_cloud_provider,
        is_external,
        register_cloud_provider,
    )
    from cloudprovider.localinstance import LocalInstance
    from cloudprovider.machines import Machine, Machines
    from cloudprovider.ownedresources import OwnedResource, OwnedResources
    from cloudprovider.podcidrs import PodCIDRs
    from cloudprovider.routes import Route, Routes
    from cloudprovider.sshkeys import SSHKeys
    from cloudprovider.volumes import PVLabeler
    from cloudprovider.zones import Zone, Zones
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "cloudprovider": "helpers wellknown",
            "cloudprovider.call": "Call call_scope current_call",
            "cloudprovider.cloudconfig": "CloudConfig",
            "cloudprovider.errors": (
                "CallCancelled CallDeadlineExceeded CallInterrupted CloudProviderError "
                "ConfigError ConfigMissing ConfigUnreadable DiskNotFound DuplicateProvider "
                "ImplementedElsewhere InstanceNotFound InvalidAnnotations InvalidConfig "
                "InvalidProviderName InvalidService LoadBalancerKept NotImplementedByProvider Pending "
                "ProviderFactoryError ProviderLoadError ProviderTypeError QuotaExceeded RegistryError "
                "RetryError Throttled UnknownProvider"
            ),
            "cloudprovider.host": (
                "ClientBuilder EndpointSliceLister InformerUser Lister Listers LookAgain StopSignal"
            ),
            "cloudprovider.instances": "InstanceMetadata Instances InstancesBatch InstanceState InstancesV2 Taint",
            "cloudprovider.interface": "Clusters Interface",
            "cloudprovider.loadbalancer": "LoadBalancer OwnedLoadBalancer OwnedLoadBalancers",
            "cloudprovider.loading.registry": (
                "ENTRY_POINT_GROUP Factory cloud_providers get_cloud_provider "
                "init_cloud_provider is_cloud_provider is_external register_cloud_provider"
            ),
            "cloudprovider.localinstance": "LocalInstance",
            "cloudprovider.machines": "Machine Machines",
            "cloudprovider.ownedresources": "OwnedResource OwnedResources",
            "cloudprovider.podcidrs": "PodCIDRs",
            "cloudprovider.routes": "Route Routes",
            "cloudprovider.sshkeys": "SSHKeys",
            "cloudprovider.volumes": "PVLabeler",
            "cloudprovider.zones": "Zone Zones",
        },
    )

__all__ = [
    # what a vendor writes
    "Interface",
    "InstancesV2",
    "InstancesBatch",
    "Machines",
    "Machine",
    "Instances",
    "SSHKeys",
    "LoadBalancer",
    "OwnedLoadBalancer",
    "OwnedLoadBalancers",
    "Routes",
    "PodCIDRs",
    "OwnedResource",
    "OwnedResources",
    "Zones",
    "Clusters",
    "PVLabeler",
    "LocalInstance",
    # values
    "InstanceMetadata",
    "InstanceState",
    "Taint",
    "Route",
    "Zone",
    # what the host hands over
    "ClientBuilder",
    "StopSignal",
    "Lister",
    "Listers",
    "EndpointSliceLister",
    "LookAgain",
    "InformerUser",
    "Call",
    "call_scope",
    "current_call",
    # registry
    "ENTRY_POINT_GROUP",
    "CloudConfig",
    "Factory",
    "register_cloud_provider",
    "cloud_providers",
    "is_cloud_provider",
    "get_cloud_provider",
    "init_cloud_provider",
    "is_external",
    # errors
    "CloudProviderError",
    "InstanceNotFound",
    "DiskNotFound",
    "NotImplementedByProvider",
    "ImplementedElsewhere",
    "LoadBalancerKept",
    "InvalidService",
    "InvalidAnnotations",
    "InvalidConfig",
    "QuotaExceeded",
    "RetryError",
    "Pending",
    "Throttled",
    "CallInterrupted",
    "CallCancelled",
    "CallDeadlineExceeded",
    "RegistryError",
    "InvalidProviderName",
    "DuplicateProvider",
    "UnknownProvider",
    "ProviderLoadError",
    "ProviderFactoryError",
    "ProviderTypeError",
    "ConfigError",
    "ConfigMissing",
    "ConfigUnreadable",
    # modules
    "helpers",
    "wellknown",
]

importnames.check()
