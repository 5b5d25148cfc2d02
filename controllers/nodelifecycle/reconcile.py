"""Stage 4: RECONCILE. A node's key and the cloud's answer in, one unit of work out.

A key is a node that is not ready, or a Ready node that is asked about as a witness. Only here a
node's deletion is decided: after enough fresh answers "gone" in a row, when `deletion_gate.py`
allows it. An exception, a missing answer or an overdue call is never "gone"."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import evolve

from cloudprovider import InstanceState
from cloudprovider.helpers import is_ready, provider_id_of
from cloudprovider.internal.backoff import Backoff
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.changes import Attention, identity_of, zone_of
from controllers.nodelifecycle.deletion_votes import NodeVotes, StateAnswer
from controllers.nodelifecycle.shared import Shared
from controllers.runtime.api import ServerError, Unreachable
from controllers.runtime.cache import uid_of
from controllers.runtime.queue import Result, WorkQueue, retry_after_of
from controllers.runtime.write import Patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import Answer, CloudCalls
    from controllers.nodelifecycle.deletion_gate import DeletionGate
    from controllers.nodelifecycle.triggers import NodeLifecycleTriggers
    from controllers.nodelifecycle.writeback import NodeWriter

log = logging.getLogger(__name__)

_ANEW: Final = Backoff(base=10.0, cap=60.0)
"""When a node that could not be created anew is tried again."""


class NodeLifecycleReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        shared: Shared,
        cloud: CloudCalls,
        writer: NodeWriter,
        gate: DeletionGate,
        triggers: NodeLifecycleTriggers,
        successors: WorkQueue[str],
    ) -> None:
        self._shared = shared
        self._options = shared.options
        self._votes = shared.votes
        self._cloud = cloud
        self._writer = writer
        self._gate = gate
        self._triggers = triggers
        self._successors = successors

    # ---- the question

    def fetch(self, keys: Sequence[str], deliver: Callable[[str, StateAnswer | None], None]) -> None:
        """Ask the cloud about those of the nodes that are not ready, or called as witnesses."""
        asked_at = self._shared.now()
        nodes: dict[str, V1Node] = {}
        for key in keys:
            node = self._shared.lister.get(key)
            if node is not None and (
                self._triggers.attention(node) is Attention.ASK or self._shared.witnesses.is_called(key, zone_of(node))
            ):
                nodes[key] = node
            else:
                deliver(key, None)

        def answered(name: str, answer: Answer[InstanceState]) -> None:
            self._shared.metrics.state(answer.unbound)
            deliver(name, StateAnswer(nodes[name], asked_at, self._shared.now(), answer.unbound))

        if nodes:
            self._cloud.fetch_state(list(nodes.values()), answered)

    # ---- the work

    def reconcile(self, key: str, answer: StateAnswer | Exception | None) -> Result | None:
        """Act on what the cloud said, or tidy up a node that is ready again.

        Raises what the cloud answered instead of a state, and what the API server refused.
        """
        try:
            return self._reconcile(key, answer)
        finally:
            self._shared.metrics.worked_on(key)

    def _reconcile(self, key: str, answer: StateAnswer | Exception | None) -> Result | None:
        node = self._shared.lister.get(key)
        if node is None:
            self._votes.forget(key)
            self._writer.finish(key)
            return None
        self._note_answer(key, node, answer)
        attention = self._triggers.attention(node)
        if attention is not Attention.ASK:
            self._votes.forget(key)
            if attention is Attention.TIDY:
                self._writer.write(
                    node, "Ready", "returned", lambda fresh: self._returned(fresh) if is_ready(fresh) else Patch()
                )
            return None
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return None
        if (uid_of(answer.node), provider_id_of(answer.node)) != (uid_of(node), provider_id_of(node)):
            return None  # it was asked about the former node; the next sweep asks about this one
        votes = self._votes.add(key, answer, self._options.answer_period)
        if isinstance(answer.state, Exception):
            self._unknown(key, votes, answer.state)
            raise answer.state
        if answer.state is InstanceState.RUNNING:
            self._writer.write(node, "cloud", "returned", self._returned)
            return None
        if answer.state is InstanceState.SHUTDOWN:
            return self._shut_down(key, node, votes)
        return self._gone(key, node, votes, answer)

    def _note_answer(self, key: str, node: V1Node, answer: StateAnswer | Exception | None) -> None:
        """Note what the cloud said of a node, under what it was then."""
        now = self._shared.now()
        if isinstance(answer, StateAnswer):
            self._shared.witnesses.file(key, identity_of(answer.node), answer.asked_at, answer.state, now)
            if isinstance(answer.state, InstanceState) and answer.state is not InstanceState.GONE:
                self._shared.machines.exists(answer.node, now)
        elif answer is not None:
            self._shared.witnesses.file(key, identity_of(node), now, answer, now)

    def _returned(self, node: V1Node) -> Patch:
        return changes.returned(node, out_of_service=self._options.out_of_service_taint)

    def _unknown(self, key: str, votes: NodeVotes, error: Exception) -> None:
        delay = retry_after_of(error)
        if delay:
            self._votes.replace(key, votes, evolve(votes, rests_until=self._shared.now() + delay))

    def _shut_down(self, key: str, node: V1Node, votes: NodeVotes) -> Result | None:
        confirmed = votes.answers >= self._options.confirmations
        evict = self._options.out_of_service_taint and confirmed and not votes.out_of_service
        ready = False

        def plan(fresh: V1Node) -> Patch:
            nonlocal ready
            ready = is_ready(fresh)
            return Patch() if ready else changes.shut_down(fresh, out_of_service=evict)

        self._writer.write(node, "cloud", "shut down", plan, at_once=evict)
        if evict and not ready:
            self._votes.replace(key, votes, evolve(votes, out_of_service=True))
        return None if confirmed or not self._options.out_of_service_taint else self._ask_again(key, votes)

    def _ask_again(self, key: str, votes: NodeVotes) -> Result:
        """The answer is to be confirmed, a period after it came."""
        return self._look_again(key, votes, votes.counted_at + self._options.answer_period - self._shared.now())

    def _look_again(self, key: str, votes: NodeVotes, seconds: float) -> Result:
        """Look at the node again by a timer of its own. Sweeps leave it alone somewhat longer."""
        seconds = max(0.0, seconds)
        until = self._shared.now() + seconds + self._options.answer_period
        self._votes.replace(key, votes, evolve(votes, rests_until=until))
        return Result(requeue_after=seconds)

    def _why(self, key: str, votes: NodeVotes, why: str) -> NodeVotes:
        """Note why a node that is confirmed gone is still there."""
        noted = evolve(votes, why=why)
        self._votes.replace(key, votes, noted)
        return noted

    def _tried_anew(self, key: str, votes: NodeVotes) -> NodeVotes:
        noted = evolve(votes, anew=_ANEW.next(votes.anew, self._shared.now()))
        self._votes.replace(key, votes, noted)
        return noted

    def _gone(self, key: str, node: V1Node, votes: NodeVotes, answer: StateAnswer) -> Result | None:
        moved = self._shared.machines.moved(node)
        if votes.provider_id and (moved or votes.since == answer.answered_at):  # else the first answer of the row
            self._successors.add(key)
        if votes.answers < self._options.confirmations:
            log.info(
                "node %s: the cloud says that its instance is gone (answer %d of %d)",
                key,
                votes.answers,
                self._options.confirmations,
            )
            return self._ask_again(key, votes)
        if moved:
            # Without provider IDs the instance that is gone is the one of its name.
            successor = self._shared.machines.successor(node) if votes.provider_id else ""
            if successor is None:
                why = "its kubelet runs on another machine, and the cloud has not said which instance has its name"
                votes = self._why(key, votes, why)
                return self._look_again(key, votes, self._options.answer_period / 2)
            why = "its kubelet runs on another machine, and the cloud has no other instance of its name"
            if successor and is_ready(node) and votes.anew.left(self._shared.now()):
                why = votes.why  # one that is not Ready may be deleted next, so that is asked anew
            elif successor:
                why = self._writer.register_again(key, node, successor)
                votes = self._tried_anew(key, votes)
            if not why:
                return None
            votes = self._why(key, votes, why)
        if is_ready(node):
            return None  # a Ready node is never deleted
        grace = self._options.young_grace
        if self._triggers.age(node) < grace and not changes.is_announced(node):
            # A cloud may not list a machine yet that has just been built, and its kubelet registers
            # only when it starts.
            why = (
                f"it was initialised, or first seen, less than {grace:g} s ago (--node-deletion-young-grace), and the "
                "cloud may not list it yet"
            )
            return self._ask_again(key, self._why(key, votes, why))
        decision = self._gate.ask(key, node, votes, answer.asked_at)
        if decision.waiting:
            votes = self._votes.get(key) or votes  # the gate has noted why
            return self._look_again(key, votes, self._options.answer_period / 2)
        if not decision.allowed:
            return None
        unused = True
        try:
            unused = not self._writer.delete(key, node)
        except (Unreachable, ServerError):
            unused = False  # it may have been applied
            raise
        finally:
            if unused:
                self._gate.refund(decision)
        return None
