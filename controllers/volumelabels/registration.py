"""persistent-volume-label-controller and the webhook persistentvolume-labeler in the manager:
permissions and entries. Flags: `options.py`.

Off by default: Go's manager has none any more, and CSI drivers need none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from controllers.registration.entry import Context, ControllerEntry, Rule, built, enabled, event_rule, informers
from controllers.volumelabels.options import VolumeLabelOptions, VolumeWebhookOptions
from controllers.webhooks.webhook import Match, Webhook, WebhookEntry

if TYPE_CHECKING:
    from controllers.webhooks.review import Handler

log = logging.getLogger(__name__)


ENTRY = ControllerEntry(
    name="persistent-volume-label-controller",
    aliases=("pvlabel",),
    client="pvl-controller",
    construct=built("controllers.volumelabels.controller:VolumeLabelController", VolumeLabelOptions),
    needs=lambda cloud: cloud.pv_labeler is not None,
    lacking="labels no volumes",
    module="controllers.volumelabels.controller",
    informers=informers("PERSISTENT_VOLUMES"),
    options=(VolumeLabelOptions,),
    on_by_default=False,
    rules=(
        Rule(
            resource="persistentvolumes",
            verbs=("get", "list", "watch", "patch"),
            consequence="volumes get neither labels nor node affinity",
        ),
        event_rule("no Event says why a volume has no labels"),
    ),
)


def _construct_webhook(context: Context) -> Handler | None:
    from controllers.volumelabels.webhook import VolumeLabelHandler

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
    return VolumeLabelHandler(labeler, refuse=refuse, clock=context.clock)


WEBHOOK = WebhookEntry(
    webhook=Webhook(
        name="persistentvolume-labeler",
        path="/label-persistentvolumes",
        matches=(Match(resource="persistentvolumes", operations=("CREATE",)),),
        mutating=True,
        max_body=512 * 1024,  # its annotations may have 256 KiB
        max_values=5_000,
    ),
    construct=_construct_webhook,
    options=(VolumeWebhookOptions,),
)
