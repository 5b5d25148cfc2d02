"""Load balancers themselves: found by name, proved by tags, created in subnets, kept in line,
deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen
from botocore.exceptions import ClientError

from aws_provider.clients import Clients
from aws_provider.errors import error_code
from aws_provider.ownership import check, tags_of
from aws_provider.plan import Identity, Plan
from aws_provider.subnets import Subnet
from aws_provider.tags import tag_list, tag_map

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import LoadBalancerTypeDef

_CROSS_ZONE = "load_balancing.cross_zone.enabled"


@frozen
class Balancer:
    """A load balancer that was made for a Service, as AWS shows it."""

    arn: str
    name: str
    vpc: str
    hostname: str
    state: str
    """provisioning, active, active_impaired or failed."""
    reason: str
    is_internal: bool
    zones: Mapping[str, str]
    """The subnet's ID, by zone."""
    tags: Mapping[str, str]


@frozen
class Balancers:
    """The load balancers of Services. Raises what botocore raises. Thread-safe for different
    Services."""

    clients: Clients

    def find(self, service: Identity) -> Balancer | None:
        """The Service's load balancer, None where AWS has none of that name. Raises `NotOurs` where
        the one of that name is not proved to be the Service's."""
        try:
            [found] = self.clients.elb.describe_load_balancers(Names=[service.name])["LoadBalancers"]
        except ClientError as exc:
            if error_code(exc) == "LoadBalancerNotFound":
                return None
            raise
        arn = found.get("LoadBalancerArn", "")
        tags = tags_of(self.clients, [arn]).get(arn, {})
        check("load balancer", service.name, tags, service)
        return _balancer(found, tags)

    def all(self) -> list[Balancer]:
        """Every Network Load Balancer of the account in this region, with its tags."""
        pages = self.clients.elb.get_paginator("describe_load_balancers").paginate()
        found = [one for page in pages for one in page["LoadBalancers"] if one.get("Type") == "network"]
        tags = tags_of(self.clients, [one.get("LoadBalancerArn", "") for one in found])
        return [_balancer(one, tags.get(one.get("LoadBalancerArn", ""), {})) for one in found]

    def create(self, plan: Plan, subnets: Sequence[Subnet]) -> Balancer:
        """Create the planned load balancer, with its tags, in these subnets."""
        made = self.clients.elb.create_load_balancer(
            Name=plan.name,
            Type="network",
            Scheme="internal" if plan.annotations.internal else "internet-facing",
            Subnets=[subnet.id for subnet in subnets],
            Tags=tag_list(plan.all_tags),
        )
        return _balancer(made["LoadBalancers"][0], plan.all_tags)

    def adjust(self, balancer: Balancer, plan: Plan, subnets: Sequence[Subnet]) -> Balancer:
        """Bring tags, attributes and zones in line. Zones are only added: AWS moves no
        addresses."""
        missing = {key: value for key, value in plan.all_tags.items() if balancer.tags.get(key) != value}
        if missing:
            self.clients.elb.add_tags(ResourceArns=[balancer.arn], Tags=tag_list(missing))
        wanted = str(plan.annotations.cross_zone).lower()
        answer = self.clients.elb.describe_load_balancer_attributes(LoadBalancerArn=balancer.arn)
        if tag_map(answer["Attributes"]).get(_CROSS_ZONE, "false") != wanted:
            self.clients.elb.modify_load_balancer_attributes(
                LoadBalancerArn=balancer.arn, Attributes=[{"Key": _CROSS_ZONE, "Value": wanted}]
            )
        new = [subnet for subnet in subnets if subnet.zone not in balancer.zones]
        if not new:
            return balancer
        ids = [*balancer.zones.values(), *(subnet.id for subnet in new)]
        self.clients.elb.set_subnets(LoadBalancerArn=balancer.arn, Subnets=ids)
        return evolve(balancer, zones={**balancer.zones, **{subnet.zone: subnet.id for subnet in new}})

    def delete(self, balancer: Balancer) -> None:
        """Delete it, its listeners with it. Gone already is fine."""
        try:
            self.clients.elb.delete_load_balancer(LoadBalancerArn=balancer.arn)
        except ClientError as exc:
            if error_code(exc) != "LoadBalancerNotFound":
                raise


def _balancer(found: LoadBalancerTypeDef, tags: Mapping[str, str]) -> Balancer:
    state = found.get("State", {})
    return Balancer(
        arn=found.get("LoadBalancerArn", ""),
        name=found.get("LoadBalancerName", ""),
        vpc=found.get("VpcId", ""),
        hostname=found.get("DNSName", ""),
        state=state.get("Code", ""),
        reason=state.get("Reason", ""),
        is_internal=found.get("Scheme") == "internal",
        zones={one.get("ZoneName", ""): one.get("SubnetId", "") for one in found.get("AvailabilityZones", [])},
        tags=tags,
    )
