"""Patches are written with preconditions; a conflict is met with the fresh object, a recreated
object with an end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from kubernetes.client.models.v1_node import V1Node

from controllers.runtime.api import (
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_PATCH,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    Response,
    RestClient,
    ServerError,
)
from controllers.runtime.cache import NODES, MalformedObject
from controllers.runtime.write import ObjectReplaced, Patch, apply, finalizer_added, patch
from tests.support.there import there

PATH = "/api/v1/nodes/n1"


class FakeRest:
    """One object on a server that keeps versions and refuses stale ones; `errors` come first."""

    def __init__(self, uid: str = "u1", version: int = 1) -> None:
        self.uid = uid
        self.version = version
        self.errors: list[ApiError | None] = []
        self.sent: list[tuple[str, str, Any]] = []
        self.accepted: list[dict[str, Any]] = []
        self.reads = 0
        self.on_read: Callable[[], None] = lambda: None
        self.page = b""  # what a proxy answers instead

    @property
    def raw(self) -> dict[str, Any]:
        return {"metadata": {"name": "n1", "uid": self.uid, "resourceVersion": str(self.version)}}

    def request(
        self, method: str, path: str, *, body: Any, content_type: str, accept: str, timeout: float | None
    ) -> Response:
        assert method == "PATCH"
        self.sent.append((path, content_type, body))
        if self.errors and (error := self.errors.pop(0)):
            raise error
        meta = body.get("metadata", {})
        if meta.get("uid", self.uid) != self.uid:
            raise Invalid("uid", status=422, details={"causes": [{"field": "metadata.uid"}]})
        if meta.get("resourceVersion", str(self.version)) != str(self.version):
            raise Conflict("modified", status=409)
        self.version += 1
        self.accepted.append(body)
        self.accept = accept
        return Response(200, {}, self.page or json.dumps(self.raw).encode())

    def get(self, path: str, *, timeout: float | None = None) -> Any:
        assert path == PATH
        self.reads += 1
        self.on_read()
        return self.raw


def rest_of(fake: FakeRest) -> RestClient:
    return cast(RestClient, fake)


def label(value: str, *, versioned: bool = False, subresource: str = "") -> Patch:
    return Patch({"metadata": {"labels": {"a": value}}}, MERGE_PATCH, subresource, versioned)


class TestPatch:
    def test_nothing_is_sent_for_an_empty_one(self) -> None:
        fake = FakeRest()
        assert patch(rest_of(fake), PATH, {}, MERGE_PATCH, uid="u1", resource_version="1") is None
        assert not fake.sent

    def test_preconditions_are_added_to_a_copy(self) -> None:
        fake, body = FakeRest(), {"metadata": {"labels": {"a": "1"}}, "spec": {"x": 1}}
        answer = patch(rest_of(fake), PATH, body, MERGE_PATCH, uid="u1", resource_version="1")
        assert answer == fake.raw
        assert fake.sent == [
            (
                PATH,
                MERGE_PATCH,
                {"metadata": {"labels": {"a": "1"}, "uid": "u1", "resourceVersion": "1"}, "spec": {"x": 1}},
            )
        ]
        assert body == {"metadata": {"labels": {"a": "1"}}, "spec": {"x": 1}}
        assert fake.accept == METADATA_ONLY

    def test_the_whole_object_when_asked_for(self) -> None:
        fake = FakeRest()
        patch(rest_of(fake), PATH, {"spec": {}}, MERGE_PATCH, metadata_only=False)
        assert fake.accept == "application/json"
        assert fake.sent[0][2] == {"spec": {}}

    def test_another_uid(self) -> None:
        """kube-apiserver answers 422, not 409."""
        with pytest.raises(ObjectReplaced, match="UID old"):
            patch(rest_of(FakeRest()), PATH, {"spec": {}}, MERGE_PATCH, uid="old")

    def test_an_invalid_patch_is_no_replaced_object(self) -> None:
        fake = FakeRest()
        fake.errors = [Invalid("providerID", status=422, details={"causes": [{"field": "spec.providerID"}]})]
        with pytest.raises(Invalid):
            patch(rest_of(fake), PATH, {"spec": {}}, MERGE_PATCH, uid="u1")


class TestApply:
    def test_once_when_nothing_stands_against_it(self) -> None:
        fake = FakeRest()
        done = there(apply(rest_of(fake), PATH, fake.raw, lambda _: [label("1")], dict))
        assert done["metadata"]["resourceVersion"] == "1"
        assert (len(fake.sent), fake.reads) == (1, 0)
        assert fake.accepted[0]["metadata"] == {"labels": {"a": "1"}, "uid": "u1"}  # unversioned: no resourceVersion

    def test_no_request_when_nothing_is_due(self) -> None:
        fake = FakeRest()
        assert apply(rest_of(fake), PATH, fake.raw, lambda _: [Patch(), Patch()], dict) is None
        assert not fake.sent

    def test_several_in_order_each_on_the_version_before(self) -> None:
        fake = FakeRest(version=7)
        plan = [
            Patch({"status": {"x": 1}}, STRATEGIC_PATCH, "status"),
            Patch({"spec": {"taints": None}}, MERGE_PATCH, versioned=True),
            finalizer_added([], "f"),
        ]
        apply(rest_of(fake), PATH, fake.raw, lambda _: plan, dict)
        assert [(path, kind) for path, kind, _ in fake.sent] == [
            (f"{PATH}/status", STRATEGIC_PATCH),
            (PATH, MERGE_PATCH),
            (PATH, STRATEGIC_PATCH),
        ]
        versions = [body["metadata"].get("resourceVersion") for _, _, body in fake.sent]
        assert versions == ["7", "8", None]

    def test_what_precedes_an_atomic_list_is_bound_to_the_version_too(self) -> None:
        """Else its answer would tell a version that the list was not computed from: a foreign taint
        would be lost."""
        fake = FakeRest(version=7)
        stale = fake.raw
        fake.version = 8
        seen: list[str] = []

        def plan(obj: dict[str, Any]) -> list[Patch]:
            seen.append(obj["metadata"]["resourceVersion"])
            return [label("1"), Patch({"spec": {"taints": None}}, versioned=True)]

        apply(rest_of(fake), PATH, stale, plan, dict)
        assert seen == ["7", "8"]
        assert len(fake.accepted) == 2

    @pytest.mark.parametrize("page", [b"{}", b'{"metadata": {}}'])
    def test_an_atomic_list_is_not_written_where_the_answer_before_tells_no_version(self, page: bytes) -> None:
        fake = FakeRest()
        fake.page = page
        with pytest.raises(ServerError, match="the answer has no resourceVersion"):
            apply(rest_of(fake), PATH, fake.raw, lambda _: [label("1"), label("2", versioned=True)], dict)
        assert len(fake.sent) == 1

    def test_a_conflict_is_met_with_the_fresh_object(self) -> None:
        fake = FakeRest(version=3)
        stale = fake.raw
        fake.version = 5
        planned: list[str] = []

        def plan(obj: dict[str, Any]) -> list[Patch]:
            planned.append(obj["metadata"]["resourceVersion"])
            return [label("1", versioned=True)]

        there(apply(rest_of(fake), PATH, stale, plan, dict))
        assert planned == ["3", "5"]
        assert fake.reads == 1
        assert fake.version == 6

    def test_a_fresh_object_that_needs_nothing(self) -> None:
        fake = FakeRest(version=3)
        stale = fake.raw
        fake.version = 5
        fresh_needs_nothing = apply(
            rest_of(fake),
            PATH,
            stale,
            lambda obj: [label("1", versioned=True)] if obj["metadata"]["resourceVersion"] == "3" else [],
            dict,
        )
        assert fresh_needs_nothing is None
        assert not fake.accepted

    def test_conflicts_end_after_the_attempts(self) -> None:
        fake = FakeRest()
        fake.errors = [Conflict("x", status=409)] * 10
        with pytest.raises(Conflict):
            apply(rest_of(fake), PATH, fake.raw, lambda _: [label("1")], dict, attempts=3)
        assert (len(fake.sent), fake.reads) == (3, 2)

    def test_a_recreated_object_ends_it_on_the_write(self) -> None:
        fake = FakeRest(uid="new")
        old = FakeRest(uid="old").raw
        with pytest.raises(ObjectReplaced):
            apply(rest_of(fake), PATH, old, lambda _: [label("1")], dict)
        assert not fake.accepted

    def test_a_recreated_object_ends_it_on_the_read(self) -> None:
        fake = FakeRest()
        fake.errors = [Conflict("x", status=409)]
        first = fake.raw

        def recreate() -> None:
            fake.uid = "new"

        fake.on_read = recreate
        with pytest.raises(ObjectReplaced, match="UID u1"):
            apply(rest_of(fake), PATH, first, lambda _: [label("1")], dict)
        assert len(fake.sent) == 1

    @pytest.mark.parametrize("page", [{}, [], {"kind": "Status", "metadata": {}}])
    def test_a_read_that_is_no_object_does_not_end_it(self, page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its caller leaves a recreated object to its own event, which would never come."""
        fake = FakeRest()
        fake.errors = [Conflict("x", status=409)]
        monkeypatch.setattr(fake, "get", lambda path, *, timeout: page)
        with pytest.raises(MalformedObject):
            apply(rest_of(fake), PATH, NODES.parse(fake.raw), lambda _: [label("1")], NODES.parse)

    @pytest.mark.parametrize("page", [b"<html>", b"{", b" ", b"[]"])
    @pytest.mark.parametrize("patches", [1, 2])
    def test_an_answer_that_is_no_object_is_no_success(self, page: bytes, patches: int) -> None:
        fake = FakeRest()
        fake.page = page
        plan = [label(str(number), subresource="status" if number else "") for number in range(patches)]
        with pytest.raises(ServerError, match="no JSON object"):
            apply(rest_of(fake), PATH, fake.raw, lambda _: plan, lambda raw: raw)
        assert len(fake.sent) == 1

    @pytest.mark.parametrize("error", [NotFound("x", status=404), ServerError("x", status=500)])
    def test_other_errors_are_the_callers(self, error: ApiError) -> None:
        fake = FakeRest()
        fake.errors = [error]
        with pytest.raises(type(error)):
            apply(rest_of(fake), PATH, fake.raw, lambda _: [label("1")], dict)
        assert len(fake.sent) == 1

    def test_typed_objects(self) -> None:
        fake = FakeRest(version=3)
        stale = there(V1Node.from_dict(fake.raw))
        fake.version = 5

        def parse(raw: dict[str, Any]) -> V1Node:
            return there(V1Node.from_dict(raw))

        done = there(apply(rest_of(fake), PATH, stale, lambda _: [label("1", versioned=True)], parse))
        assert done.metadata is not None
        assert done.metadata.resource_version == "5"
        assert fake.accepted[0]["metadata"]["uid"] == "u1"
