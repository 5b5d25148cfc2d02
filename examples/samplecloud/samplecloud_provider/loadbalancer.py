"""LoadBalancer: one of the cloud's for each Service.

Everything is idempotent, since the name follows from the Service's UID: whatever an interrupted
call left behind is found again and completed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from kubernetes.client.models.v1_service_spec import V1ServiceSpec
from typing_extensions import override

from cloudprovider import (
    InvalidService,
    LoadBalancer,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    RetryError,
)
from cloudprovider.helpers import (
    health_check_path_port,
    key_of,
    load_balancer_source_ranges,
    ports_of,
    uid_of,
)
from samplecloud_provider.annotations import SampleAnnotations
from samplecloud_provider.cloud import Balancer, Cloud
from samplecloud_provider.config import Config
from samplecloud_provider.instances import SampleInstances, answered


class SampleLoadBalancers(LoadBalancer, OwnedLoadBalancers):
    """Load balancers named as `get_load_balancer_name` does by default."""

    def __init__(
        self, cloud: Cloud, instances: SampleInstances, config: Config, now: Callable[[], float] = time.time
    ) -> None:
        self._cloud = cloud
        self._instances = instances
        self._config = config
        self._now = now

    @override
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        with answered():
            balancer = self._cloud.balancer(self.get_load_balancer_name(cluster_name, service))
        return _status(balancer) if balancer is not None else None

    @override
    def check_service(self, service: V1Service) -> None:
        _refuse_unsupported(service)
        SampleAnnotations.read(service)

    @override
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        self.check_service(service)
        asked = SampleAnnotations.read(service, defaults={"idle_timeout": self._config.idle_timeout})
        health = health_check_path_port(service)
        wanted = Balancer(
            name=self.get_load_balancer_name(cluster_name, service),
            address="",
            cluster=cluster_name,
            service=key_of(service),
            uid=uid_of(service),
            vpc=self._config.vpc,
            subnet=self._config.subnet,
            ports=_ports(service),
            allowed=[str(network) for network in load_balancer_source_ranges(service)],
            health_check=f":{health[1]}{health[0]}" if health is not None else "",
            internal=asked.internal,
            algorithm=asked.algorithm,
            idle_timeout=asked.idle_timeout,
            targets=self._ids(service, nodes),
            ready_at=self._now() + self._config.build_seconds,
        )
        with answered():
            balancer = self._cloud.put_balancer(wanted, str(self._config.load_balancer_range))
        left = balancer.ready_at - self._now()
        if left > 0:
            raise RetryError("the load balancer is being built", retry_after=left)
        return _status(balancer)

    @override
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        with answered():
            name = self.get_load_balancer_name(cluster_name, service)
            self._cloud.set_targets(name, self._ids(service, nodes))

    def targets(self, service: V1Service, nodes: Sequence[V1Node]) -> Sequence[V1Node]:
        """Those of the nodes that are to be targets: all of them."""
        return nodes

    def _ids(self, service: V1Service, nodes: Sequence[V1Node]) -> list[str]:
        """A node of another cloud, or with a forged ID, spoils nothing for the others."""
        return sorted(self._instances.ids_in(self.targets(service, nodes)))

    @override
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        with answered():
            self._cloud.remove_balancer(self.get_load_balancer_name(cluster_name, service))

    @override
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        with answered():
            balancers = self._cloud.balancers_of(cluster_name)
        return [OwnedLoadBalancer(each.name, each.service, each.uid) for each in balancers]


def _refuse_unsupported(service: V1Service) -> None:
    """Raises InvalidService for what this cloud cannot do: ignored, it would surprise the owner."""
    spec = service.spec or V1ServiceSpec()
    problems = [
        f"port {port.port} has no node port: set spec.allocateLoadBalancerNodePorts to true"
        for port in ports_of(service)
        if not port.node_port
    ]
    if spec.load_balancer_ip:
        problems.append("spec.loadBalancerIP is not supported: the cloud chooses the address")
    if spec.session_affinity == "ClientIP":
        problems.append("spec.sessionAffinity ClientIP is not supported: use None")
    try:
        load_balancer_source_ranges(service)
    except ValueError as exc:
        problems.append(str(exc))
    if problems:
        raise InvalidService(*problems)


def _ports(service: V1Service) -> list[str]:
    return [f"{port.port}/{port.protocol}->{port.node_port}" for port in ports_of(service)]


def _status(balancer: Balancer) -> V1LoadBalancerStatus:
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=balancer.address)])
