"""Routes: the nodes' pod networks in the VPC's route tables that carry the cluster's tag.

AWS's routes have no tags of their own. What is nobody's pod network is told by its target: only
routes to instances of the cluster are listed, and routes to instances that are gone. Whose those
are the host decides, by its ranges.

With several route tables (one for each zone, say) a route stands in all of them: one that is
missing in a table is not listed, so the host creates it, which completes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import frozen
from botocore.exceptions import ClientError
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_spec import V1NodeSpec
from kubernetes.client.models.v1_object_meta import V1ObjectMeta
from typing_extensions import override

from aws_provider.clients import Clients
from aws_provider.errors import answered, error_code
from aws_provider.finder import InstanceFinder, provider_id
from aws_provider.metadata import state
from aws_provider.nodeinstances import NodeInstances
from aws_provider.tags import belongs_to, cluster_tag, tag_map
from cloudprovider import CloudProviderError, InstanceNotFound, InstanceState, Route, Routes

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, RouteTypeDef

_OTHER_TARGETS = (
    "CarrierGatewayId", "CoreNetworkArn", "EgressOnlyInternetGatewayId", "GatewayId", "LocalGatewayId", "NatGatewayId",
    "TransitGatewayId", "VpcPeeringConnectionId",
)  # fmt: skip


@frozen
class _Table:
    """A route table: the instance of each range, "" where AWS says that it is gone. Other targets
    are left out."""

    id: str
    targets: Mapping[str, str]


class AWSRoutes(Routes):
    """Routes to instances. A route is named by its range, which a table has once."""

    def __init__(self, clients: Clients, finder: InstanceFinder, nodes: NodeInstances) -> None:
        self._clients = clients
        self._finder = finder
        self._nodes = nodes

    @override
    @answered()
    def list_routes(self, cluster_name: str) -> list[Route]:
        tables = self._tables(cluster_name)
        shown = self._shown(cluster_name, tables)
        found: list[Route] = []
        for cidr, instance in sorted({pair for table in tables for pair in table.targets.items()}):
            route = shown.get((cidr, instance))
            if route is not None and (route.blackhole or all(table.targets.get(cidr) == instance for table in tables)):
                found.append(route)
        return found

    @override
    @answered()
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        instance = self._instance(route)
        if instance.get("SourceDestCheck", True):  # with it, AWS drops what is not addressed to the instance itself
            self._clients.ec2.modify_instance_attribute(
                InstanceId=instance.get("InstanceId", ""), SourceDestCheck={"Value": False}
            )
        for table in self._tables(cluster_name):
            self._put(cluster_name, table, route.destination_cidr, instance.get("InstanceId", ""))

    @override
    @answered()
    def delete_route(self, cluster_name: str, route: Route) -> None:
        tables = self._tables(cluster_name)
        shown = self._shown(cluster_name, tables)
        cidr = route.destination_cidr
        for table in tables:
            present = shown.get((cidr, table.targets.get(cidr, "")))
            # A range that leads to another node meanwhile is that node's.
            if present == route:
                self._delete(table, cidr)

    def _tables(self, cluster_name: str) -> list[_Table]:
        pages = self._clients.ec2.get_paginator("describe_route_tables").paginate(
            Filters=[{"Name": "tag-key", "Values": [cluster_tag(cluster_name)]}]
        )
        tables = [
            _Table(table.get("RouteTableId", ""), dict(filter(None, map(_target, table.get("Routes", [])))))
            for page in pages
            for table in page["RouteTables"]
        ]
        if not tables:
            raise CloudProviderError(
                f"no route table has the tag {cluster_tag(cluster_name)}: tag those of the nodes' subnets"
            )
        return tables

    def _shown(self, cluster_name: str, tables: Iterable[_Table]) -> Mapping[tuple[str, str], Route]:
        """The cluster's routes in these tables, by range and instance: to its nodes, and to
        instances that are gone."""
        pairs = {pair for table in tables for pair in table.targets.items()}
        instances = self._finder.by_id(sorted({instance for _, instance in pairs if instance}))
        of_nodes = self._nodes.instances()
        found: dict[tuple[str, str], Route] = {}
        for cidr, instance_id in pairs:
            instance = instances.get(instance_id)
            if instance_id and instance is None:
                continue  # a short answer: what is gone AWS calls a blackhole, or lists as terminated
            if instance is None or state(instance) is InstanceState.GONE:
                found[cidr, instance_id] = Route(cidr, "", cidr, blackhole=True)
            elif instance_id in of_nodes or belongs_to(tag_map(instance.get("Tags")), cluster_name):
                found[cidr, instance_id] = Route(cidr, "", cidr, target_provider_id=provider_id(instance))
        return found

    def _instance(self, route: Route) -> InstanceTypeDef:
        """The instance of the route's node. Raises `InstanceNotFound`, or what speaks against an
        answer."""
        node = V1Node(
            metadata=V1ObjectMeta(name=route.target_node),
            spec=V1NodeSpec(provider_id=route.target_provider_id or None),
        )
        answer = self._finder.find([node])[route.target_node]
        if isinstance(answer, CloudProviderError):
            raise answer
        if state(answer) is InstanceState.GONE:
            raise InstanceNotFound(f"EC2 says that {answer.get('InstanceId', '')} is terminated")
        return answer

    def _put(self, cluster_name: str, table: _Table, cidr: str, instance: str) -> None:
        present = table.targets.get(cidr)
        if present == instance:
            return
        if present:
            raise CloudProviderError(f"the route to {cidr} in {table.id} leads to {present}, not to {instance}")
        v6 = ":" in cidr
        if present == "" and v6:
            self._clients.ec2.replace_route(RouteTableId=table.id, DestinationIpv6CidrBlock=cidr, InstanceId=instance)
        elif present == "":
            self._clients.ec2.replace_route(RouteTableId=table.id, DestinationCidrBlock=cidr, InstanceId=instance)
        else:
            self._create(cluster_name, table, cidr, instance)

    def _create(self, cluster_name: str, table: _Table, cidr: str, instance: str) -> None:
        try:
            if ":" in cidr:
                self._clients.ec2.create_route(
                    RouteTableId=table.id, DestinationIpv6CidrBlock=cidr, InstanceId=instance
                )
            else:
                self._clients.ec2.create_route(RouteTableId=table.id, DestinationCidrBlock=cidr, InstanceId=instance)
        except ClientError as exc:
            if error_code(exc) != "RouteAlreadyExists" or not self._leads_to(cluster_name, table, cidr, instance):
                raise

    def _leads_to(self, cluster_name: str, table: _Table, cidr: str, instance: str) -> bool:
        """Whether another call has made the route meanwhile."""
        return any(one.id == table.id and one.targets.get(cidr) == instance for one in self._tables(cluster_name))

    def _delete(self, table: _Table, cidr: str) -> None:
        try:
            if ":" in cidr:
                self._clients.ec2.delete_route(RouteTableId=table.id, DestinationIpv6CidrBlock=cidr)
            else:
                self._clients.ec2.delete_route(RouteTableId=table.id, DestinationCidrBlock=cidr)
        except ClientError as exc:
            if error_code(exc) != "InvalidRoute.NotFound":
                raise


def _target(route: RouteTypeDef) -> tuple[str, str] | None:
    """(range, instance) of a route to an instance, or to one that is gone; None for every other."""
    cidr = route.get("DestinationCidrBlock") or route.get("DestinationIpv6CidrBlock") or ""
    if not cidr or any(route.get(kind) for kind in _OTHER_TARGETS):
        return None
    if route.get("State") == "blackhole":
        return cidr, ""
    instance = route.get("InstanceId", "")
    return (cidr, instance) if instance else None
