"""A provider for the cloud `harbour` that builds load balancers, and nothing else."""

from collections.abc import Sequence

from harbour_api import Balancer, Cloud, connect
from kubernetes.client.models import V1LoadBalancerIngress, V1LoadBalancerStatus, V1Node, V1Service

from cloudprovider import CloudConfig, Interface, LoadBalancer, current_call
from cloudprovider.helpers import ports_of


class Harbour(Interface, LoadBalancer):
    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    def provider_name(self) -> str:
        return "harbour"

    def load_balancer(self) -> LoadBalancer:
        return self

    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        found = self.cloud.find(self.get_load_balancer_name(cluster_name, service))
        return status(found) if found else None

    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        current_call().check()
        name = self.get_load_balancer_name(cluster_name, service)
        balancer = self.cloud.put(name, [(port.port, port.node_port) for port in ports_of(service)])
        self.update_load_balancer(cluster_name, service, nodes)
        return status(balancer)

    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        current_call().check()
        ids = [node.spec.provider_id or "" for node in nodes if node.spec]
        ours = [one for one in ids if one.startswith("harbour://")]
        self.cloud.set_targets(self.get_load_balancer_name(cluster_name, service), ours)

    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        current_call().check()
        self.cloud.delete(self.get_load_balancer_name(cluster_name, service))


def status(balancer: Balancer) -> V1LoadBalancerStatus:
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(ip=balancer.address)])


def new_provider(config: CloudConfig | None) -> Harbour:
    return Harbour(connect(config.data.decode().strip() if config else "memory://harbour"))
