"""persistent-volume-label-controller and the webhook persistentvolume-labeler in the manager: rights and entries. Their
flags: `controllers/volumelabels/options.py`.

Stage: before the first one, no I/O. Off by default: Go's manager has none any more, and CSI drivers need none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from controllers.admission.webhook import Match, Webhook
from controllers.app.entry import Context, Controller, ControllerEntry, Rule, enabled
from controllers.app.webhooks.entry import WebhookEntry
from controllers.volumelabels.options import VolumeLabelOptions, VolumeWebhookOptions

if TYPE_CHECKING:
    from controllers.admission.handler import Handler
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


def _construct_webhook(context: Context) -> Handler | None:
    from controllers.volumelabels import VolumeLabelHandler

    labeler = context.cloud.pv_labeler
    if labeler is None:
        log.warning(
            "the webhook persistentvolume-labeler is off, although --webhooks names it: provider %s labels no volumes",
            context.cloud.provider_name,
        )
        return None
    refuse = context.options.of(VolumeWebhookOptions).failure_policy == "Fail"
    if not refuse and not enabled(context.options.manager.controllers, (ENTRY,)):
        log.warning(
            "volumes that the webhook persistentvolume-labeler cannot label stay without labels, because "
            "persistent-volume-label-controller is off. Fix: --controllers=*,%s",
            ENTRY.name,
        )
    return VolumeLabelHandler(labeler, refuse=refuse)


WEBHOOK = WebhookEntry(
    webhook=Webhook(
        name="persistentvolume-labeler",
        path="/label-persistentvolumes",
        matches=(Match(resource="persistentvolumes", operations=("CREATE",)),),
        mutating=True,
    ),
    construct=_construct_webhook,
    options=(VolumeWebhookOptions,),
)
