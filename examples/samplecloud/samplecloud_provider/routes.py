"""Routes: one for each node's pod network."""

from __future__ import annotations

from typing_extensions import override

from cloudprovider import Route, Routes
from samplecloud_provider.cloud import Cloud, NoSuchThing, Rule
from samplecloud_provider.instances import answered


class SampleRoutes(Routes):
    """The cloud's routes that carry the cluster's name; those of other clusters are never seen."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @override
    def list_routes(self, cluster_name: str) -> list[Route]:
        with answered(), self._cloud.document() as document:
            names = {instance.id: instance.name for instance in document.instances.values()}
            return [
                Route(
                    name=rule.name,
                    target_node=names.get(rule.instance, ""),
                    destination_cidr=rule.cidr,
                    blackhole=rule.instance not in names,
                )
                for rule in document.rules.values()
                if rule.cluster == cluster_name
            ]

    @override
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        with answered(), self._cloud.document() as document:
            found = [one.id for one in document.instances.values() if one.name == route.target_node]
            if not found:
                raise NoSuchThing(f"there is no instance for node {route.target_node!r}")
            if any(
                (rule.cluster, rule.cidr, rule.instance) == (cluster_name, route.destination_cidr, found[0])
                for rule in document.rules.values()
            ):
                return
            name = f"{cluster_name}-{name_hint}-{route.destination_cidr.replace('/', '-')}"
            document.rules[name] = Rule(name=name, cluster=cluster_name, cidr=route.destination_cidr, instance=found[0])

    @override
    def delete_route(self, cluster_name: str, route: Route) -> None:
        with answered(), self._cloud.document() as document:
            rule = document.rules.get(route.name)
            if rule is not None and rule.cluster == cluster_name:
                del document.rules[route.name]
