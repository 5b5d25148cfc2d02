"""Stage 4: RECONCILE. Takes a node's name, and decides about the newest request of its kubelet:
asks the cloud about the machine (stage 5), and approves (stage 6), or leaves it pending and says
why.

Nothing is denied: a denial is final, and the kubelet would send the same again. Whoever knows
better approves by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cloudprovider import InstanceMetadata, InstanceNotFound
from cloudprovider.helpers.objects import key_of
from cloudprovider.helpers.providerid import Ownership, ownership, provider_id_of
from controllers.cloudcalls import PRIORITY_NEW, Answer, CloudCallError
from controllers.kubeletcsr.decide import NotYet, by_name_alone, mismatches, not_on_node, not_ready
from controllers.kubeletcsr.request import Refused, Request, is_decided, read
from controllers.runtime.api import ObjectNotFound, RestClient
from controllers.runtime.cache import KUBELET_SERVING_REQUESTS, Lister
from controllers.runtime.queue import DONE, Parked, Result, TerminalError
from controllers.runtime.write import EventRecorder, ObjectReplaced, Patch, apply, to_json

if TYPE_CHECKING:
    from kubernetes.client.models.v1_certificate_signing_request import V1CertificateSigningRequest
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

TRIES: Final = 20
"""With the back-off, about the quarter of an hour for which a kubelet waits: then it sends another
request, with another key."""

_QUIET: Final = 2
"""So many tries fail without an Event: a Node that has just joined is often a moment behind."""


class GivenUp(TerminalError):
    """The kubelet waits for this request no longer. Why it was not approved was told before."""


class KubeletCSRReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key.

    `newest` names the newest request of a node, `tries` how often its key has failed."""

    def __init__(
        self,
        rest: RestClient,
        requests: Lister[V1CertificateSigningRequest],
        nodes: Lister[V1Node],
        cloud: CloudCalls,
        recorder: EventRecorder,
        metrics: KubeletCSRMetrics,
        newest: Callable[[str], str],
        tries: Callable[[str], int],
    ) -> None:
        self._rest = rest
        self._requests = requests
        self._nodes = nodes
        self._cloud = cloud
        self._recorder = recorder
        self._metrics = metrics
        self._newest = newest
        self._tries = tries

    def reconcile(self, key: str) -> Result:
        """Approve the kubelet's newest request if nothing speaks against it. Raises Refused for
        good, NotYet, and what cloud and API server answered."""
        name = self._newest(key)
        csr = self._requests.get(name) if name else None
        if csr is None or is_decided(csr):
            return DONE
        request, node = read(csr), self._nodes.get(key)
        # Approved later, the certificate would reach nobody: the kubelet has made another key.
        if self._tries(key) >= TRIES:
            raise GivenUp(f"request {name} waits no longer: the kubelet sends another one")
        # What costs no question comes first: a kubelet may send any number of requests.
        prefixes = self._cloud.provider_id_prefixes
        waits = not_ready(node, key, has_ids=bool(prefixes))
        if waits or node is None:
            raise NotYet(waits)
        if ownership(provider_id_of(node), prefixes) is Ownership.FOREIGN:
            return DONE  # another cloud's machine: its manager decides
        if against := not_on_node(request, node):
            raise NotYet("; ".join(against))
        against = mismatches(request, node, self._by_name(node))
        if against and provider_id_of(node):
            # The machine is proved now. Which of its addresses it uses may be its kubelet's choice:
            # `helpers.host_address` takes the --node-ip.
            against = mismatches(request, node, self._ask(node))
        if against:
            raise NotYet("; ".join(against))
        self._approve(csr, node, request)
        return DONE

    def failed(self, key: str, error: Exception) -> None:
        """Report why the request stays pending; the worker tries again by itself, unless that is
        of no use."""
        if isinstance(error, Refused):
            self._metrics.refused()
        node, name = self._nodes.get(key), self._newest(key)
        # Every node that joins would have a Warning otherwise, for a moment's delay.
        early = isinstance(error, NotYet) and self._tries(key) <= _QUIET
        if node is None or early or isinstance(error, GivenUp):
            return
        rest = "It is tried again"
        if isinstance(error, Parked):
            rest = "It is tried again when that call has ended"
        elif isinstance(error, Refused):
            rest = f"It stays pending. If it is right all the same: kubectl certificate approve {name}"
        text = f"The request {name} of its kubelet for a serving certificate is not approved: {error}. {rest}"
        self._recorder.event(node, "Warning", "KubeletCertificateNotApproved", text)

    def _by_name(self, node: V1Node) -> InstanceMetadata:
        """What the cloud says of the machine that it knows by the node's name. Raises NotYet where
        its provider ID is not the Node's."""
        try:
            metadata = self._ask(by_name_alone(node))
        except InstanceNotFound as error:
            raise NotYet(f"the cloud knows no machine by the name of node {key_of(node)}: {error}") from error
        own = provider_id_of(node)
        # Another machine has the name in the cloud: its addresses are not this Node's.
        if not self._cloud.same_provider_id(own, metadata.provider_id):
            raise NotYet(f"the machine of this name is {metadata.provider_id}, and the Node has the provider ID {own}")
        return metadata

    def _ask(self, node: V1Node) -> InstanceMetadata:
        """What the cloud says of the machine now, not from memory: an address may have moved."""
        answers: list[Answer[InstanceMetadata]] = []
        self._cloud.fetch_metadata([node], lambda _, answer: answers.append(answer), priority=PRIORITY_NEW)
        return answers[0].of(node)

    def _approve(self, csr: V1CertificateSigningRequest, node: V1Node, request: Request) -> None:
        name = key_of(csr)
        asked = ", ".join([*map(str, sorted(request.ips, key=str)), *sorted(request.names)])
        approval = {
            "type": "Approved",
            "status": "True",
            "reason": "ConfirmedByCloud",
            "message": f"The cloud confirms {asked} of {provider_id_of(node) or 'the machine'}, node {request.node}",
        }

        def plan(fresh: V1CertificateSigningRequest) -> list[Patch]:
            # Somebody else was faster; a denial of theirs stands.
            if is_decided(fresh):
                return []
            # The list is written whole, so onto the version that it was made from. Of all else the
            # API server keeps what it has: this subresource changes conditions alone.
            conditions = fresh.status.conditions if fresh.status is not None else None
            body = {"status": {"conditions": [*map(to_json, conditions or ()), approval]}}
            return [Patch(body, subresource="approval", versioned=True)]

        path = KUBELET_SERVING_REQUESTS.key_path(name)
        try:
            done = apply(self._rest, path, csr, plan, KUBELET_SERVING_REQUESTS.parse)
        except (ObjectNotFound, ObjectReplaced):
            return  # the kubelet's next request has an event of its own
        if done is not None:
            self._metrics.approved()
            log.info("approved the serving certificate of node %s (request %s): %s", request.node, name, asked)


class KubeletCSRMetrics:
    """What became of requests, and how many wait. Thread-safe. `newest` are the newest requests of
    all nodes."""

    def __init__(
        self, metrics: Metrics, requests: Lister[V1CertificateSigningRequest], newest: Callable[[], list[str]]
    ) -> None:
        decisions = metrics.counter(
            "kubelet_serving_csr_decisions_total",
            "Requests of kubelets for serving certificates: approved, or refused for good (those stay pending).",
            ["decision"],
        )
        self._approved, self._refused = decisions.labels("approved"), decisions.labels("refused")
        metrics.gauge(
            "kubelet_serving_csr_pending_nodes",
            "Nodes whose kubelet's newest request for a serving certificate is neither approved nor denied.",
        ).set_function(lambda: sum(csr is not None and not is_decided(csr) for csr in map(requests.get, newest())))

    def approved(self) -> None:
        """A request was approved."""
        self._approved.inc()

    def refused(self) -> None:
        """A request can never be approved."""
        self._refused.inc()


EXPECTED: Final[tuple[type[Exception], ...]] = (CloudCallError, NotYet)
"""What is logged without its stack."""
