"""node-ipam-controller in the manager: its flags, when it runs, its permissions and its entry.

Off unless --controllers names it and --allocate-node-cidrs holds: vendors' managers have that flag
for the routes while kube-controller-manager allocates, so ours is never a second allocator."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from controllers.options import INT, between, drain_timeout_option, option
from controllers.options.declare import fill
from controllers.options.podnetwork import (
    CIDRS,
    CLOUD_ALLOCATOR,
    DEFAULT_MASK_SIZES,
    RANGE_ALLOCATOR,
    PodNetworkOptions,
    allocate_node_cidrs_option,
    at_most_one_of_each_family,
)
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule, built, event_rule, informers

if TYPE_CHECKING:
    from cloudprovider.ips import IPNetwork

log = logging.getLogger(__name__)

_ALLOCATORS: Final = (RANGE_ALLOCATOR, CLOUD_ALLOCATOR)
_MOST_BITS: Final = 16
"""Between an IPv6 cluster CIDR and a node's range; clusterSubnetMaxDiff in Go. A cluster that is
set up within it can go back to kube-controller-manager."""


@frozen(kw_only=True)
class NodeIPAMOptions(PodNetworkOptions):
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    allocate_node_cidrs: bool = allocate_node_cidrs_option()
    service_cidrs: tuple[IPNetwork, ...] = option(
        (),
        CIDRS,
        "service-cluster-ip-range",
        "node-ipam-controller",
        "IP range of the cluster's Services, or two ranges of different families separated by a comma, as "
        "kube-apiserver has it. No node gets a pod CIDR in it.",
        check=at_most_one_of_each_family,
    )
    concurrent_node_ipam_syncs: int = option(
        30,
        INT,
        "concurrent-node-ipam-syncs",
        "node-ipam-controller",
        "Nodes that get their pod CIDRs at the same time.",
        check=between(1, 1000),
    )
    drain_timeout: float = drain_timeout_option()

    def mask_sizes(self) -> Mapping[int, int]:
        """Prefix length of a node's range by IP version, for each family of the cluster. Raises
        ValueError as `problems` says."""
        wrong = self.problems()
        if wrong:
            raise ValueError("; ".join(wrong))
        return self._sizes()[0]

    def problems(self) -> list[str]:
        """All that no single value shows to be wrong, where the controller runs.

        Follows: startNodeIpamController in Kubernetes'
        cmd/cloud-controller-manager/nodeipamcontroller.go, and NewNodeIpamController in
        pkg/controller/nodeipam.
        """
        if self.cidr_allocator_type not in _ALLOCATORS:
            return [f"--cidr-allocator-type={self.cidr_allocator_type}: must be {' or '.join(_ALLOCATORS)}"]
        if self.cloud_chooses:
            return []
        if not self.cluster_cidrs:
            return [
                "--cluster-cidr: must be given for node-ipam-controller: the range from which nodes get their pod "
                "CIDRs, such as 10.244.0.0/16"
            ]
        sizes, wrong = self._sizes()
        for net in self.cluster_cidrs:
            size = sizes[net.version]
            if net.version == 6 and size - net.prefixlen > _MOST_BITS:
                most = net.prefixlen + _MOST_BITS
                fits_all = all(one.prefixlen <= most for one in self.cluster_cidrs if one.version == 6)
                wrong.append(
                    f"--cluster-cidr={net}: a node's pod CIDR of mask size {size} is too small for it: at most "
                    f"{_MOST_BITS} bits can be between them, as in Go. Fix: a smaller cluster CIDR"
                    + (f", or --node-cidr-mask-size-ipv6={most}" if fits_all else "")
                )
            covering = [one for one in self.service_cidrs if one.version == net.version and _covers(one, net)]
            wrong += [f"--service-cluster-ip-range={one}: no range of {net} is left for pods" for one in covering]
        return wrong

    def _sizes(self) -> tuple[Mapping[int, int], list[str]]:
        given, wrong = self.given_mask_sizes()
        sizes: dict[int, int] = {
            net.version: given.get(net.version, DEFAULT_MASK_SIZES[net.version]) for net in self.cluster_cidrs
        }
        wrong += [
            f"--cluster-cidr={net}: is smaller than a node's pod CIDR, whose mask size is {sizes[net.version]} if no "
            f"flag says otherwise. Fix: --node-cidr-mask-size of {net.prefixlen} to {net.max_prefixlen}"
            for net in self.cluster_cidrs
            if net.version not in given and net.prefixlen > sizes[net.version]
        ]
        return sizes, wrong


def _covers(one: IPNetwork, net: IPNetwork) -> bool:
    return one.prefixlen <= net.prefixlen and net.network_address in one


def _off(values: Mapping[str, Any]) -> str:
    return "" if values["allocate-node-cidrs"] else "needs --allocate-node-cidrs"


def _problems(values: Mapping[str, Any]) -> Sequence[str]:
    return fill(NodeIPAMOptions, values).problems() if values["allocate-node-cidrs"] else ()


_build = built("controllers.nodeipam.controller:NodeIPAMController", NodeIPAMOptions)


def _construct(context: Context) -> Controller | None:
    options = context.options.of(NodeIPAMOptions)
    # No error: vendors' manifests name all controllers, and leave this flag to the user.
    if not options.allocate_node_cidrs:
        log.warning("node-ipam-controller is off, although --controllers names it: it needs --allocate-node-cidrs")
        return None
    if options.cloud_chooses and not context.cloud.chooses_pod_cidrs:
        raise ValueError(
            f"--cidr-allocator-type=CloudAllocator: provider {context.cloud.provider_name} chooses no pod CIDRs. Fix: "
            "--cidr-allocator-type=RangeAllocator with --cluster-cidr, or a provider that has PodCIDRs"
        )
    return _build(context)


ENTRY = ControllerEntry(
    name="node-ipam-controller",
    aliases=("nodeipam",),
    client="node-controller",
    construct=_construct,
    off=_off,
    problems=_problems,
    module="controllers.nodeipam.controller",
    informers=informers("NODES"),
    options=(NodeIPAMOptions,),
    on_by_default=False,
    rules=(
        Rule(resource="nodes", verbs=("get", "list", "watch", "patch"), consequence="nodes get no pod CIDRs"),
        event_rule("no Event says why a node has no pod CIDRs"),
    ),
)
