"""The node IPAM controller: every node gets its ranges of pod addresses, once, and no two nodes get the same.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> patch (6), and with CloudAllocator the cloud
call (5) before. Runs in the manager, or alone in a program of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controllers.cloudcalls import CloudCallError
from controllers.nodeipam.assigner import Assigner
from controllers.nodeipam.blocks import Blocks
from controllers.nodeipam.changes import facts_of
from controllers.nodeipam.cloudchoice import Answer, CloudReconciler, NotChosenYet, RangesOverlap
from controllers.nodeipam.ledger import Ledger
from controllers.nodeipam.metrics import NodeIPAMMetrics
from controllers.nodeipam.reconcile import NoRangeLeft, RangeReconciler
from controllers.nodeipam.rival import Rival
from controllers.nodeipam.takeover import Takeover
from controllers.nodeipam.triggers import START, WAITING, NodeTriggers
from controllers.nodeipam.waiting import Waiting
from controllers.runtime.cache import NODES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Backoff, Batching, BatchWorker, FailureHandling, Worker, WorkQueue
from controllers.runtime.run import Periodic, run_until
from controllers.runtime.write import EventRecorder

if TYPE_CHECKING:
    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.nodeipam.options import NodeIPAMOptions
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory

NAME = "node-ipam-controller"
COMPONENT = "cidrAllocator"
"""What Events say that they come from, as with Go."""
IDENTITY = "node-controller"
_FIRST = 20
"""Priority of the listing, for which all others wait."""
_BACKOFF = Backoff(base=0.2, cap=60.0)
_SWEEP = 60.0  # seconds
_ANSWERS = Batching(max_batch=256, linger=0.02, fetchers=4)
_SETTLING = 30.0  # seconds that the takeover may take until health calls it a matter


class NodeIPAMController:
    """Gives each node a range of each cluster CIDR, or the ranges that the cloud chose for it.

    Takes what every controller takes: clients, shared informers, the gateway to one provider; and `options`, which name
    the cluster's CIDRs. It does not start the informers. `run` may be called once. One at a time may run in a cluster:
    the manager's lease sees to that, and a program of your own must.

    Raises ValueError at construction when the options contradict each other, or the provider is to choose and does not
    (`pod_cidrs()` returns None).

    Follows: pkg/controller/nodeipam of Kubernetes, its range allocator.
    """

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: NodeIPAMOptions,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        sizes = options.mask_sizes()
        if options.cloud_chooses and not cloud.chooses_pod_cidrs:
            raise ValueError(
                f"cloud provider {cloud.provider_name!r} chooses no pod CIDRs: its pod_cidrs() returns None"
            )
        self._options = options
        self._clock = clock
        metrics = metrics or Metrics()
        rest = clients.rest(IDENTITY)
        self._informer = informers.informer(NODES)
        lister = self._informer.lister
        self._recorder = EventRecorder(rest, COMPONENT, clock=clock, metrics=metrics)
        own = NodeIPAMMetrics(metrics, lister, lambda node: facts_of(node).waits, clock)
        self._queue: WorkQueue[str] = WorkQueue("NodeIPAM", clock=clock, metrics=metrics, backoff=_BACKOFF)
        self._triggers = NodeTriggers(self._queue)
        self._takeover = takeover = Takeover()
        self._rival = rival = Rival(rest.user_agent.partition("/")[0], self._recorder, own)
        waiting = Waiting(lambda name: self._queue.add(name, WAITING))
        chosen_here = () if options.cloud_chooses else options.cluster_cidrs
        pools = [Blocks(net, sizes[net.version]) for net in chosen_here]
        ledger = Ledger(pools, options.service_cidrs, own.changed, own.searched)
        for pool in pools:
            own.pool(pool)
        self._began = clock.monotonic()
        self._assigner = Assigner(rest, lister, ledger, takeover, waiting, rival, self._recorder, own)
        self._worker: Worker[str] | BatchWorker[str, Answer]
        if options.cloud_chooses:
            chooser = CloudReconciler(cloud, lister, self._assigner, ledger, takeover, waiting, rival, self._recorder)
            self._worker = BatchWorker(
                self._queue,
                chooser.fetch,
                chooser.reconcile,
                batching=_ANSWERS,
                threads=options.concurrent_node_ipam_syncs,
                failures=FailureHandling(
                    on_error=chooser.failed,
                    expected=(CloudCallError, NotChosenYet, RangesOverlap),
                    noun="node",
                    controller=NAME,
                    recall=cloud.outage,
                ),
                metrics=metrics,
                clock=clock,
            )
        else:
            reconciler = RangeReconciler(rest, lister, self._assigner, ledger, takeover, waiting, rival, self._recorder)
            self._worker = Worker(
                self._queue,
                reconciler.reconcile,
                threads=options.concurrent_node_ipam_syncs,
                failures=FailureHandling(
                    on_error=reconciler.failed, expected=(NoRangeLeft,), noun="node", controller=NAME
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
        self._began = self._clock.monotonic()
        run_until(
            stop,
            component=NAME,
            registrations=lambda: [self._informer.add_handler(triggers.on_add, triggers.on_update, triggers.on_delete)],
            workers=[self._worker],
            recorder=self._recorder,
            drain_timeout=self._options.drain_timeout,
            clock=self._clock,
            begin=lambda: self._queue.add(START, _FIRST),
            periodic=[Periodic("sweep", _SWEEP, lambda: self._assigner.sweep(self._queue))],
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """(name, healthy, detail) of the worker; see `Worker.health`. Thread-safe."""
        return [self._worker.health()]

    def remarks(self) -> list[tuple[str, bool, str]]:
        """Whether ranges can be given out: what keeps them back no restart would mend. Thread-safe."""
        verdict = self._rival.verdict
        found = [("other-allocator", not verdict, verdict)]
        if not self._takeover.over:
            names = self._takeover.names()
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            waits = f"{len(names)} nodes have to be changed once before ranges are given out: {some}"
            found.append(
                (
                    "takeover",
                    self._clock.monotonic() - self._began < _SETTLING,
                    waits if self._takeover.begun else "the nodes have not been listed yet",
                )
            )
        return found
