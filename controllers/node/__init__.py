"""The cloud-node controller; see controller.py for where to begin."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.node.controller import CloudNodeController
    from controllers.node.options import CloudNodeOptions
else:
    __getattr__, __dir__ = lazy(__name__, {"controller": ["CloudNodeController"], "options": ["CloudNodeOptions"]})

__all__ = ["CloudNodeController", "CloudNodeOptions"]
