"""persistent-volume-label-controller in the manager: its rights and its entry. Its flags:
`controllers/volumelabels/options.py`.

Stage: before the first one, no I/O. Off by default: Go's manager has none any more, and CSI drivers need none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from controllers.app.entry import Context, Controller, ControllerEntry, Rule
from controllers.volumelabels.options import VolumeLabelOptions

if TYPE_CHECKING:
    from controllers.runtime.cache import Resource

log = logging.getLogger(__name__)


def _construct(context: Context) -> Controller | None:
    from controllers.volumelabels import VolumeLabelController

    if context.cloud.pv_labeler is None:
        log.warning(
            "persistent-volume-label-controller is off, although --controllers names it: provider %s labels no volumes",
            context.cloud.provider_name,
        )
        return None
    return context.build(VolumeLabelController, VolumeLabelOptions)


def _informers() -> Iterable[Resource[Any]]:
    from controllers.runtime.cache import PERSISTENT_VOLUMES

    return (PERSISTENT_VOLUMES,)


ENTRY = ControllerEntry(
    name="persistent-volume-label-controller",
    aliases=("pvlabel",),
    client="pvl-controller",
    construct=_construct,
    module="controllers.volumelabels.controller",
    informers=_informers,
    options=(VolumeLabelOptions,),
    on_by_default=False,
    rules=(
        Rule(
            resource="persistentvolumes",
            verbs=("get", "list", "watch", "patch"),
            consequence="volumes get neither labels nor node affinity",
        ),
        Rule(
            resource="events",
            verbs=("create", "patch"),
            consequence="no Event says why a volume has no labels",
            namespace="default",
        ),
    ),
)
