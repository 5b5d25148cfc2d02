"""The webhook persistentvolume-labeler: a PersistentVolume gets its labels and node affinity before
it is stored. What the cloud cannot answer now is left to the controller, or the volume is refused,
as --webhook-volume-failure-policy says.

Follows the admission plugin PersistentVolumeLabel that kube-apiserver had until 1.31."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import DiskNotFound, NotImplementedByProvider
from cloudprovider.internal.cleaning import text_of
from cloudprovider.internal.patching import merge_patch
from controllers.cloudcalls import CLOUD_ERRORS, PRIORITY_NEW
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.queue import FailureLog
from controllers.volumelabels.changes import described, labelling, needs_labels
from controllers.webhooks import AdmissionRequest, Answer, Handler, allow, change, deny
from controllers.webhooks.router import WINDOW

if TYPE_CHECKING:
    from controllers.cloudcalls.capabilities import PVLabelerCalls

log = logging.getLogger(__name__)

_NAME = "persistentvolume-labeler"
_LATER = "It is created without them; persistent-volume-label-controller adds them later, where it runs"


class VolumeLabelHandler(Handler):
    """Adds what the cloud says of a volume, and never changes what the volume has. Thread-safe.

    `refuse`: what the cloud cannot label now is refused, in place of admitted as it is.
    """

    def __init__(self, labeler: PVLabelerCalls, *, refuse: bool = False, clock: Clock = SYSTEM_CLOCK) -> None:
        self._labeler = labeler
        self._refuse = refuse
        self._failures: FailureLog[str] = FailureLog("webhook", log, clock=clock, noun="webhook", window=WINDOW)

    def handle(self, request: AdmissionRequest) -> Answer:
        created = request.object
        # Any client may send a review, and any object in it.
        try:
            volume = V1PersistentVolume.from_dict(_without_identity(created))
        except ValueError as error:
            return self._unlabelled(request, error, "it cannot be read", code=422, reason="Invalid")
        # Without a name: the API server has not made it yet, and it is what the cloud is asked
        # about.
        if volume is None or not request.name or not needs_labels(volume):
            return allow()
        try:
            found = labelling(volume, self._labeler.labels(volume, priority=PRIORITY_NEW, admission=True))
        except NotImplementedByProvider:
            return allow()
        except DiskNotFound as error:
            return self._unlabelled(request, error, "the cloud has no such disk", code=422, reason="Invalid")
        except (*CLOUD_ERRORS, ValueError) as error:
            return self._unlabelled(request, error, "the cloud does not tell its zone now")
        self._failures.succeeded(_NAME)
        # Not refused: the user may know better, as for volumes that are there.
        if found.contradictions:
            problems = "; ".join(found.contradictions)
            return allow(warnings=[f"no labels were added: the volume contradicts the cloud: {problems}"])
        if not found.patch:
            return allow()
        log.debug("webhook: labels for %s: %s", request, described(found.patch))
        return change(request, merge_patch(created, found.patch.body))

    def late(self, request: AdmissionRequest) -> Answer:
        """As where the cloud cannot answer."""
        return self._unlabelled(request, TimeoutError("no answer in time"), "the cloud does not tell its zone now")

    def _unlabelled(
        self,
        request: AdmissionRequest,
        error: Exception,
        what: str,
        *,
        code: int = 503,
        reason: str = "ServiceUnavailable",
    ) -> Answer:
        why = f"{what}: {text_of(error)}"
        fate = "refused" if self._refuse else "admitted without labels"
        self._failures.failed(_NAME, f"{request}: {fate}", error, why)
        if self._refuse:
            return deny(f"the volume's labels are not known: {why}", code=code, reason=reason)
        return allow(warnings=[f"the volume has no zone labels: {why}", _LATER])


def _without_identity(created: Mapping[str, Any]) -> dict[str, Any]:
    """The volume without UID, resourceVersion and managedFields: a review may come from any client,
    and name another object.

    Nothing is lost: the API server gives an object its version after its webhooks."""
    metadata = created.get("metadata")
    if not isinstance(metadata, Mapping):
        return dict(created)
    kept = {key: value for key, value in metadata.items() if key not in ("uid", "resourceVersion", "managedFields")}
    return {**created, "metadata": kept}
