"""The nodes' security group lets the load balancers' traffic in: rules by Service, added and
removed by difference.

An NLB without a security group of its own, as it is built here, hands the clients' addresses
through to the nodes, whose security group decides. The group is the one with the cluster's tag. A
rule is known as ours by its description, which is the Go provider's; nobody else's rule is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Network, ip_network
from typing import TYPE_CHECKING, Final

from attrs import field, frozen
from botocore.exceptions import ClientError

from aws_provider.clients import Clients
from aws_provider.errors import error_code
from aws_provider.healthcheck import KUBE_PROXY_PORT
from aws_provider.plan import Identity, Plan
from aws_provider.shared import Shared
from aws_provider.tags import cluster_tag, is_owned, tag_map
from cloudprovider import CloudProviderError, RetryError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, IpPermissionTypeDef, SecurityGroupTypeDef

CLIENT_RULE: Final = "kubernetes.io/rule/nlb/client"
HEALTH_RULE: Final = "kubernetes.io/rule/nlb/health"
SHARED: Final = "shared"
"""In place of a load balancer's name: the rule is for a port that several Services' health checks
use. It goes when no target group is checked there; kube-proxy's stays."""
_SHARED_RULE: Final = f"{HEALTH_RULE}={SHARED}"

_OURS: Final = (f"{CLIENT_RULE}=", f"{HEALTH_RULE}=")

_AGAIN_SECONDS = 1.0
_FULL = "RulesPerSecurityGroupLimitExceeded"

logger = logging.getLogger(__name__)


@frozen(order=True)
class IngressRule:
    """Traffic that a security group lets in."""

    protocol: str
    port: int
    cidr: str
    description: str

    @property
    def key(self) -> tuple[str, int, str]:
        """What AWS takes once in a group, whatever the description is."""
        return self.protocol, self.port, self.cidr

    def is_within(self, other: IngressRule) -> bool:
        """Whether the other lets all of this traffic in already."""
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        mine, its = ip_network(self.cidr), ip_network(other.cidr)
        return isinstance(mine, IPv4Network) and isinstance(its, IPv4Network) and mine.subnet_of(its)


def rules_of(plan: Plan, subnet_cidrs: Collection[str], sources: Collection[str]) -> set[IngressRule]:
    """What the nodes must let in for the load balancer: its clients from `sources`, and its health
    checks from its subnets. Pure."""
    hidden = plan.attributes["preserve_client_ip.enabled"] == "false"
    rules = {
        IngressRule(transport, port.node_port, cidr, f"{CLIENT_RULE}={plan.name}")
        for port in plan.ports
        for transport in port.transports
        for cidr in (subnet_cidrs if hidden else sources)
    }
    open_already = set(rules)
    for port in sorted(plan.ports, key=lambda one: one.shares_health_check_port):  # a rule of its own goes with it
        owner = SHARED if port.shares_health_check_port else plan.name
        for cidr in subnet_cidrs:
            rule = IngressRule("tcp", port.health_check_port, cidr, f"{HEALTH_RULE}={owner}")
            if not any(rule.is_within(other) for other in open_already):
                rules.add(rule)
                open_already.add(rule)
    return rules


