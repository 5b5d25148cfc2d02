"""PVLabeler: which zone a volume lies in (stage 5, cloud call). Legacy: CSI topology has replaced
it.

Asked through the gateway by persistent-volume-label-controller, and by the webhook
persistentvolume-labeler before a volume is stored, about every volume without a CSI driver. The
labels returned are written on the volume, and its node affinity follows from the zone and the
region among them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import deprecated

if TYPE_CHECKING:
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

__all__ = ["PVLabeler"]


@deprecated("CSI drivers say themselves where their volumes are (topology)", category=None)
class PVLabeler(ABC):
    """Labels for volumes. Changes nothing in the cloud, repeatable, called from many threads at
    once.

    Follows: PVLabeler (deprecated there too) in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        """The labels of this volume, empty when it is not one of ours. `pv` is
        read-only.

        A volume in several zones carries them in one value, joined by
        `cloudprovider.helpers.zones_to_label_value`. Raises `DiskNotFound` when the cloud has no
        such volume.
        """
