"""The cloud-node-lifecycle controller: deletes nodes whose instance is gone, and taints those that are shut down.

Wires the stages: informer (2) -> triggers -> queue (3) -> fetch (5) -> reconcile (4) -> patch or delete (6). Runs in
the manager, or alone in a program of your own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from controllers.cloudcalls import CloudCallError
from controllers.nodelifecycle.breaker import Breaker
from controllers.nodelifecycle.cases import Cases
from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
from controllers.nodelifecycle.notices import OwnerNotices
from controllers.nodelifecycle.options import NodeLifecycleOptions
from controllers.nodelifecycle.permits import Permits
from controllers.nodelifecycle.reconcile import NodeLifecycleReconciler, Policy
from controllers.nodelifecycle.triggers import NodeLifecycleTriggers
from controllers.nodelifecycle.witnesses import Witnesses
from controllers.nodelifecycle.writer import NodeWriter
from controllers.runtime.cache import NODES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Backoff, BatchWorker, FailureHandling, WorkQueue
from controllers.runtime.run import Periodic, run_until
from controllers.runtime.write import EventRecorder

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory

log = logging.getLogger(__name__)

COMPONENT = "cloud-node-lifecycle-controller"
IDENTITY = "node-controller"
_FLOOR = 1.0
_LONGEST_PAUSE = 60.0
_BATCH_FETCHERS = 8
_AGAIN = 10
"""Ready nodes said to be gone (batches of them, where there are batches) that are asked about again at each look."""
_ALARM_PERIODS = 12
"""Monitor periods after which a Ready node said to be gone raises the alarm: a minute, as the Node of a terminated
instance stays Ready for up to 50 s (kube-controller-manager's --node-monitor-grace-period)."""


class NodeLifecycleController:
    """Deletes and taints nodes that are not ready, by what their cloud says of their instances.

    Takes what every controller takes: clients, shared informers, the gateway to one provider. It does not start the
    informers. `run` may be called once.

    Raises ValueError at construction when the provider offers none of InstancesBatch, InstancesV2 and Instances.

    Follows: controllers/nodelifecycle/node_lifecycle_controller.go of k8s.io/cloud-provider.
    """

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
        self._clock = clock
        metrics = metrics or Metrics()
        rest = clients.rest(IDENTITY)
        self._informer = informers.informer(NODES)
        self._recorder = EventRecorder(rest, COMPONENT, clock=clock, metrics=metrics)
        period = options.node_monitor_period
        cases = Cases()
        breaker = Breaker(options.breaker, now=clock.monotonic(), quiet=2 * period + _LONGEST_PAUSE)
        batch = cloud.max_batch
        witnesses = Witnesses(options.breaker.witnesses * batch, again=_AGAIN * batch)
        self._cases = cases
        lister = self._informer.lister
        self._metrics = NodeLifecycleMetrics(metrics, cases, witnesses, breaker, clock, options.unknown_event_after)
        self._permits = Permits(
            lister,
            cases,
            witnesses,
            breaker,
            self._recorder,
            self._metrics,
            clock,
            alarm_after=_ALARM_PERIODS * period,
        )
        # An unknown is asked about again at the sweep's pace, then slower: the cloud is in trouble.
        backoff = Backoff(base=min(period, _LONGEST_PAUSE), cap=_LONGEST_PAUSE)
        floor = min(_FLOOR, period / 2)
        queue: WorkQueue[str] = WorkQueue("NodeLifecycle", clock=clock, metrics=metrics, backoff=backoff, floor=floor)
        successors: WorkQueue[str] = WorkQueue("NodeSuccessor", clock=clock, metrics=metrics, backoff=backoff)
        self._triggers = NodeLifecycleTriggers(
            queue,
            lister,
            cases,
            witnesses,
            cloud.provider_id_prefixes,
            grace=options.uninitialized_grace_period,
            out_of_service=options.out_of_service_taint,
            clock=clock,
        )
        self._notices = OwnerNotices(
            lister, cloud, self._recorder, cases, self._metrics, clock, unknown_after=options.unknown_event_after
        )
        self._writer = NodeWriter(rest, self._recorder, cases, self._triggers.attention, self._metrics, clock)
        reconciler = NodeLifecycleReconciler(
            lister,
            cloud,
            self._writer,
            successors,
            cases,
            witnesses,
            self._permits,
            self._triggers,
            Policy(
                confirmations=options.confirmations,
                period=options.confirmation_period or period,
                out_of_service=options.out_of_service_taint,
            ),
            self._metrics,
            clock,
        )
        batching = cloud.batching(_BATCH_FETCHERS)
        failures: FailureHandling[str] = FailureHandling(
            expected=(CloudCallError,), noun="node", controller=COMPONENT, recall=cloud.outage
        )
        self._workers = (
            BatchWorker(
                queue,
                reconciler.fetch,
                reconciler.reconcile,
                batching=batching,
                threads=options.concurrent_node_lifecycle_syncs,
                failures=failures,
                metrics=metrics,
                clock=clock,
            ),
            BatchWorker(
                successors,
                self._notices.fetch_successors,
                self._notices.tell_successor,
                batching=batching,
                threads=1,
                failures=failures,
                metrics=metrics,
                clock=clock,
            ),
        )

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then finish what is under way and return. Blocks; to be called once.

        Waits for the informer's first listing before it begins.
        """
        triggers = self._triggers
        run_until(
            stop,
            component=COMPONENT,
            registrations=lambda: [self._informer.add_handler(None, triggers.on_update, triggers.on_delete)],
            workers=self._workers,
            recorder=self._recorder,
            drain_timeout=self._options.drain_timeout,
            clock=self._clock,
            periodic=[Periodic("sweep", self._options.node_monitor_period, self._sweep)],
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """One (name, healthy, detail) for each worker and one for deletions that are held back. Thread-safe.

        Nodes held back are healthy: ending the process would not make the cloud's answers any better.
        """
        detail = f"{self._cases.held()} nodes said to be gone are held back"
        return [*(worker.health() for worker in self._workers), ("NodeDeletionBreaker", True, detail)]

    def undecided(self) -> list[tuple[str, str, bool]]:
        """("node/NAME", why, whether it only waits) of each node said to be gone that is still there. Thread-safe."""
        needed = self._options.confirmations
        found = []
        for name, case in self._cases.gone():
            if case.held:
                found.append((f"node/{name}", self._permits.held(name, case), False))
            elif case.answers < needed:
                waits = f"waits for answer {case.answers + 1} of {needed} that its instance is gone"
                found.append((f"node/{name}", waits, True))
            else:
                found.append((f"node/{name}", "waits for the cloud's word about the Ready nodes of its zone", True))
        return found

    def release_breaker(self) -> int:
        """Let the nodes go that are held back now: an operator's word. Returns how many they are. Thread-safe.

        Each is deleted if the cloud still says that it is gone. Nodes that are held back later are not meant.
        """
        return self._permits.release()

    def _sweep(self) -> None:
        began = self._clock.monotonic()
        survey = self._triggers.survey()
        self._cases.keep(survey.not_ready)
        calm = not self._cases.lasting_unknowns(self._clock.monotonic(), 0.0)
        self._permits.survey(survey.owned, calm)
        self._notices.tell_unknown()
        if self._options.breaker.enabled:
            self._triggers.call_all_witnesses()
        due = self._triggers.due(survey)
        self._metrics.sweep_began(began, due)
        self._triggers.enqueue(due)
        log.debug("checking %d nodes in the cloud", len(due))
