"""A controller's life, from its informers' first listing to its last Event. All lead the same.

Stages 2 to 6 as threads: `controller.py` of each controller builds queues and workers and hands
them here when it runs."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from attrs import define, field

from cloudprovider.host import StopSignal
from cloudprovider.internal.backoff import Backoff
from controllers.runtime.cache import Registration
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.queue import BatchWorker, Worker
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
            if ended.wait(self.period if wait is None else wait):
                return


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
    is left of it, a second at least."""
    ended = ClockEvent(clock)
    tickers = [
        threading.Thread(target=each.run, args=(ended,), name=f"{component}-{each.name}", daemon=True)
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
