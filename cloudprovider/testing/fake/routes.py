"""The fake cloud's routes (stage 5): one table for all clusters, in which other systems' rules stand too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_network

from cloudprovider.routes import Route, Routes
from cloudprovider.testing.fake.config import RouteTableConfig
from cloudprovider.testing.fake.errors import BadRequest, QuotaExceeded
from cloudprovider.testing.fake.faultbook import Key
from cloudprovider.testing.fake.gate import Gate, Work
from cloudprovider.testing.fake.machines import Machines, node_addresses
from cloudprovider.testing.fake.records import ROUTES, RouteRecord
from cloudprovider.testing.fake.store import Transaction, View

__all__ = ["FakeRoutes", "blackhole_routes"]


class FakeRoutes(Routes):
    """Routes of one fake cloud. There is one rule for a destination, whoever made it."""

    def __init__(self, machines: Machines, gate: Gate) -> None:
        self._machines = machines
        self._settings: RouteTableConfig = machines.config.routes
        self._gate = gate

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        def work(view: View) -> tuple[Route, ...]:
            return tuple(
                self._route(record, cluster_name)
                for record in view.scan(ROUTES)
                if (self._settings.list_foreign if record.foreign else record.cluster == cluster_name)
            )

        return self._gate.read("list_routes", [(cluster_name,)], work, cluster=cluster_name)

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        name = _name(cluster_name, name_hint, route.destination_cidr)

        def work(tx: Transaction, call: Work) -> None:
            destination = _destination(route)
            if self._settings.strict_targets and not route.blackhole:
                self._machines.by_name(tx, route.target_node)
            wanted = RouteRecord(
                name=name,
                cluster=cluster_name,
                destination_cidr=destination,
                target_node=route.target_node,
                target_addresses=[(address.type, address.address) for address in route.target_node_addresses],
                blackhole=route.blackhole,
            )
            present = tx.find(ROUTES, destination)
            if present == wanted:
                call.effect = "unchanged"
                return
            if present is not None:
                raise BadRequest(f"{destination} has a rule already: {present.name}")
            quota = self._settings.quota
            if quota is not None and len(tx.scan(ROUTES)) >= quota:
                raise QuotaExceeded(f"the quota of {quota} routes is used up")
            tx.put(ROUTES, name, wanted)
            call.effect = "created"

        self._gate.write("create_route", [_key(name, route)], work, cluster=cluster_name)

    def delete_route(self, cluster_name: str, route: Route) -> None:
        def work(tx: Transaction, call: Work) -> None:
            present = tx.get(ROUTES, route.name) if route.name else tx.find(ROUTES, route.destination_cidr)
            there = present is not None and present.destination_cidr == route.destination_cidr
            call.effect = "deleted" if there and present is not None and tx.delete(ROUTES, present.name) else "absent"

        self._gate.write("delete_route", [_key(route.name, route)], work, cluster=cluster_name)

    def _route(self, record: RouteRecord, cluster_name: str) -> Route:
        ours = not record.foreign and record.cluster == cluster_name
        known = self._settings.node_addresses
        return Route(
            name=record.name,
            target_node=record.target_node,
            destination_cidr=record.destination_cidr,
            enable_node_addresses=known,
            target_node_addresses=node_addresses(record.target_addresses) if known else (),
            blackhole=record.blackhole,
            owned=ours if self._settings.tells_owner else None,
        )


def blackhole_routes(tx: Transaction, node: str) -> None:
    """Turn the rules to a machine that is no more into blackholes."""
    for record in tx.scan(ROUTES):
        if record.target_node == node and not record.foreign:
            gone = RouteRecord(
                name=record.name, cluster=record.cluster, destination_cidr=record.destination_cidr, blackhole=True
            )
            tx.put(ROUTES, record.name, gone)


def _name(cluster_name: str, hint: str, destination: str) -> str:
    """Letters, digits and dashes; with the destination in it, as a node may have several."""
    return "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in (cluster_name, hint, destination))


def _key(name: str, route: Route) -> Key:
    return route.destination_cidr, name, route.target_node


def _destination(route: Route) -> str:
    try:
        return str(ip_network(route.destination_cidr))
    except ValueError as error:
        raise BadRequest(f"the destination {route.destination_cidr!r} is no CIDR: {error}") from error
