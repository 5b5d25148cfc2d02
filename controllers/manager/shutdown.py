"""Named groups of running parts: started in order, stopped in reverse, all within one bound of
time. The idea is that of controller-runtime's runnable groups (pkg/manager/runnable_group.go)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import attrs

from cloudprovider.host import StopSignal
from controllers.runtime.clock import Clock, ClockEvent

log = logging.getLogger(__name__)

SHORTEST = 1.0
"""Seconds that each part may take to stop even when those before it used up the bound."""
_AGAIN = 5.0  # seconds until something in the background is run again that raised
_SLICE = 0.25  # seconds between two looks whether there is still a reason to wait for a thread


@attrs.frozen
class Stoppable:
    """One running thing. `ask` asks it to stop; `wait(seconds)` says whether it has ended."""

    name: str
    wait: Callable[[float], bool]
    ask: Callable[[], None] = lambda: None


class ShutdownGroups:
    """What runs. Used by one thread, the manager's.

    `aborted()` says that the process ends without draining: then no thread is waited for."""

    def __init__(self, clock: Clock, aborted: Callable[[], bool] = lambda: False) -> None:
        self._clock = clock
        self._aborted = aborted
        self._groups: list[tuple[str, list[Stoppable]]] = []

    def add(self, group: str, part: Stoppable) -> None:
        """A part has been started. Parts of a group are added one by one, and stopped together."""
        if not self._groups or self._groups[-1][0] != group:
            self._groups.append((group, []))
        self._groups[-1][1].append(part)

    def in_background(self, group: str, name: str, run: Callable[[StopSignal], None]) -> None:
        """Run this in its own thread until the group is stopped; when it raises, log that, and
        run it again."""
        ask = ClockEvent(self._clock)

        def keep_running() -> None:
            last = ""
            while not ask.is_set():
                try:
                    run(ask)
                    return
                except BaseException as error:
                    # A thread's top: its last answer must not stand forever.
                    again = last == repr(error)
                    last = repr(error)
                    log.log(
                        logging.DEBUG if again else logging.ERROR,
                        "%s failed, this is a bug; it is run again every %g s",
                        name, _AGAIN, exc_info=error,
                    )  # fmt: skip
                ask.wait(_AGAIN)

        thread = threading.Thread(target=keep_running, name=name.replace(" ", "-"), daemon=True)
        thread.start()
        self.add_thread(group, name, thread, ask.set)

    def add_thread(self, group: str, name: str, thread: threading.Thread, ask: Callable[[], None]) -> None:
        """A thread has been started, which `ask` asks to end."""
        self.add(group, Stoppable(name, lambda seconds: self._joined(thread, seconds), ask))

    def stop(self, seconds: float) -> list[str]:
        """Stop the groups, last one first; in a group all parts are asked, then waited for.

        Returns the names of the parts that had not ended in time; they are left behind. A part
        whose stopping raises counts as one of them. After a call nothing is left to stop, so a
        second one does nothing.
        """
        deadline = self._clock.monotonic() + seconds
        left: list[str] = []
        while self._groups:
            name, parts = self._groups.pop()
            log.debug("stopping %s: %s", name, ", ".join(part.name for part in parts))
            asked = [self._ask(part) for part in parts]
            for part, was_asked in zip(parts, asked, strict=True):
                if not self._wait(part, max(SHORTEST, deadline - self._clock.monotonic())) or not was_asked:
                    left.append(part.name)
        return left

    @staticmethod
    def _ask(part: Stoppable) -> bool:
        try:
            part.ask()
        except Exception:
            log.exception("%s could not be told to stop", part.name)
            return False
        return True

    @staticmethod
    def _wait(part: Stoppable, seconds: float) -> bool:
        try:
            return part.wait(seconds)
        except Exception:
            log.exception("%s could not be stopped", part.name)
            return False

    def _joined(self, thread: threading.Thread, seconds: float) -> bool:
        """Wait for a thread, but for none once the process is aborted: nothing it does counts."""
        until = self._clock.monotonic() + seconds
        while not self._aborted() and (left := until - self._clock.monotonic()) > 0:
            thread.join(min(left, _SLICE))
            if not thread.is_alive():
                return True
        return not thread.is_alive()
