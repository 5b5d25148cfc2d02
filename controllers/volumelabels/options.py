"""What can be set about the persistent-volume-label controller, with its flags. Stage: before the first one, no I/O."""

from __future__ import annotations

from attrs import frozen

from controllers.options import INT, between, drain_timeout_option, option


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
