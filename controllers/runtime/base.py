"""What all controllers have in common: a client, Events, queues, workers, health, and a life, from
the informers' first listing to the last Event.

A controller derives from `ControllerBase` and builds its parts in its constructor with the helpers
here; `run` leads them.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from attrs import define, field

from cloudprovider.host import StopSignal
from cloudprovider.internal.backoff import Backoff
from controllers.runtime.api import ClientBuilder
from controllers.runtime.cache import Registration, T
from controllers.runtime.cache.informer import Informer
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.metrics import Metrics
from controllers.runtime.queue import Batching, BatchWorker, FailureHandling, Worker, WorkQueue
from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

_POLL: Final = Backoff(base=0.002, cap=0.05, factor=1.1)
"""Between two looks whether all is listed. The first write waits for it, an outage may be long."""


@define
class Periodic:
    """`action` at once when the controller begins to work, and then `period` seconds after its last
    run ended, or the seconds that it returned."""

    name: str
    period: float
    action: Callable[[], float | None]
    ran: bool = field(default=False, init=False)
    """Whether it has run once."""

    def run(self, ended: ClockEvent) -> None:
        """What raises is logged, and comes again in its time."""
        while True:
            wait: float | None = None
            try:
                wait = self.action()
            except BaseException:  # SystemExit of a vendor's code must not end it for good either
                log.exception("%s failed, retrying in %g s", self.name, self.period)
            self.ran = True
            # The period begins after the end: a slow action does not run back to back.
            if ended.wait(self.period if wait is None else wait):
                return


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
        are worked off in the drain time, and the Events get what is left of it, a second at least;
        the next manager finds the rest by listing."""
        ended = ClockEvent(self._clock)
        tickers = [
            threading.Thread(target=each.run, args=(ended,), name=f"{self.NAME}-{each.name}", daemon=True)
            for each in self._periodic
        ]
        registered: list[Registration[Any]] = []
        drain_timeout = self._drain_timeout
        try:
            registered.extend(register() for register in self._handlers)
            looks = itertools.count()
            while not all(registration.has_synced() for registration in registered):
                # Leadership may be lost while the first lists are read: nothing was begun, nothing
                # is finished.
                if stop.wait(_POLL.delay(next(looks))):
                    return
            self._begin()
            self._working = True
            for worker in self._workers:
                worker.start()
            for ticker in tickers:
                ticker.start()
            log.info("%s is running", self.NAME)
            stop.wait()
            self._finish()
        except BaseException:
            # Raised at once, without waiting: the caller has to know.
            log.critical("%s died", self.NAME, exc_info=True)
            # Its state is unknown: no further key may run on it.
            drain_timeout = 0.0
            raise
        finally:
            ended.set()
            for registration in registered:
                # Events that come from here on would add keys to queues that drain.
                registration.remove()
            deadline = self._clock.monotonic() + drain_timeout
            for worker in self._workers:  # all before one is waited for: none begins anything new meanwhile
                worker.ask_to_stop()
            for worker in self._workers:
                if not worker.stop(max(0.0, deadline - self._clock.monotonic())):
                    log.warning("%s: work under way did not finish before the drain timeout", self.NAME)
            # A second even after a drain that took all: the last Events say what became of it.
            self._recorder.stop(max(1.0, deadline - self._clock.monotonic()))
            for ticker in tickers:
                if ticker.ident is not None:  # it was started
                    ticker.join(1.0)

    def health(self) -> list[tuple[str, bool, str]]:
        """One (name, healthy, detail) per worker; see `Worker.health`. Thread-safe."""
        return [worker.health() for worker in self._workers]
