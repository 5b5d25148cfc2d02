"""The route controller; see controller.py for where to begin."""

from typing import TYPE_CHECKING

from controllers.lazy import lazy

if TYPE_CHECKING:
    from controllers.route.controller import RouteController
    from controllers.route.options import RouteOptions, parse_cluster_cidrs
else:
    __getattr__, __dir__ = lazy(
        __name__, {"controller": ["RouteController"], "options": ["RouteOptions", "parse_cluster_cidrs"]}
    )

__all__ = ["RouteController", "RouteOptions", "parse_cluster_cidrs"]
