"""Many nodes asked about at once, each answered exactly once (stage 5, cloud call): in batches,
where the provider takes them, else one by one over InstancesV2.

A fetch runs in a controller's thread, which does nothing but wait for the Futures of its calls:
vendor code runs in the pool, and deadlines are the pool's. A batch that fails or is overdue is cut
until the node to blame stands alone (:class:`Batcher`)."""

from __future__ import annotations

import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen
from kubernetes.client.models.v1_node import V1Node

from cloudprovider import (
    CallCancelled,
    InstanceNotFound,
    InstanceState,
    InstancesV2,
    NotImplementedByProvider,
    RetryError,
    Throttled,
)
from cloudprovider.checks import answers as checks
from controllers.cloudcalls.answers import (
    Answer,
    BatchAnswer,
    CallFailed,
    CallOverdue,
    CallsClosed,
    Contradiction,
    InvalidAnswer,
    by_name,
    judge,
)
from controllers.cloudcalls.call import CloudCall
from controllers.cloudcalls.pool import CallPool
from controllers.runtime.cache import key_of
from controllers.runtime.clock import bounded

log = logging.getLogger(__name__)

_PARTS = 4  # as many calls as halving, in half the time
_SUSPECTS = 256

A = TypeVar("A")
Deliver = Callable[[str, Answer[A]], None]
Ended = Callable[[Any], object]
"""What is done with the answer, or the error, of a call that ended."""


# ---- which nodes are asked about together


def concerns_all(error: Exception) -> bool:
    """Whether an error tells nothing about the keys asked for, so fewer would not help."""
    return isinstance(error, Throttled | RetryError | NotImplementedByProvider | CallCancelled | CallsClosed)


@define(eq=False)
class Batch:
    """Keys to be asked about in one call, and what came of all parts that it was cut into."""

    names: tuple[str, ...]
    whole: Batch | None = None
    """The batch that this was cut off, if any."""
    answered: bool = field(init=False, default=False)
    """Whether any part of it was answered."""
    poison: list[str] = field(init=False, factory=list)
    """Keys that failed alone."""


@define(eq=False)
class Batcher:
    """Forms the batches of one method, and remembers suspects and failures. Thread-safe.

    A batch that fails does not say which key is to blame. It is cut in four parts, and again until
    the poison key stands alone: with k of them among N, no more than 1 + 4 k ceil(log4 N) calls are
    made, and fewer than 2 N. Such a key is *suspect*: next time it is asked about alone.
    """

    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _suspects: OrderedDict[str, None] = field(init=False, factory=OrderedDict)
    _barren: int = field(init=False, default=0)  # batches cut since the last success

    def suspects(self) -> tuple[str, ...]:
        """The keys that are asked about alone, the longest known first."""
        with self._lock:
            return tuple(self._suspects)

    def form(self, names: Sequence[str], max_batch: int) -> list[Batch]:
        """The batches to begin with: full ones, then each suspect alone, last."""
        with self._lock:
            alone = [name for name in names if name in self._suspects]
        apart = set(alone)
        together = [name for name in names if name not in apart] if apart else names
        chunks = (*(together[i : i + max_batch] for i in range(0, len(together), max_batch)), *zip(alone))
        return [Batch(tuple(chunk)) for chunk in chunks]

    def answered(self, batch: Batch) -> None:
        """The call gave a batch answer, whatever that says about single keys."""
        (batch.whole or batch).answered = True
        with self._lock:
            self._barren = 0
            if len(batch.names) == 1:
                self._suspects.pop(batch.names[0], None)

    def failed(self, batch: Batch, max_batch: int) -> list[Batch]:
        """The call failed, or is overdue: the parts to ask about. Other keys get the error."""
        if len(batch.names) == 1:
            (batch.whole or batch).poison.append(batch.names[0])
            return []
        with self._lock:
            outage = self._barren >= max_batch
            if not outage:
                self._barren += 1
        if not outage:
            return [Batch(part, batch.whole or batch) for part in _parts(batch.names)]
        # A cloud that is down fails every batch, and would be asked for each key. Until the first
        # success one key is asked about as a probe; the others get the error of the batch.
        return [Batch((random.choice(batch.names),), batch)] if batch.whole is None else []

    def finished(self, batches: Iterable[Batch]) -> None:
        """The fetch that began with these is over: poison keys are suspect from now on."""
        for batch in batches:
            # Where no key was answered, or most failed alone, it was not the keys.
            if not batch.poison or not batch.answered or 2 * len(batch.poison) > len(batch.names):
                continue
            with self._lock:
                for name in batch.poison:
                    self._suspects[name] = None
                    self._suspects.move_to_end(name)
                while len(self._suspects) > _SUSPECTS:
                    self._suspects.popitem(last=False)


