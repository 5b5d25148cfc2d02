"""What is written on a node, as pure functions: rows N9-N13 and N16, and that nothing is written
twice."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_node import V1Node
from kubernetes.client.models.v1_node_address import V1NodeAddress
from kubernetes.client.models.v1_node_condition import V1NodeCondition

from cloudprovider import InstanceMetadata, wellknown
from cloudprovider.helpers.addresses import NodeIPError
from cloudprovider.helpers.labels import LABEL_PAIRS
from cloudprovider.helpers.objects import needs_initialization
from cloudprovider.ips import IPNetwork
from controllers.node import changes
from controllers.node.changes import InstanceReplaced, NodeChanges
from controllers.node.kept import APPLIED_LABELS, recorded
from controllers.options.podnetwork import CIDRS
from tests.support.there import there

TAINT = {"key": wellknown.TAINT_EXTERNAL_CLOUD_PROVIDER, "value": "true", "effect": "NoSchedule"}
OTHER_TAINT = {"key": "example.com/dedicated", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}
WELL_KNOWN = {
    "node.kubernetes.io/instance-type": "large",
    "beta.kubernetes.io/instance-type": "large",
    "topology.kubernetes.io/zone": "z1",
    "failure-domain.beta.kubernetes.io/zone": "z1",
    "topology.kubernetes.io/region": "r1",
    "failure-domain.beta.kubernetes.io/region": "r1",
}


def node(
    *,
    taints: list[Mapping[str, Any]] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    provider_id: str | None = None,
    addresses: list[tuple[str, str]] | None = None,
) -> V1Node:
    raw = {
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints, "providerID": provider_id},
        "status": {"addresses": [{"type": kind, "address": value} for kind, value in addresses or []]},
    }
    return there(V1Node.from_dict(raw))


def instance(
    *addresses: tuple[str, str], labels: Mapping[str, str] | None = None, provider_id: str = "fake://i-1", **fields: Any
) -> InstanceMetadata:
    listed = [V1NodeAddress(type=kind, address=value) for kind, value in addresses or [("InternalIP", "10.0.0.1")]]
    values = {"instance_type": "large", "zone": "z1", "region": "r1", **fields}
    return InstanceMetadata(
        provider_id=provider_id, node_addresses=tuple(listed), additional_labels=labels or {}, **values
    )


def status_of(planned: NodeChanges) -> dict[str, Any] | None:
    """The body of the patch of the status, None without one."""
    return next((patch.body for patch in planned.patches if patch.subresource == "status"), None)


def object_of(planned: NodeChanges) -> dict[str, Any] | None:
    """The body of the patch of the object itself, None without one."""
    return next((patch.body for patch in planned.patches if not patch.subresource), None)


def applied(before: V1Node, planned: NodeChanges) -> V1Node:
    """The node after the patches, as the API server would answer."""
    meta, spec = there(before.metadata), there(before.spec)
    written = object_of(planned) or {}
    labels = _merged(meta.labels, written.get("metadata", {}).get("labels"))
    annotations = _merged(meta.annotations, written.get("metadata", {}).get("annotations"))
    spec_patch = written.get("spec", {})
    old_taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in spec.taints or []]
    addresses = [(a.type, a.address) for a in (before.status.addresses if before.status else None) or []]
    status = status_of(planned)
    if status is not None:
        marker, *listed = status["status"]["addresses"]
        assert marker == {"$patch": "replace"}
        addresses = [(a["type"], a["address"]) for a in listed]
    return node(
        taints=spec_patch.get("taints", old_taints),
        labels=labels,
        annotations=annotations,
        provider_id=spec_patch.get("providerID", spec.provider_id),
        addresses=addresses,
    )


def _merged(old: Mapping[str, str] | None, patch: Mapping[str, str | None] | None) -> dict[str, str]:
    merged: dict[str, str | None] = {**(old or {}), **(patch or {})}
    return {key: value for key, value in merged.items() if value is not None}


def test_initialization_writes_everything_and_keeps_foreign_taints() -> None:
    fresh = node(taints=[TAINT, OTHER_TAINT], labels={"mine": "1"}, addresses=[("Hostname", "n1")])
    planned = changes.initialization(fresh, instance(("InternalIP", "10.0.0.1"), ("ExternalIP", "1.2.3.4")))
    assert status_of(planned) == {
        "status": {
            "addresses": [
                {"$patch": "replace"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "1.2.3.4"},
                {"type": "Hostname", "address": "n1"},
            ]
        }
    }
    assert object_of(planned) == {
        "metadata": {
            "labels": WELL_KNOWN,
            "annotations": {APPLIED_LABELS: json.dumps(WELL_KNOWN, sort_keys=True, separators=(",", ":"))},
        },
        "spec": {"providerID": "fake://i-1", "taints": [OTHER_TAINT]},
    }


@pytest.mark.row("N9")
def test_addresses_are_a_patch_of_their_own_that_does_not_touch_the_taint_which_goes_with_null() -> None:
    planned = changes.initialization(node(taints=[TAINT]), instance())
    first, second = planned.patches
    assert first.subresource == "status"
    assert set(first.body) == {"status"}
    assert second.body["spec"]["taints"] is None
    assert second.versioned
    known = changes.initialization(node(taints=[TAINT], provider_id="fake://i-1"), instance())
    assert "providerID" not in there(object_of(known))["spec"], "it is there already"


@pytest.mark.row("N16")
@pytest.mark.parametrize("taints", [[TAINT], []])
def test_another_instance_than_the_nodes_is_refused(taints: list[Mapping[str, Any]]) -> None:
    old = node(taints=taints, provider_id="fake://i-0")
    plan = changes.initialization if taints else changes.refresh
    with pytest.raises(InstanceReplaced, match=r"fake://i-1.*fake://i-0.*delete the Node"):
        plan(old, instance())


@pytest.mark.row("N10")
def test_a_resized_instance_changes_our_labels_and_nobody_elses() -> None:
    ready = applied(node(taints=[TAINT]), changes.initialization(node(taints=[TAINT]), instance(labels={"a/b": "1"})))
    planned = changes.refresh(ready, instance(instance_type="huge", labels={"a/b": "2"}))
    written = there(object_of(planned))
    assert written["metadata"]["labels"] == {
        "node.kubernetes.io/instance-type": "huge",
        "beta.kubernetes.io/instance-type": "huge",
        "a/b": "2",
    }


@pytest.mark.row("N10")
def test_a_label_that_somebody_changed_is_left_alone() -> None:
    ready = applied(node(taints=[TAINT]), changes.initialization(node(taints=[TAINT]), instance(labels={"a/b": "1"})))
    assert ready.metadata is not None
    assert ready.metadata.labels is not None
    ready.metadata.labels["a/b"] = "theirs"
    for value in ("2", "3"):
        assert not changes.refresh(ready, instance(labels={"a/b": value})).patches


def test_a_label_that_the_cloud_drops_goes_only_if_it_is_ours() -> None:
    fresh = node(taints=[TAINT], labels={"theirs": "1"})
    first = changes.initialization(fresh, instance(labels={"a/b": "1", "c": "1"}))
    planned = changes.refresh(applied(fresh, first), instance(labels={"c": "1"}), first.known)
    written = there(object_of(planned))
    assert written["metadata"]["labels"] == {"a/b": None}
    assert planned.patches[0].versioned, "somebody may just have changed it"


def test_a_node_that_is_tainted_again_keeps_in_its_record_what_this_process_wrote() -> None:
    fresh = node(taints=[TAINT])
    first = changes.initialization(fresh, instance(labels={"a/b": "1"}))
    ready = applied(fresh, first)
    again = node(
        taints=[TAINT],
        labels=ready.metadata.labels if ready.metadata else None,
        annotations=ready.metadata.annotations if ready.metadata else None,
        provider_id="fake://i-1",
    )
    planned = changes.initialization(again, instance(), first.known)
    assert planned.known is not None
    assert dict(planned.known.written) == {**WELL_KNOWN, "a/b": "1"}, "what it wrote stays its own"
    dropped = changes.refresh(applied(again, planned), instance(labels={"c": "1"}), planned.known)
    written = there(object_of(dropped))
    assert written["metadata"]["labels"] == {"a/b": None, "c": "1"}


def test_a_record_that_this_process_did_not_write_is_replaced_when_a_node_is_initialised() -> None:
    forged = node(taints=[TAINT], labels={"a/b": "1"}, annotations={APPLIED_LABELS: '{"a/b":"1"}'})
    planned = changes.initialization(forged, instance())
    assert planned.known is not None
    assert dict(planned.known.written) == WELL_KNOWN


def test_an_empty_answer_erases_nothing() -> None:
    ready = applied(node(taints=[TAINT]), changes.initialization(node(taints=[TAINT]), instance(labels={"a/b": "1"})))
    silent = InstanceMetadata(provider_id="fake://i-1")
    assert not changes.refresh(ready, silent).patches


def test_labels_in_reserved_namespaces_are_refused_by_name() -> None:
    asked = {"kubernetes.io/role": "x", "foo.k8s.io/y": "z", "notk8s.example/io": "fine"}
    planned = changes.initialization(node(taints=[TAINT]), instance(labels=asked))
    assert [text.split("'")[1] for texts in planned.refused.values() for text in texts] == [
        "foo.k8s.io/y",
        "kubernetes.io/role",
    ]
    written = there(object_of(planned))
    assert set(written["metadata"]["labels"]) == {*WELL_KNOWN, "notk8s.example/io"}


@pytest.mark.row("N11")
@pytest.mark.parametrize(("stable", "beta"), LABEL_PAIRS)
def test_the_ga_label_wins_over_its_beta_twin(stable: str, beta: str) -> None:
    both = node(labels={stable: "ga", beta: "old"})
    assert object_of(changes.pairing(both)) == {"metadata": {"labels": {beta: "ga"}}}
    assert all(patch.versioned for patch in changes.pairing(both).patches), "somebody may just have changed it"
    only_beta = node(labels={beta: "old"})
    assert object_of(changes.pairing(only_beta)) == {"metadata": {"labels": {stable: "old"}}}
    assert not changes.pairing(node(labels={stable: "x", beta: "x"})).patches


@pytest.mark.row("N12")
def test_a_provided_node_ip_that_the_cloud_lacks_is_told_with_both_lists() -> None:
    asked = node(taints=[TAINT], annotations={wellknown.ANNOTATION_PROVIDED_NODE_IP: "10.9.9.9"})
    with pytest.raises(NodeIPError, match=r"10\.9\.9\.9.*InternalIP 10\.0\.0\.1, ExternalIP 1\.2\.3\.4"):
        changes.initialization(asked, instance(("InternalIP", "10.0.0.1"), ("ExternalIP", "1.2.3.4")))


def test_a_provided_node_ip_is_the_only_one_of_its_type() -> None:
    asked = node(taints=[TAINT], annotations={wellknown.ANNOTATION_PROVIDED_NODE_IP: "10.0.0.2"})
    planned = changes.initialization(
        asked, instance(("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("ExternalIP", "1.2.3.4"))
    )
    status = there(status_of(planned))
    listed = [entry.get("address") for entry in status["status"]["addresses"]]
    assert listed == [None, "10.0.0.2", "1.2.3.4"]


@pytest.mark.row("N13")
@given(seed=st.integers(0, 1000))
def test_a_shuffled_dual_stack_answer_writes_nothing(seed: int) -> None:
    cloud = [
        ("InternalIP", "10.0.0.1"),
        ("InternalIP", "fd00::1"),
        ("ExternalIP", "1.2.3.4"),
        ("ExternalIP", "2001:db8::1"),
    ]
    ready = applied(node(taints=[TAINT]), changes.initialization(node(taints=[TAINT]), instance(*cloud)))
    shuffled = list(cloud)
    random.Random(seed).shuffle(shuffled)
    assert not changes.refresh(ready, instance(*shuffled)).patches


_VALUE = st.sampled_from(["", "a", "b"])
_LABELS = st.dictionaries(st.sampled_from([*WELL_KNOWN, "x/y", "z", "kubernetes.io/no"]), st.sampled_from("ab"))


@given(
    labels=_LABELS,
    before=st.tuples(_VALUE, _VALUE, _VALUE, _LABELS),
    after=st.tuples(_VALUE, _VALUE, _VALUE, _LABELS),
)
def test_every_plan_settles_after_it_was_applied_once(
    labels: dict[str, str],
    before: tuple[str, str, str, dict[str, str]],
    after: tuple[str, str, str, dict[str, str]],
) -> None:
    def answer(values: tuple[str, str, str, dict[str, str]]) -> InstanceMetadata:
        return instance(instance_type=values[0], zone=values[1], region=values[2], labels=values[3])

    fresh = node(taints=[TAINT], labels=labels)
    ready = applied(fresh, changes.initialization(fresh, answer(before)))
    assert not needs_initialization(ready)
    first = changes.refresh(ready, answer(after))
    settled = applied(ready, first)
    assert not changes.refresh(settled, answer(after)).patches
    assert not changes.pairing(settled).patches
    assert settled.metadata is not None
    for key in ("x/y", "z"):  # what a person had set before us stays
        if key in labels:
            assert (settled.metadata.labels or {})[key] == labels[key]


def test_a_spoilt_record_is_as_good_as_none() -> None:
    for raw in ("{", "[]", '"x"', '{"a": 1}', "[" * 100_000, '{"a":' * 100_000):
        assert recorded(node(annotations={APPLIED_LABELS: raw})) == {}


ROUTED = CIDRS.parse("10.244.0.0/16,fd00:10:244::/56")


@pytest.mark.row("N36")
@pytest.mark.parametrize(
    ("cidrs", "routed", "condition", "said"),
    [
        (["10.244.1.0/24"], ROUTED, None, True),
        (["10.245.1.0/24", "fd00:10:244:1::/64"], ROUTED, None, True),
        (["10.244.1.0/24"], (), None, False),
        (["10.245.1.0/24"], ROUTED, None, False),
        (["nonsense"], ROUTED, None, False),
        ([], ROUTED, None, False),
        (["10.244.1.0/24"], ROUTED, "False", False),
        (["10.244.1.0/24"], ROUTED, "True", False),
    ],
)
def test_a_new_node_has_no_route_yet_where_this_process_makes_it(
    cidrs: list[str], routed: tuple[IPNetwork, ...], condition: str | None, said: bool
) -> None:
    """In the patch of the addresses, so before the taint goes; and only where nobody has said
    it."""
    new = node(taints=[TAINT])
    new.spec.pod_cidrs = cidrs  # type: ignore[union-attr]  # as built above
    if condition:
        new.status.conditions = [  # type: ignore[union-attr]
            V1NodeCondition(type="NetworkUnavailable", status=condition, reason="Calico")
        ]
    first, *_ = changes.initialization(new, instance(), routed=routed, now="2026-01-02T03:04:05Z").patches
    assert first.subresource == "status"
    assert first.body["status"]["addresses"]
    written = first.body["status"].get("conditions", [])
    assert [(one["status"], one["reason"], one["lastTransitionTime"]) for one in written] == [
        ("True", "NoRouteCreated", "2026-01-02T03:04:05Z")
    ] * said
