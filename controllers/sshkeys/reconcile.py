"""Stage 4: RECONCILE. Takes a public key's fingerprint, and has the cloud install the key on all
machines (stage 5). Counts keys by state.

Events are about the Namespace kube-system, as what fails concerns every machine at once. Logs,
Events and metrics name keys by fingerprint alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cloudprovider import NotImplementedByProvider
from controllers.runtime.queue import DONE, Parked, Result
from controllers.runtime.write import EventRecorder, Reference

if TYPE_CHECKING:
    from controllers.cloudcalls.capabilities import SSHKeyCalls
    from controllers.runtime.clock import Clock
    from controllers.runtime.metrics import Metrics
    from controllers.sshkeys.keyfile import KeyFile, KeyFileProblems

log = logging.getLogger(__name__)

KUBE_SYSTEM: Final = Reference("Namespace", "kube-system")

WAITING: Final = "waiting"
INSTALLED: Final = "installed"
FAILING: Final = "failing"


class SSHKeyReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self, user: str, file: KeyFile, calls: SSHKeyCalls, recorder: EventRecorder, metrics: SSHKeyMetrics
    ) -> None:
        self._user = user
        self._file = file
        self._calls = calls
        self._recorder = recorder
        self._metrics = metrics
        self._unable = False

    def reconcile(self, fingerprint: str) -> Result:
        """Install the key on all machines, unless it is no longer in the file. Raises what the
        cloud answered."""
        key = self._file.keys.get(fingerprint)
        if key is None or self._unable:
            return DONE
        try:
            self._calls.add(self._user, key.line)
        # The old Instances have this method whether they serve it or not: only a call can tell.
        except NotImplementedByProvider as error:
            self._unable = True
            log.warning("ssh-key-controller has nothing to do: the provider installs no SSH keys: %s", error)
            return DONE
        news = self._metrics.succeeded(fingerprint)
        level = logging.INFO if news else logging.DEBUG
        log.log(level, "installed the SSH key %s of user %s on all instances", key, self._user)
        return DONE

    def failed(self, fingerprint: str, error: Exception) -> None:
        """Report the failure; the worker tries again by itself."""
        key = self._file.keys.get(fingerprint)
        if key is None:
            return
        # About the Namespace: which of the machines lack the key, nobody says.
        self._metrics.failed(fingerprint)
        reason, rest = "FailedToInstallSSHKey", "It is tried again"
        if isinstance(error, Parked):
            reason, rest = "CloudCallOverdue", "It is tried again when that call has ended"
        what = f"The SSH key {key} of user {self._user} may be missing on some instances"
        self._recorder.event(KUBE_SYSTEM, "Warning", reason, f"{what}: {error}. {rest}")

    def refused(self, problems: KeyFileProblems) -> None:
        """Report that the file has changed and cannot be used."""
        self._metrics.file_refused()
        text = f"--ssh-keyfile={self._file.path} has changed and cannot be used; the keys stay as they are: {problems}"
        log.warning("%s", text)
        self._recorder.event(KUBE_SYSTEM, "Warning", "InvalidSSHKeyFile", text)


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
