"""Broken clouds for the end-to-end scenarios: each is a part of the fake cloud, broken in one
way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from attrs import evolve
from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import CloudProviderError, InstanceMetadata, Route
from cloudprovider.testing.conformance.bench import name_of
from cloudprovider.testing.fake import FakeCloud
from cloudprovider.testing.fake.instances import FakeKeyedInstancesV2
from cloudprovider.testing.fake.loadbalancers import FakeOwningLoadBalancers
from cloudprovider.testing.fake.others import FakeRoutes

__all__ = ["MUTANTS", "broken"]

MUTANTS: dict[str, type[Any]] = {}
"""By the scenario that fails on it."""
C = TypeVar("C", bound=type[Any])


def breaks(scenario: str) -> Callable[[C], C]:
    """Register a broken part."""

    def register(part: C) -> C:
        MUTANTS[scenario] = part
        return part

    return register


def broken(cloud: FakeCloud, part: type[Any]) -> FakeCloud:
    """A new provider over the same cloud, with this part in the place of the fake cloud's own."""
    twin = copy.copy(cloud)
    twin._instances_batch = None  # it would answer in the place of a broken InstancesV2
    for name in ("_instances_v2", "_balancers", "_routes"):
        own = copy.copy(getattr(cloud, name))
        if issubclass(part, type(own)):
            own.__class__ = part
            own.memory = set()
        setattr(twin, name, own)
    return twin


@breaks("E1")
class ZoneOnTheSecondCall(FakeKeyedInstancesV2):
    """The first answer about a node has no zone."""

    asked: set[str] = set()  # noqa: RUF012 - of all providers over one cloud

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        found = super().instance_metadata(node)
        if name_of(node) in self.asked:
            return found
        self.asked.add(name_of(node))
        return evolve(found, zone="")


@breaks("E2")
class NothingIsEverGone(FakeKeyedInstancesV2):
    """Deleted machines are said to exist."""

    def instance_exists(self, node: V1Node) -> bool:
        return True

    def instance_shutdown(self, node: V1Node) -> bool:
        return super().instance_exists(node) and super().instance_shutdown(node)


@breaks("E3")
class NothingIsEverOff(FakeKeyedInstancesV2):
    """Machines that are switched off are said to run."""

    def instance_shutdown(self, node: V1Node) -> bool:
        return False


@breaks("E4")
class TwoAddresses(FakeOwningLoadBalancers):
    """`get_load_balancer` tells another address than `ensure_load_balancer`."""

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        if super().get_load_balancer(cluster_name, service) is None:
            return None
        return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip="203.0.113.99")])


class _Remembers(FakeOwningLoadBalancers):
    memory: set[str]

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        self.memory.add(_uid(service))
        return super().ensure_load_balancer(cluster_name, service, nodes)


@breaks("E5")
class DeletedServicesAreLeft(_Remembers):
    """What this process built is not deleted while the Service is being deleted."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        assert service.metadata is not None
        if not (service.metadata.deletion_timestamp and _uid(service) in self.memory):
            super().ensure_load_balancer_deleted(cluster_name, service)


@breaks("E6")
class OtherTypesAreLeft(FakeOwningLoadBalancers):
    """Nothing is deleted for a Service that is none of type LoadBalancer."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        if service.spec is not None and service.spec.type == "LoadBalancer":
            super().ensure_load_balancer_deleted(cluster_name, service)


@breaks("E7")
class TargetsStay(FakeOwningLoadBalancers):
    """`update_load_balancer` does nothing."""

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        return


@breaks("E8")
class PortsStay(FakeOwningLoadBalancers):
    """`ensure_load_balancer` does not change a load balancer that is there."""

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        found = super().get_load_balancer(cluster_name, service)
        if found is not None and found.ingress:
            return found
        return super().ensure_load_balancer(cluster_name, service, nodes)


@breaks("E9")
class RoutesStay(FakeRoutes):
    """`delete_route` does nothing."""

    def delete_route(self, cluster_name: str, route: Route) -> None:
        return


@breaks("E10")
class ErrorsStay(FakeKeyedInstancesV2):
    """An instance about which the cloud once gave no answer is never asked about again."""

    memory: set[str]

    def instance_metadata(self, node: V1Node) -> InstanceMetadata:
        if name_of(node) in self.memory:
            raise CloudProviderError("the last answer was an error")
        try:
            return super().instance_metadata(node)
        except Exception:
            self.memory.add(name_of(node))
            raise


@breaks("E11")
class DeletesWhatItRemembers(_Remembers):
    """Nothing is deleted that another process built."""

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        if _uid(service) in self.memory:
            super().ensure_load_balancer_deleted(cluster_name, service)


def _uid(service: V1Service) -> str:
    assert service.metadata is not None
    return service.metadata.uid or ""
