"""A controller's life, from its informers' first listing to its last Event. All lead the same.

Stages 2 to 6 as threads: `controller.py` of each controller builds queues and workers and hands
them here when it runs."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from attrs import frozen

from cloudprovider.host import StopSignal
from cloudprovider.internal.backoff import Backoff
from controllers.runtime.cache import Registration
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.queue import BatchWorker, Worker
from controllers.runtime.write import EventRecorder

log = logging.getLogger(__name__)

_POLL: Final = Backoff(base=0.002, cap=0.05, factor=1.1)
"""Between two looks whether all is listed. The first write waits for it, an outage may be long."""


class _FirstRound:
    """Counts to the moment when a controller, and each of its periodic actions, has begun."""

    def __init__(self, actions: int, over: Callable[[], None]) -> None:
        self._left = actions + 1
        self._over = over
        self._lock = threading.Lock()

    def ran(self) -> None:
        with self._lock:
            self._left -= 1
            over = not self._left
        if over:
            self._over()


@runtime_checkable
class Attentive(Protocol):
    """A stop signal whose owner wants to know when a controller is in full work."""

    def begins(self) -> Callable[[], None]:
        """A controller begins. What it returns is called when its actions have run once."""


@frozen
class Periodic:
    """`action` at once when the controller begins to work, and then `period` seconds after its last
    run ended, or the seconds that it returned."""

    name: str
    period: float
    action: Callable[[], float | None]

    def run(self, ended: ClockEvent, ran: Callable[[], None] = lambda: None) -> None:
        """What raises is logged, and comes again in its time. `ran` follows the first run."""
        while True:
            wait: float | None = None
            try:
                wait = self.action()
            except BaseException:  # SystemExit of a vendor's code must not end it for good either
                log.exception("%s failed, retrying in %g s", self.name, self.period)
            ran()
            ran = _nothing
            if ended.wait(self.period if wait is None else wait):
                return


def _nothing() -> None:
    pass


def run_until(
    stop: StopSignal,
    *,
    component: str,
    registrations: Callable[[], Iterable[Registration[Any]]],
    workers: Sequence[Worker[Any] | BatchWorker[Any, Any]],
    recorder: EventRecorder,
    drain_timeout: float,
    clock: Clock,
    begin: Callable[[], None] | None = None,
    finish: Callable[[], None] | None = None,
    periodic: Sequence[Periodic] = (),
) -> None:
    """Work until `stop` is set, then finish what is under way and return. Blocks; once for workers.

    Registers the handlers, waits for their informers' first listings, calls `begin` and starts
    workers and periodic actions. When `stop` is set, `finish` is called: what it queues is worked
    on. Then `drain_timeout` seconds are the bound for the keys that wait, and the Events get what
    is left of it, a second at least. An `Attentive` stop hears of it."""
    first_round = _FirstRound(len(periodic), stop.begins() if isinstance(stop, Attentive) else _nothing)
    ended = ClockEvent(clock)
    tickers = [
        threading.Thread(target=each.run, args=(ended, first_round.ran), name=f"{component}-{each.name}", daemon=True)
        for each in periodic
    ]
    registered: list[Registration[Any]] = []
    started = False
    try:
        registered.extend(registrations())
        looks = itertools.count()
        while not all(registration.has_synced() for registration in registered):
            if stop.wait(_POLL.delay(next(looks))):
                return
        if begin is not None:
            begin()
        for worker in workers:
            worker.start()
        for ticker in tickers:
            ticker.start()
        started = True
        first_round.ran()
        log.info("%s is running", component)
        stop.wait()
        if finish is not None:
            finish()
    except BaseException:
        # Raised at once, without waiting: the caller has to know.
        log.critical("%s died", component, exc_info=True)
        drain_timeout = 0.0
        raise
    finally:
        ended.set()
        for registration in registered:
            registration.remove()
        deadline = clock.monotonic() + drain_timeout
        for worker in workers:  # all before one is waited for: none begins anything new meanwhile
            worker.ask_to_stop()
        for worker in workers:
            if not worker.stop(max(0.0, deadline - clock.monotonic())):
                log.warning("%s: work under way did not finish before the drain timeout", component)
        recorder.stop(max(1.0, deadline - clock.monotonic()))
        if started:
            for ticker in tickers:
                ticker.join(1.0)
