"""The cloud-node controller: initialises nodes that join, and follows the cloud's addresses and
labels.

Wires the stages: informer (2) -> triggers -> queue (3) -> fetch (5) -> reconcile (4) -> patch (6).
Runs in the manager, or alone in a program of your own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cloudprovider import InstanceNotFound, RetryError
from cloudprovider.helpers.addresses import AddressChoice, NodeIPError
from cloudprovider.helpers.objects import is_ready, needs_initialization
from cloudprovider.helpers.providerid import provider_id_of
from controllers.cloudcalls import CloudCallError, InvalidAnswer
from controllers.node.addresses import AddressesExcluded, NoIPAddress
from controllers.node.changes import InstanceReplaced, ProviderIDTaken
from controllers.node.memory import NodeMemory, NodeMetrics
from controllers.node.reconcile import OPEN_AFTER, NodeReconciler
from controllers.node.registration import CloudNodeOptions
from controllers.node.triggers import NodeTriggers
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import NODES, InformerFactory
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling, Parked, pending

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_MIN_INTERVAL = 1.0
_BATCH_FETCHERS = 4
_REASONS: Final[Mapping[type[Exception], str]] = {
    NodeIPError: "ProvidedNodeIPMismatch",
    AddressesExcluded: "AddressesExcluded",
    InstanceReplaced: "ProviderIDMismatch",
    Parked: "CloudCallOverdue",
    NoIPAddress: "AddressesMissing",
    ProviderIDTaken: "ProviderIDOnTwoNodes",
    InvalidAnswer: "InvalidInstanceMetadata",
}
"""Reasons of Events, by what keeps a node from being ready; anything else failed."""


class CloudNodeController(ControllerBase):
    """Initialises nodes with the uninitialized taint, and refreshes initialised ones.

    Takes what every controller takes: clients, shared informers, the gateway to one provider. It
    does not start the informers. `run` may be called once.

    Raises ValueError at construction without any of InstancesBatch, InstancesV2 and Instances.

    Follows: controllers/node/node_controller.go of k8s.io/cloud-provider."""

    NAME = "cloud-node-controller"
    CLIENT = "node-controller"

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
        options = options or CloudNodeOptions()
        super().__init__(clients, options, metrics, clock)
        informer = informers.informer(NODES)
        self._lister = lister = informer.lister
        nodes = self._queue("Nodes", min_interval=_MIN_INTERVAL)
        refreshes = self._queue("NodeRefresh", min_interval=_MIN_INTERVAL)
        self._cloud = cloud
        self._memory = memory = NodeMemory(options.node_status_update_frequency)
        own_metrics = NodeMetrics(self._metrics, lister, memory, clock)
        choice = AddressChoice(options.node_address_families, options.node_address_exclude)
        reconciler = NodeReconciler(
            self._rest, lister, cloud, self._recorder, own_metrics, clock, memory, options.routed, choice
        )
        self._triggers = NodeTriggers(nodes, refreshes, lister, cloud, memory, clock, self._foreign, self._shared)
        cloud.again.serve("Node", self._triggers.look_again)
        self._watch(informer, self._triggers)
        self._every(options.node_status_update_frequency, "refresh", self._sweep)
        batching = cloud.batching(_BATCH_FETCHERS)
        failures = FailureHandling(
            on_error=self._failed,
            on_wait=self._waits,
            expected=(CloudCallError, NodeIPError, AddressesExcluded, InstanceReplaced, NoIPAddress, ProviderIDTaken),
            noun="node",
            controller=self.NAME,
        )
        syncs = options.concurrent_node_syncs
        updates = options.concurrent_node_status_updates or syncs
        for queue, fetch, reconcile, threads in (
            (nodes, reconciler.fetch_new, reconciler.initialize, syncs),
            (refreshes, reconciler.fetch_known, reconciler.refresh, updates),
        ):
            self._add_batch_worker(queue, fetch, reconcile, batching=batching, threads=threads, failures=failures)

    def _sweep(self) -> None:
        log.debug("refresh of %d nodes is due", self._triggers.sweep())

    def _foreign(self, node: V1Node) -> None:
        """Report once that a tainted node belongs to another cloud provider."""
        # It waits for another manager, perhaps for good, and may have many events meanwhile.
        if not self._memory.of(node).report_once("ForeignProviderID"):
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

    def _shared(self, node: V1Node, others: Sequence[str]) -> None:
        """Report that a node's provider ID is on other Nodes, too."""
        self._recorder.event(
            node,
            "Warning",
            "ProviderIDOnTwoNodes",
            f"The provider ID {provider_id_of(node)} is on another Node, too: {', '.join(others[:3])}. If the host "
            "name of the machine was changed, delete the Node of the former name: it is not Ready any more, and "
            "stays as long as the machine exists",
        )

    def _waits(self, key: str, error: RetryError, long: bool) -> None:
        """Report what the cloud is at work on."""
        node = self._lister.get(key)
        if node is not None:
            kind, message = pending("this node's instance", error, long)
            taint = " (the node stays tainted meanwhile)" if needs_initialization(node) else ""
            self._recorder.event(node, kind, "InstancePending", f"{message}{taint}")

    def _failed(self, key: str, error: Exception) -> None:
        """Report why the node is not ready. The worker retries by itself."""
        node = self._lister.get(key)
        if node is None:
            return
        new = needs_initialization(node)
        otherwise = "FailedToInitializeNode" if new else "FailedToRefreshNode"
        reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), otherwise)
        if isinstance(error, ProviderIDTaken) and (other := self._lister.get(error.other)) is not None:
            text = f"Node {key} is to get the provider ID {error.provider_id} of this Node, too: see its Events"
            self._recorder.event(other, "Warning", "ProviderIDOnTwoNodes", text)
        consequence = "the node stays tainted until this succeeds" if new else "the node keeps what it has"
        if isinstance(error, NoIPAddress):
            taint = f"stays tainted meanwhile, for {OPEN_AFTER:.0f} s at most" if new else "is in use without one"
            consequence = f"the cloud is asked until one comes; the node {taint}"
        elif isinstance(error, InvalidAnswer) and error.usable is not None and not new:
            consequence = "the node keeps what it has of these fields; the others are written"
        elif isinstance(error, InstanceNotFound) and not new and is_ready(node):
            # The lifecycle controller asks about nodes that are not Ready alone, and a new process
            # has not seen which machine a node was on before.
            consequence = (
                "the node is Ready, so it stays. If its machine was replaced under its name, delete the Node and "
                "restart the kubelet, which registers only when it starts"
            )
        self._recorder.event(node, "Warning", reason, f"{error} ({consequence})")
