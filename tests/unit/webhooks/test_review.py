"""Reviews are read strictly where it matters, and answers have the form of admission.k8s.io/v1."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.webhooks import allow, change, deny
from controllers.webhooks.review import BadReview, encode, marks_in, memory_of, parse
from tests.support.anyjson import SCALARS, json_values
from tests.unit.webhooks.support import VOLUME, response, review


def read(**changes: Any) -> Any:
    return parse(json.dumps(review(**changes)).encode())


def test_a_request_has_what_the_api_server_said_and_a_deletion_the_old_object_alone() -> None:
    found = read(dryRun=True, oldObject={"kind": "Old"}, namespace="ns", subResource="status")
    assert (found.uid, found.operation, found.resource, found.version) == ("u-1", "CREATE", "persistentvolumes", "v1")
    assert (found.user, found.groups, found.dry_run) == ("jo", ("system:authenticated",), True)
    assert (found.object, found.old_object, found.kind) == (VOLUME, {"kind": "Old"}, "PersistentVolume")
    assert str(found) == "CREATE persistentvolumes/status ns/pv-1"
    deleted = read(operation="DELETE", object=None, oldObject=VOLUME)
    assert (deleted.object, deleted.old_object) == ({}, VOLUME)


def test_what_a_handler_does_to_the_object_is_in_the_patch_and_nowhere_else() -> None:
    request = read()
    changed = request.object
    changed["metadata"]["labels"] = {"zone": "a"}
    assert request.object == VOLUME
    got = response(encode("u-1", change(request, changed, warnings=["look\nhere"])))
    assert got == {
        "uid": "u-1",
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": [{"op": "add", "path": "/metadata/labels", "value": {"zone": "a"}}],
        "warnings": ["look\\nhere"],
    }


def test_a_change_that_changes_nothing_carries_no_patch_and_what_is_no_json_is_refused() -> None:
    assert response(encode("u", change(read(), read().object))) == {"uid": "u", "allowed": True}
    with pytest.raises(TypeError):
        change(read(), {"a": object()})
    with pytest.raises(ValueError, match="not JSON compliant"):
        change(read(), {"a": float("nan")})


def test_a_refusal_tells_the_user_why() -> None:
    got = response(encode("u", deny("no such zone", code=422, reason="Invalid")))
    status = {"status": "Failure", "code": 422, "message": "no such zone", "reason": "Invalid"}
    assert got == {"uid": "u", "allowed": False, "status": status}
    with pytest.raises(ValueError, match="400 to 599"):
        deny("fine", code=200)


def test_warnings_are_bounded() -> None:
    got = response(encode("u", allow(warnings=["x" * 5000] * 100, audit={"why": "so"})))
    assert len(got["warnings"]) == 16
    assert max(map(len, got["warnings"])) <= 256
    assert got["auditAnnotations"] == {"why": "so"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"uid": ""}, "uid is missing"),
        ({"uid": 7}, "uid must be a text; uid is missing"),
        ({"operation": None}, "operation is missing"),
        ({"resource": {"resource": ["x"]}}, "resource.resource must be a text"),
        ({"object": "text"}, "object must be an object"),
        ({"object": None}, "object is missing"),
        ({"object": None, "operation": "UPDATE"}, "object is missing"),
        ({"dryRun": "yes"}, "dryRun must be true or false"),
        ({"userInfo": {"groups": [1]}}, "userInfo.groups must hold texts"),
    ],
)
def test_a_request_of_a_wrong_shape_is_refused_with_its_uid(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(BadReview, match=text) as refused:
        read(**changes)
    assert refused.value.uid == (changes.get("uid", "u-1") if isinstance(changes.get("uid", ""), str) else "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{",
        b"[" * 100_000,
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}',
        json.dumps(review() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        b'{"request":' + b"9" * 5000 + b"}",
    ],
)
def test_junk_is_no_review(body: bytes) -> None:
    with pytest.raises(BadReview):
        parse(body)


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.sampled_from([*review()["request"], "subResource", "namespace"]), json_values(SCALARS | st.floats())
    )
)
def test_whatever_the_fields_hold_it_is_a_request_or_refused(changes: dict[str, Any]) -> None:
    try:
        found = read(**changes)
    except BadReview:
        return
    assert isinstance(found.object, dict)
    assert isinstance(str(found), str)


@pytest.mark.row("X16")
@pytest.mark.parametrize("letter", ["", "\\ud83d\\ude00", "\\u20ac", "\\u00e9", "\\u003c", "\\n", "é", "😀"])
@pytest.mark.parametrize("times", [1, 20_000])
def test_no_review_takes_more_memory_than_it_is_counted_for(letter: str, times: int) -> None:
    """One letter beyond ASCII makes each letter of its text up to four bytes."""
    text = "a" * 300_000 + letter * times
    body = json.dumps(review()).replace('"pv-1"', f'"{text}"').encode()
    counted = memory_of(body, marks_in(body, 100_000))
    tracemalloc.start()
    try:
        parse(body)
        assert tracemalloc.get_traced_memory()[1] <= counted
    finally:
        tracemalloc.stop()
