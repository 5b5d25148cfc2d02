"""cloud-node-lifecycle-controller in the manager: its rights and its entry. Its flags:
`controllers/nodelifecycle/options.py`.

Stage: before the first one, no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from controllers.app.entry import Context, Controller, ControllerEntry, Rule
from controllers.nodelifecycle.options import NodeLifecycleOptions

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource

log = logging.getLogger(__name__)


def _construct(context: Context) -> Controller | None:
    from controllers.nodelifecycle import NodeLifecycleController

    if not context.cloud.has_instances:
        log.warning(
            "cloud-node-lifecycle-controller is off: provider %s offers no instances, so no node is "
            "deleted because its machine is gone",
            context.cloud.provider_name,
        )
        return None
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
