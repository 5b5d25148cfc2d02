"""Leader election in a program: what the flags say becomes a candidate, with its permissions,
Events and health check.

All writes of ours and of vendors' clients are fenced, Events too, but for those of the election
itself: the Lease must be written without holding it, and the Events about it say that it is not
held. Access reviews change nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from cloudprovider import StopSignal
from controllers.endpoints.health import Check
from controllers.manager.provider_host import ManagerError
from controllers.manager.shutdown import Stoppable
from controllers.program import PROGRAM
from controllers.runtime.api import ClientBuilder
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.election import Callbacks, Elector, Fence, LeaseSettings
from controllers.runtime.metrics import Metrics
from controllers.runtime.write import EventRecorder, Reference

IDENTITY: Final = "leader-election"
LISTEN: Final = 0.05
"""Seconds between two looks whether this process leads."""
_LAST_EVENT: Final = 2.0  # seconds for the Event "stopped leading"


def lease_lost(reason: str) -> ManagerError:
    """What ends a program that has lost its lease."""
    return ManagerError(f"leaderelection lost: {reason}; ended without draining")


class Leadership:
    """One candidate for one Lease, from `start` to the end of its `parts`. Thread-safe.

    `on_lost(reason)` is called once, in the thread that notices first. It may end the process.
    """

    def __init__(
        self,
        settings: LeaseSettings,
        clients: ClientBuilder,
        *,
        on_lost: Callable[[str], None],
        metrics: Metrics,
        check: str = "leaderElection",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.settings = settings
        self._check = check
        self._recorder = EventRecorder(
            clients.rest(IDENTITY, guarded=False), PROGRAM, clock=clock, metrics=metrics, writers=1
        )
        self._elector = Elector(
            # Its own connections: a pool that hangs must not cost the lease.
            clients.rest(IDENTITY, guarded=False, apart=True),
            settings,
            Callbacks(on_lost=on_lost, event=self._record, on_stranger=self._warn),
            metrics=metrics,
            clock=clock,
        )

    @property
    def fence(self) -> Fence:
        """What every write asks."""
        return self._elector.fence

    @property
    def leading(self) -> bool:
        """Whether this process leads."""
        return self._elector.leading

    @property
    def lost(self) -> str:
        """Why the lease was lost; "" while it was not."""
        return self._elector.lost

    @property
    def leader(self) -> str:
        """Who else leads; "" while that is not known."""
        return self._elector.waits_for

    def start(self, unfinished: Callable[[], str] = lambda: "") -> list[Stoppable]:
        """Begin as a candidate; returns the parts to stop, after all that needs the lease.

        `unfinished` is asked then: what it names may still change something, so the lease is
        kept."""
        self._elector.start()
        return [
            Stoppable(
                f"leader election on {self.settings.lease}",
                self._elector.join,
                lambda: self._elector.stop(unfinished()),
            ),
            Stoppable("Events of the leader election", lambda seconds: self._recorder.stop(min(_LAST_EVENT, seconds))),
        ]

    def wait(self, stop: StopSignal) -> bool:
        """Wait until this process leads; False when `stop` came first. Raises ManagerError."""
        while not self.leading:
            if stop.wait(LISTEN):
                return False
            self._raise_if_lost()
        return True

    def while_leading(self, work: Callable[[], None]) -> None:
        """Do `work` in its own thread and return when it is done, or raise what it raised.

        When the lease is lost, ManagerError is raised at once, and the work is left behind; the
        fence refuses its writes.
        """
        failed: list[BaseException] = []

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - a thread's top: raised again in the caller's
                failed.append(error)

        thread = threading.Thread(target=run, name="leading", daemon=True)
        thread.start()
        # In short steps: the work may hang, and a lost lease must be noticed all the same.
        while thread.is_alive():
            thread.join(LISTEN)
            self._raise_if_lost()
        for error in failed:
            raise error

    def _raise_if_lost(self) -> None:
        if reason := self.lost:
            self._elector.tell_lost(reason)
            raise lease_lost(reason)

    def checks(self) -> list[Check]:
        """The line of /healthz, named `check`, as Go's."""
        problem = self._elector.problem()
        return [Check(self._check, not problem, problem)]

    def _record(self, what: str) -> None:
        self._recorder.event(self._about(), "Normal", "LeaderElection", f"{self.settings.identity} {what}")

    def _warn(self, problem: str) -> None:
        message = f"{self.settings.identity} stands by: {problem}"
        self._recorder.event(self._about(), "Warning", "LeaseHeldByAnotherManager", message)

    def _about(self) -> Reference:
        lease = self.settings
        return Reference(
            kind="Lease",
            name=lease.name,
            namespace=lease.namespace,
            uid=self._elector.uid,
            api_version="coordination.k8s.io/v1",
        )
