"""When a patch is sent as a PUT of the whole Node, and what becomes of it where that is refused or
its outcome is not known."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from controllers.runtime.api import (
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_PATCH,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Response,
    RestClient,
    ServerError,
    Unreachable,
    from_status,
)
from controllers.runtime.election import LeaseLost
from controllers.runtime.protobuf import CONTENT_TYPE
from controllers.runtime.protobuf.reading import read_enveloped
from controllers.runtime.protobuf.replacing import kept
from controllers.runtime.write import ObjectReplaced, Patch, Puts, apply
from controllers.runtime.write.puts import AGAIN_SECONDS
from tests.support.clock import FakeClock
from tests.support.controllers import clone
from tests.support.wirefields import encoded

PATH = "/api/v1/nodes/n1"
NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7", "labels": {"a": "1"}},
    "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]},
}
STATUS = Patch({"status": {"addresses": []}}, STRATEGIC_PATCH, "status")
MAIN = Patch({"metadata": {"labels": {"b": "2"}}, "spec": {"providerID": "p://1", "taints": None}}, versioned=True)
UNVERSIONED = Patch({"metadata": {"labels": {"b": "2"}}})
REFUSALS = [400, 403, 405, 406, 415, 501]


WEBHOOK = 'admission webhook "labels.example.com" denied the request: no rack'
POLICY = "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no rack"


def refused(status: int, reason: str = "", message: str = "no") -> ApiError:
    return from_status(status, {}, json.dumps({"kind": "Status", "reason": reason, "message": message}).encode())


class Rest:
    """One Node on a server that keeps versions. `says` is asked before each PUT is looked at."""

    def __init__(self) -> None:
        self.protobuf = True
        self.object = clone(NODE)
        self.sent: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.reads = 0
        self.says: Callable[[], None] = lambda: None

    def request(
        self, method: str, path: str, *, body: Any, content_type: str, accept: str, timeout: float | None
    ) -> Response:
        assert accept == METADATA_ONLY
        self.sent.append((method, path.removeprefix(PATH)))
        if method == "PUT":
            assert content_type == CONTENT_TYPE
            body = read_enveloped(body, "Node")
            self.says()
        self.bodies.append(body)
        metadata = self.object["metadata"]
        given = body["metadata"].get("resourceVersion")
        if given not in (None, metadata["resourceVersion"]) or body["metadata"]["uid"] != metadata["uid"]:
            raise refused(409, "Conflict")
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        return Response(200, {}, json.dumps({"metadata": metadata}).encode())

    def get(self, path: str, *, timeout: float | None = None) -> Any:
        self.reads += 1
        return clone(self.object)

    @property
    def methods(self) -> list[str]:
        return [f"{method} {path}".strip() for method, path in self.sent]


def write(rest: Rest, puts: Puts, *patches: Patch, **given: Any) -> Any:
    given = {"kept": kept(encoded("Node", NODE)), **given}
    return apply(cast(RestClient, rest), PATH, clone(NODE), lambda _: patches, clone, puts=puts, **given)


def test_the_status_is_patched_and_then_the_object_is_put_onto_the_version_of_that() -> None:
    rest = Rest()
    assert write(rest, Puts(FakeClock()), STATUS, MAIN) == NODE
    assert rest.methods == ["PATCH /status", "PUT"]
    assert rest.reads == 0
    [_, body] = rest.bodies
    assert body["metadata"] == {"name": "n1", "uid": "u1", "resourceVersion": "8", "labels": {"a": "1", "b": "2"}}
    assert body["spec"] == {"providerID": "p://1"}
    assert "status" not in body


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a": "1", "webhook": "x"}},
        {"labels": {}},
        {"annotations": {"webhook": "x"}},
        {"finalizers": ["webhook/x"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u9"}]},
    ],
)
def test_what_a_webhook_changed_in_answer_to_the_status_is_not_undone_by_a_put(metadata: dict[str, Any]) -> None:
    rest = Rest()
    rest.object["metadata"] |= metadata
    write(rest, Puts(FakeClock()), STATUS, MAIN)
    assert rest.methods == ["PATCH /status", "PATCH"]
    assert rest.bodies[1]["metadata"] == {"labels": {"b": "2"}, "uid": "u1", "resourceVersion": "8"}


@pytest.mark.parametrize(
    ("patch", "given", "protobuf"),
    [
        (UNVERSIONED, {}, True),
        (Patch({"spec": {"taints": []}}, STRATEGIC_PATCH, versioned=True), {}, True),
        (Patch({"spec": {"taints": None}}, MERGE_PATCH, "status", versioned=True), {}, True),
        (Patch({"spec": {"unschedulable": True}}, versioned=True), {}, True),
        (MAIN, {"kept": None}, True),
        (MAIN, {"kept": b"spoilt"}, True),
        (MAIN, {"kept": kept(encoded("Node", {"metadata": {"uid": "u2"}}))}, True),
        (MAIN, {"puts": None}, True),
        (MAIN, {}, False),
    ],
)
def test_what_is_no_case_for_a_put_is_sent_as_a_patch(patch: Patch, given: dict[str, Any], protobuf: bool) -> None:
    rest = Rest()
    rest.protobuf = protobuf
    given = {"puts": Puts(FakeClock()), **given}
    write(rest, given.pop("puts"), patch, **given)
    assert [method for method, _ in rest.sent] == ["PATCH"]


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_costs_one_request_and_one_line_in_ten_minutes(status: int, caplog: pytest.LogCaptureFixture) -> None:
    rest, clock = Rest(), FakeClock()
    puts = Puts(clock)

    def refuse() -> None:
        raise refused(status)

    rest.says = refuse
    for _ in range(3):
        rest.object = clone(NODE)
        write(rest, puts, MAIN)
    assert rest.methods == ["PUT", "PATCH", "PATCH", "PATCH"]
    [line] = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert line.levelno == logging.WARNING
    assert ("[nodes], verbs [update]" in line.message) is (status == 403)
    assert ("--kube-api-content-type" in line.message) is (status != 403)
    clock.advance(AGAIN_SECONDS)
    rest.sent.clear()
    for _ in range(2):
        rest.object = clone(NODE)
        write(rest, puts, MAIN)
    assert rest.methods == ["PUT", "PATCH", "PATCH"]
    rest.says = lambda: None
    clock.advance(AGAIN_SECONDS)
    for _ in range(2):
        rest.object = clone(NODE)
        write(rest, puts, MAIN)
    assert rest.methods[-2:] == ["PUT", "PUT"]
    assert len([record for record in caplog.records if record.levelno >= logging.INFO]) == 1


def test_a_permission_that_is_taken_away_is_noticed_and_remembered() -> None:
    rest, puts = Rest(), Puts(FakeClock())
    write(rest, puts, MAIN)

    def refuse() -> None:
        raise refused(403, "Forbidden")

    rest.says = refuse
    for _ in range(2):
        rest.object = clone(NODE)
        write(rest, puts, MAIN)
    assert rest.methods == ["PUT", "PUT", "PATCH", "PATCH"]


@pytest.mark.parametrize(
    "error",
    [
        refused(413),
        refused(422),
        refused(403, "Forbidden", WEBHOOK),
        refused(400, "", WEBHOOK),
        refused(403, "", POLICY),
    ],
)
def test_what_is_wrong_with_one_node_says_nothing_of_others(error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    rest, puts = Rest(), Puts(FakeClock())
    errors = [error]

    def refuse() -> None:
        if errors:
            raise errors.pop()

    rest.says = refuse
    write(rest, puts, MAIN)
    rest.object = clone(NODE)
    write(rest, puts, MAIN)
    assert rest.methods == ["PUT", "PATCH", "PUT"]
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]


def test_a_conflict_is_met_with_the_fresh_object_and_a_patch() -> None:
    rest = Rest()
    rest.object["metadata"]["resourceVersion"] = "9"
    rest.object["metadata"]["labels"]["theirs"] = "x"
    plans: list[Any] = []

    def plan(node: Any) -> list[Patch]:
        plans.append(node)
        return [MAIN]

    small = kept(encoded("Node", NODE))
    apply(cast(RestClient, rest), PATH, clone(NODE), plan, clone, puts=Puts(FakeClock()), kept=small)
    assert rest.methods == ["PUT", "PATCH"]
    assert plans[1]["metadata"]["labels"] == {"a": "1", "theirs": "x"}
    assert rest.bodies[1]["metadata"] == {"labels": {"b": "2"}, "uid": "u1", "resourceVersion": "9"}


def test_a_node_that_was_recreated_is_not_written() -> None:
    rest = Rest()
    rest.object["metadata"]["uid"] = "u2"
    with pytest.raises(ObjectReplaced):
        write(rest, Puts(FakeClock()), MAIN)
    assert rest.methods == ["PUT"]
    assert rest.object["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    "error",
    [Unreachable("reset", sent=True), ServerError("down", status=503), NotFound("gone", status=404), LeaseLost("lost")],
    ids=lambda error: type(error).__name__,
)
def test_what_may_have_been_applied_or_must_not_be_is_not_sent_again_as_a_patch(error: ApiError) -> None:
    rest, puts = Rest(), Puts(FakeClock())

    def lose() -> None:
        raise error

    rest.says = lose
    with pytest.raises(type(error)):
        write(rest, puts, MAIN)
    rest.says = lambda: None
    write(rest, puts, MAIN)
    assert rest.methods == ["PUT", "PUT"], "nor does it speak against the next PUT"


def test_a_put_that_was_applied_unknown_to_us_is_refused_the_second_time() -> None:
    """Its answer was lost: the same PUT again has the version of before in it."""
    rest, puts = Rest(), Puts(FakeClock())
    write(rest, puts, MAIN)
    applied = rest.object["metadata"]["resourceVersion"]
    written = apply(
        cast(RestClient, rest),
        PATH,
        clone(NODE),
        lambda node: [MAIN] if node["metadata"]["resourceVersion"] == "7" else [],
        clone,
        puts=puts,
        kept=kept(encoded("Node", NODE)),
    )
    assert written is None
    assert rest.methods == ["PUT", "PUT"]
    assert rest.object["metadata"]["resourceVersion"] == applied


def test_while_the_first_put_is_under_way_others_are_patches() -> None:
    rest, puts = Rest(), Puts(FakeClock())
    other = Rest()
    meanwhile: list[str] = []

    def look() -> None:
        thread = threading.Thread(target=lambda: write(other, puts, MAIN))
        thread.start()
        thread.join(10)
        meanwhile.extend(other.methods)

    rest.says = look
    write(rest, puts, MAIN)
    assert meanwhile == ["PATCH"]
    other.object = clone(NODE)
    write(other, puts, MAIN)
    assert other.methods == ["PATCH", "PUT"]


@pytest.mark.parametrize(
    "error", [Conflict("409", status=409), Forbidden("403", status=403), Invalid("422", status=422)]
)
def test_a_patch_that_is_refused_in_its_turn_raises_as_it_always_did(error: ApiError) -> None:
    rest = Rest()

    def request(method: str, path: str, **_: Any) -> Response:
        rest.sent.append((method, ""))
        raise refused(403) if method == "PUT" else error

    rest.request = request  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        write(rest, Puts(FakeClock()), MAIN, attempts=1)
    assert rest.methods == ["PUT", "PATCH"]
