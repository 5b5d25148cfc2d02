"""Features: what a provider says that it can do, and what it really offers.

A test class declares them (`features = Feature.INSTANCES_V2 | Feature.ROUTES`). Scenarios of a feature that is not
declared are skipped by name; scenario G2 compares the declaration with the provider's accessors.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from cloudprovider.instances import Instances, InstancesBatch, InstancesV2
from cloudprovider.interface import Clusters, Interface
from cloudprovider.loadbalancer import LoadBalancer, OwnedLoadBalancers
from cloudprovider.routes import Routes
from cloudprovider.volumes import PVLabeler
from cloudprovider.zones import Zones

__all__ = ["CAPABILITIES", "Feature", "feature_names", "offered"]


class Feature(enum.Flag):
    """What a provider can do. Join several with `|`. The capabilities of the contract, and `SOURCE_RANGES`."""

    NONE = 0
    INSTANCES_V2 = enum.auto()
    INSTANCES_BATCH = enum.auto()
    INSTANCES = enum.auto()
    """The older form, by name and by provider ID."""
    ZONES = enum.auto()
    LOAD_BALANCER = enum.auto()
    OWNED_LOAD_BALANCERS = enum.auto()
    """The class of the load balancers is an `OwnedLoadBalancers` too."""
    SOURCE_RANGES = enum.auto()
    """`spec.loadBalancerSourceRanges` limits who may connect."""
    ROUTES = enum.auto()
    PV_LABELER = enum.auto()
    CLUSTERS = enum.auto()


CAPABILITIES: Mapping[Feature, tuple[str, type[Any]]] = {
    Feature.INSTANCES_V2: ("instances_v2", InstancesV2),
    Feature.INSTANCES_BATCH: ("instances_batch", InstancesBatch),
    Feature.INSTANCES: ("instances", Instances),
    Feature.ZONES: ("zones", Zones),
    Feature.LOAD_BALANCER: ("load_balancer", LoadBalancer),
    Feature.OWNED_LOAD_BALANCERS: ("load_balancer", OwnedLoadBalancers),
    Feature.ROUTES: ("routes", Routes),
    Feature.PV_LABELER: ("pv_labeler", PVLabeler),
    Feature.CLUSTERS: ("clusters", Clusters),
}
"""By feature, the accessor of `Interface` that offers it, and the class of what the accessor returns."""


def offered(provider: Interface) -> Feature:
    """The features that the provider's accessors offer. Those without an accessor of their own are never among them."""
    found = Feature.NONE
    for feature, (accessor, kind) in CAPABILITIES.items():
        ask: Callable[[], object] = getattr(provider, accessor)
        answer = ask()
        if answer is not None and (feature is not Feature.OWNED_LOAD_BALANCERS or isinstance(answer, kind)):
            found |= feature
    return found


def feature_names(features: Feature) -> tuple[str, ...]:
    """The names of the single features, in lower case, as the report has them."""
    return tuple(str(one.name).lower() for one in Feature if one in features and one.value)
