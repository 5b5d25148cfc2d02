"""OwnedResources: the rules that the load balancers' deletion leaves in the nodes' security groups.

Those for the health checks of several Services, and any of a load balancer that was deleted by
hand. Only in groups that are the cluster's alone: in one that clusters share, nobody knows whose a
rule is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from aws_provider.errors import answered
from aws_provider.securitygroups import IngressRule, NodeSecurityGroups
from cloudprovider import OwnedResource, OwnedResources

KIND = "security group rule"


class AWSLeftovers(OwnedResources):
    """Rules of our descriptions."""

    def __init__(self, groups: NodeSecurityGroups) -> None:
        self._groups = groups

    @override
    @answered()
    def list_owned_resources(self, cluster_name: str) -> Sequence[OwnedResource]:
        found = self._found(cluster_name)
        return [OwnedResource(KIND, key, rule.description) for key, (_, rule) in sorted(found.items())]

    @override
    @answered()
    def delete_owned_resource(self, cluster_name: str, resource: OwnedResource) -> None:
        group, rule = self._found(cluster_name).get(resource.id, ("", None))
        if rule is not None:
            self._groups.revoke(group, rule)

    def _found(self, cluster: str) -> Mapping[str, tuple[str, IngressRule]]:
        return {
            f"{group}/{rule.protocol}/{rule.port}/{rule.cidr}": (group, rule)
            for group, rules in self._groups.own_rules(cluster).items()
            for rule in rules
        }
