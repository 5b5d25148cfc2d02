"""Stage 4: RECONCILE. A node's key and the cloud's answer in, one unit of work out.

A key is a node that is not ready. Only here a node's deletion is decided, by the table of
`deletion.py`. An exception, a missing answer or an overdue call is never "gone"."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from cloudprovider import InstanceState
from cloudprovider.helpers import is_ready, provider_id_of
from controllers.cloudcalls import Contradiction
from controllers.nodelifecycle import changes
from controllers.nodelifecycle.changes import Attention, identity_of, is_announced
from controllers.nodelifecycle.deletion import (
    ALARM_AFTER,
    CONFIRMATIONS,
    ROUNDING,
    Admission,
    Candidate,
    Sample,
    StateAnswer,
    Verdict,
    judge,
)
from controllers.nodelifecycle.reports import some
from controllers.runtime.api import ServerError, Unreachable
from controllers.runtime.cache import key_of
from controllers.runtime.queue import Result, retry_after_of
from controllers.runtime.write import Patch

if TYPE_CHECKING:
    from kubernetes.client.models.v1_node import V1Node

    from controllers.cloudcalls import Answer, CloudCalls
    from controllers.nodelifecycle.deletion import Limit
    from controllers.nodelifecycle.memory import Shared
    from controllers.nodelifecycle.reports import Reports
    from controllers.nodelifecycle.writes import NodeWriter

log = logging.getLogger(__name__)

_MOVED: Final = 60.0  # seconds between two questions about a node whose kubelet is on another machine


class NodeLifecycleReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        shared: Shared,
        cloud: CloudCalls,
        writer: NodeWriter,
        reports: Reports,
        limit: Limit,
    ) -> None:
        self._shared = shared
        self._options = shared.options
        self._candidates = shared.candidates
        self._samples = shared.samples
        self._cloud = cloud
        self._writer = writer
        self._reports = reports
        self._limit = limit
        self._limit_lock = threading.Lock()

    # ---- the question

    def fetch(self, keys: Sequence[str], deliver: Callable[[str, StateAnswer | None], None]) -> None:
        """Ask the cloud about those of the nodes that are not ready; with the answer that may
        confirm one, and in the same batch, about Ready nodes of its zone too."""
        asked_at = self._shared.now()
        nodes: dict[str, V1Node] = {}
        for key in keys:
            node = self._shared.lister.get(key)
            if node is None or self._shared.attention(node) is not Attention.ASK:
                deliver(key, None)
            else:
                nodes[key] = node
        if not nodes:
            return
        judged, confirm = self._confirmable(nodes, asked_at)
        drawn: dict[str, list[V1Node]] = {}
        said: dict[str, InstanceState | Exception] = {}
        late: list[tuple[str, StateAnswer]] = []
        lost: list[V1Node] = []
        answered: Mapping[str, InstanceState | Exception] | None = None

        def heard(name: str, answer: Answer[InstanceState]) -> None:
            node, state = answer.node, answer.unbound
            self._reports.metrics.state(state)
            if isinstance(state, InstanceState):
                self._samples.note(identity_of(node), gone=state is InstanceState.GONE)
            if name in ready:
                said[name] = state
                return
            if state is InstanceState.GONE and self._is_news(node):
                lost.append(node)
            found = StateAnswer(node, asked_at, self._shared.now(), state, name in confirm)
            if name in judged:  # worked on once all is said of the Ready nodes that decide about it
                late.append((name, found))
            else:
                deliver(name, found)

        try:
            ready = self._ready_nodes(judged, nodes, drawn, asked_at)
            self._cloud.fetch_state([*nodes.values(), *ready.values()], heard, confirm=confirm)
            answered = said
        finally:  # a zone that is not closed would never be asked about again
            for zone, found in drawn.items():
                self._samples.close(zone, found, answered)
        for name, state_answer in late:
            deliver(name, state_answer)
        if lost:
            self._reports.ask_for_successors(lost)

    def _confirmable(self, nodes: Mapping[str, V1Node], now: float) -> tuple[dict[str, Candidate], set[str]]:
        """Of these nodes: those about which Ready nodes decide after the next answer, and those of
        which every method of the provider is asked."""
        judged: dict[str, Candidate] = {}
        confirm: set[str] = set()
        for key, node in nodes.items():
            one = self._candidates.get(key)
            if one is None or not one.is_of(node) or one.state is not InstanceState.GONE:
                continue
            if one.answers < CONFIRMATIONS and now - one.counted_at < self._options.node_monitor_period - ROUNDING:
                continue  # the next answer comes too soon to count
            excused, young = one.released or is_announced(node), self._shared.is_young(node)
            # Once for a row of answers: it may be one call for each node. And not for what is kept
            # anyway, as it is young.
            if not one.confirmed and (excused or not young):
                confirm.add(key)
            if self._options.breaker and not (excused or young or is_ready(node)):
                judged[key] = one
        return judged, confirm

    def _ready_nodes(
        self,
        judged: Mapping[str, Candidate],
        nodes: Mapping[str, V1Node],
        drawn: dict[str, list[V1Node]],
        asked_at: float,
    ) -> dict[str, V1Node]:
        """The Ready nodes to ask about: a sample of each zone that needs one, added to `drawn`, and
        those for which a candidate waits."""
        waited_for: dict[str, V1Node] = {}
        for one in judged.values():
            zone = one.zone
            if one.sample is None:
                if zone not in drawn and self._latest(one, asked_at) is None:
                    found = self._samples.draw(zone, partial(self._shared.sampled, zone), asked_at)
                    if found is not None:
                        drawn[zone] = found
                continue
            for identity in self._samples.ask_again(one.sample, asked_at):
                node = self._shared.ready_node(identity)
                if node is not None:
                    waited_for[identity[0]] = node
        ready = waited_for | {key_of(node): node for found in drawn.values() for node in found}
        # One that has turned Ready only now is asked about as a candidate, and gets that answer.
        return {name: node for name, node in ready.items() if name not in nodes}

    def _is_news(self, node: V1Node) -> bool:
        """Whether "gone" about this node's instance is new: another one may have its name."""
        one = self._candidates.get(key_of(node))
        first = one is None or one.state is not InstanceState.GONE or not one.is_of(node)
        return bool(provider_id_of(node)) and (first or self._shared.moved(node))

    def _latest(self, one: Candidate, asked_at: float) -> Sample | None:
        """The sample that serves for an answer that was asked for at this time: not older than the
        first "gone", nor by more than a period than the second."""
        return self._samples.latest(one.zone, max(one.since, asked_at - self._options.node_monitor_period))

    # ---- the work

    def reconcile(self, key: str, answer: StateAnswer | None) -> Result | None:
        """Act on what the cloud said, or tidy up a node that is ready again.

        Raises what the cloud answered instead of a state, and what the API server refused.
        """
        try:
            return self._reconcile(key, answer)
        finally:
            self._reports.metrics.worked_on(key)

    def _reconcile(self, key: str, answer: StateAnswer | None) -> Result | None:
        node = self._shared.lister.get(key)
        if node is None:
            self._candidates.forget(key)
            return None
        attention = self._shared.attention(node)
        if attention is not Attention.ASK:
            self._candidates.forget(key)
            if attention is Attention.TIDY:
                self._writer.write(
                    node, "Ready", "returned", lambda fresh: self._returned(fresh) if is_ready(fresh) else Patch()
                )
            return None
        if answer is None:
            return None  # it needed no question when its batch was asked about; the sweep brings it again
        if identity_of(answer.node) != identity_of(node):
            return None  # it was asked about the former node; the next sweep asks about this one
        one = self._candidates.add(key, answer, self._options.node_monitor_period)
        if isinstance(answer.state, Exception):
            if isinstance(answer.state, Contradiction):
                self._reports.disagreed(node, answer.state)
            if delay := retry_after_of(answer.state):
                self._candidates.note(key, one, rests_until=self._shared.now() + delay)
            raise answer.state
        if answer.state is InstanceState.GONE:
            return self._gone(key, node, one, answer)
        self._shared.exists(answer.node)
        if answer.state is InstanceState.RUNNING:
            self._writer.write(node, "cloud", "returned", self._returned)
            return None
        return self._shut_down(key, node, one)

    def _returned(self, node: V1Node) -> Patch:
        return changes.returned(node, out_of_service=self._options.out_of_service_taint)

    def _shut_down(self, key: str, node: V1Node, one: Candidate) -> Result | None:
        confirmed = one.answers >= CONFIRMATIONS
        evict = self._options.out_of_service_taint and confirmed and not one.out_of_service
        ready = False

        def plan(fresh: V1Node) -> Patch:
            nonlocal ready
            ready = is_ready(fresh)
            return Patch() if ready else changes.shut_down(fresh, out_of_service=evict)

        self._writer.write(node, "cloud", "shut down", plan, at_once=evict)
        if evict and not ready:
            self._candidates.note(key, one, out_of_service=True)
        return None if confirmed or not self._options.out_of_service_taint else self._look_again(key, one)

    def _gone(self, key: str, node: V1Node, one: Candidate, answer: StateAnswer) -> Result | None:
        if one.answers < CONFIRMATIONS:
            return self._look_again(key, one)
        # Before Ready is looked at: it is Ready there, and people are to be told.
        if self._shared.moved(node):
            # Its kubelet would not register again: it has gone on with this Node.
            why = (
                "its kubelet runs on another machine than the one that is gone. Delete the Node, and restart the "
                "kubelet there, which registers only when it starts"
            )
            return self._look_again(key, self._candidates.note(key, one, why=why), _MOVED)
        if is_ready(node):
            return None  # a Ready node is never deleted
        excused = one.released or is_announced(node)
        if self._shared.is_young(node) and not excused:
            why = (
                f"it was initialised, or first seen, less than {self._options.young_grace:g} s ago "
                "(--node-deletion-young-grace), and the cloud may not list it yet"
            )
            return self._look_again(key, self._candidates.note(key, one, why=why))
        if not one.confirmed:  # "gone" of one method alone: the next answer is of all
            return self._look_again(key, one)
        if excused or not self._options.breaker:
            self._writer.delete(key, node)
            return None
        sample = one.sample or self._latest(one, answer.asked_at)
        if sample is None:  # another thread is asking
            why = f"the cloud has not answered yet about Ready nodes of zone {one.zone!r}"
            return self._look_again(
                key, self._candidates.note(key, one, why=why), self._options.node_monitor_period / 2
            )
        still = self._shared.still(sample)
        verdict = judge(sample, len(still))
        if verdict is Verdict.WAIT:
            return self._wait(key, one, sample, still)
        if verdict is Verdict.LIMIT:
            self._within_limit(key, node, self._candidates.note(key, one, sample=None))
        else:
            self._writer.delete(key, node)
        return None

    def _wait(self, key: str, one: Candidate, sample: Sample, still: list[str]) -> Result:
        held = self._shared.now() - sample.asked_at >= ALARM_AFTER
        names = some(still)
        why = f"the cloud calls {len(still)} Ready nodes of zone {one.zone!r} gone too ({names}), " + (
            "so it is not believed. Check the provider's credentials, region and account. If the node is really gone, "
            "delete the Node, or send SIGUSR1 to the controller manager"
            if held
            else "which shows within a minute"
        )
        one = self._candidates.note(key, one, sample=sample, held=held, why=why)
        if held:
            self._reports.contradicted(one.zone, still, sample)
        return self._look_again(key, one)

    def _within_limit(self, key: str, node: V1Node, one: Candidate) -> None:
        now, limit = self._shared.now(), self._limit
        held = self._candidates.held - one.held
        with self._limit_lock:
            admission = limit.admit(now, held)
            number, deletions = limit.number(now), limit.deletions(now)
        if admission is Admission.ALLOWED:
            unused = True
            try:
                unused = not self._writer.delete(key, node)
            except (Unreachable, ServerError):
                unused = False  # it may have been applied
                raise
            finally:
                if unused:
                    with self._limit_lock:
                        limit.refund(now)
            return
        why = (
            f"its zone has no Ready node that shows whether the cloud is right, so at most {number} such nodes are "
            f"deleted in {limit.window:g} s (--node-deletion-limit), and only a few in the first {limit.window:g} s "
            "after a start of the controller. If it is really gone, delete the Node, or send SIGUSR1 to the controller "
            "manager"
        )
        alarm = admission is Admission.ALARM
        one = self._candidates.note(key, one, held=True, why=why, told=one.told or alarm)
        if alarm:
            self._reports.limit_reached(node, one, number, deletions)

    def observe(self, owned: int, *, calm: bool) -> None:
        """Tell the limit how many nodes there are, before a sweep. `calm`: the cloud answers."""
        with self._limit_lock:
            over = self._limit.observe(self._shared.now(), owned, calm=calm)
        if over:
            log.warning("the limit on node deletions is lifted: nothing had to be held back")

    def _look_again(self, key: str, one: Candidate, seconds: float | None = None) -> Result:
        """Look at the node again by a timer of its own; None: as soon as another answer counts."""
        now, period = self._shared.now(), self._options.node_monitor_period
        seconds = max(0.0, one.counted_at + period - now if seconds is None else seconds)
        self._candidates.note(key, one, rests_until=now + seconds + period)  # sweeps leave it alone
        return Result(requeue_after=seconds)
