"""The webhook's answers: what the controller would write, as a patch; and what counts where the
cloud fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider import CloudProviderError, DiskNotFound, Interface, NotImplementedByProvider, PVLabeler
from cloudprovider.internal.jsonpatch import json_patch
from controllers.app import CATALOG, Context
from controllers.app import parse as parse_flags
from controllers.cloudcalls import CloudCalls
from controllers.runtime.clock import SYSTEM_CLOCK
from controllers.volumelabels.changes import labelling
from controllers.volumelabels.registration import WEBHOOK
from controllers.volumelabels.webhook import VolumeLabelHandler
from controllers.webhooks import Answer
from controllers.webhooks.review import parse
from tests.support.there import there
from tests.unit.webhooks.support import review

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
CLOUD = {ZONE: "z-1", REGION: "r-1", "example.com/tier": "gold"}


class Disks(Interface, PVLabeler):
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def provider_name(self) -> str:
        return "disks"

    def pv_labeler(self) -> PVLabeler:
        return self

    def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        found: Mapping[str, str] = self.answer
        return found


def volume(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "pv-1", "creationTimestamp": None}
    if labels is not None:
        meta["labels"] = labels
    return {"metadata": meta, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec}}


def typed(created: dict[str, Any]) -> V1PersistentVolume:
    return there(V1PersistentVolume.from_dict(created))


def handler(answer: Any, *, refuse: bool = False) -> tuple[VolumeLabelHandler, Disks]:
    disks = Disks(answer)
    labeler = there(CloudCalls(disks).pv_labeler)
    return VolumeLabelHandler(labeler, refuse=refuse), disks


def ask(answer: Any, created: dict[str, Any], *, refuse: bool = False, name: str = "pv-1") -> Answer:
    request = parse(json.dumps(review(object=created, name=name)).encode())
    return handler(answer, refuse=refuse)[0].handle(request)


@pytest.mark.parametrize(
    "created",
    [
        volume(),
        volume({}),
        volume({"team": "blue"}),
        volume({ZONE: "z-1"}),
        volume({ZONE: "z-2"}),
    ],
)
def test_the_patch_makes_what_the_controller_would_have_written(created: dict[str, Any]) -> None:
    answer = ask(CLOUD, created)
    found = labelling(typed(created), CLOUD)
    if found.contradictions:
        assert (answer.allowed, answer.patch) == (True, ())
        assert "contradicts the cloud" in answer.warnings[0]
        return
    made = json_patch(created, list(answer.patch))
    assert made["metadata"]["labels"] == (created["metadata"].get("labels") or {}) | CLOUD
    assert made["spec"]["nodeAffinity"] == found.patch.body["spec"]["nodeAffinity"]
    assert made["spec"]["capacity"] == created["spec"]["capacity"]
    assert all(one["op"] == "add" for one in answer.patch), "what the user wrote was replaced"


@pytest.mark.parametrize(
    ("answer", "created", "name"),
    [
        ({}, volume(), "pv-1"),
        (NotImplementedByProvider("no disks"), volume(), "pv-1"),
        (CLOUD, volume(csi={"driver": "d.example.com", "volumeHandle": "h"}), "pv-1"),
        (CLOUD, volume(), ""),
    ],
)
def test_volumes_that_are_not_this_clouds_pass_untouched(answer: Any, created: dict[str, Any], name: str) -> None:
    got = ask(answer, created, refuse=True, name=name)
    assert (got.allowed, got.patch, got.warnings) == (True, (), ())


FAILURES = [
    (DiskNotFound("no disk d-1"), "no disk d-1", 422),
    (CloudProviderError("the cloud is ill"), "the cloud is ill", 503),
    ({ZONE: "z-1____z-2"}, "zone", 503),
    (["junk"], "get_labels_for_volume", 503),
]


@pytest.mark.parametrize("refuse", [False, True])
@pytest.mark.parametrize(("answer", "text", "code"), FAILURES)
def test_what_the_cloud_cannot_say_is_left_to_the_controller_or_refused(
    answer: Any, text: str, code: int, refuse: bool
) -> None:
    got = ask(answer, volume(), refuse=refuse)
    assert (got.allowed, got.patch) == (not refuse, ())
    if refuse:
        assert got.code == code
        assert text in got.message
    else:
        assert text in got.warnings[0]
        assert "persistent-volume-label-controller adds them later" in got.warnings[1]


def test_an_object_that_is_no_volume_is_no_failure_of_the_webhook() -> None:
    """Whoever reaches the port may send it: it must not write a stack into the log."""
    junk = {"metadata": 5, "spec": []}
    got = ask(CLOUD, junk)
    assert (got.allowed, got.patch) == (True, ())
    assert "it cannot be read" in got.warnings[0]
    refused = ask(CLOUD, junk, refuse=True)
    assert (refused.allowed, refused.code) == (False, 422)


def test_late_is_as_a_cloud_that_cannot_answer() -> None:
    request = parse(json.dumps(review(object=volume())).encode())
    assert handler({})[0].late(request).allowed
    refused = handler({}, refuse=True)[0].late(request)
    assert (refused.allowed, refused.code) == (False, 503)


@pytest.mark.parametrize(
    ("flags", "warned"),
    [([], True), (["--controllers=*,pvlabel"], False), (["--webhook-volume-failure-policy=Fail"], False)],
)
def test_a_webhook_that_leaves_work_to_a_controller_that_is_off_is_told(
    flags: list[str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = there(parse_flags(["--cloud-provider=x", *flags], CATALOG).options)
    context = SimpleNamespace(options=options, cloud=CloudCalls(Disks({})), clock=SYSTEM_CLOCK)
    assert WEBHOOK.construct(cast(Context, context)) is not None
    assert ("stay without labels" in caplog.text) is warned


def test_many_reviews_are_answered_at_once() -> None:
    one, disks = handler(CLOUD)
    request = parse(json.dumps(review(object=volume())).encode())
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda: answers.append(one.handle(request))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [answer.patch for answer in answers] == [answers[0].patch] * 8
    assert disks.asked == 8


@pytest.mark.row("X12")
@pytest.mark.parametrize("refuse", [True, False])
@pytest.mark.parametrize("answer", [DiskNotFound("no such disk"), CloudProviderError("ill"), CLOUD])
def test_a_thousand_volumes_are_a_few_lines(answer: Any, refuse: bool, caplog: pytest.LogCaptureFixture) -> None:
    one, _ = handler(answer, refuse=refuse)
    for number in range(300):
        request = parse(json.dumps(review(object=volume(), name=f"stranger-{number:x}")).encode())
        one.handle(request)
    lines = [line for line in caplog.messages if "persistentvolume" in line]
    assert (0 if answer is CLOUD else 2) <= len(lines) <= (0 if answer is CLOUD else 10)
    if lines:
        assert "(attempt 256)" in lines[-1]
        assert ("refused" if refuse else "admitted without labels") in lines[-1]
        assert "stranger-ff" in lines[-1], "and of which it was the last"


@pytest.mark.row("X9")
def test_the_provider_gets_no_identity_and_no_managed_fields_and_the_patch_touches_neither() -> None:
    seen: list[V1PersistentVolume] = []

    class Looking(Disks):
        def get_labels_for_volume(self, pv: V1PersistentVolume) -> Mapping[str, str]:
            seen.append(pv)
            return CLOUD

    labeler = there(CloudCalls(Looking(CLOUD)).pv_labeler)
    created = volume({"team": "blue"})
    created["metadata"] |= {"uid": "u-of-a-node", "resourceVersion": "7", "managedFields": [{"manager": "m"}]}
    got = VolumeLabelHandler(labeler).handle(parse(json.dumps(review(object=created)).encode()))
    assert seen[0].metadata is not None
    assert (seen[0].metadata.uid, seen[0].metadata.resource_version, seen[0].metadata.managed_fields) == (None,) * 3
    assert seen[0].metadata.labels == {"team": "blue"}
    assert {one["path"] for one in got.patch} <= {f"/metadata/labels/{name.replace('/', '~1')}" for name in CLOUD} | {
        "/spec/nodeAffinity"
    }