def _parts(names: Sequence[str]) -> list[tuple[str, ...]]:
    """At most four parts of nearly equal size, none of them empty."""
    count = min(_PARTS, len(names))
    size, larger = divmod(len(names), count)
    parts = []
    start = 0
    for index in range(count):
        end = start + size + (index < larger)
        parts.append(tuple(names[start:end]))
        start = end
    return parts


# ---- the calls


@define
class Ask(Generic[A]):
    """A call about one node, and what its end says: an answer, an error, or what to ask next."""

    call: CloudCall[Any]
    read: Callable[[Any], Any] = lambda said: said


@frozen(eq=False)
class Together(Generic[A]):
    """A method of the provider that is asked about several nodes in one call."""

    capability: Any
    method: str
    check: Callable[[V1Node, object], A]
    """Judges what it says of one node, in the vendor thread."""
    max_batch: int
    not_found: A | None = None
    """The value that "not found" is; None where it is an error."""
    batcher: Batcher = field(init=False, factory=Batcher)


@frozen(eq=False)
class NodeQuery(Generic[A]):
    """What is asked about nodes (metadata, state), and how this provider takes it: together, or
    each alone where it has no method for several, or that is not implemented. Shared by all
    fetches."""

    alone: Callable[[V1Node, int], Ask[A]] | None
    """Asks about one node, with this priority; None where there is no way to."""
    together: Together[A] | None = None


def ask_metadata(v2: InstancesV2, node: V1Node, priority: int, check: Callable[[V1Node, object], Any]) -> Ask[Any]:
    """What InstancesV2 says. `check(node, answer)` judges it."""
    return Ask(_about(node, "instance_metadata", v2.instance_metadata, partial(check, node), priority))


def ask_state(v2: InstancesV2, node: V1Node, priority: int, gone_by: str = "") -> Ask[InstanceState]:
    """Existence, then power state. "Gone" only from `instance_exists`. `gone_by`: another method
    that has said "gone", of which this is to be the proof."""
    gone = (InstanceNotFound, NotImplementedByProvider) if gone_by else InstanceNotFound

    def exists(said: bool | Exception) -> Any:
        if said is False or isinstance(said, gone):
            return InstanceState.GONE
        if isinstance(said, Exception) or gone_by:
            return said if isinstance(said, Exception) else Contradiction(gone_by, "instance_exists")
        return Ask(_about(node, "instance_shutdown", v2.instance_shutdown, checks.flag, priority), _power)

    return Ask(_about(node, "instance_exists", v2.instance_exists, checks.flag, priority), exists)


def _power(said: bool | Exception) -> InstanceState | Exception:
    """The power state of an instance that exists."""
    if isinstance(said, NotImplementedByProvider):
        return InstanceState.RUNNING
    if isinstance(said, InstanceNotFound):
        # It said a moment ago that the instance exists. The next poll decides.
        wrong = InvalidAnswer("instance_shutdown", ["it says that the instance does not exist, which it does"])
        wrong.__cause__ = said
        return wrong
    if isinstance(said, Exception):
        return said
    return InstanceState.SHUTDOWN if said else InstanceState.RUNNING


def _about(node: V1Node, method: str, fn: Any, check: Any, priority: int) -> CloudCall[Any]:
    return CloudCall(method, fn, (node,), node_key(key_of(node)), partial(judge, check, method), priority=priority)


def node_key(name: str) -> str:
    """What is parked while a call about this node is overdue."""
    return f"node/{name}"


# ---- many at once


