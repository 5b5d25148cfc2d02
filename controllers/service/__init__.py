"""The service controller; see controller.py for where to begin."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.service.controller import ServiceController
    from controllers.service.options import ServiceOptions
else:
    __getattr__, __dir__ = lazy(__name__, {"controller": ["ServiceController"], "options": ["ServiceOptions"]})

__all__ = ["ServiceController", "ServiceOptions"]
