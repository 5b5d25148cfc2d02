"""Routes: one for each node's pod network."""

from __future__ import annotations

from typing_extensions import override

from cloudprovider import Route, Routes
from samplecloud_provider.cloud import Cloud, Rule
from samplecloud_provider.instances import SampleInstances, answered


class SampleRoutes(Routes):
    """The cloud's routes that carry the cluster's name; those of other clusters are never seen."""

    def __init__(self, cloud: Cloud, instances: SampleInstances) -> None:
        self._cloud = cloud
        self._instances = instances

    @override
    def list_routes(self, cluster_name: str) -> list[Route]:
        with answered(), self._cloud.document() as document:
            return [
                Route(
                    name=rule.name,
                    target_node="",  # the machine's name may change; the host finds the node by its ID
                    destination_cidr=rule.cidr,
                    blackhole=rule.instance not in document.instances,
                    target_provider_id=self._instances.provider_id(rule.instance),
                    owned=True,  # the cloud keeps whose rule it is
                )
                for rule in document.rules.values()
                if rule.cluster == cluster_name
            ]

    @override
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        instance = self._instances.find(route.target_provider_id, route.target_node).id
        with answered(), self._cloud.document() as document:
            if any(
                (rule.cluster, rule.cidr, rule.instance) == (cluster_name, route.destination_cidr, instance)
                for rule in document.rules.values()
            ):
                return
            # With the instance in the name a deletion never hits the route that took its place.
            name = f"{cluster_name}-{name_hint}-{route.destination_cidr.replace('/', '-')}-{instance}"
            document.rules[name] = Rule(name=name, cluster=cluster_name, cidr=route.destination_cidr, instance=instance)

    @override
    def delete_route(self, cluster_name: str, route: Route) -> None:
        with answered(), self._cloud.document() as document:
            rule = document.rules.get(route.name)
            if rule is not None and rule.cluster == cluster_name:
                del document.rules[route.name]
