"""The controller kubelet-serving-csr: kubelets get the serving certificates that the cloud's word
about their machines allows.

Wires the stages: informer (2) -> triggers -> queue (3) -> reconcile (4) -> cloud call (5) -> patch
(6). A key of the queue `KubeletServingCSRs` is a node's name. Runs in the manager, or alone in a
program of your own."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cloudprovider.internal.backoff import Backoff
from controllers.kubeletcsr.reconcile import EXPECTED, KubeletCSRMetrics, KubeletCSRReconciler
from controllers.kubeletcsr.registration import KubeletCSROptions
from controllers.kubeletcsr.request import is_decided, node_of
from controllers.runtime.base import ControllerBase
from controllers.runtime.cache import KUBELET_SERVING_REQUESTS, NODES, InformerFactory, key_of
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureHandling

if TYPE_CHECKING:
    from kubernetes.client.models.v1_certificate_signing_request import V1CertificateSigningRequest

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.api import ClientBuilder
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.queue import WorkQueue

log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(base=1.0, cap=60.0)
_LEAST: Final = 5.0
"""Seconds between two questions about one node: its kubelet may send any number of requests."""
_THREADS: Final = 10
_SKEW: Final = timedelta(minutes=1)
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class KubeletCSRController(ControllerBase):
    """Approves requests for the signer kubernetes.io/kubelet-serving whose addresses and names are
    the node's by the cloud's word. Others stay pending, with an Event on the Node.

    Takes what every controller takes: clients, shared informers, the gateway to one provider,
    `options`. It does not start the informers. `run` may be called once. Raises ValueError at
    construction when the provider cannot be asked about nodes.

    Follows: the approver of talos-cloud-controller-manager, with rules of our own.
    """

    NAME = "kubelet-serving-csr"
    CLIENT = "kubelet-serving-csr"

    def __init__(
        self,
        clients: ClientBuilder,
        informers: InformerFactory,
        cloud: CloudCalls,
        *,
        options: KubeletCSROptions | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not cloud.has_instances:
            raise ValueError(f"cloud provider {cloud.provider_name!r} cannot be asked about nodes: it has no instances")
        super().__init__(clients, options or KubeletCSROptions(), metrics, clock)
        requests, nodes = informers.informer(KUBELET_SERVING_REQUESTS), informers.informer(NODES)
        queue = self._queue("KubeletServingCSRs", backoff=_BACKOFF, min_interval=_LEAST)
        triggers = KubeletCSRTriggers(queue)
        reconciler = KubeletCSRReconciler(
            self._rest,
            requests.lister,
            nodes.lister,
            cloud,
            self._recorder,
            KubeletCSRMetrics(self._metrics, requests.lister, triggers.all_newest),
            triggers.newest,
            queue.num_requeues,
        )
        self._watch(requests, triggers)
        self._watch(nodes, object())  # no event of a Node is work, but its cache must be complete
        self._add_worker(
            queue,
            reconciler.reconcile,
            threads=_THREADS,
            failures=FailureHandling(on_error=reconciler.failed, expected=EXPECTED, controller=self.NAME, noun="node"),
        )


class KubeletCSRTriggers:
    """The informer's handler, and what it knows: the newest request of each node. Only that one is
    worth a question: the kubelet has forgotten the others, and a cluster without an approver has a
    hundred of each node. Thread-safe."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[datetime, str]] = {}

    def newest(self, node: str) -> str:
        """The name of the node's newest request, decided or not; "" without one."""
        with self._lock:
            return self._newest.get(node, (_LONG_AGO, ""))[1]

    def all_newest(self) -> list[str]:
        """The names of all nodes' newest requests."""
        with self._lock:
            return [name for _, name in self._newest.values()]

    def on_add(self, csr: V1CertificateSigningRequest, initial: bool) -> None:
        node, name = node_of(csr), key_of(csr)
        if not node:
            log.info("request %s is left alone: its sender %s is no kubelet", name, csr.spec.username)
            return
        created = (csr.metadata.creation_timestamp if csr.metadata is not None else None) or _LONG_AGO
        with self._lock:
            # What came last is the newest, unless a list brings an older one: lists have no order.
            # Two API servers' clocks may differ by less than that.
            if node in self._newest and created < self._newest[node][0] - _SKEW:
                return
            self._newest[node] = (created, name)
        if not is_decided(csr):
            self._queue.forget(node)  # another request: what failed for the last one counts no longer
            self._queue.add(node)

    def on_delete(self, csr: V1CertificateSigningRequest) -> None:
        node = node_of(csr)
        with self._lock:
            if self._newest.get(node, (_LONG_AGO, ""))[1] == key_of(csr):
                del self._newest[node]
        # Its key finds nothing to do at its next turn, and ends there.
