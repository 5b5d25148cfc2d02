"""From a volume and the cloud's labels to a patch: what is missing is added, what is there is never
changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_persistent_volume import V1PersistentVolume

from cloudprovider.helpers import zones_to_label_value
from controllers.volumelabels.changes import labelling, needs_labels

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
ZONE_BETA, REGION_BETA = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
CLOUD = {ZONE: "z-1", REGION: "r-1"}


def affinity(*terms: list[tuple[str, str, list[str]]]) -> dict[str, Any]:
    expressions = [[{"key": key, "operator": op, "values": values} for key, op, values in term] for term in terms]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": each} for each in expressions]}}


def volume(labels: dict[str, str] | None = None, meta: dict[str, Any] | None = None, **spec: Any) -> V1PersistentVolume:
    made = V1PersistentVolume.from_dict(
        {
            "metadata": {"name": "v", "labels": labels or {}, **(meta or {})},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec},
        }
    )
    assert made is not None
    return made


OURS = affinity([(ZONE, "In", ["z-1"]), (REGION, "In", ["r-1"])])


GOLD = {"example.com/tier": "gold"}
ZONES = {ZONE: "z-1__z-2"}
BETA = {ZONE_BETA: "z-1", REGION_BETA: "r-1"}
RACK = affinity([("example.com/rack", "In", ["7"])])
LABELLED: dict[str, tuple[V1PersistentVolume, dict[str, str], dict[str, str], dict[str, Any]]] = {
    "a bare volume gets labels and affinity in one patch": (volume(), CLOUD | GOLD, CLOUD | GOLD, OURS),
    "in several zones: one value, an affinity with each": (
        volume(), ZONES, ZONES, affinity([(ZONE, "In", ["z-1", "z-2"])])
    ),
    "beta keys of the cloud are written as stable ones": (volume(), BETA, CLOUD, OURS),
    "what is there stays, the rest is added": (volume({ZONE: "z-1"}), CLOUD, {REGION: "r-1"}, OURS),
    "the same under its beta key": (volume({ZONE_BETA: "z-1"}), CLOUD, {REGION: "r-1"}, OURS),
    "an affinity that is there is left alone": (volume(nodeAffinity=RACK), CLOUD, CLOUD, {}),
    "labels without topology make no affinity": (volume(), GOLD, GOLD, {}),
    "no labels, no patch": (volume(), {}, {}, {}),
    "zones in another order are the same": (volume({ZONE: "z-2__z-1"}, nodeAffinity=OURS), ZONES, {}, {}),
}  # fmt: skip
"""A volume, the cloud's labels, the labels and the affinity that are written."""


@pytest.mark.parametrize("case", LABELLED)
def test_what_is_written_on_a_volume_in_one_patch_for_its_version(case: str) -> None:
    there, cloud, labels, spec = LABELLED[case]
    found = labelling(there, cloud)
    wanted = {"metadata": {"labels": labels}} if labels else {}
    assert found.patch.body == wanted | ({"spec": {"nodeAffinity": spec}} if spec else {})
    assert found.patch.versioned is bool(labels)
    assert found.contradictions == ()


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (volume({ZONE: "z-9"}), f"its label {ZONE} is 'z-9', and the cloud says 'z-1'"),
        (volume({ZONE_BETA: "z-9"}), f"its label {ZONE} is 'z-9', and the cloud says 'z-1'"),
        (volume({ZONE: "__"}), f"its label {ZONE} is '__', and the cloud says 'z-1'"),
        (
            volume(nodeAffinity=affinity([(ZONE, "In", ["z-8", "z-9"])])),
            f"its node affinity allows no node whose {ZONE} is 'z-1', where the cloud has it",
        ),
        (
            volume(nodeAffinity=affinity([(ZONE_BETA, "NotIn", ["z-1"])], [(ZONE, "DoesNotExist", [])])),
            f"its node affinity allows no node whose {ZONE} is 'z-1', where the cloud has it",
        ),
    ],
)
def test_a_contradiction_is_told_and_nothing_is_written(there: V1PersistentVolume, told: str) -> None:
    found = labelling(there, CLOUD)
    assert found.contradictions == (told,)
    assert not found.patch


def test_one_term_that_lets_the_clouds_zone_in_is_no_contradiction_and_an_empty_zone_is_refused() -> None:
    found = labelling(volume(nodeAffinity=affinity([(ZONE, "In", ["z-9"])], [(ZONE, "Exists", [])])), CLOUD)
    assert found.contradictions == ()
    with pytest.raises(ValueError, match="empty element"):
        labelling(volume(), {ZONE: "z-1__"})


CSI = {"csi": {"driver": "csi.example.com", "volumeHandle": "d-1"}}


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        (volume(), True),
        (volume({ZONE: "z-1"}), True),
        (volume(nodeAffinity=OURS), True),
        (volume({ZONE: "z-1"}, nodeAffinity=OURS), False),
        (volume({ZONE_BETA: "z-1"}, nodeAffinity=OURS), False),
        (volume(**CSI), False),
        (volume(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
    ],
)
def test_the_cloud_is_asked_about_volumes_that_lack_something_and_have_no_driver(
    there: V1PersistentVolume, asked: bool
) -> None:
    assert needs_labels(there) is asked


zones = st.lists(st.sampled_from(["z-1", "z-2", "z-3"]), min_size=1, unique=True)
keys = st.sampled_from([ZONE, ZONE_BETA])


@given(st.dictionaries(keys, zones, max_size=2), st.one_of(st.none(), zones), zones)
def test_nothing_that_is_there_ever_changes_and_a_second_time_writes_nothing(
    labels: dict[str, list[str]], allowed: list[str] | None, cloud: list[str]
) -> None:
    there = {key: zones_to_label_value(value) for key, value in labels.items()}
    spec = {} if allowed is None else {"nodeAffinity": affinity([(ZONE, "In", allowed)])}
    answer = {ZONE: zones_to_label_value(cloud)}
    found = labelling(volume(there, **spec), answer)
    added = found.patch.body.get("metadata", {}).get("labels", {})
    assert not added.keys() & there.keys()
    assert allowed is None or "spec" not in found.patch.body
    if found.patch:
        after = volume(there | added, **(spec | found.patch.body.get("spec", {})))
        assert labelling(after, answer).patch.body == {}
        assert labelling(after, answer).contradictions == ()
