"""The node IPAM controller: every node gets its ranges of pod addresses, once, no two the same.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> patch (6), and with
CloudAllocator the cloud call (5) before. Runs in the manager, or alone in a program of your own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cloudprovider.helpers.objects import pod_cidrs_of
from cloudprovider.internal.backoff import Backoff
from controllers.cloudcalls import CloudCallError
from controllers.nodeipam.allocations import Allocations
from controllers.nodeipam.assigner import REST, WAITING, Assigner, PendingNodes
from controllers.nodeipam.cidr_set import CIDRSet
from controllers.nodeipam.guards import ConflictDetector, StartupBarrier, facts_of
from controllers.nodeipam.metrics import NodeIPAMMetrics
from controllers.nodeipam.reconcile import (
    START,
    CloudReconciler,
    NoRangeLeft,
    NotChosenYet,
    RangeReconciler,
    RangesOverlap,
)
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory, key_of, uid_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import Batching, FailureHandling

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.nodeipam.registration import NodeIPAMOptions
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.queue import WorkQueue

_FIRST = 20
"""Priority of the listing, for which all others wait."""
_BACKOFF = Backoff(base=0.2, cap=60.0)
_SWEEP = 60.0  # seconds
_ANSWERS = Batching(max_batch=256, linger=0.02, fetchers=4)
_SETTLING = 30.0  # seconds that the barrier may be closed before health reports it


class NodeIPAMController(ControllerBase):
    """Gives each node a range of each family of the cluster CIDRs, or those that the cloud chose.

    Takes what every controller takes: clients, shared informers, the gateway to one provider; and
    `options`, which name the cluster's CIDRs. It does not start the informers. `run` may be called
    once. One at a time may run in a cluster: the manager's lease sees to that, and a program of
    your own must.

    Raises ValueError at construction when the options contradict each other, or the provider is to
    choose and does not (`pod_cidrs()` returns None).

    Follows: pkg/controller/nodeipam of Kubernetes, its range allocator.
    """

    NAME = "node-ipam-controller"
    CLIENT = "node-controller"
    EVENT_SOURCE = "cidrAllocator"  # as with Go

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
        super().__init__(clients, options, metrics, clock)
        informer = informers.informer(NODES)
        own = NodeIPAMMetrics(self._metrics, informer.lister, lambda node: facts_of(node).waits, clock)
        self._keys = queue = self._queue("NodeIPAM", backoff=_BACKOFF)
        self._barrier = StartupBarrier(clock)
        self._detector = ConflictDetector(self._rest.user_agent.partition("/")[0], self._recorder, own)
        pending = PendingNodes(queue)
        # None where the cloud chooses: then nothing is given out here, only compared.
        pools = [CIDRSet(net, sizes[net.version]) for net in (() if options.cloud_chooses else options.cluster_cidrs)]
        allocations = Allocations(pools, options.service_cidrs, own.changed, own.searched)
        for pool in pools:
            own.pool(pool)
        own.lacking_family(allocations.lacking_family)
        self._began = clock.monotonic()
        self._assigner = Assigner(
            self._rest,
            informer.lister,
            allocations,
            self._barrier,
            pending,
            self._detector,
            self._recorder,
            own,
            clock,
            rests=0.0 if options.cloud_chooses else REST,
            queue=queue,
        )
        self._watch(informer, NodeTriggers(queue, self._assigner.lacks))
        self._every(_SWEEP, "sweep", self._assigner.sweep)
        self._reconciler: CloudReconciler | RangeReconciler
        if options.cloud_chooses:
            self._reconciler = chooser = CloudReconciler(cloud, self._assigner)
            self._add_batch_worker(
                queue,
                chooser.fetch,
                chooser.reconcile,
                batching=_ANSWERS,
                threads=options.concurrent_node_ipam_syncs,
                failures=FailureHandling(
                    on_error=chooser.failed,
                    on_wait=chooser.waits,
                    expected=(CloudCallError, NotChosenYet, RangesOverlap),
                    noun="node",
                    controller=self.NAME,
                ),
            )
        else:
            self._reconciler = reconciler = RangeReconciler(self._assigner)
            self._add_worker(
                queue,
                reconciler.reconcile,
                threads=options.concurrent_node_ipam_syncs,
                failures=FailureHandling(
                    on_error=reconciler.failed, expected=(NoRangeLeft,), noun="node", controller=self.NAME
                ),
            )

    def run(self, stop: StopSignal) -> None:
        self._began = self._clock.monotonic()
        super().run(stop)

    def _begin(self) -> None:
        self._keys.add(START, _FIRST)

    def notes(self) -> list[tuple[str, bool, str]]:
        """Whether ranges can be given; no restart would fix what prevents it. Thread-safe."""
        verdict = self._detector.verdict
        found = [("other-allocator", not verdict, verdict)]
        # Only while it matters: after a takeover this is often open within a second.
        if not self._barrier.over:
            names = self._barrier.names()
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            waits = f"{len(names)} nodes have to be changed once before ranges are given out, or 3 minutes pass: {some}"
            found.append(
                (
                    "takeover",
                    self._clock.monotonic() - self._began < _SETTLING,
                    waits if self._barrier.begun else "the nodes have not been listed yet",
                )
            )
        return found


class NodeTriggers:
    """The informer's handler: whether there may be work, never what the work is. Called from the
    informer's thread.

    `on_lacking` is called with each node that came without ranges: when its key is worked on, it
    may have some already.
    """

    def __init__(self, queue: WorkQueue[str], on_lacking: Callable[[V1Node], object]) -> None:
        self._queue = queue
        self._on_lacking = on_lacking

    def on_add(self, node: V1Node, initial: bool) -> None:
        self._add(node)

    def on_update(self, old: V1Node, new: V1Node) -> None:
        # A heartbeat must not bypass the back-off of a node that waits.
        if _relevant(old) != _relevant(new):
            self._add(new)

    def on_delete(self, node: V1Node) -> None:
        self._queue.add(key_of(node), WAITING)  # others may wait for its ranges

    def _add(self, node: V1Node) -> None:
        lacking = not pod_cidrs_of(node)
        if lacking:
            self._on_lacking(node)
        self._queue.add(key_of(node), WAITING if lacking else 0)


def _relevant(node: V1Node) -> tuple[object, ...]:
    meta = node.metadata
    return uid_of(node), pod_cidrs_of(node), meta is not None and meta.deletion_timestamp is not None
