"""The service controller; see controller.py for where to begin."""

from controllers.service.controller import ServiceController, ServiceOptions

__all__ = ["ServiceController", "ServiceOptions"]
