"""The cloud-node controller; see controller.py for where to begin."""

from controllers.node.controller import CloudNodeController, CloudNodeOptions

__all__ = ["CloudNodeController", "CloudNodeOptions"]
