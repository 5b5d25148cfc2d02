"""Stage 4: takes a node's key and the cloud's answer and does one unit of work, writing through stage 6.

`fetch` is the batch's question (stage 5) and `reconcile` what follows for each key. A node is deleted here and nowhere
else: after enough fresh answers "gone" in a row, when `permits.py` lets it, and only if the API server still has the
very object that was judged. An exception, a missing answer or an overdue call is never "gone".

A key is a node that is not ready, or a Ready node that is called as a witness: both are asked about in the same calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from cloudprovider import InstanceMetadata, InstanceState
from cloudprovider.helpers import is_ready, provider_id_of
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.cases import Case, Cases, StateAnswer
from controllers.nodelifecycle.changes import Attention
from controllers.nodelifecycle.pace import Pace
from controllers.runtime.api import ApiError, Conflict, NotFound, ServerError, Unreachable
from controllers.runtime.cache import NODES, key_of, uid_of, version_of
from controllers.runtime.queue import Result, retry_after_of
from controllers.runtime.write import ObjectReplaced, Patch, apply

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
    from controllers.nodelifecycle.permits import Permits
    from controllers.nodelifecycle.witnesses import Witnesses
    from controllers.runtime.api import RestClient
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue
    from controllers.runtime.write import EventRecorder

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
        witnesses: Witnesses,
        permits: Permits,
        attention: Callable[[V1Node], Attention],
        call_witnesses: Callable[[V1Node], None],
        policy: Policy,
        metrics: NodeLifecycleMetrics,
        clock: Clock,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._cloud = cloud
        self._recorder = recorder
        self._successors = successors
        self._cases = cases
        self._witnesses = witnesses
        self._permits = permits
        self._attention = attention
        self._call_witnesses = call_witnesses
        self._policy = policy
        self._metrics = metrics
        self._pace = Pace()
        self._clock = clock

    # ---- the question

    def fetch(self, keys: Sequence[str], deliver: Callable[[str, StateAnswer | None], None]) -> None:
        """Ask the cloud about those of the nodes that are not ready, or called as witnesses."""
        asked_at = self._clock.monotonic()
        nodes: dict[str, V1Node] = {}
        for key in keys:
            node = self._lister.get(key)
            if node is not None and (self._attention(node) is Attention.ASK or self._witnesses.is_called(key)):
                nodes[key] = node
            else:
                deliver(key, None)

        def answered(name: str, state: InstanceState | Exception) -> None:
            self._metrics.state(state)
            deliver(name, StateAnswer(nodes[name], asked_at, self._clock.monotonic(), state))

        if nodes:
            self._cloud.fetch_state(list(nodes.values()), answered, fresh=True)

    # ---- the work

    def reconcile(self, key: str, answer: StateAnswer | Exception | None) -> Result | None:
        """Act on what the cloud said, or tidy up a node that is ready again.

        Raises what the cloud answered instead of a state, and what the API server refused.
        """
        try:
            return self._reconcile(key, answer)
        finally:
            self._metrics.worked_on(key)

    def _reconcile(self, key: str, answer: StateAnswer | Exception | None) -> Result | None:
        node = self._lister.get(key)
        if node is None:
            self._cases.forget(key)
            return None
        attention = self._attention(node)
        if attention is not Attention.ASK:
            self._cases.forget(key)
            self._testify(key, node, answer)
            if attention is Attention.TIDY:
                self._write(node, "returned", lambda fresh: self._returned(fresh) if is_ready(fresh) else Patch())
            return None
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return None
        if (uid_of(answer.node), provider_id_of(answer.node)) != (uid_of(node), provider_id_of(node)):
            return None  # it was asked about the former one; the next sweep asks about this one
        case = self._cases.file(key, answer, self._policy.period)
        if isinstance(answer.state, Exception):
            self._unknown(key, case, answer.state)
            raise answer.state
        if answer.state is InstanceState.RUNNING:
            self._write(node, "returned", self._returned)
            return None
        if answer.state is InstanceState.SHUTDOWN:
            return self._shut_down(key, node, case)
        return self._gone(key, node, case, answer)

    def _testify(self, key: str, node: V1Node, answer: StateAnswer | Exception | None) -> None:
        """File what the cloud said of a node that is Ready; an answer about its former self says nothing of it."""
        now = self._clock.monotonic()
        if isinstance(answer, StateAnswer):
            asked = (uid_of(answer.node), provider_id_of(answer.node))
            self._witnesses.file(key, asked, answer.asked_at, answer.state, now)
        elif answer is not None:
            self._witnesses.file(key, (uid_of(node), provider_id_of(node)), now, answer, now)

    def _returned(self, node: V1Node) -> Patch:
        return changes.returned(node, out_of_service=self._policy.out_of_service)

    def _unknown(self, key: str, case: Case, error: Exception) -> None:
        delay = retry_after_of(error)
        if delay:
            self._cases.replace(key, case, evolve(case, rests_until=self._clock.monotonic() + delay))

    def _shut_down(self, key: str, node: V1Node, case: Case) -> Result | None:
        confirmed = case.answers >= self._policy.confirmations
        evict = self._policy.out_of_service and confirmed and not case.out_of_service
        self._write(
            node,
            "shut down",
            lambda fresh: Patch() if is_ready(fresh) else changes.shut_down(fresh, out_of_service=evict),
            at_once=evict,
        )
        if evict:
            self._cases.replace(key, case, evolve(case, out_of_service=True))
        return None if confirmed or not self._policy.out_of_service else self._ask_again(key, case)

    def _ask_again(self, key: str, case: Case) -> Result:
        """The answer is to be confirmed, a period after it came."""
        return self._look_again(key, case, case.counted_at + self._policy.period - self._clock.monotonic())

    def _look_again(self, key: str, case: Case, seconds: float) -> Result:
        """Look at the node again by a timer of its own. Sweeps leave it alone for somewhat longer."""
        seconds = max(0.0, seconds)
        until = self._clock.monotonic() + seconds + self._policy.period
        self._cases.replace(key, case, evolve(case, rests_until=until))
        return Result(requeue_after=seconds)

    def _gone(self, key: str, node: V1Node, case: Case, answer: StateAnswer) -> Result | None:
        if case.provider_id and case.since == answer.answered_at:  # the first of the row
            self._successors.add(key)
        if case.since == answer.answered_at and self._permits.needs_witnesses(node, case):
            self._call_witnesses(node)
        if case.answers < self._policy.confirmations:
            log.info(
                "node %s: the cloud says that its instance is gone (answer %d of %d)",
                key,
                case.answers,
                self._policy.confirmations,
            )
            return self._ask_again(key, case)
        permit = self._permits.ask(key, node, case)
        if permit.waiting:
            return self._look_again(key, case, self._policy.period / 2)
        if not permit.allowed:
            return None
        unused = True
        try:
            unused = not self._delete(key, node)
        except (Unreachable, ServerError):
            unused = False  # it may have been applied
            raise
        finally:
            if unused:
                self._permits.refund(permit)
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

        def answered(name: str, found: InstanceMetadata | Exception) -> None:
            self._metrics.metadata(found)
            deliver(name, (nodes[name], found))

        if nodes:
            nameless = [changes.without_provider_id(node) for node in nodes.values()]
            self._cloud.fetch_metadata(nameless, answered, fresh=True)

    def tell_successor(self, key: str, answer: Successor | Exception) -> None:
        """Tell a node's owner if another instance has its name now."""
        if answer is None or isinstance(answer, Exception):
            return
        node, found = answer
        known = provider_id_of(node)
        if isinstance(found, Exception):
            log.debug("node %s: no instance is known by its name: %s", key, found)
        elif found.provider_id and not self._cloud.same_provider_id(known, found.provider_id):
            log.warning("node %s: instance %s is gone and instance %s now has its name", key, known, found.provider_id)
            self._recorder.event(
                node,
                "Warning",
                "InstanceRecreated",
                f"The cloud now has instance {found.provider_id} under the name of this node, whose spec.providerID is "
                f"{known} and cannot change: once that is confirmed gone, the Node object is deleted, and the new "
                "instance's kubelet must register again",
            )

    # ---- the unknown

    def tell_unknown(self) -> None:
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
                "This node is not ready, and the cloud does not say whether its instance runs, is shut down or gone. "
                f"Until it does, the node is neither tainted nor deleted: {case.problem}",
            )

    # ---- writing

    def _write(self, node: V1Node, wish: str, plan: Callable[[V1Node], Patch], *, at_once: bool = False) -> None:
        key, uid = key_of(node), uid_of(node)
        if not at_once and not self._pace.allows(key, uid, wish, self._clock.monotonic()):
            return  # it was written a short while ago, and somebody has undone it
        try:
            written = apply(
                self._rest,
                NODES.key_path(key),
                node,
                lambda fresh: (plan(fresh),),
                NODES.parse,
                attempts=_ATTEMPTS,
            )
        except (NotFound, ObjectReplaced):
            return  # deleted or recreated meanwhile: its own event brings the new one
        if written is not None:
            self._pace.wrote(key, uid, wish, self._clock.monotonic())

    def _delete(self, key: str, node: V1Node) -> bool:
        """Delete this node as it was judged; returns whether it was. Another version is looked at first."""
        path = NODES.key_path(key)
        provider_id, uid = provider_id_of(node), uid_of(node)
        announced = changes.is_announced(node)
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
                same = same and (changes.is_announced(node) or not announced)  # else nobody has vouched for the cloud
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
        self._metrics.deleted.inc()
        log.info("deleted node %s: its instance %s is gone", key, provider_id or "of that name")
        self._recorder.event(
            node, "Normal", "DeletingNode", f"Deleting node {key} because it does not exist in the cloud provider"
        )
        return True
