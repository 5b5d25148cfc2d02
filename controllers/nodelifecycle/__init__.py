"""The cloud-node-lifecycle controller; see controller.py for where to begin."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.nodelifecycle.controller import NodeLifecycleController
    from controllers.nodelifecycle.options import BreakerOptions, NodeLifecycleOptions
else:
    __getattr__, __dir__ = lazy(
        __name__, {"controller": ["NodeLifecycleController"], "options": ["NodeLifecycleOptions", "BreakerOptions"]}
    )

__all__ = ["NodeLifecycleController", "NodeLifecycleOptions", "BreakerOptions"]
