"""The route controller; see controller.py for where to begin."""

from controllers.route.changes import parse_cluster_cidrs
from controllers.route.controller import RouteController, RouteOptions

__all__ = ["RouteController", "RouteOptions", "parse_cluster_cidrs"]
