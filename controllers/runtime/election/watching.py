"""A candidate's watch of the Lease: a release, or another leader, is known at once instead of at
the next look. Without the right to watch, or while the watch is broken, the elector's own looks
come once a retry period."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Final

from cloudprovider.threads import NoThreadLeft, start
from controllers.runtime.api import ApiError, Forbidden, LineStream, from_status
from controllers.runtime.clock import Clock, ClockEvent
from controllers.runtime.election.leases import LeaseAPI
from controllers.runtime.election.record import Lease
from controllers.runtime.election.settings import LeaseSettings

log = logging.getLogger(__name__)

FORBIDDEN_SECONDS: Final = 60.0
"""Between two tries without the right to watch."""


class LeaseWatch:
    """Watches until it is stopped. `see` is called with the Lease (None: deleted), and `changed`
    when `live` changes.

    Both are called in the watch's own thread. `start` and `stop` in the elector's."""

    def __init__(
        self,
        api: LeaseAPI,
        settings: LeaseSettings,
        *,
        see: Callable[[Lease | None], None],
        changed: Callable[[], None],
        pause: Callable[[], float],
        clock: Clock,
    ) -> None:
        self._api = api
        self._settings = settings
        self._see = see
        self._changed = changed
        self._pause = pause
        self._stop = ClockEvent(clock)
        self._lock = threading.Lock()
        self._lines: LineStream | None = None
        self._thread: threading.Thread | None = None
        self._warned = False
        self.live = False
        """Whether changes are seen as they happen."""

    def start(self) -> None:
        """Start watching; no-op when started already, or without a thread left."""
        if self._thread is None:
            try:
                self._thread = start(self._run, "leader-election-watch")
            except NoThreadLeft as error:
                log.warning("the lease %s is not watched: %s", self._settings.lease, error)

    def stop(self) -> None:
        """End the watch, without waiting for its thread."""
        self._stop.set()
        with self._lock:
            if self._lines is not None:
                self._lines.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = self._pause()
            try:
                self._watch()
            except Forbidden as error:
                # A missing right does not come back within a retry period, and each try is a line
                # in an audit log.
                pause = max(pause, FORBIDDEN_SECONDS)
                self._warn(error)
            except (ApiError, ValueError) as error:
                log.debug("the watch of the lease %s ended: %s", self._settings.lease, error)
            except Exception:
                log.exception("the watch of the lease %s failed; this is a bug", self._settings.lease)
            self._is_live(False)
            self._stop.wait(pause)

    def _watch(self) -> None:
        lines = self._api.watch()
        with self._lock:
            if self._stop.is_set():
                return
            self._lines = lines
        try:
            lines.open()
            self._is_live(not self._stop.is_set())
            for line in lines:
                self._take(json.loads(line))
        finally:
            with self._lock:
                self._lines = None
            lines.close()

    def _take(self, event: object) -> None:
        # JSON that is no event, from a proxy, say: no reason to think the Lease gone.
        if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
            raise ValueError("a line that is no event")
        if event.get("type") == "ERROR":
            raise from_status(0, None, event["object"], method="GET")
        if not self._stop.is_set() and event.get("type") in ("ADDED", "MODIFIED", "DELETED"):
            self._see(None if event["type"] == "DELETED" else event["object"])

    def _is_live(self, live: bool) -> None:
        # The elector looks by itself while no watch stands: it is woken for the change alone.
        if live != self.live:
            self.live = live
            self._changed()

    def _warn(self, error: Forbidden) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "missing permission: watch on leases. Without it a released lease is taken over up to %g s later. Fix: "
                "add to the Role in namespace %s of the manager's service account: apiGroups [coordination.k8s.io], "
                "resources [leases], resourceNames [%s], verbs [watch] (%s)",
                2.2 * self._settings.retry_period, self._settings.namespace, self._settings.name, error,
            )  # fmt: skip
