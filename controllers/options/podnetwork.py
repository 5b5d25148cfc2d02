"""The cluster's ranges of pod addresses, and the nodes' parts of them: options of the controllers
for IPAM and routes.

Stage: before the first one, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import attrs

from cloudprovider.ips import IPNetwork, is_inside
from cloudprovider.kinds import BOOL, CIDR, Kind, ListOf
from controllers.options.declare import between, option
from controllers.options.kinds import INT, NAME

DEFAULT_MASK_SIZES: Final[Mapping[int, int]] = {4: 24, 6: 64}
"""Prefix length of a node's pod CIDR by IP version, by default, as kube-controller-manager's."""
RANGE_ALLOCATOR: Final = "RangeAllocator"
CLOUD_ALLOCATOR: Final = "CloudAllocator"
ROUTE_CONTROLLER: Final = "node-route-controller"
_SECTION: Final = "generic"


def at_most_one_of_each_family(nets: Sequence[IPNetwork]) -> str | None:
    """A check for the ranges of Services, of which kube-apiserver has no more."""
    if len(nets) > 2 or len({net.version for net in nets}) < len(nets):
        return "must be one IP range, or two of different families: 10.244.0.0/16,fd00:10:244::/56"
    return None


def no_overlap(nets: Sequence[IPNetwork]) -> str | None:
    """A check for the ranges of pods: names all pairs that share addresses."""
    # Of two ranges that share addresses, one contains the other, or they are the same.
    pairs = [
        f"{one} is given twice"
        if one == other
        else f"{one} and {other} overlap: leave out {max(one, other, key=lambda net: net.prefixlen)}"
        for one, other in combinations(nets, 2)
        if is_inside(one, (other,)) or is_inside(other, (one,))
    ]
    return "; ".join(pairs) or None


CIDRS: Final[Kind[tuple[IPNetwork, ...]]] = ListOf(CIDR, least=0, repeated=False)
"""Ranges with commas between them. A flag that is given again replaces them, as in Go."""


def allocate_node_cidrs_option() -> Any:
    """Whether nodes get pod CIDRs at all."""
    return option(
        False,
        BOOL,
        "allocate-node-cidrs",
        _SECTION,
        "Whether nodes get pod CIDRs: from kube-controller-manager, or from node-ipam-controller if --controllers "
        "names it. node-route-controller runs only if this flag and --configure-cloud-routes are on.",
        configz="KubeCloudShared.AllocateNodeCIDRs",
    )


def cluster_cidrs_option() -> Any:
    """The ranges of the cluster's pods.

    Go's manager takes one of each family (processCIDRs in k8s.io/cloud-provider's app/core.go)."""
    return option(
        (),
        CIDRS,
        "cluster-cidr",
        _SECTION,
        "IP ranges of the cluster's pods, separated by commas: one, or several of one family or of both, which do not "
        "overlap. Required by node-route-controller, which creates and deletes nothing outside them, and by "
        "node-ipam-controller, which gives each node a part of one range of each family: of the first that is not "
        "full. The family of the first range is the nodes' primary one.",
        check=no_overlap,
        configz="KubeCloudShared.ClusterCIDR",
    )


def cidr_allocator_type_option() -> Any:
    """Who chooses the pod CIDRs of nodes."""
    return option(
        RANGE_ALLOCATOR,
        NAME,
        "cidr-allocator-type",
        _SECTION,
        "Who chooses the nodes' pod CIDRs for node-ipam-controller: RangeAllocator takes them from --cluster-cidr, "
        "CloudAllocator asks the cloud provider.",
        configz="KubeCloudShared.CIDRAllocatorType",
    )


@attrs.frozen(kw_only=True)
class RouteSwitches:
    """Whether the manager makes routes, and for which nodes."""

    allocate_node_cidrs: bool = allocate_node_cidrs_option()
    configure_cloud_routes: bool = option(
        True,
        BOOL,
        "configure-cloud-routes",
        _SECTION,
        "Whether routes in the cloud are created for the pod CIDRs of --allocate-node-cidrs.",
        configz="KubeCloudShared.ConfigureCloudRoutes",
    )
    cluster_cidrs: tuple[IPNetwork, ...] = cluster_cidrs_option()

    @property
    def on(self) -> bool:
        """Whether both flags hold."""
        return self.allocate_node_cidrs and self.configure_cloud_routes


@attrs.frozen(kw_only=True)
class PodNetworkOptions:
    """What the controllers for IPAM and routes both take. Frozen; raises ValueError."""

    cluster_cidrs: tuple[IPNetwork, ...] = cluster_cidrs_option()
    """`CIDRS.parse` makes them from text."""
    node_cidr_mask_size: int = option(
        0,
        INT,
        "node-cidr-mask-size",
        _SECTION,
        "Mask size of nodes' pod CIDRs, as given to kube-controller-manager. With it no route of another size is "
        "created, so that no kubelet can claim more or less than a node's part; with 0 routes of any size are. A route "
        "that nothing else shows to be a node's is deleted only if it has this size, with 0: 24 for IPv4, 64 for IPv6. "
        "For cluster CIDRs of one family; with two use the flags with -ipv4 and -ipv6.",
        check=between(0, 128),
    )
    node_cidr_mask_size_ipv4: int = option(
        0, INT, "node-cidr-mask-size-ipv4", _SECTION, "As --node-cidr-mask-size, for IPv4.", check=between(0, 32)
    )
    node_cidr_mask_size_ipv6: int = option(
        0, INT, "node-cidr-mask-size-ipv6", _SECTION, "As --node-cidr-mask-size, for IPv6.", check=between(0, 128)
    )
    cidr_allocator_type: str = cidr_allocator_type_option()

    @property
    def cloud_chooses(self) -> bool:
        """Whether the cloud chooses the nodes' pod CIDRs."""
        return self.cidr_allocator_type == CLOUD_ALLOCATOR

    def given_mask_sizes(self) -> tuple[dict[int, int], list[str]]:
        """Prefix length of nodes' pod CIDRs by IP version, as far as the flags say it, and all that
        is wrong with them.

        Follows: setNodeCIDRMaskSizes in Kubernetes'
        cmd/cloud-controller-manager/nodeipamcontroller.go.
        """
        problems = []
        by_family = ((4, self.node_cidr_mask_size_ipv4), (6, self.node_cidr_mask_size_ipv6))
        sizes = {version: given for version, given in by_family if given}
        if self.node_cidr_mask_size:
            families = {net.version for net in self.cluster_cidrs}
            # As Go: without a family in its name it is for clusters of one family.
            if sizes or len(families) != 1:
                problems.append(
                    "--node-cidr-mask-size: is for a --cluster-cidr of one IP family, and not together with "
                    "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6: give one flag for each family"
                )
            else:
                sizes[families.pop()] = self.node_cidr_mask_size
        for version, given in sizes.items():
            of_family = [net for net in self.cluster_cidrs if net.version == version]
            if not of_family:
                problems.append(
                    f"--node-cidr-mask-size-ipv{version}: needs a cluster CIDR of that family (--cluster-cidr)"
                )
            problems += [
                f"--node-cidr-mask-size: a node's pod CIDR of mask size {given} does not fit into the cluster CIDR "
                f"{cluster}: the size must be between {cluster.prefixlen} and {cluster.max_prefixlen}"
                for cluster in of_family
                if not cluster.prefixlen <= given <= cluster.max_prefixlen
            ]
        return sizes, problems
