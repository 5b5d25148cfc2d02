"""The controllers of this process, each in its own thread, from its construction to its end.

What becomes of a controller goes to the health checks, to the metric of running controllers, and to
the manager where one ends that must not. A pause lies between two starts
(--controller-start-interval), as in Go."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence

from cloudprovider import StopSignal
from controllers.endpoints.health import Health
from controllers.manager.provider_host import ManagerError
from controllers.program import PROGRAM
from controllers.registration.entry import Controller, ControllerEntry
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.metrics import Metrics

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks whether it is time to end

Built = tuple[ControllerEntry, Controller]


class ControllerRunner:
    """Starts controllers, and says which of them hold something back. For the manager's thread.

    `failed(failure, cause)` is called in the controller's thread when it ends unasked."""

    def __init__(
        self,
        health: Health,
        metrics: Metrics,
        clock: Clock,
        *,
        interval: float,
        started: Callable[[str, threading.Thread, Callable[[], None]], None],
        failed: Callable[[ManagerError, BaseException | None], None],
    ) -> None:
        """`interval`: seconds between two starts. `started(name, thread, ask)`: `ask` stops it."""
        self._health = health
        self._clock = clock
        self._interval = interval
        self._started = started
        self._failed = failed
        self._holding: list[Callable[[], int]] = []
        self._announced: set[str] = set()
        self._running = metrics.gauge(
            "running_managed_controllers",
            "Whether each controller of this manager runs (1) or not (0): on a standby, or because it is off.",
            ("name", "manager"),
        )

    def announce(self, names: Iterable[str]) -> None:
        """Show in the metrics that these do not run yet. Alerts tell by it a standby of ours from
        another program with a lease."""
        for name in names:
            self._announced.add(name)
            self._running.labels(name=name, manager=PROGRAM).set(0)

    def start(self, built: Sequence[Built], ending: StopSignal) -> bool:
        """Start these, one after the other; False when `ending` was set before all had started."""
        for number, (entry, controller) in enumerate(built):
            # Not before the first one: a takeover waits for it.
            if number and not self._paused(ending):
                return False
            self._start(entry, controller)
        return True

    def release_held(self, leader: str = "") -> int:
        """Let the controllers do what they hold back now, as an operator asks; returns how many
        objects that are. From any thread. `leader`: who else leads, as far as that is known."""
        if not self._holding:
            log.warning(
                "SIGUSR1: no controller of this process holds back deletions; send the signal to the leader%s",
                f", {leader}" if leader else "",
            )
        return sum(release() for release in self._holding)

    def _paused(self, ending: StopSignal) -> bool:
        """Wait the interval, with Go's jitter of up to as much again; False at the time to end."""
        until = self._clock.monotonic() + self._interval * (1 + random.random())
        while (left := until - self._clock.monotonic()) > 0:
            if ending.wait(min(left, _LOOK)):
                return False
        return not ending.is_set()

    def _start(self, entry: ControllerEntry, controller: Controller) -> None:
        ask = ClockEvent(self._clock)

        def running(value: int) -> None:
            # What runs in the place of one that is off is no controller.
            if entry.name in self._announced:
                self._running.labels(name=entry.name, manager=PROGRAM).set(value)

        def run() -> None:
            try:
                controller.run(ask)
            except BaseException as error:  # noqa: BLE001 - a thread's top: becomes the manager's own failure
                self._ended(entry.name, f"died: {type(error).__name__}: {error}", error)
            else:
                if not ask.is_set():
                    self._ended(entry.name, "ended unexpectedly", None)
            finally:
                running(0)

        thread = threading.Thread(target=run, name=entry.name, daemon=True)
        # Before the thread: one that ends at once would be counted as running forever.
        running(1)
        thread.start()
        self._started(entry.name, thread, ask.set)
        if (release := getattr(controller, "release_breaker", None)) is not None:
            self._holding.append(release)
        self._health.watch_controller(entry.name, controller, thread.is_alive)
        log.info("started %s", entry.name)

    def _ended(self, name: str, reason: str, cause: BaseException | None) -> None:
        self._health.died(name, reason)
        self._failed(ManagerError(f"{name} {reason}", unexpected=cause is not None), cause)


class StopEvent:
    """A StopSignal that is set when another one is, or when something has failed."""

    def __init__(self, stop: StopSignal, failed: Callable[[], bool]) -> None:
        self._stop = stop
        self._failed = failed

    def is_set(self) -> bool:
        return self._failed() or self._stop.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """As of `stop`; a failure is noticed before or after the wait only, so wait for moments."""
        return self._failed() or self._stop.wait(timeout) or self._failed()
