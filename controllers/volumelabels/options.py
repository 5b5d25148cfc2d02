"""What can be set about the labels of volumes, with its flags."""

from __future__ import annotations

from attrs import frozen

from controllers.options import INT, STRING, between, drain_timeout_option, one_of, option


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
