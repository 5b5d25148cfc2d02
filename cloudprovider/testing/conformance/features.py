"""Features: what a provider says that it can do, and what it really offers.

A test class declares them (`features = Feature.INSTANCES_V2 | Feature.ROUTES`). Scenarios of a
feature that is not declared are skipped by name; scenario G2 compares the declaration with the
provider's accessors.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cloudprovider.interface import Interface
from cloudprovider.loadbalancer import OwnedLoadBalancers
from cloudprovider.loading.diagnostics import ACCESSORS, EXTENSIONS
from cloudprovider.sshkeys import SSHKeys


class Feature(enum.Flag):
    """What a provider can do. Join several with `|`. The capabilities of the contract,
    and what a load balancer can do."""

    NONE = 0
    INSTANCES_V2 = enum.auto()
    INSTANCES_BATCH = enum.auto()
    INSTANCES = enum.auto()
    """The older form, by name and by provider ID."""
    SSH_KEYS = enum.auto()
    """The class of `InstancesV2` or `InstancesBatch` is an `SSHKeys` too."""
    ZONES = enum.auto()
    LOAD_BALANCER = enum.auto()
    OWNED_LOAD_BALANCERS = enum.auto()
    """The class of the load balancers is an `OwnedLoadBalancers` too."""
    SOURCE_RANGES = enum.auto()
    """`spec.loadBalancerSourceRanges` limits who may connect."""
    UDP = enum.auto()
    """Load balancers have ports over UDP, also one port number over TCP and UDP."""
    HEALTH_CHECKS = enum.auto()
    """With `externalTrafficPolicy: Local`, the health check asks the Service's own node port."""
    KEPT_LOAD_BALANCERS = enum.auto()
    """A Service can ask that its load balancer stays when it is deleted (`LoadBalancerKept`)."""
    ROUTES = enum.auto()
    PV_LABELER = enum.auto()
    CLUSTERS = enum.auto()
    LOCAL_INSTANCE = enum.auto()
    """The metadata service of the machine that the program runs on."""
    POD_CIDRS = enum.auto()
    OWNED_RESOURCES = enum.auto()
    """What `teardown` deletes besides load balancers and routes."""


INSTANCES = Feature.INSTANCES_V2 | Feature.INSTANCES_BATCH | Feature.INSTANCES
"""What nodes are initialised from."""

CAPABILITIES: Mapping[Feature, tuple[str, type[Any]]] = {
    Feature[accessor.upper()]: (accessor, kind) for accessor, kind in ACCESSORS.items()
}
"""By feature, the accessor of `Interface` that offers it, and the class of what the accessor
returns."""

EXTENDING: Mapping[Feature, type[Any]] = {
    Feature.OWNED_LOAD_BALANCERS: OwnedLoadBalancers,
    Feature.SSH_KEYS: SSHKeys,
}
"""By feature without an accessor of its own, the class that an object with another capability
subclasses besides."""


def offered(provider: Interface) -> Feature:
    """The features that the provider's accessors offer; what a load balancer can do, which none
    shows, is never among them."""
    found = Feature.NONE
    for feature, (accessor, _) in CAPABILITIES.items():
        ask: Callable[[], object] = getattr(provider, accessor)
        if ask() is not None:
            found |= feature
    # Capabilities without an accessor: the host looks at what the other accessors return.
    for feature, kind in EXTENDING.items():
        if extension_of(provider, kind) is not None:
            found |= feature
    return found


def extension_of(provider: Interface, kind: type[Any]) -> Any:
    """The object that has a capability without an accessor of its own; None where no accessor
    returns one."""
    answers: list[object] = [getattr(provider, accessor)() for accessor in EXTENSIONS[kind]]
    return next((answer for answer in answers if isinstance(answer, kind)), None)


@cache
def feature_names(features: Feature) -> tuple[str, ...]:
    """The names of the single features, in lower case, as the report has them."""
    return tuple(str(one.name).lower() for one in Feature if one in features and one.value)
