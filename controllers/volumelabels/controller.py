"""The persistent-volume-label controller: volumes of this cloud get their zone and region, as labels and node affinity.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch (6). Runs in the
manager, or alone in a program of your own. For volumes without CSI driver: a driver says the topology of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.cloudcalls import CloudCallError
from controllers.runtime.cache import PERSISTENT_VOLUMES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Backoff, FailureHandling, Worker, WorkQueue
from controllers.runtime.run import run_until
from controllers.runtime.write import EventRecorder
from controllers.volumelabels.options import VolumeLabelOptions
from controllers.volumelabels.reconcile import VolumeLabelReconciler
from controllers.volumelabels.triggers import VolumeTriggers

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory

COMPONENT = "persistent-volume-label-controller"
IDENTITY = "pvl-controller"
_BACKOFF = Backoff(base=1.0, cap=300.0)


class VolumeLabelController:
    """Labels PersistentVolumes that the provider knows, and gives them the node affinity that follows; each once.

    Takes what every controller takes: clients, shared informers, the gateway to one provider, `options`. It does not
    start the informers. `run` may be called once. Raises ValueError at construction when the provider labels no
    volumes (`pv_labeler()` returns None).

    Follows: PersistentVolumeLabelController in cloud-controller-manager before 1.14.
    """

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
        self._options = options or VolumeLabelOptions()
        self._clock = clock
        metrics = metrics or Metrics()
        rest = clients.rest(IDENTITY)
        self._informer = informers.informer(PERSISTENT_VOLUMES)
        self._recorder = EventRecorder(rest, COMPONENT, clock=clock, metrics=metrics)
        queue: WorkQueue[str] = WorkQueue("VolumeLabels", clock=clock, metrics=metrics, backoff=_BACKOFF)
        self._triggers = VolumeTriggers(queue)
        reconciler = VolumeLabelReconciler(rest, self._informer.lister, labeler, self._recorder)
        self._worker = Worker(
            queue,
            reconciler.reconcile,
            threads=self._options.concurrent_volume_label_syncs,
            failures=FailureHandling(
                on_error=reconciler.failed, expected=(CloudCallError,), noun="persistentvolume", recall=cloud.outage
            ),
            metrics=metrics,
            clock=clock,
        )

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then finish what is under way and return. Blocks; to be called once.

        Waits for the informer's first listing before it begins. Keys that still wait when it stops are worked off in
        the drain time; the next manager finds the rest by listing.
        """
        triggers = self._triggers
        run_until(
            stop,
            component=COMPONENT,
            registrations=lambda: [self._informer.add_handler(triggers.on_add, triggers.on_update, triggers.on_delete)],
            workers=[self._worker],
            recorder=self._recorder,
            drain_timeout=self._options.drain_timeout,
            clock=self._clock,
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """(name, healthy, detail) of the worker; see `Worker.health`. Thread-safe."""
        return [self._worker.health()]
