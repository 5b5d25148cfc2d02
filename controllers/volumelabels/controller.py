"""The persistent-volume-label controller: volumes of this cloud get their zone and region, as
labels and node affinity. For volumes without CSI driver: a driver says the topology of its own.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch
(6). A key of the queue `VolumeLabels` is a volume's name. Runs in the manager, or alone in a
program of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudprovider.helpers.objects import labels_of
from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import PERSISTENT_VOLUMES, InformerFactory, key_of, uid_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling
from controllers.volumelabels.changes import needs_labels
from controllers.volumelabels.reconcile import VolumeLabelReconciler
from controllers.volumelabels.registration import VolumeLabelOptions

if TYPE_CHECKING:
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.queue import WorkQueue

_BACKOFF = Backoff(base=1.0, cap=300.0)


class VolumeLabelController(ControllerBase):
    """Labels PersistentVolumes that the provider knows, and gives them the node affinity that
    follows; each once.

    Takes what every controller takes: clients, shared informers, the gateway to one provider,
    `options`. It does not start the informers. `run` may be called once. Raises ValueError at
    construction when the provider labels no volumes (`pv_labeler()` returns None).

    Follows: PersistentVolumeLabelController in cloud-controller-manager before 1.14.
    """

    NAME = "persistent-volume-label-controller"
    CLIENT = "pvl-controller"

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: VolumeLabelOptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        labeler = cloud.pv_labeler
        if labeler is None:
            raise ValueError(f"cloud provider {cloud.provider_name!r} labels no volumes: its pv_labeler() returns None")
        options = options or VolumeLabelOptions()
        super().__init__(clients, options, metrics, clock)
        volumes = informers.informer(PERSISTENT_VOLUMES)
        queue = self._queue("VolumeLabels", backoff=_BACKOFF)
        reconciler = VolumeLabelReconciler(self._rest, volumes.lister, labeler, self._recorder)
        self._watch(volumes, VolumeTriggers(queue))
        self._add_worker(
            queue,
            reconciler.reconcile,
            threads=options.concurrent_volume_label_syncs,
            failures=FailureHandling(
                on_error=reconciler.failed,
                expected=(CloudCallError,),
                controller=self.NAME,
                noun="persistentvolume",
            ),
        )


class VolumeTriggers:
    """The informer's handler: whether there may be work, never what the work is. Called from the
    informer's thread."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue

    def on_add(self, volume: V1PersistentVolume, initial: bool) -> None:
        if needs_labels(volume):
            self._queue.add(key_of(volume))

    def on_update(self, old: V1PersistentVolume, new: V1PersistentVolume) -> None:
        # A new phase or a claim must not bypass the back-off of a volume without labels to be had.
        if needs_labels(new) and _relevant(old) != _relevant(new):
            self._queue.add(key_of(new))

    def on_delete(self, volume: V1PersistentVolume) -> None:
        self._queue.forget(key_of(volume))


def _relevant(volume: V1PersistentVolume) -> tuple[object, ...]:
    spec = volume.spec
    return uid_of(volume), dict(labels_of(volume)), spec.node_affinity if spec is not None else None
