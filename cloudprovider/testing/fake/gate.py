"""The one gate of the fake cloud: every capability method that is marked `carried` passes here.

In turn: the call is counted and, if it changes something, logged; a call that the host has given up
ends here; latency passes; faults strike; the method's own body runs under the world's lock; the end
is logged. In a process that shares the cloud of another one, the call goes there instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from cloudprovider.call import current_call
from cloudprovider.testing.fake.calls import CallBook
from cloudprovider.testing.fake.faults import Faults, Key, Request
from cloudprovider.testing.fake.machines import Machines
from cloudprovider.testing.fake.methods import METHODS, Method, matches
from cloudprovider.testing.fake.records import World
from cloudprovider.testing.fake.sharing import CloudClient

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Part")


class Gate:
    """Carries calls through latency, faults and log to the world. Thread-safe.

    `latency` is by pattern of methods, the least and the most in seconds; the first that matches
    counts. `log_reads`: calls that change nothing are logged too.
    """

    def __init__(
        self,
        world: World,
        calls: CallBook,
        faults: Faults,
        *,
        latency: Mapping[str, tuple[float, float]],
        log_reads: bool,
        remote: CloudClient | None = None,
    ) -> None:
        self.world = world
        self.calls = calls
        self._remote = remote
        self._faults = faults
        self._latency = latency
        self._log_reads = log_reads

    def carry(
        self,
        method: str,
        keys: Sequence[Key] = (),
        work: Callable[[], R | None] = lambda: None,
        *,
        cluster: str = "",
        arguments: tuple[Any, ...] = (),
    ) -> R:
        """Carry a call to `work`, which answers it. `arguments` are those of the method."""
        # Latency, faults and log are those of the process that has the cloud.
        if self._remote is not None:
            return cast(R, self._remote.ask(method, arguments, self.calls.caller))
        request = Request(METHODS[method], keys, cluster, arguments, self.calls.caller)
        self.calls.count_call(method)
        log: AbstractContextManager[None] = nullcontext()
        # Reads are by far the most: a log of them would grow with each look at each node.
        if request.method.changes or self._log_reads:
            names = [key[0] for key in keys] if request.method.batch else [name for key in keys for name in key if name]
            log = self.calls.logged(method, names, cluster)
        with log:
            current_call().check()  # it is logged already: what a host begins too late is seen there
            # Before the faults, and interruptible: a slow cloud is no fault.
            if seconds := self._draw(method):
                current_call().pause(seconds)

            def locked() -> R | None:
                # Around the body alone: a call that hangs must not stop the whole cloud.
                with self.world.lock:
                    return work()

            return cast(R, self._faults.carry(request, locked))

    def _draw(self, method: str) -> float:
        for pattern, (low, high) in self._latency.items():
            if matches(pattern, (method,)):
                return low if low == high else random.uniform(low, high)
        return 0.0


class Part:
    """A capability of one cloud: its methods are bodies that look at the world and change it."""

    def __init__(self, machines: Machines, gate: Gate) -> None:
        self._machines = machines
        self._config = machines.config
        self._gate = gate
        self._world = gate.world


def _first(_: Part, *arguments: Any) -> Sequence[Key]:
    return [(arguments[0],)] if arguments else []


def carried(
    keys: Callable[..., Sequence[Key]] = _first, *, changes: bool = False, batch: bool = False
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Mark a method of the contract that passes the gate. `keys` makes what the call is about of
    self and the arguments; default: the first argument. `changes` and `batch` as in `Method`."""

    def mark(work: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        # As the class is made, so that a fault can be set before any cloud is there.
        METHODS[work.__name__] = Method(work.__name__, changes, batch)
        form = signature(work)
        clustered = "cluster_name" in form.parameters

        @wraps(work)
        def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            # In their places, whether or not the caller named them: the key and the other process
            # need that.
            given = form.bind(self, *args, **kwargs).args[1:]
            cluster = given[0] if clustered else ""
            body = partial(work, self, *args, **kwargs)
            return self._gate.carry(work.__name__, keys(self, *given), body, cluster=cluster, arguments=given)

        return method

    return mark
