"""cloud-node-lifecycle-controller in the manager: its rights and its entry. Its flags:
`controllers/nodelifecycle/options.py`.

Stage: before the first one, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from controllers.app.entry import Context, Controller, ControllerEntry, Rule
from controllers.nodelifecycle.options import NodeLifecycleOptions

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource


def _construct(context: Context) -> Controller:
    from controllers.nodelifecycle import NodeLifecycleController

    return context.build(NodeLifecycleController, NodeLifecycleOptions)


def _informers() -> Iterable[Resource[Any]]:
    from controllers.runtime.cache import NODES

    return (NODES,)


ENTRY = ControllerEntry(
    name="cloud-node-lifecycle-controller",
    aliases=("cloud-node-lifecycle",),
    client="node-controller",
    construct=_construct,
    module="controllers.nodelifecycle.controller",
    informers=_informers,
    options=(NodeLifecycleOptions,),
    rules=(
        Rule(
            resource="nodes",
            verbs=("get", "list", "watch", "patch", "delete"),
            consequence="nodes whose instance is gone are not deleted, and nodes that are shut down get no taint",
        ),
        Rule(
            resource="events",
            verbs=("create", "patch"),
            consequence="no Event says which nodes are deleted or held back",
            namespace="default",
        ),
    ),
)
