"""Routes: one for each node's pod network, in the cloud's router."""

from __future__ import annotations

import re
from collections.abc import Sequence

from typing_extensions import override

from cloudprovider import InstanceNotFound, Route, Routes
from localcloud_provider.client import Client, path_of
from localcloud_provider.resources import Machines, Rule, Rules


class LocalRoutes(Routes):
    """The routes whose owner is the cluster; those of others are never listed."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @override
    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        # The routes first: a machine that is made between the two requests is then in the second.
        rules = self._client.get(Rules, path_of("routes"), {"owner": cluster_name}, calls=2).routes
        machines = self._client.get(Machines, path_of("machines")).machines
        names = {machine.id: machine.name for machine in machines}
        return [
            Route(
                name=rule.name,
                target_node=names.get(rule.machine, ""),
                destination_cidr=rule.destination,
                blackhole=rule.machine not in names,
                owned=True,
            )
            for rule in rules
            if rule.owner == cluster_name
        ]

    @override
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        asked = {"name": route.target_node}
        machines = self._client.get(Machines, path_of("machines"), asked, calls=2).machines
        found = [machine for machine in machines if machine.name == route.target_node]
        if not found:
            raise InstanceNotFound(f"the cloud has no machine for node {route.target_node!r}")
        # With the machine in the name a deletion never hits the route that took its place.
        name = _name(cluster_name, route.destination_cidr, found[0].id)
        body = {"destination": route.destination_cidr, "machine": found[0].id, "owner": cluster_name}
        self._client.put(Rule, path_of("routes", name), body)

    @override
    def delete_route(self, cluster_name: str, route: Route) -> None:
        self._client.delete(path_of("routes", route.name), {"owner": cluster_name})


def _name(*parts: str) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9.]", "-", part) for part in parts)
