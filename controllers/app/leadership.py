"""Leader election in a program: what the flags say becomes a candidate, with its rights, Events and health check.

Stage: around all of them. Data comes from `options.py` and the Lease (`controllers/runtime/election`); it goes to the
manager and to `hosting`, which start work when this process leads, and to every write, which asks the fence.

All writes of ours and of vendors' clients are fenced, Events too, but for those of the election itself: the Lease must
be written without holding it, and the Events about it say that it is not held. Access reviews change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controllers.app.groups import Part
from controllers.app.serving import Check
from controllers.runtime.api import ClientBuilder
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.election import Elector, Fence, LeaseSettings
from controllers.runtime.metrics import Metrics
from controllers.runtime.write import EventRecorder, Reference

__all__ = ["Leadership"]

COMPONENT: Final = "cloud-controller-manager"
IDENTITY: Final = "leader-election"
_LAST_EVENT: Final = 2.0  # seconds for the Event "stopped leading"


class Leadership:
    """One candidate for one Lease, from `start` to the end of its `parts`. Thread-safe.

    `on_lost(reason)` is called in the elector's thread, and must not block.
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
            clients.rest(IDENTITY, guarded=False), COMPONENT, clock=clock, metrics=metrics, writers=1
        )
        self._elector = Elector(
            clients.rest(IDENTITY, guarded=False, apart=True),
            settings,
            on_lost=on_lost,
            tell=self._tell,
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

    def start(self) -> list[Part]:
        """Begin as a candidate; returns the parts to stop, after all that needs the lease."""
        self._elector.start()
        return [
            Part(f"leader election on {self.settings.lease}", self._elector.join, self._elector.stop),
            Part("Events of the leader election", lambda seconds: self._recorder.stop(min(_LAST_EVENT, seconds))),
        ]

    def checks(self) -> list[Check]:
        """The line of /healthz, named `check`, as Go's: a standby is well."""
        problem = self._elector.problem()
        return [Check(self._check, not problem, problem)]

    def _tell(self, what: str) -> None:
        lease = self.settings
        about = Reference(
            kind="Lease",
            name=lease.name,
            namespace=lease.namespace,
            uid=self._elector.uid,
            api_version="coordination.k8s.io/v1",
        )
        self._recorder.event(about, "Normal", "LeaderElection", f"{lease.identity} {what}")
