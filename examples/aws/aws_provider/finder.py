"""From nodes to EC2 instances: one DescribeInstances answers for up to 200 nodes.

A node is found by its provider ID; without one by its name, which is the instance's ID or its
private DNS name (AWS's two conventions). Names are looked up among the instances with the cluster's
tag alone, since networks that do not know of each other use the same private names. Everything is
asked by filter: the call that takes IDs fails as a whole when one of them is unknown.

An ID that AWS does not list is gone. An ID of another region, or of no EC2 instance, says nothing:
that is an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import frozen
from kubernetes.client.models.v1_node import V1Node

from aws_provider.clients import Clients
from aws_provider.tags import cluster_tag
from cloudprovider import CloudProviderError, InstanceNotFound
from cloudprovider.helpers import node_name, parse_provider_id, provider_id_of

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

PROVIDER = "aws"
"""Before "://" in provider IDs: must never change."""

MAX_VALUES = 200
"""How many values AWS takes in all filters of a call together."""

_INSTANCE_ID = re.compile(r"i-[0-9a-z]+")
_ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")

Found = Mapping[str, "InstanceTypeDef | CloudProviderError"]
"""By node name: the instance, or why there is none. `InstanceNotFound` is AWS's word that it is
gone."""


def provider_id(instance: InstanceTypeDef) -> str:
    """ "aws:///<zone>/<instance-id>", as the Go provider writes it."""
    zone = instance.get("Placement", {}).get("AvailabilityZone", "")
    return f"{PROVIDER}:///{zone}/{instance.get('InstanceId', '')}"


def instance_id(of: str, region: str) -> str:
    """The instance's ID in a provider ID. Raises `CloudProviderError` when it is none of EC2's in
    this region."""
    try:
        parsed = parse_provider_id(of)
    except ValueError as exc:
        raise CloudProviderError(f"cannot read the provider ID: {exc}") from exc
    zone = parsed.instance.strip("/").rpartition("/")[0]
    if parsed.provider != PROVIDER or not _INSTANCE_ID.fullmatch(parsed.name):
        raise CloudProviderError(f"{of} is not the provider ID of an EC2 instance: {PROVIDER}:///<zone>/i-...")
    if zone and not zone.startswith(region):
        raise CloudProviderError(f"{of} lies in another region than {region}, the one that this provider asks")
    return parsed.name


@frozen
class InstanceFinder:
    """Looks nodes up in EC2. Changes nothing, remembers nothing. Thread-safe."""

    clients: Clients
    cluster: str

    def find(self, nodes: Sequence[V1Node]) -> Found:
        """The instance of each node, or an error in its place. Raises what botocore raises."""
        found: dict[str, InstanceTypeDef | CloudProviderError] = {}
        ids: dict[str, str] = {}
        for node in nodes:
            name = node_name(node)
            try:
                ids[name] = self._id_of(node, name)
            except CloudProviderError as exc:
                found[name] = exc
        by_id = self.by_id(sorted({known for known in ids.values() if known}))
        by_name = self._by_private_dns_name(sorted(name for name, known in ids.items() if not known))
        for name, known in ids.items():
            found[name] = _sole([by_id[known]] if known in by_id else by_name.get(name, []), known or name)
        return found

    def by_id(self, ids: Sequence[str]) -> Mapping[str, InstanceTypeDef]:
        """The instances with these IDs, by ID; those that AWS does not know, or no more, are
        missing."""
        return {instance.get("InstanceId", ""): instance for instance in self._list("instance-id", ids)}

    def target_ids(self, nodes: Iterable[V1Node]) -> frozenset[str]:
        """The instance IDs of those nodes that have a provider ID of EC2's in this region. Others
        are left out: one such node (Fargate's, or a forged one) spoils nothing."""
        ids: set[str] = set()
        for node in nodes:
            with suppress(CloudProviderError):
                ids.add(instance_id(provider_id_of(node), self.clients.region))
        return frozenset(ids)

    def _id_of(self, node: V1Node, name: str) -> str:
        """The ID that the node's provider ID or name says, "" where its name is another."""
        if provider_id_of(node):
            return instance_id(provider_id_of(node), self.clients.region)
        host = name.partition(".")[0]
        return host if _INSTANCE_ID.fullmatch(host) else ""

    def _by_private_dns_name(self, names: Sequence[str]) -> Mapping[str, list[InstanceTypeDef]]:
        """The cluster's instances with these private DNS names, terminated ones left out, by
        name."""
        found: dict[str, list[InstanceTypeDef]] = defaultdict(list)
        cluster: list[FilterTypeDef] = [
            {"Name": "tag-key", "Values": [cluster_tag(self.cluster)]},
            {"Name": "instance-state-name", "Values": _ALIVE},
        ]
        for instance in self._list("private-dns-name", names, cluster):
            found[instance.get("PrivateDnsName", "")].append(instance)
        return found

    def _list(
        self, key: str, values: Sequence[str], filters: Sequence[FilterTypeDef] = ()
    ) -> Iterator[InstanceTypeDef]:
        most = MAX_VALUES - sum(len(one.get("Values", ())) for one in filters)
        for start in range(0, len(values), most):
            one: FilterTypeDef = {"Name": key, "Values": values[start : start + most]}
            for page in self.clients.ec2.get_paginator("describe_instances").paginate(Filters=[one, *filters]):
                for reservation in page["Reservations"]:
                    yield from reservation.get("Instances", [])


def _sole(found: Sequence[InstanceTypeDef], asked: str) -> InstanceTypeDef | CloudProviderError:
    if len(found) > 1:
        ids = ", ".join(sorted(instance.get("InstanceId", "") for instance in found))
        return CloudProviderError(f"{len(found)} instances of the cluster have the private DNS name {asked}: {ids}")
    return found[0] if found else InstanceNotFound(f"EC2 knows no instance {asked}")
