"""cloud-node-controller in the manager: its permissions and its entry. Flags: `options.py`."""

from __future__ import annotations

from controllers.node.options import CloudNodeOptions
from controllers.registration.entry import ControllerEntry, Rule, built, event_rule, informers

ENTRY = ControllerEntry(
    name="cloud-node-controller",
    aliases=("cloud-node",),
    client="node-controller",
    construct=built("controllers.node.controller:CloudNodeController", CloudNodeOptions),
    needs=lambda cloud: cloud.has_instances,
    lacking="offers no instances, so new nodes stay tainted unless another manager initialises them",
    module="controllers.node.controller",
    informers=informers("NODES"),
    options=(CloudNodeOptions,),
    rules=(
        Rule(resource="nodes", verbs=("get", "list", "watch", "patch"), consequence="no node is ever initialised"),
        Rule(resource="nodes/status", verbs=("patch",), consequence="nodes get no addresses and stay tainted"),
        event_rule("no Event says what happens to nodes"),
    ),
)
