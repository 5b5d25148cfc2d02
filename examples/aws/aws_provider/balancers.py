"""Load balancers themselves: found by name, proved by tags, created in subnets, kept in line,
deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen
from botocore.exceptions import ClientError

from aws_provider.clients import Clients
from aws_provider.errors import error_code
from aws_provider.ownership import MAX_TAGGED, check, tags_of
from aws_provider.plan import LOAD_BALANCER_ATTRIBUTES, Identity, Plan
from aws_provider.subnets import Subnet
from aws_provider.tags import tag_list, tag_map
from cloudprovider import CloudProviderError, InvalidService

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import LoadBalancerTypeDef


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
    addresses: tuple[str, ...]
    """What AWS shows of the addresses that it was given: allocation IDs, and private addresses."""
    tags: Mapping[str, str]


@frozen
class Balancers:
    """The load balancers of Services. Raises what botocore raises. Thread-safe for different
    Services."""

    clients: Clients

    def named(self, name: str) -> LoadBalancerTypeDef | None:
        """The one of this name, whoever made it."""
        try:
            [found] = self.clients.elb.describe_load_balancers(Names=[name])["LoadBalancers"]
        except ClientError as exc:
            if error_code(exc) == "LoadBalancerNotFound":
                return None
            raise
        return found

    def find(self, service: Identity) -> Balancer | None:
        """The Service's load balancer, None where AWS has none of that name. Raises `NotOurs` where
        the one of that name is not proved to be the Service's."""
        found = self.named(service.name)
        if found is None:
            return None
        arn = found.get("LoadBalancerArn", "")
        return proved(found, tags_of(self.clients, [arn]).get(arn, {}), service)

    def refuse_classic(self, service: Identity) -> None:
        """Raise `CloudProviderError` while a Classic Load Balancer has the Service's name: the Go
        provider built it, and its users' clients know its address."""
        try:
            found = self.clients.classic.describe_load_balancers(LoadBalancerNames=[service.name])
        except ClientError as exc:
            if error_code(exc) == "LoadBalancerNotFound":
                return
            raise
        if found["LoadBalancerDescriptions"]:
            raise CloudProviderError(
                f"there is a Classic Load Balancer {service.name}, which the Go provider built for this Service, and "
                "this provider builds Network Load Balancers only: a second one would get another address. Delete "
                "the Classic one, once nobody needs its address; then a Network Load Balancer is built"
            )

    def all(self) -> list[Balancer]:
        """Every Network Load Balancer of the account in this region, with its tags."""
        pages = self.clients.elb.get_paginator("describe_load_balancers").paginate()
        found = [one for page in pages for one in page["LoadBalancers"] if one.get("Type") == "network"]
        tags = tags_of(self.clients, [one.get("LoadBalancerArn", "") for one in found])
        return [_balancer(one, tags.get(one.get("LoadBalancerArn", ""), {})) for one in found]

    def all_classic(self) -> dict[str, dict[str, str]]:
        """The tags of every Classic Load Balancer of the account in this region, by name."""
        pages = self.clients.classic.get_paginator("describe_load_balancers").paginate()
        names = [str(one["LoadBalancerName"]) for page in pages for one in page["LoadBalancerDescriptions"]]
        tags: dict[str, dict[str, str]] = {}
        for start in range(0, len(names), MAX_TAGGED):
            answer = self.clients.classic.describe_tags(LoadBalancerNames=names[start : start + MAX_TAGGED])
            tags |= {one["LoadBalancerName"]: tag_map(one.get("Tags")) for one in answer["TagDescriptions"]}
        return tags

    def create(self, plan: Plan, subnets: Sequence[Subnet]) -> Balancer:
        """Create the planned load balancer, with its tags, in these subnets."""
        made = self.clients.elb.create_load_balancer(
            Name=plan.name,
            Type="network",
            Scheme="internal" if plan.annotations.internal else "internet-facing",
            Tags=tag_list(plan.all_tags),
            **_placed(plan, [subnet.id for subnet in subnets]),
        )
        return _balancer(made["LoadBalancers"][0], plan.all_tags)

    def adjust(self, balancer: Balancer, plan: Plan, subnets: Sequence[Subnet]) -> Balancer:
        """Bring attributes and zones in line. Zones are only added: AWS moves no addresses."""
        answer = self.clients.elb.describe_load_balancer_attributes(LoadBalancerArn=balancer.arn)
        present = {**LOAD_BALANCER_ATTRIBUTES, **tag_map(answer["Attributes"])}
        changed = {key: value for key, value in plan.load_balancer_attributes.items() if present.get(key) != value}
        if changed:
            self.clients.elb.modify_load_balancer_attributes(
                LoadBalancerArn=balancer.arn,
                Attributes=[{"Key": key, "Value": value} for key, value in changed.items()],
            )
        new = [subnet for subnet in subnets if subnet.zone not in balancer.zones]
        if not new:
            return balancer
        zones = {**balancer.zones, **{subnet.zone: subnet.id for subnet in new}}
        # In the order of the zones' names, which is that of the addresses that the Service names.
        ids = [zones[zone] for zone in sorted(zones)]
        self.clients.elb.set_subnets(LoadBalancerArn=balancer.arn, **_placed(plan, ids))
        return evolve(balancer, zones=zones)

    def delete(self, balancer: Balancer) -> None:
        """Delete it, its listeners with it. Gone already is fine."""
        try:
            self.clients.elb.delete_load_balancer(LoadBalancerArn=balancer.arn)
        except ClientError as exc:
            if error_code(exc) != "LoadBalancerNotFound":
                raise


def proved(found: LoadBalancerTypeDef, tags: Mapping[str, str], service: Identity) -> Balancer:
    """What AWS shows as the Service's. Raises `NotOurs` where the tags do not prove it."""
    check("load balancer", service.name, tags, service)
    return _balancer(found, tags)


def refuse_other_addresses(balancer: Balancer, plan: Plan) -> None:
    """Raise `InvalidService` where the Service names other addresses than the load balancer has."""
    asked = plan.annotations.elastic_ips or plan.annotations.private_ips
    if asked and not set(balancer.addresses) <= set(asked):
        raise InvalidService(
            f"{balancer.name} has the addresses {', '.join(balancer.addresses)}, and AWS cannot give it others: name "
            "these, or make the Service again"
        )


def _placed(plan: Plan, subnets: Sequence[str]) -> dict[str, Any]:
    """The arguments that say where a load balancer stands, and with which addresses. Raises
    `InvalidService` where there is not one address for each zone."""
    addresses = plan.annotations.elastic_ips or plan.annotations.private_ips
    if not addresses:
        return {"Subnets": list(subnets)}
    if len(addresses) != len(subnets):
        raise InvalidService(
            f"{len(addresses)} addresses are given for {len(subnets)} zones: one for each, in the order of their names"
        )
    key = "AllocationId" if plan.annotations.elastic_ips else "PrivateIPv4Address"
    return {"SubnetMappings": [{"SubnetId": one, key: ip} for one, ip in zip(subnets, addresses, strict=True)]}


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
        addresses=tuple(
            address
            for zone in found.get("AvailabilityZones", [])
            for one in zone.get("LoadBalancerAddresses", [])
            if (address := one.get("AllocationId") or one.get("PrivateIPv4Address"))
        ),
        tags=tags,
    )
