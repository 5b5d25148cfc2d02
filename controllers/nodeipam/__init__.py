"""The node IPAM controller; see controller.py for where to begin."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.nodeipam.controller import NodeIPAMController
    from controllers.nodeipam.options import NodeIPAMOptions
else:
    __getattr__, __dir__ = lazy(__name__, {"controller": ["NodeIPAMController"], "options": ["NodeIPAMOptions"]})

__all__ = ["NodeIPAMController", "NodeIPAMOptions"]
