"""Which subnets a load balancer stands in: those that the Service names, else one in each zone,
found by tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from aws_provider.clients import Clients
from aws_provider.tags import SUBNET_ROLE_INTERNAL, SUBNET_ROLE_INTERNET_FACING, cluster_tag, tag_map
from cloudprovider import CloudProviderError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, SubnetTypeDef


@frozen
class Subnet:
    """A subnet of a VPC, which lies in one zone."""

    id: str
    zone: str
    vpc: str
    cidr: str
    tags: Mapping[str, str]


@frozen
class Subnets:
    """Looks subnets up. Changes nothing. Raises what botocore raises. Thread-safe."""

    clients: Clients
    vpc: str
    """Where to look; "" for anywhere, as long as all that is found lies in one VPC."""

    def for_load_balancer(self, cluster: str, internal: bool, asked: Sequence[str]) -> list[Subnet]:
        """One in each zone, ordered by zone. `asked`: IDs, or values of the tag Name. Raises
        `CloudProviderError` where there is none, where one that was asked for is missing, or where
        they lie in several VPCs."""
        found = self._asked(asked) if asked else self._tagged(cluster, internal)
        if len({subnet.vpc for subnet in found}) > 1:
            ids = ", ".join(f"{subnet.id} in {subnet.vpc}" for subnet in found)
            raise CloudProviderError(f"the subnets lie in several VPCs: {ids}. Set vpc in the configuration.")
        return found

    def with_ids(self, ids: Iterable[str]) -> list[Subnet]:
        """These subnets; those that are gone are missing."""
        return self._list([{"Name": "subnet-id", "Values": sorted(ids)}])

    def ranges_of_vpc(self, vpc: str) -> list[str]:
        """The IPv4 ranges of a network."""
        [found] = self.clients.ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"]
        ranges = [
            one.get("CidrBlock", "")
            for one in found.get("CidrBlockAssociationSet", [])
            if one.get("CidrBlockState", {}).get("State") in ("associated", "associating")
        ]
        return sorted(ranges or [found.get("CidrBlock", "")])

    def _tagged(self, cluster: str, internal: bool) -> list[Subnet]:
        role = SUBNET_ROLE_INTERNAL if internal else SUBNET_ROLE_INTERNET_FACING
        of_cluster = self._list([{"Name": "tag-key", "Values": [cluster_tag(cluster)]}])
        found = [subnet for subnet in of_cluster if role in subnet.tags]
        if not found:
            raise CloudProviderError(
                f"no subnet has both tags {role} and {cluster_tag(cluster)}. Tag one in each zone, or name the "
                "subnets with the annotation service.beta.kubernetes.io/aws-load-balancer-subnets."
            )
        first = {subnet.zone: subnet for subnet in sorted(found, key=lambda one: one.id, reverse=True)}
        return [first[zone] for zone in sorted(first)]

    def _asked(self, asked: Sequence[str]) -> list[Subnet]:
        ids = [name for name in asked if name.startswith("subnet-")]
        names = [name for name in asked if name not in ids]
        found = self.with_ids(ids) if ids else []
        named = self._list([{"Name": "tag:Name", "Values": names}]) if names else []
        if len(found) + len(named) != len(asked):
            shown = ", ".join(subnet.id for subnet in found + named) or "none"
            raise CloudProviderError(f"{len(asked)} subnets are asked for ({', '.join(asked)}), AWS knows: {shown}")
        return sorted(found + named, key=lambda one: one.zone)

    def _list(self, filters: list[FilterTypeDef]) -> list[Subnet]:
        if self.vpc:
            filters = [*filters, {"Name": "vpc-id", "Values": [self.vpc]}]
        pages = self.clients.ec2.get_paginator("describe_subnets").paginate(Filters=filters)
        return [_subnet(raw) for page in pages for raw in page["Subnets"]]


def _subnet(raw: SubnetTypeDef) -> Subnet:
    return Subnet(
        id=raw.get("SubnetId", ""),
        zone=raw.get("AvailabilityZone", ""),
        vpc=raw.get("VpcId", ""),
        cidr=raw.get("CidrBlock", ""),
        tags=tag_map(raw.get("Tags")),
    )
