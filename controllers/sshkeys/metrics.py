"""The metrics of the ssh-key controller. No I/O; no part of a key."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics

WAITING: Final = "waiting"
INSTALLED: Final = "installed"
FAILING: Final = "failing"


class SSHKeyMetrics:
    """The state of each key, by fingerprint, counted. Thread-safe."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._states: dict[str, str] = {}
        self._keys = metrics.gauge(
            "ssh_key_controller_keys",
            "Keys of --ssh-keyfile, by the end of their last installation: waiting for the first, installed, failing.",
            ("state",),
        )
        self._usable = metrics.gauge(
            "ssh_key_controller_keyfile_usable", "Whether --ssh-keyfile could be used (1) as it is now, or not (0)."
        )
        self._last = metrics.gauge(
            "ssh_key_controller_last_success_timestamp_seconds", "When a key was last installed on all machines."
        )

    def file_read(self, fingerprints: Iterable[str]) -> None:
        """These are the keys now."""
        with self._lock:
            self._states = {one: self._states.get(one, WAITING) for one in fingerprints}
            self._show()
        self._usable.set(1)

    def file_refused(self) -> None:
        """The file cannot be used."""
        self._usable.set(0)

    def succeeded(self, fingerprint: str) -> bool:
        """The key was installed. Whether that is news: the first time, or it failed before."""
        self._last.set(self._clock.time())
        return self._now(fingerprint, INSTALLED)

    def failed(self, fingerprint: str) -> None:
        """It could not be installed."""
        self._now(fingerprint, FAILING)

    def _now(self, fingerprint: str, state: str) -> bool:
        with self._lock:
            before = self._states.get(fingerprint, state)
            if fingerprint in self._states:
                self._states[fingerprint] = state
                self._show()
            return before != state

    def _show(self) -> None:
        states = list(self._states.values())
        for state in (WAITING, INSTALLED, FAILING):
            self._keys.labels(state=state).set(states.count(state))
