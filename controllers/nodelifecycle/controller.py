"""The cloud-node-lifecycle controller: deletes nodes whose instance is gone, taints those shut
down.

Wires the stages: informer (2) -> triggers -> queue (3) -> fetch (5) -> reconcile (4) -> patch or
delete (6). Runs in the manager, or alone in a program of your own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cloudprovider import InstanceState
from cloudprovider.internal.backoff import Backoff
from cloudprovider.wellknown import LABEL_HANDS_OFF
from controllers.cloudcalls import CloudCallError
from controllers.nodelifecycle.deletion import Limit
from controllers.nodelifecycle.memory import Candidates, Samples, Shared
from controllers.nodelifecycle.reconcile import NodeLifecycleReconciler
from controllers.nodelifecycle.registration import NodeLifecycleOptions
from controllers.nodelifecycle.reports import NodeLifecycleMetrics, Reports
from controllers.nodelifecycle.triggers import NodeLifecycleTriggers
from controllers.nodelifecycle.writes import NodeWriter
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling

if TYPE_CHECKING:
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_MIN_INTERVAL = 1.0
_LONGEST_PAUSE = 60.0
_BATCH_FETCHERS = 8


class NodeLifecycleController(ControllerBase):
    """Deletes and taints nodes that are not ready, by what their cloud says of their instances.

    Takes what every controller takes: clients, shared informers, the gateway to one provider. It
    does not start the informers. `run` may be called once.

    Raises ValueError at construction without any of InstancesBatch, InstancesV2 and Instances.

    Follows: controllers/nodelifecycle/node_lifecycle_controller.go of k8s.io/cloud-provider."""

    NAME = "cloud-node-lifecycle-controller"
    CLIENT = "node-controller"

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: NodeLifecycleOptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not cloud.has_instances:
            raise ValueError(
                f"cloud provider {cloud.provider_name!r} offers no instances, so the state of nodes is unknown"
            )
        self._options = options = options or NodeLifecycleOptions()
        super().__init__(clients, options, metrics, clock)
        informer = informers.informer(NODES)
        period = options.node_monitor_period
        candidates, now = Candidates(), clock.monotonic()
        limit = Limit(options.limit, options.window, now=now, quiet=2 * period + _LONGEST_PAUSE)
        own = NodeLifecycleMetrics(self._metrics, candidates, limit, clock, options.unknown_event_after)
        shared = self._shared = Shared(
            informer.lister, candidates, Samples(period), self._recorder, clock, options, cloud.provider_id_prefixes
        )
        # An unknown is asked about again at the sweep's pace, then slower: the cloud is in trouble.
        backoff = Backoff(base=min(period, _LONGEST_PAUSE), cap=_LONGEST_PAUSE)
        queue = self._keys = self._queue("NodeLifecycle", backoff=backoff, min_interval=min(_MIN_INTERVAL, period / 2))
        self._reports = reports = Reports(shared, cloud, own)
        self._writer = NodeWriter(self._rest, shared, own)
        self._triggers = NodeLifecycleTriggers(queue, shared, self._writer)
        self._reconciler = reconciler = NodeLifecycleReconciler(shared, cloud, self._writer, reports, limit)
        self._watch(informer, self._triggers)
        self._every(period, "sweep", self._sweep)
        self._add_batch_worker(
            queue,
            reconciler.fetch,
            reconciler.reconcile,
            batching=cloud.batching(_BATCH_FETCHERS),
            threads=options.concurrent_node_lifecycle_syncs,
            failures=FailureHandling(expected=(CloudCallError,), noun="node", controller=self.NAME),
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """One (name, healthy, detail) for each worker and for deletions held back. Thread-safe.

        Nodes held back are healthy: ending the process would not improve the cloud's answers."""
        detail = f"{self._shared.candidates.held} nodes said to be gone are held back"
        return [*super().health(), ("NodeDeletionBreaker", True, detail)]

    def undecided(self) -> list[tuple[str, str, bool]]:
        """("node/NAME", why, whether it only waits) of nodes said to be gone. Thread-safe."""
        return [
            (f"node/{name}", f"held back: {why}" if one.held else why, not one.held)
            for name, one in self._shared.candidates.all()
            if one.state is InstanceState.GONE
            for why in [self._reports.why(one)]
        ]

    def left_alone(self) -> list[tuple[str, str]]:
        """("node/NAME", why) of nodes that an administrator keeps us from. Thread-safe."""
        why = f"not deleted and not tainted, whatever the cloud says of its machine: label {LABEL_HANDS_OFF}"
        return [(f"node/{name}", why) for name in self._triggers.survey().hands_off]

    def release_breaker(self) -> int:
        """Release the nodes that are held back now; returns how many. Thread-safe.

        Each is deleted if the cloud still says that it is gone. Nodes held back later stay held.
        """
        count = self._shared.candidates.release_held()
        log.warning(
            "SIGUSR1: %d nodes that were held back are deleted if the cloud still says that they are gone", count
        )
        return count

    def _sweep(self) -> None:
        shared, began = self._shared, self._shared.now()
        survey = self._triggers.survey()
        shared.candidates.keep(survey.not_ready)
        shared.samples.look(survey.ready, (one.sample for _, one in shared.candidates.all() if one.sample))
        self._reconciler.observe(survey.owned, calm=not shared.candidates.lasting_unknowns(began, 0.0))
        self._reports.left_alone(survey.hands_off)
        self._reports.survey()
        self._writer.sweep()
        due = self._triggers.due(survey)
        # Before the first key is queued: it may be worked on before the next line runs.
        self._reports.metrics.sweep_began(began, due)
        for name, priority in due.items():
            self._keys.add(name, priority)
        log.debug("checking %d nodes in the cloud", len(due))
