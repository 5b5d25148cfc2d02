"""What all controllers have in common: a client, Events, queues, workers, health, and a life.

A controller derives from `ControllerBase`, builds its parts in its constructor with the helpers
here, and hands `run_until` what it has collected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from cloudprovider.host import StopSignal
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import Registration, T
from controllers.runtime.cache.informer import Informer
from controllers.runtime.clock import Clock
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Batching, BatchWorker, FailureHandling, Worker, WorkQueue
from controllers.runtime.run import Periodic, run_until
from controllers.runtime.write import EventRecorder


class HasDrainTimeout(Protocol):
    """Options of a controller, as far as its life depends on them."""

    @property
    def drain_timeout(self) -> float:
        """Seconds for the keys that wait when the controller stops."""


class ControllerBase:
    """Base of every controller. It does not start the informers; `run` may be called once."""

    NAME: ClassVar[str]
    """Its name in logs; that of --controllers."""
    CLIENT: ClassVar[str]
    """The name of its client, and of its service account."""
    EVENT_SOURCE: ClassVar[str] = ""
    """What its Events say that they come from; `NAME` if empty."""

    def __init__(self, clients: ClientBuilder, options: HasDrainTimeout, metrics: Metrics | None, clock: Clock) -> None:
        self._clock = clock
        self._metrics = metrics = metrics or Metrics()
        self._drain_timeout = options.drain_timeout
        self._rest = clients.rest(self.CLIENT)
        self._recorder = EventRecorder(self._rest, self.EVENT_SOURCE or self.NAME, clock=clock, metrics=metrics)
        self._workers: list[Worker[Any] | BatchWorker[Any, Any]] = []
        self._periodic: list[Periodic] = []
        self._handlers: list[Callable[[], Registration[Any]]] = []
        self._working = False

    @property
    def begun(self) -> bool:
        """Whether it works, and each of its periodic actions has run once. Thread-safe."""
        return self._working and all(each.ran for each in self._periodic)

    def _queue(self, name: str, **settings: Any) -> WorkQueue[str]:
        """A work queue; `settings` as WorkQueue takes them."""
        return WorkQueue(name, clock=self._clock, metrics=self._metrics, **settings)

    def _add_worker(
        self,
        queue: WorkQueue[str],
        reconcile: Callable[[str], Any],
        *,
        threads: int,
        failures: FailureHandling[str] | None = None,
    ) -> None:
        """Work off `queue` key by key, while the controller runs."""
        self._workers.append(Worker(queue, reconcile, threads=threads, failures=failures, metrics=self._metrics))

    def _add_batch_worker(
        self,
        queue: WorkQueue[str],
        fetch: Callable[..., None],
        reconcile: Callable[..., Any],
        *,
        batching: Batching,
        threads: int,
        failures: FailureHandling[str] | None = None,
    ) -> None:
        """Work off `queue`, asking the cloud about many keys at once, while the controller runs."""
        self._workers.append(
            BatchWorker(
                queue,
                fetch,
                reconcile,
                batching=batching,
                threads=threads,
                failures=failures,
                metrics=self._metrics,
            )
        )

    def _watch(self, informer: Informer[T], triggers: Any) -> None:
        """Hand the informer's events to those of on_add, on_update and on_delete that `triggers`
        has, while the controller runs."""
        add, update, delete = (getattr(triggers, name, None) for name in ("on_add", "on_update", "on_delete"))
        self._handlers.append(lambda: informer.add_handler(add, update, delete))

    def _every(self, seconds: float, name: str, action: Callable[[], float | None]) -> None:
        """Call `action` at once and then again and again, while the controller runs."""
        self._periodic.append(Periodic(name, seconds, action))

    def _begin(self) -> None:
        """Called once the informers have listed, before anything is worked on."""

    def _finish(self) -> None:
        """Called when it is time to stop: what it adds to a queue is still worked on."""

    def run(self, stop: StopSignal) -> None:
        """Work until `stop` is set, then finish what is under way and return. Blocks; call it once.

        Waits for the informers' first listings before it begins. Keys that still wait when it stops
        are worked off in the drain time; the next manager finds the rest by listing."""

        def begin() -> None:
            self._begin()
            self._working = True

        run_until(
            stop,
            component=self.NAME,
            registrations=lambda: (register() for register in self._handlers),
            workers=self._workers,
            recorder=self._recorder,
            drain_timeout=self._drain_timeout,
            clock=self._clock,
            begin=begin,
            finish=self._finish,
            periodic=self._periodic,
        )

    def health(self) -> list[tuple[str, bool, str]]:
        """One (name, healthy, detail) per worker; see `Worker.health`. Thread-safe."""
        return [worker.health() for worker in self._workers]
