"""What can be set about the route controller, with its flags. Stage: before the first one, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

from controllers.options import (
    DURATION,
    INT,
    Kind,
    between,
    cluster_name_option,
    drain_timeout_option,
    not_negative,
    option,
    positive,
)

if TYPE_CHECKING:
    from cloudprovider.helpers.ips import IPNetwork

_SECTION: Final = "generic"


def parse_cluster_cidrs(text: str) -> tuple[IPNetwork, ...]:
    """One range, or two of different IP families with a comma; () for "". Raises ValueError.

    Follows: processCIDRs and startRouteController in k8s.io/cloud-provider's app/core.go.
    """
    if not text.strip():
        return ()
    from cloudprovider.helpers.ips import parse_network  # not before it is needed: see lazy.py

    nets = tuple(parse_network(part.strip()) for part in text.split(","))
    wrong = _two_at_most(nets)
    if wrong:
        raise ValueError(wrong)
    return nets


def _two_at_most(nets: Sequence[IPNetwork]) -> str | None:
    if len(nets) > 2 or len({net.version for net in nets}) < len(nets):
        return "must be one IP range, or two of different families: 10.244.0.0/16,fd00:10:244::/56"
    return None


_CIDRS: Kind[tuple[IPNetwork, ...]] = Kind("TEXT", parse_cluster_cidrs, lambda nets: ",".join(map(str, nets)))


@frozen(kw_only=True)
class RouteOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    cluster_name: str = cluster_name_option()
    cluster_cidrs: tuple[IPNetwork, ...] = option(
        (),
        _CIDRS,
        "cluster-cidr",
        _SECTION,
        "IP range of the cluster's pods, or two ranges of different families separated by a comma. Required by "
        "node-route-controller, which deletes nothing outside it.",
        check=_two_at_most,
    )
    """`parse_cluster_cidrs` makes them from text."""
    route_reconciliation_period: float = option(
        300.0,
        DURATION,
        "route-reconciliation-period",
        _SECTION,
        "How often the routes in the cloud are listed when no node has changed. Changes of nodes are handled at "
        "once, so this only repairs routes that were changed by hand (Go's default of 10s can use up the cloud's "
        "quota).",
        check=positive,
    )
    node_cidr_mask_size: int = option(
        0,
        INT,
        "node-cidr-mask-size",
        _SECTION,
        "Mask size of nodes' pod CIDRs, as given to kube-controller-manager. A route of another size is never deleted. "
        "0: the sizes that the nodes have, and where none has any, 24 for IPv4 and 64 for IPv6. For a cluster CIDR of "
        "one family; with two use the flags with -ipv4 and -ipv6. If you change the size, set this flag to the old "
        "size to have the old routes deleted.",
        check=between(0, 128),
    )
    node_cidr_mask_size_ipv4: int = option(
        0,
        INT,
        "node-cidr-mask-size-ipv4",
        _SECTION,
        "As --node-cidr-mask-size, for IPv4.",
        check=between(0, 32),
    )
    node_cidr_mask_size_ipv6: int = option(
        0,
        INT,
        "node-cidr-mask-size-ipv6",
        _SECTION,
        "As --node-cidr-mask-size, for IPv6.",
        check=between(0, 128),
    )
    list_interval: float = option(10.0, DURATION, check=not_negative)
    """Seconds between two listings that events ask for, at least; and the age of a listing on which routes are still
    deleted. Creating needs no new listing."""
    concurrent_route_syncs: int = option(48, INT, check=between(1, 1000))
    """Nodes worked on at once. The calls to the cloud among them are bounded by the gateway, for all controllers."""
    drain_timeout: float = drain_timeout_option()

    def mask_sizes(self) -> Mapping[int, int]:
        """Prefix length of nodes' pod CIDRs by IP version, as far as given. Raises ValueError where the cluster CIDR is
        missing, the mask sizes contradict each other, or one does not fit the cluster CIDR."""
        if not self.cluster_cidrs:
            raise ValueError(
                "--cluster-cidr is missing. Fix: give --cluster-cidr=RANGE, the range of the pods that "
                "kube-controller-manager has too (10.244.0.0/16, say), or --configure-cloud-routes=false for no routes"
            )
        given = {4: self.node_cidr_mask_size_ipv4, 6: self.node_cidr_mask_size_ipv6}
        sizes = {version: size for version, size in given.items() if size}
        if self.node_cidr_mask_size:
            if sizes or len(self.cluster_cidrs) != 1:
                raise ValueError(
                    "--node-cidr-mask-size is for a --cluster-cidr of one IP family, and not together with "
                    "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6: give one flag for each family"
                )
            sizes[self.cluster_cidrs[0].version] = self.node_cidr_mask_size
        clusters: dict[int, IPNetwork] = {net.version: net for net in self.cluster_cidrs}
        for version, size in sizes.items():
            cluster = clusters.get(version)
            if cluster is None:
                raise ValueError(f"a mask size for IPv{version} needs a cluster CIDR of that family (--cluster-cidr)")
            if not cluster.prefixlen <= size <= cluster.max_prefixlen:
                raise ValueError(
                    f"a node's pod CIDR of mask size {size} does not fit into the cluster CIDR {cluster}: the size "
                    f"must be between {cluster.prefixlen} and {cluster.max_prefixlen}"
                )
        return sizes
