"""One fetch: many nodes asked about at once, each answered exactly once (stage 5, cloud call).

It runs in a controller's fetcher thread, which does nothing but wait: vendor code runs in the pool.
It resumes programs, splits batches that fail or are slow, gives up calls past their deadline, and
returns when every node has its answer or error."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from attrs import define, field
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import CloudProviderError, NotImplementedByProvider
from controllers.cloudcalls.answer import Answer, BatchAnswer
from controllers.cloudcalls.call import CloudCall, Inbox
from controllers.cloudcalls.errors import SUPERSEDED, CallFailed
from controllers.cloudcalls.gateway import Gateway
from controllers.cloudcalls.nodes.batching import Batcher, Group, concerns_all
from controllers.cloudcalls.nodes.instances import Program, Question
from controllers.cloudcalls.nodes.memory import AnswerCache
from controllers.runtime.cache import key_of

log = logging.getLogger(__name__)

A = TypeVar("A")
Deliver = Callable[[str, Answer[A]], None]
Called = CloudCall[Any]

_SLOWER = 4.0  # a batch is slow when it takes this many times as long as usual


@define(eq=False)
class Way(Generic[A]):
    """How one kind of question (metadata, state) is put to this provider; shared by its fetches."""

    program: Callable[[Question], Program[A]]
    """Asks about one node, call by call."""
    batch: Callable[[Sequence[Question]], CloudCall[BatchAnswer[A]]] | None
    """Asks about several nodes in one call; None when the provider cannot."""
    max_batch: int
    kept: AnswerCache[A] | None = None
    """What may be answered from memory; None where every answer is fresh."""
    batcher: Batcher = field(factory=Batcher)


class Fetch(Generic[A]):
    """One fetch; used once, by one thread."""

    def __init__(self, gateway: Gateway, way: Way[A], deliver: Deliver[A], *, fresh: bool, priority: int) -> None:
        self._gateway = gateway
        self._clock = gateway.clock
        self._way = way
        self._deliver = deliver
        self._fresh = fresh
        self._priority = priority
        self._asked_at = gateway.clock.monotonic()
        self._inbox = Inbox()
        self._open: dict[str, Question] = {}  # nodes without an answer
        self._calls: dict[Called, Group | tuple[str, Program[A]]] = {}
        self._probed = False  # whether a batch was split without evidence
        self._late: dict[Called, Group] = {}  # batches given up: should an answer come before the end, it counts
        self._groups: list[Group] = []
        self._timers: list[tuple[float, int, Called]] = []
        self._order = itertools.count()
        self._failure: Exception | None = None

    def run(self, nodes: Sequence[V1Node]) -> None:
        """Ask about the nodes (distinct by name) and deliver. Raises what `deliver` raised."""
        self._open = {key_of(node): Question(node, self._priority) for node in nodes}
        try:
            to_ask = [question for question in list(self._open.values()) if not self._answered_at_once(question)]
            if self._way.batch is None:
                for question in to_ask:
                    self._ask_alone(question)
            else:
                self._groups = self._way.batcher.form([question.name for question in to_ask], self._way.max_batch)
                for group in self._groups:
                    self._ask_together(group)
            while self._open:
                self._step()
        finally:
            self._leave()
        if self._failure is not None:
            raise self._failure

    # ---- the loop

    def _step(self) -> None:
        """Wait for something to happen, and deal with it."""
        self._look_at_timers()
        if not self._open:
            return
        if not self._calls:
            for name in list(self._open):
                self._answer(name, CallFailed(f"the question about {name} was lost; this is a fault of the gateway"))
            return
        inbox = self._inbox
        inbox.wait(self._clock, self._timers[0][0] if self._timers else math.inf)
        while inbox.started:
            call = inbox.started.popleft()
            heapq.heappush(self._timers, (call.started + call.patience, next(self._order), call))
        while inbox.ended:
            self._ended(inbox.ended.popleft())

    def _look_at_timers(self) -> None:
        now = self._clock.monotonic()
        while self._timers:
            when, _, call = self._timers[0]
            asked = self._calls.get(call)
            if asked is not None and when > now:
                return
            heapq.heappop(self._timers)
            if asked is None:
                continue  # it ended
            if call.deadline <= now:
                # When it ended at the last moment, its end is in the inbox by now or soon.
                if self._gateway.pool.expire(call):
                    self._overdue(call)
            else:
                again = self._check_pace(call, asked, now) if isinstance(asked, Group) else call.deadline
                if call in self._calls:
                    heapq.heappush(self._timers, (min(again, call.deadline), next(self._order), call))

    def _ended(self, call: Called) -> None:
        asked = self._calls.pop(call, None) or self._late.pop(call, None)
        if asked is None:
            return
        answer, error = call.answer, call.take_error()
        if isinstance(asked, tuple):
            self._advance(*asked, answer, error)
        elif error is None:
            assert answer is not None
            self._group_answered(asked, answer)
        else:
            self._group_failed(asked, error)

    def _overdue(self, call: Called) -> None:
        asked = self._calls.pop(call)
        error: Exception = self._gateway.overdue_error(call)
        if isinstance(asked, tuple):
            self._advance(*asked, None, error)
            return
        if len(asked.names) > 1:
            # No reason to park these keys: at most one of them is to blame, and it will be found.
            self._late[call] = asked
            error = CallFailed(f"the provider's {call.method} has not answered for a batch after {call.timeout:g} s")
        self._group_failed(asked, error)

    # ---- programs

    def _ask_alone(self, question: Question) -> None:
        try:
            program = self._way.program(question)
        except CloudProviderError as error:  # the provider cannot be asked about one node
            self._answer(question.name, error)
        else:
            self._advance(question.name, program)

    def _advance(self, name: str, program: Program[A], answer: Any = None, error: Exception | None = None) -> None:
        """Let a program go on, with the answer or the error of its last call, to its next call or
        to its end."""
        thrown: Exception | None = None
        before: TracebackType | None = None
        while True:
            try:
                if error is None:
                    call = program.send(answer)
                else:
                    before = error.__traceback__
                    thrown, error = error, None
                    call = program.throw(thrown)
            except StopIteration as stop:
                self._answer(name, stop.value)
                return
            except Exception as raised:  # noqa: BLE001 - whatever it is, it is this node's answer
                # Without this frame, which leads to the taker of the answers: a cycle for every
                # failure. From Python 3.13 on the program's frames lead to this one.
                stack = before if raised is thrown else raised.__traceback__ and raised.__traceback__.tb_next
                self._answer(name, raised.with_traceback(stack))
                return
            finally:
                thrown = before = None
            error = self._gateway.parked_error(call.key, call.method)
            if error is None:
                self._calls[self._gateway.submit(call, self._inbox)] = (name, program)
                return

    # ---- batches

    def _ask_together(self, group: Group) -> None:
        assert self._way.batch is not None
        questions = [self._open[name] for name in group.names if name in self._open]
        if not questions:
            return
        call = self._way.batch(questions)
        parked = self._gateway.parked_error(call.key, call.method)
        if parked is not None:
            self._answer(group.names[0], parked)
            return
        patience = math.inf
        if len(questions) > 1:
            patience = self._gateway.options.patience
            if group.depth:
                patience /= 4  # it is part of a batch that went wrong already
        self._calls[self._gateway.submit(call, self._inbox, patience)] = group

    def _pending(self, group: Group) -> list[str]:
        return [name for name in group.names if name in self._open]

    def _group_answered(self, group: Group, answer: BatchAnswer[A]) -> None:
        self._way.batcher.answered(group)
        for name, value in answer.values.items():
            self._answer(name, value)

    def _group_failed(self, group: Group, error: Exception) -> None:
        pending = self._pending(group)
        if group.split or not pending:
            return  # its keys are being asked about in smaller groups, or were answered by others
        if isinstance(error, NotImplementedByProvider):
            for name in pending:
                self._ask_alone(self._open[name])
            return
        smaller = [] if concerns_all(error) else self._way.batcher.failed(group, pending, self._way.max_batch)
        asked_again = {name for part in smaller for name in part.names}
        for name in pending:
            if name not in asked_again:
                self._answer(name, error if len(pending) == 1 else _of_its_own(error))
        for part in smaller:
            self._ask_together(part)

    def _check_pace(self, call: Called, group: Group, now: float) -> float:
        """Split a batch that is slow; returns when to look at it again.

        Slow is what takes several times as long as usual while others are served. Where none is
        served, one batch of this fetch is split after `lone_patience` as a probe: answers to its
        parts are the evidence for the rest.
        """
        if group.split:
            return now + call.patience
        seconds, last_answer = self._gateway.metrics.usual(call.method) or (0.0, -math.inf)
        slow_at = call.started + _SLOWER * seconds
        if now < slow_at:
            return slow_at if seconds else now + call.patience
        if not self._gateway.pool.has_spare_threads():
            return now + call.patience
        if last_answer <= call.started:
            if self._probed or group.depth or now < call.started + self._gateway.options.lone_patience:
                return now + call.patience
            self._probed = True
        smaller = self._way.batcher.slow(group, self._pending(group))
        if smaller and self._gateway.pool.expire(call, SUPERSEDED):
            log.info("the provider's %s is slow for %d nodes; asking for them in parts", call.method, len(group.names))
            self._late[call] = group
            del self._calls[call]
        for part in smaller:
            self._ask_together(part)
        return math.inf

    # ---- answers

    def _answered_at_once(self, question: Question) -> bool:
        """Whether nothing needs to be asked: the key is parked, or the answer is known."""
        answer: A | Exception | None = self._gateway.parked_error(question.key, "the call under way")
        if answer is None and self._way.kept is not None and not self._fresh:
            answer = self._way.kept.recall(question.node, self._asked_at)
        if answer is None:
            return False
        del self._open[question.name]
        self._hand_over(question, answer)
        return True

    def _answer(self, name: str, answer: A | Exception) -> None:
        question = self._open.pop(name, None)
        if question is None:
            return  # answered before, by a group that came first
        if self._way.kept is not None and not isinstance(answer, Exception):
            self._way.kept.keep(question.node, answer, self._asked_at, self._clock.monotonic())
        self._hand_over(question, answer)

    def _hand_over(self, question: Question, answer: A | Exception) -> None:
        try:
            self._deliver(question.name, Answer.about(question.node, answer))
        except Exception as error:
            # A fault of the controller's. The other nodes get their answers first.
            log.exception("the answer about %s could not be delivered", question.name)
            self._failure = self._failure or error

    def _leave(self) -> None:
        """The fetch is over: calls under way are given up."""
        for call in list(self._calls):
            self._gateway.pool.expire(call, SUPERSEDED)
        for name in list(self._open):
            self._answer(name, CallFailed(f"the question about {name} was cancelled"))
        self._way.batcher.finished(self._groups)


def _of_its_own(error: Exception) -> Exception:
    """A copy of an error that is handed to several keys: each raises it in a thread of its own."""
    kind = type(error)
    try:
        own = kind.__new__(kind, *error.args)
    except TypeError:  # a class with a constructor of its own kind is shared
        return error
    own.__dict__.update(error.__dict__)
    own.__cause__ = error.__cause__
    return own
