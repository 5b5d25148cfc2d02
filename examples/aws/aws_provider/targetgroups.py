"""Target groups: for each port of a load balancer, the instances behind it and how they are
checked.

A target group's port and protocol cannot be modified; they are part of its name (see `plan`), so a
change makes a new group, and the old one goes when no listener needs it any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen
from botocore.exceptions import ClientError

from aws_provider.clients import Clients
from aws_provider.errors import error_code
from aws_provider.ownership import check, is_of, tags_of
from aws_provider.plan import ATTRIBUTES, Identity, Plan, PlannedPort
from aws_provider.shared import Shared
from aws_provider.tags import tag_list, tag_map
from cloudprovider import RetryError

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import (
        CreateTargetGroupInputTypeDef,
        ModifyTargetGroupInputTypeDef,
        TargetDescriptionTypeDef,
        TargetGroupAttributeTypeDef,
        TargetGroupTypeDef,
    )

_MAX_TARGETS = 100
"""How many targets are registered by one call."""
_IN_USE_SECONDS = 5.0

Groups = Mapping[str, "TargetGroupTypeDef"]
"""By name."""
Registered = frozenset[tuple[str, int]]
"""The targets of a group: IDs of instances, and their ports."""


@frozen
class TargetGroups:
    """The target groups of Services. Raises what botocore raises. Thread-safe for different
    Services."""

    clients: Clients
    _every: Shared[None, Sequence[TargetGroupTypeDef]] = field(init=False)

    @_every.default
    def _make_every(self) -> Shared[None, Sequence[TargetGroupTypeDef]]:
        return Shared(self._list)

    def behind(self, load_balancer: str) -> list[TargetGroupTypeDef]:
        """Those that the load balancer's listeners use."""
        pages = self.clients.elb.get_paginator("describe_target_groups").paginate(LoadBalancerArn=load_balancer)
        try:
            return [group for page in pages for group in page["TargetGroups"]]
        except ClientError as exc:
            if error_code(exc) == "TargetGroupNotFound":
                return []
            raise

    def candidates(self, service: Identity, *, newly: bool = False) -> list[TargetGroupTypeDef]:
        """Every one that may be the Service's, also those that no listener uses: tags must prove
        it. `newly`: as AWS has it now, no second ago."""
        if newly:
            self._every.forget()
        return [group for group in self._every.get(None) if _may_be_of(group, service)]

    def of(self, service: Identity) -> Groups:
        """Every target group of the Service, proved by tags."""
        found = self.candidates(service)
        return proved(found, tags_of(self.clients, [group.get("TargetGroupArn", "") for group in found]), service)

    def ensure(self, plan: Plan, port: PlannedPort, vpc: str, present: Groups) -> TargetGroupTypeDef:
        """Have the port's target group as planned, but for its targets."""
        group = present.get(port.group)
        if group is None:
            group = self._create(plan, port, vpc)
        else:
            self._modify_health_check(group, port)
        self._set_attributes(group.get("TargetGroupArn", ""), plan.attributes)
        return group

    def registered(self, arn: str, node_port: int) -> Registered:
        """Who gets traffic from the target group, or would if it ran."""
        answer = self.clients.elb.describe_target_health(TargetGroupArn=arn)
        return frozenset(
            (one["Target"]["Id"], one["Target"].get("Port", node_port))
            for one in answer["TargetHealthDescriptions"]
            if "Target" in one and one.get("TargetHealth", {}).get("Reason") != "Target.DeregistrationInProgress"
        )

    def set_targets(
        self, arn: str, node_port: int, present: Registered, instances: Collection[str], kept: Collection[str]
    ) -> Registered:
        """Have these instances behind the target group, and no others but those of `kept` that are
        there. Registers and deregisters the difference to `present`; returns who is registered
        then."""
        wanted = {(instance, node_port) for instance in instances}
        lost = {one for one in present - wanted if one[1] != node_port or one[0] not in kept}
        new = wanted - present
        try:
            self._register(arn, new)
        except ClientError as exc:
            if error_code(exc) != "TooManyTargets":
                raise
            self._deregister(arn, lost)  # a full target group has no room for the new ones beside the old
            self._register(arn, new)
        else:
            # New ones first: when a pool is replaced as a whole, it would have no target meanwhile.
            self._deregister(arn, lost)
        return frozenset((present | new) - lost)

    def _register(self, arn: str, targets: Collection[tuple[str, int]]) -> None:
        for chunk in _chunks(targets):
            self.clients.elb.register_targets(TargetGroupArn=arn, Targets=chunk)

    def _deregister(self, arn: str, targets: Collection[tuple[str, int]]) -> None:
        for chunk in _chunks(targets):
            self.clients.elb.deregister_targets(TargetGroupArn=arn, Targets=chunk)

    def delete(self, groups: Iterable[TargetGroupTypeDef]) -> None:
        """Delete these. Raises `RetryError` while AWS still counts one as in use: a listener that
        is gone lingers."""
        for group in groups:
            try:
                self.clients.elb.delete_target_group(TargetGroupArn=group.get("TargetGroupArn", ""))
            except ClientError as exc:
                if error_code(exc) == "ResourceInUse":
                    name = group.get("TargetGroupName", "")
                    raise RetryError(f"AWS still counts the target group {name} as in use", _IN_USE_SECONDS) from exc
                if error_code(exc) != "TargetGroupNotFound":
                    raise
            finally:
                self._every.forget()

    def _list(self, _: None) -> Sequence[TargetGroupTypeDef]:
        pages = self.clients.elb.get_paginator("describe_target_groups").paginate(PaginationConfig={"PageSize": 400})
        return [group for page in pages for group in page["TargetGroups"]]

    def _create(self, plan: Plan, port: PlannedPort, vpc: str) -> TargetGroupTypeDef:
        health = port.health_check
        wanted: CreateTargetGroupInputTypeDef = {
            "Name": port.group,
            "Protocol": port.target_protocol,
            "Port": port.node_port,
            "VpcId": vpc,
            "TargetType": "instance",
            "HealthCheckProtocol": health.protocol,
            "HealthCheckPort": health.port,
            "HealthCheckIntervalSeconds": health.interval,
            "HealthCheckTimeoutSeconds": health.timeout,
            "HealthyThresholdCount": health.healthy,
            "UnhealthyThresholdCount": health.unhealthy,
            "Tags": tag_list(plan.all_tags),
        }
        if health.path:
            wanted["HealthCheckPath"] = health.path
        try:
            made = self.clients.elb.create_target_group(**wanted)
        except ClientError as exc:
            if error_code(exc) == "DuplicateTargetGroupName":
                self._explain_duplicate(plan, port.group)
            raise
        finally:
            self._every.forget()  # and what another thread was just told
        return made["TargetGroups"][0]

    def _explain_duplicate(self, plan: Plan, name: str) -> None:
        """Raises `NotOurs` where the target group of this name has not our tags."""
        for group in self.clients.elb.describe_target_groups(Names=[name])["TargetGroups"]:
            arn = group.get("TargetGroupArn", "")
            check("target group", name, tags_of(self.clients, [arn]).get(arn, {}), plan)

    def _modify_health_check(self, group: TargetGroupTypeDef, port: PlannedPort) -> None:
        health = port.health_check
        changes: ModifyTargetGroupInputTypeDef = {"TargetGroupArn": group.get("TargetGroupArn", "")}
        if group.get("HealthCheckPort") != health.port:
            changes["HealthCheckPort"] = health.port
        if health.path and group.get("HealthCheckPath") != health.path:
            changes["HealthCheckPath"] = health.path
        if group.get("HealthCheckTimeoutSeconds") != health.timeout:
            changes["HealthCheckTimeoutSeconds"] = health.timeout
        if group.get("HealthyThresholdCount") != health.healthy:
            changes["HealthyThresholdCount"] = health.healthy
        if group.get("UnhealthyThresholdCount") != health.unhealthy:
            changes["UnhealthyThresholdCount"] = health.unhealthy
        if len(changes) > 1:
            self.clients.elb.modify_target_group(**changes)

    def _set_attributes(self, arn: str, wanted: Mapping[str, str]) -> None:
        answer = self.clients.elb.describe_target_group_attributes(TargetGroupArn=arn)
        present = {**ATTRIBUTES, **tag_map(answer["Attributes"])}
        changes: list[TargetGroupAttributeTypeDef] = [
            {"Key": key, "Value": value} for key, value in wanted.items() if present.get(key) != value
        ]
        if changes:
            self.clients.elb.modify_target_group_attributes(TargetGroupArn=arn, Attributes=changes)


def proved(
    found: Iterable[TargetGroupTypeDef], tags: Mapping[str, Mapping[str, str]], service: Identity
) -> dict[str, TargetGroupTypeDef]:
    """Those that the tags, by ARN, prove to be the Service's, by name."""
    return {
        group.get("TargetGroupName", ""): group
        for group in found
        if is_of(tags.get(group.get("TargetGroupArn", ""), {}), service)
    }


def _chunks(targets: Collection[tuple[str, int]]) -> list[list[TargetDescriptionTypeDef]]:
    listed: list[TargetDescriptionTypeDef] = [{"Id": instance, "Port": port} for instance, port in sorted(targets)]
    return [listed[start : start + _MAX_TARGETS] for start in range(0, len(listed), _MAX_TARGETS)]


def _may_be_of(group: TargetGroupTypeDef, service: Identity) -> bool:
    """By its name, or by that of the load balancer that uses it. A Go provider's name has no UID,
    so it counts where nothing uses the group any more."""
    name, users = group.get("TargetGroupName", ""), group.get("LoadBalancerArns", [])
    if name.startswith(service.group_prefix) or any(f"/{service.name}/" in arn for arn in users):
        return True
    return not users and name.startswith(service.go_group_prefix)
