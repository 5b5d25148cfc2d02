"""The fake cloud's routes: one table for all clusters, in which other systems' rules stand too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

from typing_extensions import override

from cloudprovider.routes import Route, Routes
from cloudprovider.testing.fake.errors import BadRequest
from cloudprovider.testing.fake.faults import Key
from cloudprovider.testing.fake.gate import Part, carried
from cloudprovider.testing.fake.machines import node_addresses
from cloudprovider.testing.fake.records import RouteRecord


def _created(_: Any, cluster_name: str, name_hint: str, route: Route) -> list[Key]:
    return [(route.destination_cidr, _name(cluster_name, name_hint, route.destination_cidr), route.target_node)]


def _deleted(_: Any, cluster_name: str, route: Route) -> list[Key]:
    return [(route.destination_cidr, route.name, route.target_node)]


class FakeRoutes(Part, Routes):
    """Routes of one fake cloud. There is one rule for a destination, no matter which program made
    it."""

    @override
    @carried()
    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        rules = sorted(self._world.routes.values(), key=lambda one: one.name)
        return tuple(self._route(rule, cluster_name) for rule in rules if rule.foreign or rule.cluster == cluster_name)

    @override
    @carried(_created)
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        destination = _destination(route)
        if self._config.routes.strict_targets and not route.blackhole:
            self._machines.by_name(route.target_node)
        wanted = RouteRecord(
            name=_name(cluster_name, name_hint, route.destination_cidr),
            cluster=cluster_name,
            destination_cidr=destination,
            target_node=route.target_node,
            target_addresses=[(address.type, address.address) for address in route.target_node_addresses],
            blackhole=route.blackhole,
        )
        present = self._world.route_to(destination)
        if present is not None and present != wanted:
            raise BadRequest(f"{destination} has a rule already: {present.name}")
        self._world.routes[wanted.name] = wanted
        self._gate.calls.effect("created" if present is None else "unchanged")

    @override
    @carried(_deleted)
    def delete_route(self, cluster_name: str, route: Route) -> None:
        present = self._world.routes.get(route.name) if route.name else self._world.route_to(route.destination_cidr)
        if present is None or present.destination_cidr != route.destination_cidr:
            self._gate.calls.effect("absent")
        else:
            del self._world.routes[present.name]
            self._gate.calls.effect("deleted")

    def _route(self, record: RouteRecord, cluster_name: str) -> Route:
        ours = not record.foreign and record.cluster == cluster_name
        known = self._config.routes.node_addresses
        return Route(
            name=record.name,
            target_node=record.target_node,
            destination_cidr=record.destination_cidr,
            enable_node_addresses=known,
            target_node_addresses=node_addresses(record.target_addresses) if known else (),
            blackhole=record.blackhole,
            owned=ours if self._config.routes.tells_owner else None,
        )


def _name(cluster_name: str, hint: str, destination: str) -> str:
    """Letters, digits and dashes; with the destination in it, as a node may have several."""
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in (cluster_name, hint, destination))


def _destination(route: Route) -> str:
    try:
        return str(ip_network(route.destination_cidr))
    except ValueError as error:
        raise BadRequest(f"the destination {route.destination_cidr!r} is no CIDR: {error}") from error
