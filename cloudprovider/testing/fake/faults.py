"""What goes wrong with the fake cloud: one hook, by which a test stands between a call and the
cloud.

::

    cloud.faults.on("instance*", raises(Throttled("slow down")), times=3)
    hung = cloud.faults.on("ensure_load_balancer", hangs(), key="default/web")
    ...
    hung.remove()  # what hangs on it goes on

    def half_the_time(strike: Strike) -> object:  # anything else: a function of your own
        if random.random() < 0.5:
            raise CloudProviderError("bad luck")
        return strike.proceed()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from attrs import field, frozen

from cloudprovider.call import current_call
from cloudprovider.errors import CloudProviderError
from cloudprovider.testing.fake.methods import METHODS, Method, Patterns, matches
from cloudprovider.testing.fake.records import LoadBalancerState

if TYPE_CHECKING:
    from cloudprovider.testing.fake.calls import Caller
    from cloudprovider.testing.fake.console import Console

Key = tuple[str, ...]
"""What a call is about: the name first (in a batch: the node's), then what else it is known by."""
_TICK = 0.02  # seconds between two looks whether the host cancelled the call


@frozen
class Request:
    """One call as it came to the cloud."""

    method: Method
    keys: Sequence[Key]
    cluster: str
    arguments: Sequence[Any]
    caller: Caller


@frozen
class Strike:
    """One call that a fault strikes. Its action answers it: with `proceed`'s answer, another, or an
    exception."""

    fault: Fault
    request: Request
    names: Sequence[str]
    """The names in the call that the fault's `key` matches: node names of a batch, or else the
    first key."""
    console: Console
    _proceed: Callable[[], Any] = field(repr=False)

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.request.method.name

    @property
    def arguments(self) -> Sequence[Any]:
        """What the method was given, self excepted."""
        return self.request.arguments

    @property
    def by_name(self) -> bool:
        """Whether only some names of a batch are concerned, since the fault has a key."""
        return self.request.method.batch and self.fault.key != "*"

    def proceed(self) -> Any:
        """Do what the cloud would do (or the next fault); returns its answer or raises its error.
        May be called again, or not at all."""
        return self._proceed()

    def wait(self, seconds: float | None = None, *, soft: bool = False) -> None:
        """Wait until the fault is removed, or so long.

        `soft`: raise `CallInterrupted` when the host gives up meanwhile, as a good provider does.
        Raises `FakeCloudClosed`.
        """
        self.fault._wait(seconds, soft)


class FakeCloudClosed(CloudProviderError):
    """`FakeCloud.close` was called while this call was waiting, or before it."""


Action = Callable[[Strike], Any]
"""What happens to a call that a fault strikes."""


class Fault:
    """A fault that stands. As a context manager it is removed at the end."""

    def __init__(self, faults: Faults, do: Action, *, method: Patterns, key: Patterns, times: int | None) -> None:
        self.method = method
        self.key = key
        self.struck = 0
        """How many calls it struck."""
        self._faults = faults
        self._do = do
        self._times = times
        self._over = threading.Event()

    def remove(self) -> None:
        """It strikes no more, and what hangs on it goes on. May be called twice."""
        self._faults._forget(self)
        self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _wait(self, seconds: float | None, soft: bool) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        call = current_call()
        while not self._over.is_set():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            # In short waits, as nothing wakes this thread when the host gives up.
            if soft:
                call.check()
                left = _TICK if left is None else min(left, _TICK)
            self._over.wait(left)
        # Else the end of a test would let a call go on that is not wanted any more.
        if self._faults.closed:
            raise FakeCloudClosed("the fake cloud was closed during the call")


class Faults:
    """Puts faults between the host and the cloud. Every method may be called at any time, from any
    thread."""

    def __init__(self, console: Console) -> None:
        self.closed = False
        self._console = console
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def on(self, method: Patterns, do: Action, *, key: Patterns = "*", times: int | None = None) -> Fault:
        """From now on `do` answers the calls of matching methods about matching keys, `times` of
        them or all.

        `method` and `key` are shell patterns, one or several. A key is what the call is about: node
        name or provider ID, "namespace/name" of a Service or the load balancer's name, a route's
        destination, name or node, a volume's ID or name, a cluster's name. Where several faults
        strike a call, the first one is asked first, and its `proceed` asks the next. Raises
        ValueError where no method matches.
        """
        # A fault that strikes nothing would make a test pass for the wrong reason.
        if not matches(method, METHODS):
            raise ValueError(f"the fake cloud has no method {method}")
        fault = Fault(self, do, method=method, key=key, times=times)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove every fault: the cloud is well."""
        with self._lock:
            faults = list(self._faults)
        # Without the lock, which each removal takes.
        for fault in faults:
            fault.remove()

    # For the cloud and its gate.

    def close(self) -> None:
        """End what hangs with `FakeCloudClosed`, now and later."""
        self.closed = True
        self.clear()

    def carry(self, request: Request, work: Callable[[], Any]) -> Any:
        """Carry a call through the faults that it meets to `work`."""
        if self.closed:
            raise FakeCloudClosed("the fake cloud was closed")
        # The first fault is wrapped last, so that it is asked first.
        for fault, names in reversed(self._met(request)):
            work = _struck(Strike(fault, request, names, self._console, work))
        return work()

    def _met(self, request: Request) -> list[tuple[Fault, list[str]]]:
        met: list[tuple[Fault, list[str]]] = []
        with self._lock:
            for fault in self._faults:
                chosen = [key for key in request.keys if fault.key == "*" or matches(fault.key, key)]
                spent = fault._times is not None and fault.struck >= fault._times
                if spent or not matches(fault.method, (request.method.name,)) or not (chosen or fault.key == "*"):
                    continue
                fault.struck += 1
                met.append((fault, [key[0] for key in chosen]))
        return met

    def _forget(self, fault: Fault) -> None:
        with self._lock:
            if fault in self._faults:
                self._faults.remove(fault)


def _struck(strike: Strike) -> Callable[[], Any]:
    return lambda: strike.fault._do(strike)


# Actions that many tests need.


def raises(error: BaseException | type[BaseException] = CloudProviderError, *, after: bool = False) -> Action:
    """The call fails; in a batch, where the fault has a key, only the matching names do.

    `after`: the cloud did all that was asked, and the caller cannot tell.
    """

    def do(strike: Strike) -> Any:
        raised = error if isinstance(error, BaseException) else error(f"injected into {strike.method}")
        if strike.by_name:
            # Values of a batch are the contract's errors; others could only be raised.
            value = raised if isinstance(raised, CloudProviderError) else CloudProviderError(str(raised))
            return {**strike.proceed(), **dict.fromkeys(strike.names, value)}
        if after:
            strike.proceed()
        # One exception may strike often: its traceback would grow with each time.
        raise raised.with_traceback(None)

    return do


def hangs(seconds: float | None = None, *, soft: bool = False, after: bool = False) -> Action:
    """The call does not come back until the fault is removed, or `seconds` have passed; then it
    goes on.

    A hard hang does not notice that the host cancels the call or that its deadline passes; a `soft`
    one does. `after`: the cloud did all that was asked before.
    """

    def do(strike: Strike) -> Any:
        if not after:
            strike.wait(seconds, soft=soft)
            return strike.proceed()
        answer = strike.proceed()
        strike.wait(seconds, soft=soft)
        return answer

    return do


def answers(value: Any) -> Action:
    """The call succeeds with this answer: a value, or a function of the true one.

    In a batch it is the answer about each matching name.
    """

    def do(strike: Strike) -> Any:
        def spoil(truth: Any) -> Any:
            return value(truth) if callable(value) else value

        truth = strike.proceed()
        if not strike.request.method.batch:
            return spoil(truth)
        return {name: spoil(one) if name in strike.names else one for name, one in truth.items()}

    return do


def half_builds() -> Action:
    """`ensure_load_balancer` leaves a new load balancer without address, ports and backends, changes
    none that is there, and fails."""

    def do(strike: Strike) -> Any:
        name = strike.request.keys[0][0]
        # An update that fails leaves what stood there before.
        there = any(one.name == name for one in strike.console.load_balancers())
        if not there:
            strike.proceed()
            strike.console.change_load_balancer(
                name, state=LoadBalancerState.HALF_BUILT, ingress=(), ports=(), backends=(), source_ranges=()
            )
        raise CloudProviderError(f"injected into {strike.method}, which is half done")

    return do
