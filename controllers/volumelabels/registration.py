"""persistent-volume-label-controller and the webhook persistentvolume-labeler in the manager:
flags, permissions and entries.

Off by default: Go's manager has none any more, and CSI drivers need none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from attrs import frozen

from controllers.options import INT, STRING, between, drain_timeout_option, one_of, option
from controllers.registration.entry import Context, ControllerEntry, Rule, built, enabled, event_rule, informers
from controllers.webhooks.webhook import Match, Webhook, WebhookEntry

if TYPE_CHECKING:
    from controllers.webhooks.review import Handler

log = logging.getLogger(__name__)


@frozen(kw_only=True)
class VolumeLabelOptions:
    """How the controller works. Frozen; raises ValueError on values that make no sense."""

    concurrent_volume_label_syncs: int = option(
        5,
        INT,
        "concurrent-volume-label-syncs",
        "persistent-volume-label-controller",
        "Workers that ask the cloud for the labels of PersistentVolumes.",
        check=between(1, 1000),
    )
    drain_timeout: float = drain_timeout_option()


@frozen(kw_only=True)
class VolumeWebhookOptions:
    """How the webhook persistentvolume-labeler answers. Frozen; raises ValueError."""

    failure_policy: str = option(
        "Ignore",
        STRING,
        "webhook-volume-failure-policy",
        "webhook",
        "What the webhook persistentvolume-labeler does with a volume whose zone the cloud cannot tell now: Ignore "
        "admits it with a warning, and persistent-volume-label-controller labels it later; Fail refuses it.",
        check=one_of("Ignore", "Fail"),
    )


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
    # No error: one set of flags may serve clusters on several clouds.
    if labeler is None:
        log.warning(
            "the webhook persistentvolume-labeler is off, although --webhooks names it: provider %s labels no volumes",
            context.cloud.provider_name,
        )
        return None
    refuse = context.options.of(VolumeWebhookOptions).failure_policy == "Fail"
    # With Ignore, what could not be labelled waits for the controller: somebody has to be it.
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
