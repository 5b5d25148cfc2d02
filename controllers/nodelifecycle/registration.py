"""cloud-node-lifecycle-controller in the manager: its permissions and its entry. Flags:
`options.py`."""

from __future__ import annotations

import logging

from controllers.nodelifecycle.options import NodeLifecycleOptions
from controllers.registration.common import event_rule, nodes, warn_off
from controllers.registration.entry import Context, Controller, ControllerEntry, Rule

log = logging.getLogger(__name__)


def _construct(context: Context) -> Controller | None:
    from controllers.nodelifecycle.controller import NodeLifecycleController

    if not context.cloud.has_instances:
        lacking = "offers no instances, so no node is deleted because its machine is gone"
        warn_off(log, ENTRY.name, context, lacking)
        return None
    return context.build(NodeLifecycleController, NodeLifecycleOptions)


ENTRY = ControllerEntry(
    name="cloud-node-lifecycle-controller",
    aliases=("cloud-node-lifecycle",),
    client="node-controller",
    construct=_construct,
    module="controllers.nodelifecycle.controller",
    informers=nodes,
    options=(NodeLifecycleOptions,),
    rules=(
        Rule(
            resource="nodes",
            verbs=("get", "list", "watch", "patch", "delete"),
            consequence="nodes whose instance is gone are not deleted, and nodes that are shut down get no taint",
        ),
        event_rule("no Event says which nodes are deleted or held back"),
    ),
)
