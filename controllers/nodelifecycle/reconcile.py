"""Stage 4: takes a node's key and the cloud's answer and does one unit of work, writing through stage 6.

`fetch` is the batch's question (stage 5) and `reconcile` what follows for each key, which `writer.py` carries out. Here
and nowhere else a node's deletion is decided: after enough fresh answers "gone" in a row, when `permits.py` lets it,
and only if the API server still has the very object that was judged. An exception, a missing answer or an overdue call
is never "gone".

A key is a node that is not ready, or a Ready node that is called as a witness: both are asked about in the same calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from cloudprovider import InstanceState
from cloudprovider.helpers import is_ready, provider_id_of
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.cases import Case, Cases, StateAnswer
from controllers.nodelifecycle.changes import Attention
from controllers.runtime.api import ServerError, Unreachable
from controllers.runtime.cache import uid_of
from controllers.runtime.queue import Result, retry_after_of
from controllers.runtime.write import Patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import CloudCalls
    from controllers.nodelifecycle.metrics import NodeLifecycleMetrics
    from controllers.nodelifecycle.permits import Permits
    from controllers.nodelifecycle.triggers import NodeLifecycleTriggers
    from controllers.nodelifecycle.witnesses import Witnesses
    from controllers.nodelifecycle.writer import NodeWriter
    from controllers.runtime.cache import Lister
    from controllers.runtime.clock import Clock
    from controllers.runtime.queue import WorkQueue

log = logging.getLogger(__name__)


@frozen(kw_only=True)
class Policy:
    """What it takes to act; see `NodeLifecycleOptions`. Seconds."""

    confirmations: int
    period: float
    out_of_service: bool


class NodeLifecycleReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        lister: Lister[V1Node],
        cloud: CloudCalls,
        writer: NodeWriter,
        successors: WorkQueue[str],
        cases: Cases,
        witnesses: Witnesses,
        permits: Permits,
        triggers: NodeLifecycleTriggers,
        policy: Policy,
        metrics: NodeLifecycleMetrics,
        clock: Clock,
    ) -> None:
        self._lister = lister
        self._cloud = cloud
        self._writer = writer
        self._successors = successors
        self._cases = cases
        self._witnesses = witnesses
        self._permits = permits
        self._triggers = triggers
        self._policy = policy
        self._metrics = metrics
        self._clock = clock

    # ---- the question

    def fetch(self, keys: Sequence[str], deliver: Callable[[str, StateAnswer | None], None]) -> None:
        """Ask the cloud about those of the nodes that are not ready, or called as witnesses."""
        asked_at = self._clock.monotonic()
        nodes: dict[str, V1Node] = {}
        for key in keys:
            node = self._lister.get(key)
            if node is not None and (self._triggers.attention(node) is Attention.ASK or self._witnesses.is_called(key)):
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
        attention = self._triggers.attention(node)
        if attention is not Attention.ASK:
            self._cases.forget(key)
            self._testify(key, node, answer)
            if attention is Attention.TIDY:
                self._writer.write(
                    node, "returned", lambda fresh: self._returned(fresh) if is_ready(fresh) else Patch()
                )
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
            self._writer.write(node, "returned", self._returned)
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
        self._writer.write(
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
            self._triggers.call_witnesses(node)
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
            unused = not self._writer.delete(key, node)
        except (Unreachable, ServerError):
            unused = False  # it may have been applied
            raise
        finally:
            if unused:
                self._permits.refund(permit)
        return None
