"""cloud-node-controller in the manager: its permissions and its entry. Flags: `options.py`."""

from __future__ import annotations

import logging

from controllers.node.options import CloudNodeOptions
from controllers.registration.common import event_rule, nodes, warn_off
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule

log = logging.getLogger(__name__)


def _construct(context: Context) -> Controller | None:
    from controllers.node.controller import CloudNodeController

    if not context.cloud.has_instances:
        lacking = "offers no instances, so new nodes stay tainted unless another manager initialises them"
        warn_off(log, ENTRY.name, context, lacking)
        return None
    return context.build(CloudNodeController, CloudNodeOptions)


ENTRY = ControllerEntry(
    name="cloud-node-controller",
    aliases=("cloud-node",),
    client="node-controller",
    construct=_construct,
    module="controllers.node.controller",
    informers=nodes,
    options=(CloudNodeOptions,),
    rules=(
        Rule(resource="nodes", verbs=("get", "list", "watch", "patch"), consequence="no node is ever initialised"),
        Rule(resource="nodes/status", verbs=("patch",), consequence="nodes get no addresses and stay tainted"),
        event_rule("no Event says what happens to nodes"),
    ),
)
