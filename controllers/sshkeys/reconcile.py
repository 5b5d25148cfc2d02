"""Stage 4: RECONCILE. Takes a public key's fingerprint, and has the cloud install the key on all
machines (stage 5).

Events are about the Namespace kube-system, as what fails concerns every machine at once. Logs and
Events name keys by fingerprint alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cloudprovider import NotImplementedByProvider
from cloudprovider.helpers import parse_ssh_public_key
from controllers.registration.plan import Change, PlannedCalls, Planning, Row, Subject
from controllers.runtime.queue import DONE, Parked, Result
from controllers.runtime.write import EventRecorder, Reference

if TYPE_CHECKING:
    from controllers.cloudcalls.capabilities import SSHKeyCalls
    from controllers.sshkeys.keyfile import KeyFile, KeyFileProblems
    from controllers.sshkeys.metrics import SSHKeyMetrics

log = logging.getLogger(__name__)

KUBE_SYSTEM: Final = Reference("Namespace", "kube-system")


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


def planned_calls(planning: Planning) -> PlannedCalls:
    """What its calls would do, as rows of a plan. Each key is shown by its fingerprint: no key
    material is printed."""

    def add(_key: str, user: str, key_data: bytes) -> None:
        try:
            fingerprint = parse_ssh_public_key(key_data).fingerprint
        except ValueError:
            fingerprint = "(none: it is no public key)"
        planning.record(
            Row(
                controller="ssh-key-controller",
                subject=Subject("SSHKey", fingerprint),
                action="add SSH key",
                changes=(Change("user", None, user),),
                note="may change nothing: only the provider knows",
                certain=False,
            )
        )

    return PlannedCalls(writes={"add_ssh_key_to_all_instances": add})
