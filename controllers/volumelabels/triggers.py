"""Stage 3: TRIGGER. Turns events of PersistentVolumes into keys of the queue `VolumeLabels`.

A key is a volume's name. Decides whether there may be work, never what the work is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.helpers.objects import labels_of
from controllers.runtime.cache import key_of, uid_of
from controllers.volumelabels.changes import needs_labels

if TYPE_CHECKING:
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

    from controllers.runtime.queue import WorkQueue


class VolumeTriggers:
    """The informer's handler. Called from the informer's thread."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue

    def on_add(self, volume: V1PersistentVolume, initial: bool) -> None:
        if needs_labels(volume):
            self._queue.add(key_of(volume))

    def on_update(self, old: V1PersistentVolume, new: V1PersistentVolume) -> None:
        # A new phase or a claim must not bypass the back-off of a volume whose labels cannot be
        # had.
        if needs_labels(new) and _relevant(old) != _relevant(new):
            self._queue.add(key_of(new))

    def on_delete(self, volume: V1PersistentVolume) -> None:
        self._queue.forget(key_of(volume))


def _relevant(volume: V1PersistentVolume) -> tuple[object, ...]:
    spec = volume.spec
    return uid_of(volume), dict(labels_of(volume)), spec.node_affinity if spec is not None else None
