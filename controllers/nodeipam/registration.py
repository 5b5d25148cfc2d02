"""node-ipam-controller in the manager: when it runs, its permissions and its entry.

Off unless --controllers names it and --allocate-node-cidrs holds: vendors' managers have that flag
for the routes while kube-controller-manager allocates, so ours is never a second allocator."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from controllers.nodeipam.options import NodeIPAMOptions
from controllers.options.declare import fill
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule, event_rule, informers

log = logging.getLogger(__name__)


def _off(values: Mapping[str, Any]) -> str:
    return "" if values["allocate-node-cidrs"] else "needs --allocate-node-cidrs"


def _problems(values: Mapping[str, Any]) -> Sequence[str]:
    return fill(NodeIPAMOptions, values).problems() if values["allocate-node-cidrs"] else ()


def _construct(context: Context) -> Controller | None:
    from controllers.nodeipam.controller import NodeIPAMController

    options = context.options.of(NodeIPAMOptions)
    if not options.allocate_node_cidrs:
        log.warning("node-ipam-controller is off, although --controllers names it: it needs --allocate-node-cidrs")
        return None
    if options.cloud_chooses and not context.cloud.chooses_pod_cidrs:
        raise ValueError(
            f"--cidr-allocator-type=CloudAllocator: provider {context.cloud.provider_name} chooses no pod CIDRs. Fix: "
            "--cidr-allocator-type=RangeAllocator with --cluster-cidr, or a provider that has PodCIDRs"
        )
    return context.build(NodeIPAMController, NodeIPAMOptions)


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
