"""The route controller's options, with their flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from controllers.options import (
    DURATION,
    INT,
    between,
    cluster_name_option,
    drain_timeout_option,
    not_negative,
    option,
    positive,
)
from controllers.options.podnetwork import (
    DEFAULT_MASK_SIZES,
    PodNetworkOptions,
)

_SECTION: Final = "generic"


@frozen(kw_only=True)
class RouteOptions(PodNetworkOptions):
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    cluster_name: str = cluster_name_option()
    route_reconciliation_period: float = option(
        300.0,
        DURATION,
        "route-reconciliation-period",
        _SECTION,
        "How often the routes in the cloud are listed when no node has changed. Changes of nodes are handled at "
        "once, so this only repairs routes that were changed by hand (Go's default of 10s can use up the cloud's "
        "quota).",
        check=positive,
        configz="KubeCloudShared.RouteReconciliationPeriod",
    )
    list_interval: float = option(10.0, DURATION, check=not_negative)
    """Seconds between two listings that events ask for, at least; and the age of a listing on which
    routes are still deleted. Creating needs no new listing."""
    concurrent_route_syncs: int = option(64, INT, check=between(1, 1000))
    """Nodes worked on at once. The calls to the cloud among them are bounded by the gateway."""
    drain_timeout: float = drain_timeout_option()

    def mask_sizes(self) -> Mapping[int, int]:
        """Prefix length of nodes' pod CIDRs by IP version, as far as the flags say it. Raises
        ValueError where the cluster CIDR is missing, the mask sizes contradict each other, or one
        does not fit the cluster CIDR."""
        if not self.cluster_cidrs:
            raise ValueError(
                "--cluster-cidr is missing. Fix: give --cluster-cidr=RANGE, the range of the pods that "
                "kube-controller-manager has too (10.244.0.0/16, say), or --configure-cloud-routes=false for no routes"
            )
        sizes, problems = self.given_mask_sizes()
        if problems:
            raise ValueError("; ".join(problems))
        return sizes

    def usual_sizes(self) -> Mapping[int, int]:
        """As `mask_sizes`, and what kube-controller-manager gives where its flags say nothing; but
        for the cloud's own choice, which has no such size."""
        return self.mask_sizes() if self.cloud_chooses else {**DEFAULT_MASK_SIZES, **self.mask_sizes()}