@define(eq=False)
class Fetch(Generic[A]):
    """One fetch; used once, by one thread."""

    _pool: CallPool
    _query: NodeQuery[A]
    _deliver: Deliver[A]
    _priority: int
    _open: dict[str, V1Node] = field(init=False, factory=dict)  # nodes without an answer
    _ended: SimpleQueue[Future[Any]] = field(init=False, factory=SimpleQueue)
    _handlers: dict[Future[Any], Ended] = field(init=False, factory=dict)
    _failure: Exception | None = field(init=False, default=None)

    def run(self, nodes: Sequence[V1Node]) -> None:
        """Ask about the nodes (distinct by name) and deliver. Raises what `deliver` raised."""
        together, batches = self._query.together, list[Batch]()
        self._open = {key_of(node): node for node in nodes}
        # A batch parks nobody, so it must not ask again about a node whose own call hangs.
        for name in list(self._open):
            parked = self._pool.parked_error(node_key(name), "the call under way")
            if parked is not None:
                self._answer(name, parked)
        if together is None:
            for name in list(self._open):
                self._ask_alone(name)
        else:
            batches = together.batcher.form(list(self._open), together.max_batch)
            for batch in batches:
                self._ask_together(together, batch)
        while self._handlers:
            with bounded():  # the deadlines of calls end it: no stall of the worker that waits
                future = self._ended.get()
            error = future.exception()
            self._handlers.pop(future)(future.result() if error is None else error)
            del future, error
        if together is not None:
            together.batcher.finished(batches)
        if self._failure is not None:
            raise self._failure

    def _submit(self, call: CloudCall[Any], ended: Ended) -> None:
        future = self._pool.submit(call)
        self._handlers[future] = ended
        future.add_done_callback(self._ended.put)

    # ---- alone

    def _ask_alone(self, name: str) -> None:
        assert self._query.alone is not None
        ask = self._query.alone(self._open[name], self._priority)
        self._submit(ask.call, partial(self._said, name, ask))

    def _said(self, name: str, ask: Ask[A], said: Any) -> None:
        found = ask.read(said)
        if isinstance(found, Ask):  # a second method says the rest: the instance exists, does it run?
            self._submit(found.call, partial(self._said, name, found))
        else:
            self._answer(name, found)

    # ---- batches

    def _ask_together(self, asked: Together[A], batch: Batch) -> None:
        names, nodes = batch.names, {name: self._open[name] for name in batch.names}
        call = CloudCall(
            asked.method,
            getattr(asked.capability, asked.method),
            ([*nodes.values()],),
            node_key(names[0]) if len(names) == 1 else "",  # a batch parks nobody: most of it is not to blame
            partial(by_name, nodes, asked.check, asked.method, not_found=asked.not_found),
            priority=self._priority,
            about=f"{len(names)} nodes ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})",
        )
        self._submit(call, partial(self._batch_ended, asked, batch))

    def _batch_ended(self, asked: Together[A], batch: Batch, said: BatchAnswer[A] | Exception) -> None:
        if isinstance(said, BatchAnswer):
            asked.batcher.answered(batch)
            for name, value in said.values.items():
                self._answer(name, value)
        elif isinstance(said, NotImplementedByProvider) and self._query.alone is not None:
            for name in batch.names:
                self._ask_alone(name)
        else:
            self._batch_failed(asked, batch, said)

    def _batch_failed(self, asked: Together[A], batch: Batch, error: Exception) -> None:
        if isinstance(error, CallOverdue) and len(batch.names) > 1:
            # No reason to park these keys: at most one of them is to blame, and it will be found.
            error = CallFailed(f"the provider's {asked.method} has not answered in time for {len(batch.names)} nodes")
        if isinstance(error, NotImplementedByProvider):
            # There is no other way to ask, and a bare one says nothing.
            why = f": {error}" if str(error) else ""
            error = NotImplementedByProvider(f"the provider's {asked.method} is not implemented{why}")
        parts = [] if concerns_all(error) else asked.batcher.failed(batch, asked.max_batch)
        again = {name for part in parts for name in part.names}
        for name in batch.names:
            if name not in again:
                self._answer(name, error if len(batch.names) == 1 else _of_its_own(error))
        for part in parts:
            self._ask_together(asked, part)

    # ---- answers

    def _answer(self, name: str, answer: A | Exception) -> None:
        try:
            self._deliver(name, Answer(self._open.pop(name), answer))
        except Exception as error:
            # A fault of the controller's. The other nodes get their answers first.
            log.exception("the answer about %s could not be delivered", name)
            self._failure = self._failure or error


def _of_its_own(error: Exception) -> Exception:
    """A copy of an error that is handed to several keys: each raises it in a thread of its own."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error.__cause__
    return own
