"""What becomes of a volume's key when the API server refuses its labels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.runtime.api import ApiError, NotFound, ObjectNotFound
from controllers.runtime.cache import PERSISTENT_VOLUMES
from controllers.runtime.queue import DONE
from controllers.volumelabels.controller import VolumeLabelController
from controllers.volumelabels.reconcile import VolumeLabelReconciler
from tests.support.controllers import Lister, Recorder, refuse

VOLUME = {
    "metadata": {"name": "v", "uid": "u-1", "resourceVersion": "7"},
    "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
}


def reconciler(error: ApiError) -> VolumeLabelReconciler:
    """One whose writes are refused so, and whose cloud has labels for the volume."""
    fail = refuse(error)
    rest = SimpleNamespace(request=lambda *_, **__: fail())
    labeler = SimpleNamespace(labels=lambda _: {"topology.kubernetes.io/zone": "z-1"})
    cached = Lister({"v": PERSISTENT_VOLUMES.parse(VOLUME)})
    parts: tuple[Any, ...] = (rest, cached, labeler, Recorder())
    return VolumeLabelReconciler(*cast(Any, parts))


def test_a_volume_that_went_meanwhile_is_no_failure_and_a_404_that_is_not_about_it_is_one() -> None:
    assert reconciler(ObjectNotFound("gone", status=404)).reconcile("v") is DONE
    with pytest.raises(NotFound):
        reconciler(NotFound("404 page not found", status=404)).reconcile("v")


def test_its_failures_are_told_under_its_name() -> None:
    """In logs, and in a plan (`--dry-run`)."""
    parts: Any = SimpleNamespace(rest=lambda _: None, informer=lambda _: parts, lister=None, pv_labeler=1)
    [worker] = VolumeLabelController(parts, parts, parts)._workers
    assert worker._queue.controller == "persistent-volume-label-controller"
