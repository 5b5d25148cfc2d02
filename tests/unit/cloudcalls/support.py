"""Fakes for the gateway's tests: providers whose methods are plain functions, calls that hang until
told, nodes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_service import V1Service

from cloudprovider import InstanceMetadata, Interface, threads
from cloudprovider.testing.waiting import eventually
from controllers.cloudcalls import CloudCallOptions, CloudCalls
from controllers.cloudcalls.capabilities import LoadBalancerCalls
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.there import there

T = TypeVar("T")
LIMIT = 60.0  # seconds of real time that another thread may take to get somewhere


def node(
    name: str, *, provider_id: str = "", uid: str = "", revision: str = "1", labels: Mapping[str, str] | None = None
) -> V1Node:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": revision, "labels": dict(labels or {})}
    raw: dict[str, Any] = {
        "metadata": metadata,
        "spec": {"providerID": provider_id} if provider_id else {},
    }
    return there(V1Node.from_dict(raw))


def nodes(count: int) -> list[V1Node]:
    return [node(f"n{i}") for i in range(count)]


def service(name: str = "web", namespace: str = "default") -> V1Service:
    raw = {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"}, "spec": {}}
    return there(V1Service.from_dict(raw))


def metadata(name: str, **fields: Any) -> InstanceMetadata:
    fields.setdefault("provider_id", f"test://{name}")
    fields.setdefault("node_addresses", [V1NodeAddress(type="InternalIP", address="10.0.0.1")])
    return InstanceMetadata(**fields)


class Capability:
    """Any capability: its methods are the functions given, and every call is noted."""

    def __init__(self, **methods: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._lock = threading.Lock()
        for name, value in methods.items():
            setattr(self, name, self._noted(name, value) if callable(value) else value)

    def count(self, method: str) -> int:
        return sum(1 for name, _ in self.calls if name == method)

    def _noted(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with self._lock:
                self.calls.append((name, args))
            return fn(*args)

        return call


class Provider(Interface):
    """A provider made of capabilities: `Provider(instances_v2=Capability(...))`."""

    def __init__(self, *, name: str = "test", prefixes: Sequence[str] | None = None, **capabilities: Any) -> None:
        self._name = name
        self._prefixes = prefixes
        for accessor, capability in capabilities.items():
            setattr(self, accessor, lambda capability=capability: capability)

    def provider_name(self) -> str:
        return self._name

    def provider_id_prefixes(self) -> Sequence[str]:
        return super().provider_id_prefixes() if self._prefixes is None else self._prefixes


def batch_of(answer: Callable[[Sequence[V1Node]], Any], max_batch: int = 100) -> Capability:
    return Capability(max_batch=max_batch, instances_metadata=answer, instances_state=answer)


def names_of(seq: Sequence[V1Node]) -> list[str]:
    return [n.metadata.name for n in seq if n.metadata is not None and n.metadata.name]


def all_good(seq: Sequence[V1Node]) -> dict[str, InstanceMetadata]:
    return {name: metadata(name) for name in names_of(seq)}


class Hang:
    """Vendor code that hangs until `release`. `entered` counts the calls that have come so far."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self._entered = threading.Semaphore(0)
        self._released = threading.Event()

    def __call__(self, *args: Any) -> Any:
        self._entered.release()
        assert self._released.wait(LIMIT), "the test never let go of a hung call"
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(*args) if callable(self.answer) else self.answer

    def wait_entered(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._entered.acquire(timeout=LIMIT), "the call never reached the provider"

    def release(self) -> None:
        self._released.set()


class Task(threads.Task[T]):
    """A function in a thread of its own."""

    def __init__(self, fn: Callable[[], T]) -> None:
        super().__init__(fn, "test")

    def done(self) -> bool:
        return self.wait(0)

    def result(self) -> T:
        assert self.wait(LIMIT), "the task still runs"
        return super().result()


class Answers(dict[str, Any]):
    """A `deliver` that fails when a node is answered twice, and keeps what was said."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def __call__(self, name: str, answer: Any) -> None:
        with self._changed:
            assert name not in self, f"{name} was answered twice"
            self[name] = answer.unbound
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self) >= count, LIMIT), f"{len(self)} answers, not {count}"

    def good(self) -> set[str]:
        return {name for name, answer in self.items() if not isinstance(answer, Exception)}

    def bad(self) -> set[str]:
        return set(self) - self.good()


class World:
    """CloudCalls around a provider, with a clock and metrics of its own."""

    def __init__(self, provider: Interface, **settings: Any) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        hooks = {name: settings.pop(name) for name in ("guard",) if name in settings}
        self.calls = CloudCalls(
            provider,
            options=CloudCallOptions(**settings),
            metrics=self.metrics,
            clock=self.clock,
            **hooks,
        )

    @property
    def balancers(self) -> LoadBalancerCalls:
        return there(self.calls.load_balancers)

    def time_out(self, hang: Hang, seconds: float = 60.0, *, calls: int = 1) -> None:
        """Once so many more calls hang: let the time pass that one of them has."""
        hang.wait_entered(calls)
        self.wait_for_timer(seconds)
        self.clock.advance(seconds)

    def wait_for_timer(self, seconds: float) -> None:
        """Block until the pool's timer sleeps, for so long at most: `advance` will wake it."""
        pool = self.calls._pool

        def sleeps() -> bool:
            with pool._lock:
                return -math.inf < pool._wake_at <= self.clock.monotonic() + seconds + 1e-6

        eventually(sleeps, LIMIT)

    def wait_queued(self, count: int) -> None:
        """Block until so many calls wait for their turn."""
        eventually(lambda: self.calls._pool.waiting() == count, LIMIT)

    def requests(self, method: str, outcome: str) -> float:
        value = self.metrics.value("cloudprovider_api_requests_total", provider="test", method=method, outcome=outcome)
        return value or 0.0

    def gauge(self, name: str) -> float | None:
        return self.metrics.value(name, provider="test")

    def fetch(self, seq: Sequence[V1Node], **how: Any) -> Answers:
        answers = Answers()
        self.calls.fetch_metadata(seq, answers, **how)
        return answers

    def fetch_state(self, seq: Sequence[V1Node], **how: Any) -> Answers:
        answers = Answers()
        self.calls.fetch_state(seq, answers, **how)
        return answers


@contextmanager
def world(provider: Interface, **settings: Any) -> Iterator[World]:
    made = World(provider, **settings)
    try:
        yield made
    finally:
        made.calls.close()
