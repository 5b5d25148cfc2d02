"""The webhook persistentvolume-labeler: a PersistentVolume gets its labels and node affinity before it is stored.

Stage: beside the six. A review comes from `controllers/admission/`; the cloud is asked (stage 5), and the pure half of
the controller (`changes.py`) says what the volume lacks. What the cloud cannot say now is left to the controller, or
the volume is refused, as --webhook-volume-failure-policy says.

Follows: the admission plugin PersistentVolumeLabel that kube-apiserver had until 1.31.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import CloudProviderError, DiskNotFound, NotImplementedByProvider
from controllers.admission import AdmissionRequest, Answer, Handler, allow, change, deny
from controllers.cloudcalls import PRIORITY_NEW, CloudCallError
from controllers.runtime.cleaning import text_of
from controllers.runtime.queue import Parked
from controllers.volumelabels.changes import labelling, needs_labels, told

if TYPE_CHECKING:
    from controllers.cloudcalls.capabilities import PVLabelerCalls

__all__ = ["VolumeLabelHandler"]

log = logging.getLogger(__name__)

_LATER = "It is created without them; persistent-volume-label-controller adds them later, where it runs"


class VolumeLabelHandler(Handler):
    """Adds what the cloud says of a volume, and never changes what the volume has. Thread-safe.

    `refuse`: what the cloud cannot label now is refused, in place of admitted as it is.
    """

    def __init__(self, labeler: PVLabelerCalls, *, refuse: bool = False) -> None:
        self._labeler = labeler
        self._refuse = refuse

    def handle(self, request: AdmissionRequest) -> Answer:
        try:
            volume = V1PersistentVolume.from_dict(request.object)
        except ValueError as error:
            return self._unlabelled(request, f"it cannot be read: {text_of(error)}", code=422, reason="Invalid")
        # Without a name: the API server has not made it yet, and it is what the cloud is asked about.
        if volume is None or not request.name or not needs_labels(volume):
            return allow()
        try:
            found = labelling(volume, self._labeler.labels(volume, priority=PRIORITY_NEW))
        except NotImplementedByProvider:
            return allow()
        except DiskNotFound as error:
            return self._unlabelled(
                request, f"the cloud has no such disk: {text_of(error)}", code=422, reason="Invalid"
            )
        except (CloudProviderError, CloudCallError, Parked, ValueError) as error:
            return self._unlabelled(request, f"the cloud does not tell its zone now: {text_of(error)}")
        if found.contradictions:
            problems = "; ".join(found.contradictions)
            return allow(warnings=[f"no labels were added: the volume contradicts the cloud: {problems}"])
        if not found.patch:
            return allow()
        done = "would label" if request.dry_run else "labelled"
        log.info("webhook: %s persistentvolume %s: %s", done, request.name, told(found.patch))
        return change(request, _merged(request.object, found.patch.body))

    def late(self, request: AdmissionRequest) -> Answer:
        """As where the cloud cannot answer."""
        return self._unlabelled(request, "the cloud has not told its zone in time")

    def _unlabelled(
        self, request: AdmissionRequest, why: str, *, code: int = 503, reason: str = "ServiceUnavailable"
    ) -> Answer:
        log.warning(
            "webhook: persistentvolume %s is %s: %s",
            request.name,
            "refused" if self._refuse else "admitted without labels",
            why,
        )
        if self._refuse:
            return deny(f"the volume's labels are not known: {why}", code=code, reason=reason)
        return allow(warnings=[f"the volume has no zone labels: {why}", _LATER])


def _merged(held: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The object with a merge patch in which nothing is removed."""
    merged = dict(held)
    for key, value in patch.items():
        before = held.get(key)
        merged[key] = _merged(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return merged
