"""From an EC2 instance, as DescribeInstances shows it, to what a node carries. Pure.

Follows: the Go provider in addresses, their types and order, and labels, except that of each
network interface only the primary private address counts: with Amazon's CNI plugin the others are
the pods'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubernetes.client.models.v1_node_address import V1NodeAddress

from aws_provider.finder import provider_id
from cloudprovider import InstanceMetadata, InstanceState
from cloudprovider.wellknown import (
    NODE_ADDRESS_EXTERNAL_DNS,
    NODE_ADDRESS_EXTERNAL_IP,
    NODE_ADDRESS_HOSTNAME,
    NODE_ADDRESS_INTERNAL_DNS,
    NODE_ADDRESS_INTERNAL_IP,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceNetworkInterfaceTypeDef, InstanceTypeDef

LABEL_ZONE_ID = "topology.k8s.aws/zone-id"
"""The zone's ID, which is the same in every account; a zone's name is not."""

_STATES = {
    "terminated": InstanceState.GONE,
    "stopping": InstanceState.SHUTDOWN,
    "stopped": InstanceState.SHUTDOWN,
}


def state(instance: InstanceTypeDef) -> InstanceState:
    """Gone once terminated, which AWS shows for about an hour; shut down while stopping or
    stopped."""
    return _STATES.get(instance.get("State", {}).get("Name", ""), InstanceState.RUNNING)


def metadata(instance: InstanceTypeDef, region: str, zone_id: str) -> InstanceMetadata:
    """What the node gets."""
    return InstanceMetadata(
        provider_id=provider_id(instance),
        instance_type=instance.get("InstanceType", ""),
        node_addresses=addresses(instance),
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        region=region,
        additional_labels={LABEL_ZONE_ID: zone_id} if zone_id else {},
    )


def addresses(instance: InstanceTypeDef) -> list[V1NodeAddress]:
    """The addresses of every network interface in use, the primary one's first, of IPv4 before
    those of IPv6; then the names. The manager's flags say which of them a node gets."""
    attached = [one for one in instance.get("NetworkInterfaces", []) if one.get("Status", "in-use") == "in-use"]
    attached.sort(key=lambda one: one.get("Attachment", {}).get("DeviceIndex", len(attached)))
    found = [*_ipv4(instance, attached), *_ipv6(attached)]
    private, public = instance.get("PrivateDnsName", ""), instance.get("PublicDnsName", "")
    found += [
        (NODE_ADDRESS_INTERNAL_DNS, private),
        (NODE_ADDRESS_HOSTNAME, private),
        (NODE_ADDRESS_EXTERNAL_DNS, public),
    ]
    return [V1NodeAddress(type=kind, address=address) for kind, address in dict.fromkeys(found) if address]


def _ipv4(instance: InstanceTypeDef, attached: Sequence[InstanceNetworkInterfaceTypeDef]) -> list[tuple[str, str]]:
    private = [one.get("PrivateIpAddress", "") for one in attached] or [instance.get("PrivateIpAddress", "")]
    public = [instance.get("PublicIpAddress", "")] + [
        one.get("Association", {}).get("PublicIp", "") for one in attached
    ]
    return [(NODE_ADDRESS_INTERNAL_IP, address) for address in private] + [
        (NODE_ADDRESS_EXTERNAL_IP, address) for address in public
    ]


def _ipv6(attached: Sequence[InstanceNetworkInterfaceTypeDef]) -> list[tuple[str, str]]:
    """One for each interface, as an internal address: AWS has no names for them and no other
    kind."""
    firsts = [one.get("Ipv6Addresses", [])[:1] for one in attached]
    return [(NODE_ADDRESS_INTERNAL_IP, address.get("Ipv6Address", "")) for first in firsts for address in first]
