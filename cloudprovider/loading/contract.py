"""The classes that a vendor implements, and where the host finds them: for the checks, for the
message about a class that lacks a method, and for the features of the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cloudprovider.instances import Instances, InstancesBatch, InstancesV2
from cloudprovider.interface import Clusters
from cloudprovider.loadbalancer import LoadBalancer, OwnedLoadBalancers
from cloudprovider.localinstance import LocalInstance
from cloudprovider.podcidrs import PodCIDRs
from cloudprovider.routes import Routes
from cloudprovider.sshkeys import SSHKeys
from cloudprovider.volumes import PVLabeler
from cloudprovider.zones import Zones

ACCESSORS: Final[Mapping[str, type]] = {
    "instances_v2": InstancesV2,
    "instances_batch": InstancesBatch,
    "instances": Instances,
    "zones": Zones,
    "load_balancer": LoadBalancer,
    "routes": Routes,
    "pod_cidrs": PodCIDRs,
    "clusters": Clusters,
    "pv_labeler": PVLabeler,
    "local_instance": LocalInstance,
}
"""The accessors of `Interface`, and what each returns."""

EXTENSIONS: Final[Mapping[type, tuple[str, ...]]] = {
    OwnedLoadBalancers: ("load_balancer",),
    SSHKeys: ("instances_v2", "instances_batch"),
}
"""Capabilities without an accessor of their own, and the accessors of which one returns an object
that has them too."""
