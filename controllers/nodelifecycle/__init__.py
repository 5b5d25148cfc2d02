"""The cloud-node-lifecycle controller; see controller.py for where to begin."""

from controllers.nodelifecycle.breaker import BreakerOptions
from controllers.nodelifecycle.controller import NodeLifecycleController, NodeLifecycleOptions

__all__ = ["BreakerOptions", "NodeLifecycleController", "NodeLifecycleOptions"]