@frozen
class NodeSecurityGroups:
    """The security groups of the cluster's nodes. Raises what botocore raises. Thread-safe for
    different Services."""

    clients: Clients
    _known: Shared[str, Mapping[str, SecurityGroupTypeDef]] = field(init=False)

    @_known.default
    def _make_known(self) -> Shared[str, Mapping[str, SecurityGroupTypeDef]]:
        return Shared(self._groups)

    def ensure(
        self,
        service: Identity,
        rules: Collection[IngressRule],
        instances: Iterable[InstanceTypeDef],
        *,
        is_all: bool = True,
    ) -> None:
        """Have these rules in the groups of these instances, and no other rule of the Service in
        any group. Where these are not all of its instances, rules of other groups that are wanted
        stay.

        Raises `CloudProviderError` when no instance has a group with the cluster's tag (one alone
        is a warning) or a group is full, and `RetryError` when somebody else changed a group
        meanwhile.
        """
        groups = self._known.get(service.cluster)
        used = _groups_of(instances, groups, service.cluster)
        for group_id, group in groups.items():
            present = _ingress(group)
            wanted: set[IngressRule] = set(rules)
            if group_id not in used:
                wanted = set() if is_all else wanted & present
            revoke = {rule for rule in present if _is_of(rule, service)} - wanted
            # One that goes may be in the way of one that differs in its description alone.
            keys = {rule.key for rule in present - revoke}
            self._change(group_id, revoke, {rule for rule in wanted if rule.key not in keys})
            self._sweep(group_id, present - wanted)

    def extend(
        self,
        service: Identity,
        rules: Collection[IngressRule],
        health_ports: Collection[int],
        instances: Iterable[InstanceTypeDef],
    ) -> None:
        """Have these rules, those that the Service has in any group, and those for health checks on
        these ports, in the groups of these instances too. None goes. Raises as `ensure`."""
        groups = self._known.get(service.cluster)
        used = _groups_of(instances, groups, service.cluster)
        wanted = set(rules) | {
            rule
            for group in groups.values()
            for rule in _ingress(group)
            if _is_of(rule, service) or (rule.description == _SHARED_RULE and rule.port in health_ports)
        }
        for group_id in sorted(used):
            keys = {rule.key for rule in _ingress(groups[group_id])}
            self._change(group_id, set(), {rule for rule in wanted if rule.key not in keys})

    def remove(self, service: Identity) -> None:
        """Take away every rule of the Service. None there is fine."""
        self._known.forget()
        self.ensure(service, (), ())

    def own_rules(self, cluster: str) -> Mapping[str, set[IngressRule]]:
        """Every rule that was made here, by the group's ID, in the groups that are the cluster's
        alone."""
        return {
            group_id: {rule for rule in _ingress(group) if rule.description.startswith(_OURS)}
            for group_id, group in self._groups(cluster).items()
            if is_owned(tag_map(group.get("Tags")), cluster)
        }

    def revoke(self, group: str, rule: IngressRule) -> None:
        """Take one rule away. Raises `RetryError` where somebody changed the group meanwhile."""
        self._change(group, {rule}, set())

    def names_of_rules(self, service: Identity) -> str:
        """The Service's rules in words, "" where there is none."""
        found = [
            f"{rule.protocol}/{rule.port} from {rule.cidr} in {group_id}"
            for group_id, group in sorted(self._groups(service.cluster).items())
            for rule in sorted(_ingress(group))
            if _is_of(rule, service)
        ]
        return ", ".join(found[:10]) + (f" and {len(found) - 10} more" if len(found) > 10 else "")

    def _sweep(self, group: str, rules: Collection[IngressRule]) -> None:
        """Take away those that are for health checks on a port that users chose, and that no target
        group is checked on any more: a group has room for few rules."""
        chosen = {rule for rule in rules if may_be_swept(rule)}
        if chosen and (unused := self._unused(chosen)):
            self._change(group, unused, set())
            # A Service that came to use one meanwhile has seen the rule, and made none.
            self._change(group, set(), unused - self._unused(unused))

    def _unused(self, rules: Collection[IngressRule]) -> set[IngressRule]:
        """Those for a port that no target group is checked on, whoever made it."""
        pages = self.clients.elb.get_paginator("describe_target_groups").paginate(PaginationConfig={"PageSize": 400})
        ports = {group.get("HealthCheckPort") for page in pages for group in page["TargetGroups"]}
        return {rule for rule in rules if str(rule.port) not in ports}

    def _groups(self, cluster: str) -> Mapping[str, SecurityGroupTypeDef]:
        """The groups with the cluster's tag, by ID."""
        pages = self.clients.ec2.get_paginator("describe_security_groups").paginate(
            Filters=[{"Name": "tag-key", "Values": [cluster_tag(cluster)]}]
        )
        return {group.get("GroupId", ""): group for page in pages for group in page["SecurityGroups"]}

    def _change(self, group: str, revoke: set[IngressRule], authorize: set[IngressRule]) -> None:
        if not revoke and not authorize:
            return
        keys = {rule.key for rule in revoke}
        # AWS takes no second one that differs in its description alone.
        last = {rule for rule in authorize if rule.key in keys}
        try:
            self._swap(group, revoke, authorize - last)
            self._authorize(group, last)
        except ClientError as exc:
            if error_code(exc) in ("InvalidPermission.Duplicate", "InvalidPermission.NotFound"):
                raise RetryError(f"the rules of {group} changed meanwhile ({error_code(exc)})", _AGAIN_SECONDS) from exc
            if error_code(exc) == _FULL:
                raise CloudProviderError(
                    f"the nodes' security group {group} has no room for {len(authorize)} more rules (60, unless "
                    "AWS was asked for more): a Service takes one for each port and source range. Name fewer "
                    "ranges, ask AWS for a higher quota, or set manage_security_groups to false and open the node "
                    "ports yourself"
                ) from exc
            raise
        finally:
            self._known.forget()  # and what another thread was just told

    def _swap(self, group: str, revoke: set[IngressRule], authorize: set[IngressRule]) -> None:
        """New ones first, so that traffic goes on whatever AWS says to them."""
        try:
            self._authorize(group, authorize)
        except ClientError as exc:
            if error_code(exc) != _FULL or not revoke:
                raise
            self._revoke(group, revoke)  # a full group has no room for the new ones beside the old
            try:
                self._authorize(group, authorize)
            except ClientError:
                self._authorize(group, revoke)
                raise
        else:
            self._revoke(group, revoke)

    def _authorize(self, group: str, rules: set[IngressRule]) -> None:
        if rules:
            self.clients.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=_permissions(rules))

    def _revoke(self, group: str, rules: set[IngressRule]) -> None:
        if rules:
            self.clients.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=_permissions(rules))


