"""The one gate of the fake cloud (stage 5): every capability method passes here, and only here do faults happen.

In turn: the call is counted, its faults are chosen and, if it changes something, it is logged, all in one transaction;
a call that the host has given up ends here, unless a hard hang is to come; latency passes; faults "before" strike; the
method's own work runs in a second transaction; faults "after" strike; wrong answers are made; the end is logged. So
whatever the method does either happened as a whole or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from attrs import define, field, frozen

from cloudprovider.call import current_call
from cloudprovider.errors import CloudProviderError
from cloudprovider.testing.fake.calls import CallBook, CallRecord
from cloudprovider.testing.fake.faultbook import FaultBook, Key, Plan
from cloudprovider.testing.fake.faults import AnyFault, Hang, Partial, Wrong
from cloudprovider.testing.fake.junk import spoil, spoil_one
from cloudprovider.testing.fake.methods import METHODS, Method, matches
from cloudprovider.testing.fake.store import Store, Transaction, View
from cloudprovider.testing.fake.timing import Waiting

__all__ = ["Gate", "Latency", "Work"]

R = TypeVar("R")


@frozen
class Latency:
    """How long methods take: by pattern, in order, the first that matches; seconds from `low` to `high`."""

    rules: Sequence[tuple[str, float, float]] = ()

    def draw(self, method: str, numbers: random.Random) -> float:
        """The next latency of a method."""
        for pattern, low, high in self.rules:
            if pattern == method or matches((pattern,), (method,)):
                return low if low == high else numbers.uniform(low, high)
        return 0.0


@define
class Work:
    """What a changing method is told, and what it tells."""

    half_built: bool = False
    """Create, but leave it unfinished."""
    effect: str = ""
    """For the log: created, updated, unchanged, deleted or absent."""
    error: CloudProviderError | None = None
    """To be raised once what was done is safe in the store."""


@frozen
class _Request:
    method: Method
    keys: Sequence[Key]
    cluster: str
    arguments: Sequence[Any]
    work: Work = field(factory=Work)


class Gate:
    """Carries calls through latency, faults and log to the store. Thread-safe.

    `log_reads`: calls that change nothing are logged too.
    """

    def __init__(
        self,
        store: Store,
        calls: CallBook,
        faults: FaultBook,
        waiting: Waiting,
        *,
        latency: Latency,
        seed: int,
        log_reads: bool,
    ) -> None:
        self._store = store
        self._calls = calls
        self._faults = faults
        self._waiting = waiting
        self._latency = latency
        self._numbers = random.Random(f"{seed}/latency")
        self._log_reads = log_reads

    def count(self, method: str) -> None:
        """Count a call that is no question to the cloud, such as one for a name."""
        with self._store.write() as tx:
            self._calls.count_call(tx, method)

    def read(
        self,
        method: str,
        keys: Sequence[Key],
        work: Callable[[View], R],
        *,
        cluster: str = "",
        arguments: Sequence[Any] = (),
        prepare: Callable[[Transaction], None] | None = None,
    ) -> R:
        """Answer a question.

        `arguments` are what a scribbling fault may scribble on; `prepare` makes what is there only because it is asked.
        """

        def run(request: _Request, plan: Plan) -> R:
            if prepare is not None:
                with self._store.write(settled=True) as tx:
                    prepare(tx)
            with self._store.read(plan.as_of) as view:
                return work(view)

        return self._pass(_Request(METHODS[method], keys, cluster, arguments), run)

    def write(
        self,
        method: str,
        keys: Sequence[Key],
        work: Callable[[Transaction, Work], R],
        *,
        cluster: str = "",
        arguments: Sequence[Any] = (),
    ) -> R:
        """Carry out a change."""

        def run(request: _Request, plan: Plan) -> R:
            request.work.half_built = plan.half_built is not None
            with self._store.write() as tx:
                return work(tx, request.work)

        return self._pass(_Request(METHODS[method], keys, cluster, arguments), run)

    def _pass(self, request: _Request, run: Callable[[_Request, Plan], R]) -> R:
        method = request.method
        caller = self._calls.caller(request.cluster)
        record: CallRecord | None = None
        with self._store.write() as tx:
            self._calls.count_call(tx, method.name, len(request.keys) if method.batch else None)
            plan = self._faults.plan(tx, method, request.keys, (caller.name, str(caller.process)))
            if method.mutating or self._log_reads:
                names = (
                    [key[0] for key in request.keys] if method.batch else [n for key in request.keys for n in key if n]
                )
                record = self._calls.begin(tx, method.name, names, caller)
        try:
            answer = self._carry_out(request, plan, run)
        except BaseException as error:
            with self._store.write() as tx:
                self._calls.count_error(tx, method.name, error)
                if record is not None:
                    self._calls.end(tx, record, request.work.effect, error)
            raise
        if record is not None:
            with self._store.write() as tx:
                self._calls.end(tx, record, request.work.effect)
        return answer

    def _carry_out(self, request: _Request, plan: Plan, run: Callable[[_Request, Plan], R]) -> R:
        method = request.method
        if not any(isinstance(fault, Hang) and fault.mode == "hard" for fault in plan.before):
            current_call().check()  # it is logged already: what a host begins too late is seen there
        latency = self._latency.draw(method.name, self._numbers)
        if latency > 0:
            self._waiting.latency(latency)
        for fault in plan.before:
            self._strike(fault, method.name, plan)
        answer: Any = run(request, plan)
        if plan.half_built is not None:
            raise plan.half_built.exception(method.name)
        if request.work.error is not None:
            raise request.work.error
        for fault in plan.after:
            self._strike(fault, method.name, plan)
        if plan.by_key:
            answer = _spoil_names(answer, plan, method)
        for wrong in plan.wrong:
            draw = plan.draw(wrong.name, method.name, *(key[0] for key in request.keys[:1]))
            answer = spoil(wrong, method, request.keys, answer, _flat(request.arguments), draw)
        return cast(R, answer)

    def _strike(self, fault: AnyFault, method: str, plan: Plan) -> None:
        if isinstance(fault, Hang):
            name, order = fault.name, plan.orders[fault.name]
            self._waiting.hang(fault.seconds, lambda: self._faults.is_over(name, order), hard=fault.mode == "hard")
        elif not isinstance(fault, Wrong | Partial):
            raise fault.exception(method)


def _flat(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, and what is in those that are lists."""
    flat: list[Any] = []
    for argument in arguments:
        flat += argument if isinstance(argument, list | tuple) else [argument]
    return flat


def _spoil_names(answer: Mapping[str, Any], plan: Plan, method: Method) -> dict[str, Any]:
    """A batch's answer after the faults that concern single names; the first that fails a name decides it."""
    spoilt = dict(answer)
    for name, faults in plan.by_key.items():
        for fault in faults:
            if isinstance(fault, Partial):
                spoilt.pop(name, None)
                break
            if isinstance(fault, Wrong):
                if name in spoilt:
                    draw = plan.draw(fault.name, method.name, name)
                    spoilt[name] = spoil_one(fault, method, name, spoilt[name], draw)
            elif not isinstance(fault, Hang):
                error = fault.exception(method.name)
                # Values of a batch are the contract's errors; others could only be raised.
                spoilt[name] = error if isinstance(error, CloudProviderError) else CloudProviderError(str(error))
                break
    return spoilt
