"""A controller's life, from its informers' first listing to its last Event: the one that all controllers lead.

Stages 2 to 6 as threads: `controller.py` of each controller builds queues and workers and hands them here when it runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from attrs import frozen

from cloudprovider.host import StopSignal
from controllers.runtime.cache import Registration
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.write import EventRecorder

__all__ = ["Periodic", "run_until"]

log = logging.getLogger(__name__)

_POLL = 0.01


class _Workers(Protocol):
    def start(self) -> None: ...

    def stop(self, timeout: float) -> bool: ...


@frozen
class Periodic:
    """`action` at once when the controller begins to work, and then `period` seconds after its last run ended, or the
    seconds that it returned."""

    name: str
    period: float
    action: Callable[[], float | None]

    def run(self, ended: ClockEvent) -> None:
        """What raises is logged and comes again in its time."""
        while True:
            wait: float | None = None
            try:
                wait = self.action()
            except Exception:
                log.exception("%s failed, retrying in %g s", self.name, self.period)
            if ended.wait(self.period if wait is None else wait):
                return


def run_until(
    stop: StopSignal,
    *,
    component: str,
    registrations: Callable[[], Iterable[Registration[Any]]],
    workers: Sequence[_Workers],
    recorder: EventRecorder,
    drain_timeout: float,
    clock: Clock,
    begin: Callable[[], None] | None = None,
    periodic: Sequence[Periodic] = (),
) -> None:
    """Work until `stop` is set, then finish what is under way and return. Blocks; once per set of workers.

    Registers the handlers, waits for their informers' first listings, calls `begin` and starts workers and periodic
    actions. Then `drain_timeout` seconds are the bound for the keys that wait, and the Events get what is left of it,
    a second at least.
    """
    ended = ClockEvent(clock)
    tickers = [
        threading.Thread(target=each.run, args=(ended,), name=f"{component}-{each.name}", daemon=True)
        for each in periodic
    ]
    registered: list[Registration[Any]] = []
    started = False
    try:
        registered.extend(registrations())
        while not all(registration.has_synced() for registration in registered):
            if stop.wait(_POLL):
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
    except BaseException:
        # Told at once, and nothing is waited for: whoever runs this controller has to know.
        log.critical("%s died", component, exc_info=True)
        drain_timeout = 0.0
        raise
    finally:
        ended.set()
        for registration in registered:
            registration.remove()
        deadline = clock.monotonic() + drain_timeout
        for worker in workers:
            if not worker.stop(max(0.0, deadline - clock.monotonic())):
                log.warning("%s: work under way did not finish before the drain timeout", component)
        recorder.stop(max(1.0, deadline - clock.monotonic()))
        if started:
            for ticker in tickers:
                ticker.join(1.0)