def _groups_of(
    instances: Iterable[InstanceTypeDef], groups: Mapping[str, SecurityGroupTypeDef], cluster: str
) -> set[str]:
    """The groups that let traffic in to these instances: of each the first with the cluster's
    tag."""
    used: set[str] = set()
    untagged: list[str] = []
    for instance in instances:
        own = sorted(group.get("GroupId", "") for group in instance.get("SecurityGroups", []))
        if tagged := [group for group in own if group in groups]:
            used.add(tagged[0])
        else:
            untagged.append(f"{instance.get('InstanceId', '')} (its groups: {', '.join(own) or 'none'})")
    if untagged:
        shown = ", ".join(untagged[:5]) + (f" and {len(untagged) - 5} more" if len(untagged) > 5 else "")
        problem = (
            f"{shown} has no security group with the tag {cluster_tag(cluster)}, so nothing can let "
            "traffic in. Tag the nodes' group, or set manage_security_groups to false and open the node ports yourself."
        )
        if not used:
            raise CloudProviderError(problem)
        logger.warning("%s", problem)  # nodes are no reason to leave the others without traffic
    return used


def may_be_swept(rule: IngressRule) -> bool:
    """Whether the rule goes as soon as no target group is checked on its port."""
    return rule.description == _SHARED_RULE and rule.port != KUBE_PROXY_PORT


def _is_of(rule: IngressRule, service: Identity) -> bool:
    return rule.description in (f"{CLIENT_RULE}={service.name}", f"{HEALTH_RULE}={service.name}")


def _ingress(group: SecurityGroupTypeDef) -> set[IngressRule]:
    """The group's rules for single ports and ranges of addresses; others are nothing of ours."""
    found: set[IngressRule] = set()
    for permission in group.get("IpPermissions", []):
        port = permission.get("FromPort", -1)
        if port == permission.get("ToPort", -1):
            protocol = permission.get("IpProtocol", "")
            for v4 in permission.get("IpRanges", []):
                found.add(IngressRule(protocol, port, v4.get("CidrIp", ""), v4.get("Description", "")))
            for v6 in permission.get("Ipv6Ranges", []):
                found.add(IngressRule(protocol, port, v6.get("CidrIpv6", ""), v6.get("Description", "")))
    return found


def _permissions(rules: Iterable[IngressRule]) -> list[IpPermissionTypeDef]:
    return [_permission(rule) for rule in sorted(rules)]


def _permission(rule: IngressRule) -> IpPermissionTypeDef:
    result: IpPermissionTypeDef = {"IpProtocol": rule.protocol, "FromPort": rule.port, "ToPort": rule.port}
    if ":" in rule.cidr:
        result["Ipv6Ranges"] = [{"CidrIpv6": rule.cidr, "Description": rule.description}]
    else:
        result["IpRanges"] = [{"CidrIp": rule.cidr, "Description": rule.description}]
    return result
