"""Routes: one for each node's pod network, in the cloud's router."""

from __future__ import annotations

import re
from collections.abc import Sequence

from typing_extensions import override

from cloudprovider import Route, Routes
from localcloud_provider.client import Client, path_of
from localcloud_provider.instances import LocalInstances
from localcloud_provider.resources import Rule, Rules


class LocalRoutes(Routes):
    """The routes whose owner is the cluster; those of others are never listed."""

    def __init__(self, client: Client, instances: LocalInstances) -> None:
        self._client = client
        self._instances = instances

    @override
    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        # The routes first: a machine that is made between the two requests is then in the second.
        rules = self._client.get(Rules, path_of("routes"), {"owner": cluster_name}, calls=2).routes
        present = {machine.id for machine in self._instances.machines()}
        return [
            Route(
                name=rule.name,
                target_node="",  # the machine's name may change; the host finds the node by its ID
                destination_cidr=rule.destination,
                blackhole=rule.machine not in present,
                owned=True,
                target_provider_id=self._instances.provider_id(rule.machine),
            )
            for rule in rules
            if rule.owner == cluster_name
        ]

    @override
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        machine = self._instances.find(route.target_provider_id, route.target_node).id
        # With the machine in the name a deletion never hits the route that took its place.
        name = _name(cluster_name, route.destination_cidr, machine)
        body = {"destination": route.destination_cidr, "machine": machine, "owner": cluster_name}
        self._client.put(Rule, path_of("routes", name), body)

    @override
    def delete_route(self, cluster_name: str, route: Route) -> None:
        self._client.delete(path_of("routes", route.name), {"owner": cluster_name})


def _name(*parts: str) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9.]", "-", part) for part in parts)
