"""cloud-node-controller in the manager: its rights and its entry. Its flags: `controllers/node/options.py`.

Stage: before the first one, no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from controllers.app.entry import Context, Controller, ControllerEntry, Rule
from controllers.node.options import CloudNodeOptions

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource

log = logging.getLogger(__name__)


def _construct(context: Context) -> Controller | None:
    from controllers.node import CloudNodeController

    if not context.cloud.has_instances:
        log.warning(
            "cloud-node-controller is off: provider %s offers no instances, so new nodes stay "
            "tainted unless another manager initialises them",
            context.cloud.provider_name,
        )
        return None
    return context.build(CloudNodeController, CloudNodeOptions)


def _informers() -> Iterable[Resource[Any]]:
    from controllers.runtime.cache import NODES

    return (NODES,)


ENTRY = ControllerEntry(
    name="cloud-node-controller",
    aliases=("cloud-node",),
    client="node-controller",
    construct=_construct,
    module="controllers.node.controller",
    informers=_informers,
    options=(CloudNodeOptions,),
    rules=(
        Rule(resource="nodes", verbs=("get", "list", "watch", "patch"), consequence="no node is ever initialised"),
        Rule(resource="nodes/status", verbs=("patch",), consequence="nodes get no addresses and stay tainted"),
        Rule(
            resource="events",
            verbs=("create", "patch"),
            consequence="no Event says what happens to nodes",
            namespace="default",
        ),
    ),
)
