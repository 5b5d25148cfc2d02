"""Which nodes are looked at, and what is written on them, as pure functions: rows N3 and N6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node

from controllers.nodelifecycle.changes import (
    Attention,
    attention,
    can_be_sampled,
    returned,
    shut_down,
    without_provider_id,
    zone_of,
)
from controllers.runtime.write import Patch
from tests.unit.nodelifecycle.support import ADMINS, OTHER, OUT_OF_SERVICE, SHUTDOWN, UNINITIALIZED, node

OURS = ("fake://",)
HANDS_OFF = "cloud-provider.node-restriction.kubernetes.io/hands-off"


@pytest.mark.row("N3", "N6")
@pytest.mark.parametrize(
    ("fields", "prefixes", "expected"),
    [
        *(({"ready": ready}, OURS, Attention.ASK) for ready in ("False", "Unknown", None)),
        ({"ready": "True"}, OURS, Attention.NONE),
        ({"ready": "True", "taints": [OTHER, OUT_OF_SERVICE]}, OURS, Attention.NONE),
        ({"ready": "True", "taints": [SHUTDOWN]}, OURS, Attention.TIDY),
        # nodes of another cloud, or without an ID where there are IDs
        *(
            ({"ready": ready, "provider_id": "other://i-1", "taints": [SHUTDOWN]}, prefixes, Attention.NONE)
            for ready in ("True", "False")
            for prefixes in (OURS, ())
        ),
        ({"provider_id": None}, OURS, Attention.NONE),
        ({"provider_id": None}, (), Attention.ASK),
        # a node that is not initialised is left alone for its grace period
        ({"taints": [UNINITIALIZED], "age": 599}, OURS, Attention.NONE),
        ({"taints": [UNINITIALIZED], "age": 600}, OURS, Attention.ASK),
        ({"taints": [], "age": 0}, OURS, Attention.ASK),
        ({"deleted": True}, OURS, Attention.NONE),
        # an administrator keeps us from it; any value but "false" counts
        *(({"labels": {HANDS_OFF: value}}, OURS, Attention.NONE) for value in ("true", "", "no", "False")),
        ({"labels": {HANDS_OFF: "true"}, "ready": "True", "taints": [SHUTDOWN]}, OURS, Attention.NONE),
        ({"labels": {HANDS_OFF: "false"}}, OURS, Attention.ASK),
        ({"labels": {"node-restriction.kubernetes.io/hands-off": "true"}}, OURS, Attention.ASK),
    ],
)
def test_what_a_node_needs(fields: dict[str, Any], prefixes: Sequence[str], expected: Attention) -> None:
    age = fields.pop("age", 1000.0)
    assert attention(node(**fields), prefixes, age, 600.0) is expected


def test_our_out_of_service_taint_is_tidied_up_with_the_option_on() -> None:
    ours = node(ready="True", taints=[OUT_OF_SERVICE])
    assert attention(ours, OURS, 1000.0, 600.0, out_of_service=True) is Attention.TIDY


def _taints(patch: Patch) -> list[Mapping[str, Any]]:
    assert patch.versioned, "taints are an atomic list"
    taints: list[Mapping[str, Any]] | None = patch.body["spec"]["taints"]
    return taints or []


def test_the_shutdown_taint_comes_and_goes_and_others_are_kept() -> None:
    assert _taints(shut_down(node(taints=[OTHER]), out_of_service=False)) == [OTHER, SHUTDOWN]
    assert not shut_down(node(taints=[SHUTDOWN, OTHER]), out_of_service=False)
    assert _taints(_back(node(taints=[OTHER, SHUTDOWN, UNINITIALIZED]))) == [OTHER, UNINITIALIZED]
    assert not _back(node(taints=[OTHER]))


def _back(node: V1Node) -> Patch:
    return returned(node, out_of_service=True)


@pytest.mark.row("N17")
def test_the_out_of_service_taint_is_known_by_its_value() -> None:
    patch = shut_down(node(taints=[OTHER, SHUTDOWN]), out_of_service=True)
    assert _taints(patch) == [OTHER, SHUTDOWN, OUT_OF_SERVICE]
    assert "annotations" not in patch.body.get("metadata", {})
    assert OUT_OF_SERVICE["value"] != ADMINS["value"], "the value that the documentation tells people to use"
    off = node(taints=[OTHER, SHUTDOWN, OUT_OF_SERVICE])
    assert _taints(_back(off)) == [OTHER]
    assert not shut_down(off, out_of_service=True)
    assert _taints(returned(off, out_of_service=False)) == [OTHER, OUT_OF_SERVICE], "only with the option on"


@pytest.mark.row("N17")
def test_an_administrators_out_of_service_taint_stays_whatever_the_annotations_say() -> None:
    forged = {"kubernetes-cloud-provider/out-of-service": "true"}
    for theirs in (ADMINS, {**OUT_OF_SERVICE, "value": "repair"}):
        taints = [SHUTDOWN, theirs]
        assert not shut_down(node(taints=taints, annotations=forged), out_of_service=True)
        assert _taints(_back(node(taints=taints, annotations=forged))) == [theirs]
        assert not _back(node(taints=[theirs], annotations=forged))


@given(
    foreign=st.lists(
        st.builds(
            lambda key, effect: {"key": key, "effect": effect},
            st.sampled_from(["a.example/x", "b.example/y", "node.kubernetes.io/not-ready", SHUTDOWN["key"]]),
            st.sampled_from(["NoExecute", "PreferNoSchedule"]),
        ),
        max_size=5,
        unique_by=lambda taint: (taint["key"], taint["effect"]),
    ),
    out_of_service=st.booleans(),
)
def test_there_and_back_leaves_what_was_there(foreign: list[dict[str, str]], out_of_service: bool) -> None:
    patch = shut_down(node(taints=foreign), out_of_service=out_of_service)
    off = node(taints=_taints(patch))
    assert not shut_down(off, out_of_service=out_of_service)
    assert _taints(returned(off, out_of_service=out_of_service)) == foreign


def test_the_nameless_copy_is_a_copy_and_no_revision() -> None:
    original = node()
    copy = without_provider_id(original)
    assert copy.metadata is not None
    assert original.metadata is not None
    assert copy.spec is not None
    assert original.spec is not None
    assert (copy.metadata.name, copy.metadata.resource_version, copy.spec.provider_id) == ("n1", None, None)
    assert (original.metadata.resource_version, original.spec.provider_id) == ("7", "fake://i-1")


def test_who_can_be_sampled() -> None:
    assert can_be_sampled(node(ready="True"), OURS)
    announced = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    for other in (
        node(ready="False"),
        node(ready=None),
        node(ready="True", provider_id="other://i-1"),
        node(ready="True", provider_id=None),
        node(ready="True", deleted=True),
        *(node(ready="True", taints=[taint]) for taint in (UNINITIALIZED, SHUTDOWN, announced)),
    ):
        assert not can_be_sampled(other, OURS)


def test_the_zone_is_that_of_the_newer_label() -> None:
    beta = {"failure-domain.beta.kubernetes.io/zone": "b"}
    assert zone_of(node(labels={**beta, "topology.kubernetes.io/zone": "a"})) == "a"
    assert zone_of(node(labels=beta)) == "b"
    assert zone_of(node()) == ""
