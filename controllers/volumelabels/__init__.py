"""The persistent-volume-label controller; see controller.py for where to begin."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.volumelabels.controller import VolumeLabelController
    from controllers.volumelabels.options import VolumeLabelOptions
else:
    __getattr__, __dir__ = lazy(__name__, {"controller": ["VolumeLabelController"], "options": ["VolumeLabelOptions"]})

__all__ = ["VolumeLabelController", "VolumeLabelOptions"]
