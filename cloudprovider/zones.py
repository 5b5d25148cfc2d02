"""Zones: where an instance stands (stage 5, cloud call). Only beside the older `Instances`.

Asked by the node controller through the gateway; the answer becomes a node's zone and region
labels. With `InstancesV2` or `InstancesBatch` the zone travels in `InstanceMetadata` and nothing
here is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from attrs import field, frozen
from typing_extensions import deprecated

from cloudprovider.internal import fields

__all__ = ["Zone", "Zones"]


@fields.documented
@frozen
class Zone:
    """A place: both values are valid label values, or empty where the cloud has no such notion.
    Raises TypeError for anything but texts.

    Follows: Zone in k8s.io/cloud-provider cloud.go.
    """

    failure_domain: str = field(default="", validator=fields.text)
    """The zone; becomes the label topology.kubernetes.io/zone and its deprecated beta label."""

    region: str = field(default="", validator=fields.text)
    """The region; becomes the label topology.kubernetes.io/region and its deprecated beta label."""


@deprecated("zone and region belong into InstanceMetadata, of InstancesV2 or InstancesBatch", category=None)
class Zones(ABC):
    """Zone lookups. Read-only in the cloud, repeatable, and called from many threads at once.

    Every method raises `InstanceNotFound` when the instance does not exist; any other exception
    means unknown.

    Follows: Zones (deprecated there too) in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def get_zone(self) -> Zone:
        """The zone that the program itself runs in. Asked by `node-info`, where the provider has
        neither `LocalInstance` nor `InstancesV2` nor `InstancesBatch`. Elsewhere raise
        `NotImplementedByProvider`."""

    @abstractmethod
    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """The zone of the instance with this provider ID (a node's `spec.providerID`)."""

    @abstractmethod
    def get_zone_by_node_name(self, node_name: str) -> Zone:
        """The zone of the instance behind the node of this name, for nodes without a provider
        ID."""
