"""LoadBalancer: a Network Load Balancer for each Service, with the order of things that keeps it
whole.

Building: load balancer, target groups with their instances, rules of the nodes' security group,
listeners; then what the Service no longer needs. Deleting: load balancer, target groups, rules.
Every step finds what an interrupted call left behind, changes only what differs, and touches
nothing that is not proved to be the Service's by its tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kubernetes.client.models.v1_load_balancer_ingress import V1LoadBalancerIngress
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_service import V1Service
from typing_extensions import override

from aws_provider.annotations import is_elsewhere
from aws_provider.balancers import Balancer, Balancers
from aws_provider.clients import Clients
from aws_provider.config import Config
from aws_provider.errors import answered
from aws_provider.finder import InstanceFinder
from aws_provider.listeners import Listeners
from aws_provider.plan import Identity, Plan, identity, plan
from aws_provider.securitygroups import NodeSecurityGroups, rules_of
from aws_provider.subnets import Subnets
from aws_provider.tags import SERVICE_NAME_TAG, SERVICE_UID_TAG, is_owned
from aws_provider.targetgroups import TargetGroups
from cloudprovider import (
    CloudProviderError,
    ImplementedElsewhere,
    LoadBalancer,
    OwnedLoadBalancer,
    OwnedLoadBalancers,
    RetryError,
)
from cloudprovider.helpers import labels_of

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

PROVISIONING_SECONDS = 10.0
"""AWS needs two or three minutes for a new load balancer."""
DELETING_SECONDS = 5.0


class AWSLoadBalancers(LoadBalancer, OwnedLoadBalancers):
    """Network Load Balancers, named as the Go provider names them."""

    def __init__(self, clients: Clients, finder: InstanceFinder, config: Config) -> None:
        self._config = config
        self._finder = finder
        self._balancers = Balancers(clients)
        self._groups = TargetGroups(clients)
        self._listeners = Listeners(clients)
        self._subnets = Subnets(clients, config.vpc)
        self._security = NodeSecurityGroups(clients)

    @override
    @answered()
    def get_load_balancer(self, cluster_name: str, service: V1Service) -> V1LoadBalancerStatus | None:
        asked = identity(cluster_name, service)
        balancer = self._balancers.find(asked)
        if balancer is not None:
            return _status(balancer)
        return V1LoadBalancerStatus() if self._leftovers(asked) else None

    @override
    @answered()
    def ensure_load_balancer(
        self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]
    ) -> V1LoadBalancerStatus:
        wanted = self._plan(cluster_name, service)
        subnets = self._subnets.for_load_balancer(cluster_name, wanted.annotations.internal, wanted.annotations.subnets)
        balancer = self._balancers.find(wanted)
        if balancer is not None and balancer.is_internal != wanted.annotations.internal:
            self._balancers.delete(balancer)
            raise RetryError(
                f"{balancer.name} is deleted and built anew: AWS cannot turn an internal load balancer into an "
                "internet-facing one, or back",
                DELETING_SECONDS,
            )
        if balancer is None:
            balancer = self._balancers.create(wanted, subnets)
        balancer = self._balancers.adjust(balancer, wanted, subnets)
        instances = self._targets(nodes, wanted, balancer)
        present = self._groups.of(wanted)
        groups = {
            port.port: self._groups.ensure(wanted, port, balancer.vpc, present, instances) for port in wanted.ports
        }
        self._open(wanted, balancer, instances)
        self._listeners.ensure(balancer.arn, wanted, groups)
        needed = {port.group for port in wanted.ports}
        self._groups.delete(group for name, group in present.items() if name not in needed)
        return _ready(balancer)

    @override
    @answered()
    def update_load_balancer(self, cluster_name: str, service: V1Service, nodes: Sequence[V1Node]) -> None:
        wanted = self._plan(cluster_name, service)
        balancer = self._balancers.find(wanted)
        if balancer is None:
            raise CloudProviderError(f"there is no load balancer {wanted.name} whose targets could be set")
        present = self._groups.of(wanted)
        if not present:
            raise CloudProviderError(f"the load balancer {wanted.name} has no target groups")
        instances = self._targets(nodes, wanted, balancer)
        self._open(wanted, balancer, instances, keep=True)
        for group in present.values():
            self._groups.set_targets(group.get("TargetGroupArn", ""), instances, group.get("Port", 0))

    @override
    @answered()
    def ensure_load_balancer_deleted(self, cluster_name: str, service: V1Service) -> None:
        asked = identity(cluster_name, service)
        balancer = self._balancers.find(asked)
        groups = self._groups.of(asked)
        if balancer is not None:
            self._balancers.delete(balancer)
        self._groups.delete(groups.values())
        if self._config.manage_security_groups:
            self._security.remove(asked)
        if balancer is not None and self._balancers.find(asked) is not None:
            raise RetryError(f"AWS is still deleting {balancer.name}", DELETING_SECONDS)

    @override
    @answered()
    def owned_load_balancers(self, cluster_name: str) -> Sequence[OwnedLoadBalancer]:
        return [
            OwnedLoadBalancer(one.name, one.tags.get(SERVICE_NAME_TAG, ""), one.tags.get(SERVICE_UID_TAG, ""))
            for one in self._balancers.all()
            if is_owned(one.tags, cluster_name)
        ]

    def _plan(self, cluster_name: str, service: V1Service) -> Plan:
        """The Service's plan. Raises `InvalidService`, and `ImplementedElsewhere` for the other
        controller's."""
        if is_elsewhere(service):
            raise ImplementedElsewhere("the annotation asks for the AWS Load Balancer Controller")
        return plan(cluster_name, service)

    def _targets(self, nodes: Iterable[V1Node], wanted: Plan, balancer: Balancer) -> Mapping[str, InstanceTypeDef]:
        """The instances that become targets, by ID: AWS refuses one that is not running, or in
        another network."""
        labels = wanted.annotations.node_labels.items()
        asked = [node for node in nodes if labels <= labels_of(node).items()]
        return {
            key: instance
            for key, instance in self._finder.targets(asked).items()
            if instance.get("State", {}).get("Name") == "running" and instance.get("VpcId") == balancer.vpc
        }

    def _open(
        self, wanted: Plan, balancer: Balancer, instances: Mapping[str, InstanceTypeDef], *, keep: bool = False
    ) -> None:
        """Have the nodes let the traffic in; `keep`: and what they let in already."""
        if self._config.manage_security_groups:
            cidrs = [subnet.cidr for subnet in self._subnets.with_ids(balancer.zones.values())]
            self._security.ensure(wanted, rules_of(wanted, cidrs), instances.values(), keep=keep)

    def _leftovers(self, asked: Identity) -> bool:
        """Whether anything of a load balancer that is gone is still there."""
        if self._groups.of(asked):
            return True
        return self._config.manage_security_groups and self._security.has_rules_of(asked)


def _ready(balancer: Balancer) -> V1LoadBalancerStatus:
    if balancer.state == "provisioning":
        raise RetryError(f"AWS is building {balancer.name}", PROVISIONING_SECONDS)
    if balancer.state == "failed":
        raise CloudProviderError(f"AWS could not build {balancer.name}: {balancer.reason or 'it gave no reason'}")
    return _status(balancer)


def _status(balancer: Balancer) -> V1LoadBalancerStatus:
    """Without an address until it works: its name would not be found before."""
    if balancer.state in ("provisioning", "failed") or not balancer.hostname:
        return V1LoadBalancerStatus()
    return V1LoadBalancerStatus(ingress=[V1LoadBalancerIngress(hostname=balancer.hostname)])
