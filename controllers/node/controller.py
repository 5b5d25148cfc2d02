"""The cloud-node controller: initialises nodes that join, and keeps addresses and labels as the cloud has them.

Wires the stages: informer (2) -> triggers -> queue (3) -> fetch (5) -> reconcile (4) -> patch (6). Runs in the manager,
or alone in a program of your own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cloudprovider.helpers.addresses import NodeIPError
from cloudprovider.helpers.providerid import provider_id_of
from cloudprovider.helpers.taints import needs_initialization
from controllers.cloudcalls import CloudCallError, InvalidAnswer
from controllers.node.changes import InstanceReplaced
from controllers.node.memory import NodeMemory
from controllers.node.metrics import NodeMetrics
from controllers.node.options import CloudNodeOptions
from controllers.node.reconcile import NodeReconciler
from controllers.node.triggers import NodeTriggers
from controllers.runtime.cache import NODES
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import BatchWorker, FailureHandling, Parked, WorkQueue
from controllers.runtime.run import Periodic, run_until
from controllers.runtime.write import EventRecorder

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from cloudprovider.host import StopSignal
    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.cache import InformerFactory

log = logging.getLogger(__name__)

COMPONENT = "cloud-node-controller"
IDENTITY = "node-controller"
_FLOOR = 1.0
_BATCH_FETCHERS = 4


class CloudNodeController:
    """Initialises nodes with the uninitialized taint, and refreshes initialised ones.

    Takes what every controller takes: clients, shared informers, the gateway to one provider. It does not start the
    informers. `run` may be called once.

    Raises ValueError at construction when the provider offers none of InstancesBatch, InstancesV2 and Instances.

    Follows: controllers/node/node_controller.go of k8s.io/cloud-provider.
    """

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: CloudNodeOptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not cloud.has_instances:
            raise ValueError(
                f"cloud provider {cloud.provider_name!r} offers no instances, so nodes cannot be initialised"
            )
        self._options = options or CloudNodeOptions()
        self._clock = clock
        metrics = metrics or Metrics()
        rest = clients.rest(IDENTITY)
        self._informer = informers.informer(NODES)
        self._recorder = EventRecorder(rest, COMPONENT, clock=clock, metrics=metrics)
        lister = self._informer.lister
        nodes: WorkQueue[str] = WorkQueue("Nodes", clock=clock, metrics=metrics, floor=_FLOOR)
        refreshes: WorkQueue[str] = WorkQueue("NodeRefresh", clock=clock, metrics=metrics, floor=_FLOOR)
        self._cloud = cloud
        self._memory = memory = NodeMemory(self._options.node_status_update_frequency)
        own_metrics = NodeMetrics(metrics, lister, memory, clock)
        reconciler = NodeReconciler(rest, lister, cloud, self._recorder, own_metrics, clock, memory)
        self._triggers = NodeTriggers(
            nodes,
            refreshes,
            lister,
            cloud.provider_id_prefixes,
            memory,
            clock,
            on_foreign=self._foreign,
            on_gone=cloud.forget_node,
        )
        batching = cloud.batching(_BATCH_FETCHERS)
        failures = FailureHandling(
            on_error=self._failed,
            expected=(CloudCallError, NodeIPError, InstanceReplaced),
            noun="node",
            controller=COMPONENT,
            recall=cloud.outage,
        )
        syncs = self._options.concurrent_node_syncs
        self._workers = (
            BatchWorker(
                nodes,
                reconciler.fetch_new,
                reconciler.initialize,
                batching=batching,
                threads=syncs,
                failures=failures,
                metrics=metrics,
                clock=clock,
            ),
            BatchWorker(
                refreshes,
                reconciler.fetch_known,
                reconciler.refresh,
                batching=batching,
                threads=self._options.concurrent_node_status_updates or syncs,
                failures=failures,
                metrics=metrics,
                clock=clock,
            ),
        )

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then finish what is under way and return. Blocks; to be called once.

        Waits for the informer's first listing before it begins. Keys that still wait when it stops are worked off in
        the drain time; the next manager finds the nodes of those that were left by listing them.
        """
        triggers = self._triggers
        run_until(
            stop,
            component=COMPONENT,
            registrations=lambda: [self._informer.add_handler(triggers.on_add, triggers.on_update, triggers.on_delete)],
            workers=self._workers,
            recorder=self._recorder,
            drain_timeout=self._options.drain_timeout,
            clock=self._clock,
            periodic=[Periodic("refresh", self._options.node_status_update_frequency, self._sweep)],
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """One (name, healthy, detail) per worker; see `Worker.health`. Thread-safe."""
        return [worker.health() for worker in self._workers]

    def _sweep(self) -> None:
        log.debug("refresh of %d nodes is due", self._triggers.sweep())

    def _foreign(self, node: V1Node) -> None:
        """Tell a tainted node's owner, once, that it waits for somebody else."""
        if not self._memory.of(node).say_once("ForeignProviderID"):
            return
        prefixes = " or ".join(self._cloud.provider_id_prefixes) or "anything: this cloud has no provider IDs"
        self._recorder.event(
            node,
            "Warning",
            "ForeignProviderID",
            f"This node waits to be initialised, but not by this manager: its spec.providerID "
            f"{provider_id_of(node)} does not begin with {prefixes}, so it belongs to another "
            "cloud provider. If none is at work, correct the kubelet's --provider-id, delete the Node object and "
            "restart the kubelet",
        )

    def _failed(self, key: str, error: Exception) -> None:
        """Tell the node's owner why it is not ready; the worker tries again by itself."""
        node = self._informer.lister.get(key)
        if node is None:
            return
        new = needs_initialization(node)
        if isinstance(error, NodeIPError):
            reason = "ProvidedNodeIPMismatch"
        elif isinstance(error, InstanceReplaced):
            reason = "ProviderIDMismatch"
        elif isinstance(error, Parked):
            reason = "CloudCallOverdue"
        elif isinstance(error, InvalidAnswer):
            reason = "InvalidInstanceMetadata"
        else:
            reason = "FailedToInitializeNode" if new else "FailedToRefreshNode"
        consequence = "the node stays tainted until this succeeds" if new else "the node keeps what it has"
        self._recorder.event(node, "Warning", reason, f"{error} ({consequence})")
