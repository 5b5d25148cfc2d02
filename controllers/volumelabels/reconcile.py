"""Stage 4: RECONCILE. Takes a volume's name, asks the cloud for its labels (stage 5), and writes
what is missing (stage 6).

The cloud is asked once about each version of a volume that lacks something. A volume for which it
has no labels, or that contradicts its answer, is left alone until its labels or affinity change. A
disk that the cloud does not have is reported by an Event and asked for again; volumes stay."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cloudprovider import DiskNotFound, NotImplementedByProvider
from controllers.cloudcalls import InvalidAnswer
from controllers.runtime.api import ObjectNotFound, RestClient
from controllers.runtime.cache import PERSISTENT_VOLUMES, Lister, key_of
from controllers.runtime.queue import DONE, Parked, Result, TerminalError
from controllers.runtime.write import EventRecorder, ObjectReplaced, Patch, apply
from controllers.volumelabels.changes import described, labelling, needs_labels

if TYPE_CHECKING:
    from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

    from controllers.cloudcalls.capabilities import PVLabelerCalls

log = logging.getLogger(__name__)


class VolumeLabelReconciler:
    """One unit of work per key. Thread-safe: the work queue keeps two threads off one key."""

    def __init__(
        self,
        rest: RestClient,
        lister: Lister[V1PersistentVolume],
        labeler: PVLabelerCalls,
        recorder: EventRecorder,
    ) -> None:
        self._rest = rest
        self._lister = lister
        self._labeler = labeler
        self._recorder = recorder

    def reconcile(self, name: str) -> Result:
        """Label the volume. Raises their errors; TerminalError for a bad answer."""
        volume = self._lister.get(name)
        if volume is None or not needs_labels(volume):
            return DONE
        try:
            answer = self._labeler.labels(volume)
        except NotImplementedByProvider:
            return DONE  # another cloud's volume, or one that has no zone
        try:
            found = labelling(volume, answer)
        except ValueError as error:
            # The same question would bring the same answer: until the volume changes, that is it.
            raise TerminalError(f"the labels that the cloud has for it are wrong: {error}") from error
        # No error, as nothing that the cloud or we do next can mend it.
        if found.contradictions:
            self._contradict(volume, found.contradictions)
        elif found.patch:
            self._write(name, volume, answer)
        else:
            log.debug("persistentvolume %s: the cloud has no labels for it", name)
        return DONE

    def failed(self, name: str, error: Exception) -> None:
        """Report why the volume has no labels; the worker tries again by itself."""
        volume = self._lister.get(name)
        if volume is None:
            return
        if isinstance(error, DiskNotFound):
            reason, rest = "DiskNotFound", "The volume is kept, without labels"
        elif isinstance(error, Parked):
            reason, rest = "CloudCallOverdue", "Its labels are asked for again when that call has ended"
        elif isinstance(error, InvalidAnswer | TerminalError):
            reason, rest = "InvalidVolumeLabels", "Nothing was written"
        else:
            reason, rest = "FailedToLabelVolume", "It is tried again"
        self._recorder.event(volume, "Warning", reason, f"{error}. {rest}")

    def _write(self, name: str, volume: V1PersistentVolume, answer: dict[str, str]) -> None:
        def plan(fresh: V1PersistentVolume) -> list[Patch]:
            # Of the fresh volume: a user, or the webhook, may have labelled it meanwhile.
            return [labelling(fresh, answer).patch] if needs_labels(fresh) else []

        path = PERSISTENT_VOLUMES.key_path(name)
        try:
            done = apply(self._rest, path, volume, plan, PERSISTENT_VOLUMES.parse)
        except (ObjectNotFound, ObjectReplaced):
            return  # deleted or recreated meanwhile: its own event brings the new one
        if done is not None:
            written = described(labelling(done, answer).patch)
            log.info("labelled persistentvolume %s: %s", name, written)
            self._recorder.event(volume, "Normal", "LabelledVolume", f"Written, as the cloud says: {written}")

    def _contradict(self, volume: V1PersistentVolume, problems: tuple[str, ...]) -> None:
        """Report what contradicts the cloud's labels; nothing is written."""
        text = (
            f"This volume contradicts the cloud: {'; '.join(problems)}. Nothing was written. If the volume is wrong, "
            "correct its labels, or create it again with another node affinity, which cannot be changed"
        )
        log.warning("persistentvolume %s: %s", key_of(volume), text)
        self._recorder.event(volume, "Warning", "VolumeLabelsContradict", text)
