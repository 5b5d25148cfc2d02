"""The fake cloud's volume labels (stage 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cloudprovider.errors import DiskNotFound
from cloudprovider.helpers.objects import key_of
from cloudprovider.helpers.volumes import zones_to_label_value
from cloudprovider.testing.fake.gate import Gate
from cloudprovider.testing.fake.records import VOLUMES
from cloudprovider.testing.fake.store import View
from cloudprovider.volumes import PVLabeler
from cloudprovider.wellknown import LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE

if TYPE_CHECKING:
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

__all__ = ["FakePVLabeler"]


class FakePVLabeler(PVLabeler):
    """Labels of disks: their zones and region, and what the configuration adds.

    A disk is found by the volume's CSI handle, or its name. A volume that it has no disk for, and whose source no cloud
    has (NFS, iSCSI, a path of the machine), is not one of ours.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        name = key_of(pv)
        csi = pv.spec.csi if pv.spec is not None else None
        volume_id = csi.volume_handle if csi is not None else name

        def work(view: View) -> dict[str, str]:
            volume = view.get(VOLUMES, volume_id)
            if volume is None and _is_elsewhere(pv):
                return {}
            if volume is None:
                raise DiskNotFound(f"no volume {volume_id}")
            labels = dict(volume.labels)
            if volume.zones:
                labels[LABEL_TOPOLOGY_ZONE] = zones_to_label_value(volume.zones)
            if volume.region:
                labels[LABEL_TOPOLOGY_REGION] = volume.region
            return labels

        return self._gate.read("get_labels_for_volume", [(volume_id, name)], work, arguments=[pv])


def _is_elsewhere(pv: V1PersistentVolume) -> bool:
    spec = pv.spec
    return spec is not None and any((spec.nfs, spec.iscsi, spec.fc, spec.host_path, spec.local))
