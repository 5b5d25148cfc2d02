"""Labels and node affinity of PersistentVolumes: the controller (controller.py) and the webhook (webhook.py)."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.volumelabels.controller import VolumeLabelController
    from controllers.volumelabels.options import VolumeLabelOptions, VolumeWebhookOptions
    from controllers.volumelabels.webhook import VolumeLabelHandler
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "controller": ["VolumeLabelController"],
            "options": ["VolumeLabelOptions", "VolumeWebhookOptions"],
            "webhook": ["VolumeLabelHandler"],
        },
    )

__all__ = ["VolumeLabelController", "VolumeLabelHandler", "VolumeLabelOptions", "VolumeWebhookOptions"]
