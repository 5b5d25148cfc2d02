"""PVLabeler: where a disk lies. For volumes of this cloud's FlexVolume driver; a CSI driver says it
itself."""

from __future__ import annotations

from collections.abc import Mapping

from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume
from typing_extensions import override

from cloudprovider import DiskNotFound, PVLabeler  # pyright: ignore[reportDeprecated]
from cloudprovider.helpers import zones_to_label_value
from cloudprovider.wellknown import LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE
from samplecloud_provider.cloud import Cloud
from samplecloud_provider.instances import answered

DRIVER = "samplecloud.example/disk"
"""The FlexVolume driver of this cloud's volumes, whose option "disk" is the disk's ID."""


class SampleVolumes(PVLabeler):  # pyright: ignore[reportDeprecated]
    """Zones and region of the disks in the cloud's document."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @override
    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        source = pv.spec.flex_volume if pv.spec is not None else None
        if source is None or source.driver != DRIVER:
            return {}
        disk_id = (source.options or {}).get("disk", "")
        with answered(), self._cloud.document() as document:
            disk = document.disks.get(disk_id)
        if disk is None:
            raise DiskNotFound(f"there is no disk {disk_id!r}")
        labels = {LABEL_TOPOLOGY_ZONE: zones_to_label_value(disk.zones), LABEL_TOPOLOGY_REGION: disk.region}
        return {key: value for key, value in labels.items() if value}
