"""What a load balancer depends on, the note of what was applied, and the patches: rows S7, S8, S9,
S12."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.models.v1_load_balancer_status import V1LoadBalancerStatus
from kubernetes.client.models.v1_service import V1Service

from cloudprovider.internal.patching import apply_patch
from controllers.runtime.cache import SERVICES
from controllers.runtime.write import Patch
from controllers.service import changes
from controllers.service.changes import APPLIED, WITHOUT_CLASS, Note, Ownership, Scope
from tests.support.controllers import Raw
from tests.unit.service.objects import FINALIZER, raw_service, service

SCOPE = Scope("prod", "cluster-1", "r1")
NOTE = Note("uid-web", "0123456789abcdef", "fedcba9876543210")
POINT = {"ip": "192.0.2.1", "ipMode": "VIP"}
FULL: dict[str, Any] = {
    "sessionAffinity": "ClientIP",
    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
    "loadBalancerIP": "192.0.2.9",
    "loadBalancerSourceRanges": ["10.0.0.0/8"],
    "externalIPs": ["198.51.100.1"],
    "externalTrafficPolicy": "Local",
    "healthCheckNodePort": 30000,
    "ipFamilies": ["IPv4"],
    "allocateLoadBalancerNodePorts": True,
}
OTHER: dict[str, Any] = {
    "sessionAffinity": "None",
    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 11}},
    "loadBalancerIP": "192.0.2.8",
    "loadBalancerSourceRanges": ["10.0.0.0/8", "172.16.0.0/12"],
    "externalIPs": ["198.51.100.2"],
    "externalTrafficPolicy": "Cluster",
    "healthCheckNodePort": 30001,
    "ipFamilies": ["IPv4", "IPv6"],
    "allocateLoadBalancerNodePorts": False,
}

words = st.text("abc/.-", min_size=1, max_size=6)
labels = st.dictionaries(words, words, max_size=4)
digests = st.text("0123456789abcdef", min_size=16, max_size=16)
uids = st.sampled_from(["uid-web", "uid-other"])
notes = st.builds(Note, uids, digests | st.just("none"), digests | st.just("none"))
points = st.lists(st.sampled_from([POINT, {"ip": "192.0.2.2"}, {"hostname": "lb.example.com"}]), max_size=2)


def _fingerprint(scope: Scope = SCOPE, **fields: Any) -> str:
    return changes.fingerprint(service(**fields), scope)


# ---- what is wanted


OURS = {APPLIED: "v2 uid=uid-web spec=none nodes=none"}
OTHERS = {APPLIED: "v2 uid=uid-other spec=none nodes=none"}
HELD: dict[str, Any] = {"finalizers": [FINALIZER]}
CLASS: dict[str, Any] = {"loadBalancerClass": "example.com/other", **HELD}
PLAIN: dict[str, Any] = {"type": "ClusterIP", **HELD}


@pytest.mark.row("S14")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Ownership.KEEP),
        (HELD, Ownership.KEEP),
        ({**HELD, "deleted": True}, Ownership.REMOVE),
        ({"deleted": True, "finalizers": ["example.com/other"]}, Ownership.NONE),
        ({"type": "ClusterIP"}, Ownership.NONE),
        ({**PLAIN, "finalizers": [], "annotations": OURS}, Ownership.NONE),
        (PLAIN, Ownership.ASK),
        ({**PLAIN, "annotations": OURS}, Ownership.REMOVE),
        ({**PLAIN, "annotations": OTHERS}, Ownership.ASK),
        (CLASS, Ownership.NONE),
        ({**CLASS, "annotations": OURS}, Ownership.REMOVE),
        ({**CLASS, "annotations": OTHERS}, Ownership.NONE),
        ({**CLASS, "annotations": {APPLIED: "ours"}}, Ownership.NONE),
        ({**CLASS, "deleted": True}, Ownership.NONE),
        ({**CLASS, "deleted": True, "annotations": OTHERS}, Ownership.NONE),
        ({**PLAIN, "deleted": True}, Ownership.ASK),
        ({**CLASS, "deleted": True, "annotations": OURS}, Ownership.REMOVE),
    ],
)
def test_what_a_service_asks_of_us_by_what_it_shows(fields: dict[str, Any], expected: Ownership) -> None:
    assert WITHOUT_CLASS.ownership(service(**fields)) is expected


# ---- the fingerprint


def test_the_fingerprint_never_changes_its_form() -> None:
    # It is remembered on users' Services: another value here means that an upgrade ensures every
    # load balancer anew.
    assert _fingerprint(annotations={"example.com/size": "big"}, **FULL) == "07e53d39d0801394"
    assert _fingerprint() == "bccae94cd908e914"


@pytest.mark.row("S7")
@pytest.mark.parametrize("field", sorted(FULL))
def test_every_field_of_the_spec_that_load_balancers_depend_on_counts(field: str) -> None:
    without = {name: value for name, value in FULL.items() if name != field}
    assert len({_fingerprint(**FULL), _fingerprint(**FULL | {field: OTHER[field]}), _fingerprint(**without)}) == 3


@pytest.mark.row("S7")
@pytest.mark.parametrize(
    "port",
    [
        {"name": "http", "port": 81, "protocol": "TCP"},
        {"name": "https", "port": 80, "protocol": "TCP"},
        {"name": "http", "port": 80, "protocol": "UDP"},
        {"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080},
        {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"},
        {"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "h2"},
    ],
)
def test_everything_about_a_port_counts(port: dict[str, Any]) -> None:
    assert _fingerprint(ports=[port]) != _fingerprint()


@pytest.mark.row("S7", "S12")
def test_the_cluster_the_providers_revision_and_the_services_uid_count() -> None:
    scopes = [Scope("test", "cluster-1", "r1"), Scope("prod", "cluster-2", "r1"), Scope("prod", "cluster-1", "r2")]
    assert len({_fingerprint(), _fingerprint(uid="other"), *map(_fingerprint, scopes)}) == 5


def test_fields_of_no_load_balancer_do_not_count() -> None:
    plain = _fingerprint()
    assert plain == _fingerprint(version="99", finalizers=["example.com/other"], ingress=[POINT])
    assert plain == _fingerprint(selector={"app": "web"}, clusterIP="10.96.0.1", internalTrafficPolicy="Local")
    assert plain == _fingerprint(loadBalancerSourceRanges=[], externalIPs=[])


@pytest.mark.row("S7")
@given(labels, labels, notes)
def test_annotations_count_but_for_our_own_note_and_the_order_of_keys(
    others: dict[str, str], more: dict[str, str], note: Note
) -> None:
    reordered = dict(reversed([*others.items(), (APPLIED, str(note))]))
    assert _fingerprint(annotations=reordered) == _fingerprint(annotations=others)
    assert (_fingerprint(annotations=others) == _fingerprint(annotations=more)) is (others == more)


# ---- what may mean work


@pytest.mark.parametrize("field", sorted(FULL))
def test_a_change_that_the_fingerprint_sees_is_relevant(field: str) -> None:
    assert WITHOUT_CLASS.relevant(service(**FULL)) != WITHOUT_CLASS.relevant(service(**FULL | {field: OTHER[field]}))


# ---- the note


@given(notes, st.text(max_size=60))
def test_a_note_is_read_back_as_it_was_written_and_what_people_write_there_never_fails(note: Note, text: str) -> None:
    assert changes.note_of(service(annotations={APPLIED: str(note), "other": "x"})) == note
    found = changes.note_of(service(annotations={APPLIED: text}))
    assert found is None or str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2",
        f"v3 uid=a spec={'0' * 16} nodes=none",
        f"v2 uid=a spec={'0' * 16} nodes=none ",
        f"v2 uid=a spec={'G' * 16} nodes=",
        f"v2 uid=a b spec={'0' * 16} nodes=none",
        f"v1 spec={'0' * 16} nodes=none",
        f"v2 uid=a spec={'0' * 16} nodes=none annotations=[1]",
        pytest.param(f"v2 uid=a spec=none nodes=none annotations={'[' * 5000}{']' * 5000}", id="deep"),
    ],
)
def test_a_note_that_cannot_be_read_is_none(text: str) -> None:
    assert changes.note_of(service(annotations={APPLIED: text})) is None


def _applied(**fields: Any) -> dict[str, Any]:
    return {"finalizers": [FINALIZER], "annotations": {APPLIED: str(NOTE)}, "ingress": [POINT], **fields}


@pytest.mark.row("S7")
def test_a_note_is_trusted_with_our_finalizer_a_status_and_the_same_fingerprint() -> None:
    assert changes.trusted_note(service(**_applied()), NOTE.spec) == NOTE


@pytest.mark.row("S7")
@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, "0" * 16),
        ({"finalizers": []}, NOTE.spec),
        ({"finalizers": ["example.com/other"]}, NOTE.spec),
        ({"ingress": []}, NOTE.spec),
        ({"annotations": {}}, NOTE.spec),
    ],
)
def test_and_not_otherwise(fields: dict[str, Any], wanted: str) -> None:
    assert changes.trusted_note(service(**_applied(**fields)), wanted) is None


# ---- patches

no_note: st.SearchStrategy[Note | None] = st.none()
raw_services = st.builds(
    lambda finalizers, kept, note, ingress: raw_service(
        finalizers=finalizers, annotations=kept | ({} if note is None else {APPLIED: str(note)}), ingress=ingress
    ),
    st.lists(st.sampled_from([FINALIZER, "example.com/a", "example.com/b"]), unique=True),
    labels,
    no_note | notes,
    points,
)


def _status(ingress: list[dict[str, Any]]) -> V1LoadBalancerStatus:
    status = V1LoadBalancerStatus.from_dict({"ingress": ingress})
    assert status is not None
    return status


def _patched(raw: Raw, patch: Patch) -> Raw:
    assert not patch or patch.content_type == "application/strategic-merge-patch+json"
    return apply_patch(raw, patch.body, patch.content_type)


def _annotations(raw: Raw) -> Mapping[str, str]:
    found: Mapping[str, str] = raw["metadata"].get("annotations") or {}
    return found


def _foreign(raw: Raw) -> Raw:
    """All that is not ours to change."""
    raw = copy.deepcopy(raw)
    metadata = raw["metadata"]
    metadata["finalizers"] = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
    metadata["annotations"] = {k: v for k, v in _annotations(raw).items() if k != APPLIED}
    del raw["status"]
    return raw


def _ingress(raw: Raw) -> list[dict[str, Any]]:
    return list(raw["status"]["loadBalancer"].get("ingress") or ())


@given(raw_services, st.booleans())
def test_before_building_the_finalizer_is_on_and_the_note_says_no_more_than_that_it_is_ours(
    raw: Raw, keep_note: bool
) -> None:
    patch = changes.claim_patch(SERVICES.parse(copy.deepcopy(raw)), keep_note=keep_note)
    after = _patched(raw, patch)
    assert FINALIZER in after["metadata"]["finalizers"]
    assert _annotations(after).get(APPLIED) == (
        _annotations(raw).get(APPLIED) if keep_note else "v2 uid=uid-web spec=none nodes=none"
    )
    assert _foreign(after) == _foreign(raw)
    assert _ingress(after) == _ingress(raw)
    assert patch.subresource == ""
    assert not changes.claim_patch(SERVICES.parse(after), keep_note=keep_note)


@given(raw_services, points, notes)
def test_after_building_status_and_note_go_on_in_one_write(raw: Raw, ingress: Any, note: Note) -> None:
    status = _status(ingress)
    patch = changes.status_patch(SERVICES.parse(copy.deepcopy(raw)), status, note)
    after = _patched(raw, patch)
    assert _annotations(after)[APPLIED] == str(note)
    assert [point.get("ip") or point["hostname"] for point in _ingress(after)] == [
        point.get("ip") or point["hostname"] for point in ingress
    ]
    assert _foreign(after) == _foreign(raw)
    assert after["metadata"]["finalizers"] == raw["metadata"]["finalizers"]
    assert patch.subresource == "status"
    assert not changes.status_patch(SERVICES.parse(after), status, note)


@given(raw_services, notes, points)
def test_without_a_status_or_a_note_the_present_one_stays(raw: Raw, note: Note, ingress: Any) -> None:
    shown = SERVICES.parse(copy.deepcopy(raw))
    after = _patched(raw, changes.status_patch(shown, None, note))
    assert _ingress(after) == _ingress(raw)
    assert _annotations(after)[APPLIED] == str(note)
    after = _patched(raw, changes.status_patch(shown, _status(ingress), None))
    assert _annotations(after) == _annotations(raw)
    assert len(_ingress(after)) == len(ingress)


@pytest.mark.row("S7")
def test_a_status_that_the_api_server_completed_is_not_written_again() -> None:
    shown = service(ingress=[POINT], annotations={APPLIED: str(NOTE)})
    assert not changes.status_patch(shown, _status([{"ip": POINT["ip"]}]), NOTE)


def _release(service: V1Service) -> Patch:
    return changes.release_patch(service, wanted=WITHOUT_CLASS.wants(service))


@pytest.mark.row("S8")
@given(raw_services)
def test_after_deleting_status_note_and_finalizer_go_in_one_write(raw: Raw) -> None:
    patch = _release(SERVICES.parse(copy.deepcopy(raw)))
    after = _patched(raw, patch)
    assert FINALIZER not in after["metadata"]["finalizers"]
    assert APPLIED not in _annotations(after)
    assert _ingress(after) == []
    assert _foreign(after) == _foreign(raw)
    assert patch.subresource == "status"
    assert not _release(SERVICES.parse(after))
