"""What the route controller's calls would do, as rows of a plan, and what a listing shows then."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from cloudprovider import Route
from controllers.registration.plan import Change, PlannedCalls, Planning, Row, Subject

_CONTROLLER: Final = "node-route-controller"


def planned_calls(planning: Planning) -> PlannedCalls:
    """The calls about routes."""
    routes = _Routes(planning)
    return PlannedCalls(
        writes={"create_route": routes.create, "delete_route": routes.delete}, reads={"list_routes": routes.listed}
    )


class _Routes:
    def __init__(self, planning: Planning) -> None:
        self._planning = planning
        self._lock = threading.Lock()
        self._created: list[Route] = []
        self._deleted: list[Route] = []

    def listed(self, _key: str, answer: Sequence[Route]) -> Sequence[Route]:
        with self._lock:
            if not (self._created or self._deleted):
                return answer
            return (*(route for route in answer if route not in self._deleted), *self._created)

    def create(self, _key: str, _cluster: str, _hint: str, route: Route) -> None:
        with self._lock:
            self._created.append(route)
        self._record("create route", route, Change("target", None, route.target_node))

    def delete(self, _key: str, _cluster: str, route: Route) -> None:
        with self._lock:
            ours = route in self._created
            (self._created.remove if ours else self._deleted.append)(route)
        target = "(none: a blackhole)" if route.blackhole else route.target_node or route.target_provider_id
        action = "create route" if ours else "delete route"  # what this plan creates and deletes is never there
        self._record(action, route, Change("target", target, None))

    def _record(self, action: str, route: Route, change: Change) -> None:
        subject = Subject("Route", route.destination_cidr)
        self._planning.record(Row(controller=_CONTROLLER, subject=subject, action=action, changes=(change,)))
