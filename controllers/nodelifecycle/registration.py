"""cloud-node-lifecycle-controller in the manager: permissions and entry. Flags: `options.py`."""

from __future__ import annotations

from controllers.nodelifecycle.options import NodeLifecycleOptions
from controllers.registration.entry import ControllerEntry, Rule, built, event_rule, informers

ENTRY = ControllerEntry(
    name="cloud-node-lifecycle-controller",
    aliases=("cloud-node-lifecycle",),
    client="node-controller",
    construct=built("controllers.nodelifecycle.controller:NodeLifecycleController", NodeLifecycleOptions),
    needs=lambda cloud: cloud.has_instances,
    lacking="offers no instances, so no node is deleted because its machine is gone",
    module="controllers.nodelifecycle.controller",
    informers=informers("NODES"),
    options=(NodeLifecycleOptions,),
    rules=(
        Rule(
            resource="nodes",
            verbs=("get", "list", "watch", "patch", "delete"),
            consequence="nodes whose instance is gone are not deleted, and nodes that are shut down get no taint",
        ),
        Rule(
            resource="nodes",
            verbs=("create",),
            consequence="where a machine was replaced under its name, people must delete its Node and restart its "
            "kubelet",
        ),
        event_rule("no Event says which nodes are deleted or held back"),
    ),
)
