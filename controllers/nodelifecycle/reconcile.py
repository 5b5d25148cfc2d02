"""Stage 4: takes a node's key and the cloud's answer and does one unit of work, writing through stage 6.

`fetch` is the batch's question (stage 5) and `reconcile` what follows for each key. A node is deleted here and nowhere
else: after enough fresh answers "gone" in a row, when the breaker lets it, and only if the API server still has the
very object that was judged. An exception, a missing answer or an overdue call is never "gone".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from cloudprovider import InstanceMetadata, InstanceState
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.breaker import Admission, Breaker
from controllers.nodelifecycle.cases import Answer, Case, Cases, judged
from controllers.nodelifecycle.changes import Attention, is_ready, provider_id_of
from controllers.runtime.apierrors import ApiError, Conflict, NotFound, ServerError, Unreachable
from controllers.runtime.patch import ObjectReplaced, Patch, apply
from controllers.runtime.resources import NODES, key_of, uid_of, version_of
from controllers.runtime.worker import Result

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.nodelifecycle.triggers import Survey
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.events import EventRecorder
    from controllers.runtime.metrics import Metrics
    from controllers.runtime.restclient import RestClient
    from controllers.runtime.workqueue import WorkQueue

log = logging.getLogger(__name__)

Successor = tuple["V1Node", InstanceMetadata | Exception] | None
"""A node whose instance is gone, and what the cloud says of its name; None when it was not asked."""

_ATTEMPTS = 8
_DELETE_ATTEMPTS = 3


@frozen(kw_only=True)
class Policy:
    """What it takes to act; see `NodeLifecycleOptions`. Seconds."""

    confirmations: int
    period: float
    unknown_after: float
    out_of_service: bool


class NodeLifecycleReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        rest: RestClient,
        lister: Lister[V1Node],
        cloud: CloudCalls,
        recorder: EventRecorder,
        successors: WorkQueue[str],
        cases: Cases,
        breaker: Breaker,
        attention: Callable[[V1Node], Attention],
        policy: Policy,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._cloud = cloud
        self._recorder = recorder
        self._successors = successors
        self._cases = cases
        self._breaker = breaker
        self._breaker_lock = threading.Lock()
        self._attention = attention
        self._policy = policy
        self._clock = clock
        self._deleted = metrics.counter(
            "node_lifecycle_deleted_nodes_total", "Nodes deleted because their instance is gone."
        )
        self._trips = metrics.counter(
            "node_lifecycle_deletion_breaker_trips_total",
            "Times that too many nodes were to be deleted, so that the rest was held back.",
        )
        metrics.gauge(
            "node_lifecycle_deletion_breaker_open", "1 while nodes to be deleted are held back, but for a trickle."
        ).set_function(lambda: float(breaker.is_open))
        metrics.gauge(
            "node_lifecycle_held_nodes", "Nodes that the cloud says are gone, and that the breaker holds back."
        ).set_function(lambda: float(cases.held()))
        metrics.gauge(
            "node_lifecycle_unknown_nodes", "Nodes that are not ready and of which the cloud has long said nothing."
        ).set_function(lambda: float(len(self._cases.lasting_unknowns(clock.monotonic(), policy.unknown_after))))

    # ---- the question

    def fetch(self, keys: Sequence[str], deliver: Callable[[str, Answer | None], None]) -> None:
        """Ask the cloud about those of the nodes that are not ready; the others need no answer."""
        asked_at = self._clock.monotonic()
        nodes: dict[str, V1Node] = {}
        for key in keys:
            node = self._lister.get(key)
            if node is not None and self._attention(node) is Attention.ASK:
                nodes[key] = node
            else:
                deliver(key, None)

        def answered(name: str, state: InstanceState | Exception) -> None:
            deliver(name, Answer(nodes[name], asked_at, self._clock.monotonic(), state))

        if nodes:
            self._cloud.fetch_state(list(nodes.values()), answered, fresh=True)

    # ---- the work

    def reconcile(self, key: str, answer: Answer | Exception | None) -> Result | None:
        """Act on what the cloud said, or tidy up a node that is ready again.

        Raises what the cloud answered instead of a state, and what the API server refused.
        """
        node = self._lister.get(key)
        if node is None:
            self._cases.forget(key)
            return None
        if isinstance(answer, Exception):
            raise answer
        if answer is None or self._attention(node) is not Attention.ASK:
            self._cases.forget(key)
            if self._attention(node) is Attention.TIDY:
                self._write(node, lambda fresh: changes.returned(fresh) if is_ready(fresh) else Patch())
            return None
        if (uid_of(answer.node), provider_id_of(answer.node)) != (uid_of(node), provider_id_of(node)):
            return None  # it was asked about the former one; the next sweep asks about this one
        case = judged(self._cases.get(key), answer, self._policy.period)
        if isinstance(answer.state, Exception):
            self._unknown(key, case, answer.state)
            raise answer.state
        self._cases.put(key, case)
        if answer.state is InstanceState.RUNNING:
            self._write(node, changes.returned)
            return None
        if answer.state is InstanceState.SHUTDOWN:
            return self._shut_down(key, node, case)
        return self._gone(key, node, case, answer)

    def _unknown(self, key: str, case: Case, error: Exception) -> None:
        delay = getattr(error, "retry_after", None)
        if isinstance(delay, int | float) and delay > 0:
            case = evolve(case, rests_until=self._clock.monotonic() + delay)
        self._cases.put(key, case)

    def _shut_down(self, key: str, node: V1Node, case: Case) -> Result | None:
        confirmed = case.answers >= self._policy.confirmations
        out_of_service = self._policy.out_of_service and confirmed
        self._write(
            node,
            lambda fresh: Patch() if is_ready(fresh) else changes.shut_down(fresh, out_of_service=out_of_service),
        )
        return None if confirmed or not self._policy.out_of_service else self._ask_again(key, case)

    def _ask_again(self, key: str, case: Case) -> Result:
        """The answer is to be confirmed, a period after it came. Sweeps leave the node alone for somewhat longer."""
        due = case.counted_at + self._policy.period
        self._cases.put(key, evolve(case, rests_until=due + self._policy.period))
        return Result(requeue_after=max(0.0, due - self._clock.monotonic()))

    def _gone(self, key: str, node: V1Node, case: Case, answer: Answer) -> Result | None:
        if case.provider_id and case.since == answer.answered_at:  # the first of the row
            self._successors.add(key)
        if case.answers < self._policy.confirmations:
            log.info(
                "node %s: the cloud says that its instance is gone (answer %d of %d)",
                key,
                case.answers,
                self._policy.confirmations,
            )
            return self._ask_again(key, case)
        now = self._clock.monotonic()
        with self._breaker_lock:
            admission = self._breaker.admit(now, case.since)
            limit, deletions = self._breaker.limit(now), self._breaker.deletions(now)
        if admission.released:
            log.warning("deletions are let through again: %s", admission.released)
        if not admission.allowed:
            self._hold(key, node, case, admission, limit, deletions)
            return None
        unused = True
        try:
            unused = not self._delete(key, node)
        except (Unreachable, ServerError):
            unused = False  # it may have been applied
            raise
        finally:
            if unused:
                with self._breaker_lock:
                    self._breaker.refund(now)
        return None

    # ---- instances that were recreated

    def fetch_successors(self, keys: Sequence[str], deliver: Callable[[str, Successor], None]) -> None:
        """Ask the cloud, by name, about nodes whose instance is gone: is there another one in its place?

        Apart from everything else, as it informs people and decides nothing.
        """
        nodes: dict[str, V1Node] = {}
        for key in keys:
            node = self._lister.get(key)
            case = self._cases.get(key)
            if node is not None and case is not None and case.state is InstanceState.GONE and case.is_of(node):
                nodes[key] = node
            else:
                deliver(key, None)
        if nodes:
            nameless = [changes.without_provider_id(node) for node in nodes.values()]
            self._cloud.fetch_metadata(nameless, lambda name, found: deliver(name, (nodes[name], found)), fresh=True)

    def tell_successor(self, key: str, answer: Successor | Exception) -> None:
        """Tell a node's owner if another instance has its name now."""
        if answer is None or isinstance(answer, Exception):
            return
        node, found = answer
        known = provider_id_of(node)
        if isinstance(found, Exception):
            log.debug("node %s: no instance is known by its name: %s", key, found)
        elif found.provider_id and not self._cloud.same_provider_id(known, found.provider_id):
            log.warning("node %s: %s is gone and %s has its name", key, known, found.provider_id)
            self._recorder.event(
                node,
                "Warning",
                "InstanceRecreated",
                f"The cloud now has instance {found.provider_id} under the name of this node, whose spec.providerID is "
                f"{known} and cannot change: once that is confirmed gone, the Node object is deleted, and the new "
                "instance's kubelet must register again",
            )

    # ---- the breaker

    def _hold(self, key: str, node: V1Node, case: Case, admission: Admission, limit: int, deletions: int) -> None:
        self._cases.put(key, evolve(case, held=True))
        if admission.opened:
            self._trips.inc()
            log.error(
                "ALARM: %d nodes were deleted within %g s and still more are gone, says the cloud. Its answers are no "
                "longer trusted: deletions are held back",
                deletions,
                self._breaker.options.window,
            )
        if admission.opened or not case.held:
            self._recorder.event(
                node,
                "Warning",
                "DeletionBreakerOpened" if admission.opened else "DeletingNodeHeldBack",
                f"The cloud says that the instance of this node is gone, but {limit} nodes per "
                f"{self._breaker.options.window:g} s may be deleted and more would be: it is held back. If they are "
                "gone indeed, restart with --node-deletion-breaker=false; if not, look after the cloud's answers",
            )

    def survey(self, survey: Survey) -> None:
        """Take note of all nodes, before the sweep: for the breaker's share, and for whom nothing was heard of."""
        now = self._clock.monotonic()
        calm = not self._cases.lasting_unknowns(now, 0.0)
        with self._breaker_lock:
            closed = self._breaker.observe(now, survey.owned, calm=calm)
        if closed:
            log.warning("deletions are let through again: %s", closed)
        self._cases.keep(survey.not_ready)
        self._tell_unknown()

    def release_breaker(self) -> bool:
        """See `NodeLifecycleController.release_breaker`."""
        with self._breaker_lock:
            return self._breaker.release()

    # ---- the unknown

    def _tell_unknown(self) -> None:
        """Tell the owners of nodes of which the cloud has said nothing for long; parked keys are among them."""
        now = self._clock.monotonic()
        for name, case in self._cases.lasting_unknowns(now, self._policy.unknown_after):
            if case.told_at is not None and now - case.told_at < self._policy.unknown_after:
                continue
            node = self._lister.get(name)
            if node is None or not case.is_of(node):
                continue
            self._cases.replace(name, case, evolve(case, told_at=now))
            self._recorder.event(
                node,
                "Warning",
                "InstanceStateUnknown",
                "This node is not ready, and the cloud does not say whether its instance runs, is shut down or gone; "
                f"until it does, the node is neither tainted nor deleted: {case.problem}",
            )

    # ---- writing

    def _write(self, node: V1Node, plan: Callable[[V1Node], Patch]) -> None:
        try:
            apply(
                self._rest,
                NODES.key_path(key_of(node)),
                node,
                lambda fresh: (plan(fresh),),
                NODES.parse,
                attempts=_ATTEMPTS,
            )
        except (NotFound, ObjectReplaced):
            return  # deleted or recreated meanwhile: its own event brings the new one

    def _delete(self, key: str, node: V1Node) -> bool:
        """Delete this node as it was judged; returns whether it was. Another version is looked at first."""
        path = NODES.key_path(key)
        provider_id, uid = provider_id_of(node), uid_of(node)
        attempts = _DELETE_ATTEMPTS
        try:
            while True:
                preconditions = {"uid": uid, "resourceVersion": version_of(node)}
                try:
                    self._rest.request(
                        "DELETE",
                        path,
                        body={"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions},
                    )
                    break
                except Conflict:
                    attempts -= 1
                    if not attempts:
                        raise
                node = NODES.parse(self._rest.get(path))
                same = (uid_of(node), provider_id_of(node)) == (uid, provider_id)
                if not same or self._attention(node) is not Attention.ASK:
                    log.info("node %s is not deleted: it has changed since the cloud was asked", key)
                    self._cases.forget(key)
                    return False
        except NotFound:
            self._cases.forget(key)
            return False
        except ApiError as error:
            self._recorder.event(node, "Warning", "DeletingNodeFailed", f"Failed deleting node {key}: {error}")
            raise
        self._cases.forget(key)
        self._deleted.inc()
        log.info("deleted node %s: its instance %s is gone", key, provider_id or "of that name")
        self._recorder.event(
            node, "Normal", "DeletingNode", f"Deleting node {key} because it does not exist in the cloud provider"
        )
        return True
