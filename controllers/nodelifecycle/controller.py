"""The cloud-node-lifecycle controller: deletes nodes whose instance is gone, taints those shut
down.

Wires the stages: informer (2) -> triggers -> queue (3) -> fetch (5) -> reconcile (4) -> patch or
delete (6). Runs in the manager, or alone in a program of your own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.nodelifecycle.deletion_gate import DeletionGate
from controllers.nodelifecycle.deletion_policy import Breaker
from controllers.nodelifecycle.deletion_votes import DeletionVotes
from controllers.nodelifecycle.events import OwnerEvents
from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
from controllers.nodelifecycle.options import NodeLifecycleOptions
from controllers.nodelifecycle.reconcile import NodeLifecycleReconciler
from controllers.nodelifecycle.replaced import Machines
from controllers.nodelifecycle.shared import Shared
from controllers.nodelifecycle.triggers import TIDY, NodeLifecycleTriggers
from controllers.nodelifecycle.witnesses import Witnesses
from controllers.nodelifecycle.writeback import NodeWriter
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_FLOOR = 1.0
_LONGEST_PAUSE = 60.0
_BATCH_FETCHERS = 8
_AGAIN = 10
"""Ready nodes (or batches) said to be gone that each look asks about again."""


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
        votes = DeletionVotes()
        breaker = Breaker(options.breaker, now=clock.monotonic(), quiet=2 * period + _LONGEST_PAUSE)
        batch = cloud.max_batch
        witnesses = Witnesses(
            options.breaker.witnesses * batch, again=_AGAIN * batch, grace=options.breaker.ready_grace
        )
        own = NodeLifecycleMetrics(self._metrics, votes, witnesses, breaker, clock, options.unknown_event_after)
        shared = self._shared = Shared(
            informer.lister, votes, witnesses, Machines(), self._recorder, own, clock, options
        )
        self._gate = DeletionGate(shared, breaker)
        # An unknown is asked about again at the sweep's pace, then slower: the cloud is in trouble.
        backoff = Backoff(base=min(period, _LONGEST_PAUSE), cap=_LONGEST_PAUSE)
        queue = self._queue("NodeLifecycle", backoff=backoff, floor=min(_FLOOR, period / 2))
        successors = self._queue("NodeSuccessor", backoff=backoff)
        self._triggers = NodeLifecycleTriggers(queue, shared, cloud.provider_id_prefixes)
        self._events = OwnerEvents(shared, cloud)
        self._writer = NodeWriter(self._rest, shared, self._triggers.attention)
        self._reconciler = reconciler = NodeLifecycleReconciler(
            shared, cloud, self._writer, self._gate, self._triggers, successors
        )
        self._watch(informer, self._triggers)
        self._every(period, "sweep", self._sweep)
        batching = cloud.batching(_BATCH_FETCHERS)
        failures: FailureHandling[str] = FailureHandling(expected=(CloudCallError,), noun="node", controller=self.NAME)
        for keys, fetch, reconcile, threads in (
            (queue, reconciler.fetch, reconciler.reconcile, options.concurrent_node_lifecycle_syncs),
            (successors, self._events.fetch_successors, self._events.report_successor, 1),
        ):
            self._add_batch_worker(keys, fetch, reconcile, batching=batching, threads=threads, failures=failures)

    def run(self, stop: StopSignal) -> None:
        super().run(stop)
        self._writer.end()

    def health(self) -> list[tuple[str, bool, str]]:
        """One (name, healthy, detail) for each worker and for deletions held back. Thread-safe.

        Nodes held back are healthy: ending the process would not improve the cloud's answers."""
        detail = f"{self._shared.votes.held()} nodes said to be gone are held back"
        return [*super().health(), ("NodeDeletionBreaker", True, detail)]

    def undecided(self) -> list[tuple[str, str, bool]]:
        """("node/NAME", why, whether it only waits) of nodes said to be gone. Thread-safe."""
        return [
            (f"node/{name}", f"held back: {why}" if votes.held else why, not votes.held)
            for name, votes in self._shared.votes.gone()
            for why in [self._gate.why(votes)]
        ]

    def release_breaker(self) -> int:
        """Release the nodes that are held back now; returns how many. Thread-safe.

        Each is deleted if the cloud still says that it is gone. Nodes held back later stay held.
        """
        return self._gate.release()

    def _sweep(self) -> None:
        began = self._shared.now()
        survey = self._triggers.survey()
        self._shared.votes.keep(survey.not_ready)
        calm = not self._shared.votes.lasting_unknowns(self._shared.now(), 0.0)
        self._gate.survey(survey.owned, calm)
        self._events.report_unknown()
        if self._options.breaker.enabled:
            self._triggers.call_witnesses()
        else:
            self._shared.witnesses.look({})  # nobody asks for what was filed of them: it goes
        due = self._triggers.due(survey) | dict.fromkeys(self._writer.unfinished(), TIDY)
        self._shared.metrics.sweep_began(began, due)
        self._triggers.enqueue(due)
        log.debug("checking %d nodes in the cloud", len(due))
