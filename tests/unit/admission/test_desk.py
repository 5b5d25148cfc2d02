"""The desk: every request gets an answer, in time, with the status that says what it was; and each is counted."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from cloudprovider import current_call
from controllers.admission import AdmissionRequest, Answer, Desk, Handler, Match, Reply, Webhook, allow, change, deny
from controllers.runtime.metrics import Metrics
from tests.unit.admission.support import WEBHOOK, Post, Told, response, review

SHORT = "/volumes?timeout=100ms"


def ask(handler: Handler, request: Post, *, webhook: Webhook = WEBHOOK, metrics: Metrics | None = None) -> Reply:
    made = Desk([(webhook, handler)], metrics=metrics).answer(request)
    return made if isinstance(made, Reply) else made()


def test_a_handler_answers_and_is_counted() -> None:
    metrics = Metrics()

    def handle(request: AdmissionRequest) -> Answer:
        changed = request.object
        changed["spec"]["x"] = 1
        return change(request, changed)

    got = ask(Told(handle), Post(), metrics=metrics)
    assert got.status == 200
    assert response(got.body)["patch"] == [{"op": "add", "path": "/spec/x", "value": 1}]
    assert metrics.value("cloud_provider_webhook_request_total", code="200", webhook="volumes") == 1
    labels = {"code": "200", "webhook": "volumes"}
    assert metrics.value("cloud_provider_webhook_request_duration_seconds_bucket", le="0.25", **labels) == 1
    buckets = [
        line.split('le="')[1].split('"')[0]
        for line in metrics.text().decode().splitlines()
        if line.startswith("cloud_provider_webhook_request_duration_seconds_bucket")
    ]
    assert buckets == ["0.25", "0.5", "0.7", "1.0", "1.5", "3.0", "5.0", "10.0", "+Inf"]


@pytest.mark.parametrize(
    ("request_", "status", "uid"),
    [
        (Post(target="/other"), 404, ""),
        (Post(target="http://[x"), 400, ""),
        (Post(method="GET"), 405, ""),
        (Post(headers={}), 415, ""),
        (Post(headers={"content-type": "text/plain"}), 415, ""),
        (Post(body=b"{"), 400, ""),
        (Post(body=json.dumps(review() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode()), 400, "u-1"),
        (Post(body=json.dumps(review(operation="DELETE")).encode()), 400, "u-1"),
        (Post(body=json.dumps(review(subResource="status")).encode()), 400, "u-1"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_its_status(request_: Post, status: int, uid: str) -> None:
    got = ask(Told(), request_)
    assert got.status == status
    found = response(got.body)
    assert (found["allowed"], found["status"]["code"], found["uid"]) == (False, status, uid)


def test_a_charset_beside_the_content_type_does_no_harm() -> None:
    assert ask(Told(), Post(headers={"content-type": "application/json; charset=utf-8"})).status == 200


@pytest.mark.parametrize("answer", [None, "yes", True, {"allowed": True}])
def test_a_handler_that_answers_nonsense_is_an_error(answer: Any) -> None:
    got = ask(Told(lambda _request: answer), Post())
    assert got.status == 500
    assert "not an Answer" in response(got.body)["status"]["message"]


def broken(_request: AdmissionRequest) -> Answer:
    raise RuntimeError("no luck")


def leaving(_request: AdmissionRequest) -> Answer:
    raise SystemExit(3)


@pytest.mark.parametrize(("handle", "text"), [(broken, "no luck"), (leaving, "SystemExit was raised")])
def test_what_a_handler_raises_costs_its_request_alone(handle: Any, text: str) -> None:
    metrics = Metrics()
    got = ask(Told(handle), Post(), metrics=metrics)
    assert got.status == 500
    assert text in response(got.body)["status"]["message"]
    assert metrics.value("cloud_provider_webhook_request_total", code="500", webhook="volumes") == 1


def test_only_a_mutating_webhook_may_change_the_object() -> None:
    checking = Webhook(name="volumes", path="/volumes", matches=WEBHOOK.matches)
    got = ask(Told(lambda request: change(request, {})), Post(), webhook=checking)
    assert got.status == 500
    assert "mutating" in response(got.body)["status"]["message"]


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("10s", 8.5, 9.0), ("30s", 28.5, 29.0), ("1h", 28.5, 29.0), ("1s", 0.5, 0.9), ("junk", 8.5, 9.0), ("", 8.5, 9.0)],
)
def test_a_handler_has_a_little_less_time_than_the_api_server_waits(asked: str, least: float, most: float) -> None:
    seen: list[float] = []

    def handle(_request: AdmissionRequest) -> Answer:
        seen.append(current_call().remaining() or 0.0)
        return allow()

    assert ask(Told(handle), Post(target=f"/volumes?timeout={asked}")).status == 200
    assert least < seen[0] <= most


def test_a_handler_that_hangs_is_answered_for_and_told_so() -> None:
    cancelled = threading.Event()

    def handle(_request: AdmissionRequest) -> Answer:
        if current_call().cancelled.wait(20):
            cancelled.set()
        return allow()

    got = ask(Told(handle), Post(target=SHORT))
    assert got.status == 504
    assert response(got.body)["uid"] == "u-1"
    assert cancelled.wait(20)


def test_a_handler_can_say_what_counts_when_it_is_late() -> None:
    hang = threading.Event()

    def handle(_request: AdmissionRequest) -> Answer:
        hang.wait(20)
        return allow()

    got = ask(Told(handle, late=lambda _request: deny("too slow", code=503)), Post(target=SHORT))
    hang.set()
    assert got.status == 200
    assert response(got.body)["status"]["message"] == "too slow"


def test_hanging_handlers_keep_a_bounded_number_of_threads() -> None:
    hang = threading.Event()

    def handle(_request: AdmissionRequest) -> Answer:
        hang.wait(20)
        return allow()

    desk = Desk([(WEBHOOK, Told(handle))], threads=2)

    def once() -> int:
        made = desk.answer(Post(target=SHORT))
        assert not isinstance(made, Reply)
        return made().status

    assert [once(), once(), once()] == [504, 504, 503]
    assert [name for name, _ in desk.overdue()] == ["volumes", "volumes"]
    hang.set()
    until = time.monotonic() + 20
    while desk.overdue() and time.monotonic() < until:
        time.sleep(0.01)
    assert once() == 200


def test_two_webhooks_cannot_share_a_path_or_a_name() -> None:
    other = Webhook(name="other", path="/volumes", matches=WEBHOOK.matches)
    for pair in (other, Webhook(name="volumes", path="/other", matches=WEBHOOK.matches)):
        with pytest.raises(ValueError, match="same name or path"):
            Desk([(WEBHOOK, Told()), (pair, Told())])


@pytest.mark.parametrize(
    "wrong",
    [{"name": "Upper"}, {"name": ""}, {"path": "relative"}, {"path": "/a?b"}, {"matches": ()}],
)
def test_a_webhook_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    right: dict[str, Any] = {"name": "a", "path": "/a", "matches": WEBHOOK.matches}
    with pytest.raises(ValueError, match=r"must"):
        Webhook(**(right | wrong))
    with pytest.raises(ValueError, match="plural"):
        Match(resource="*", operations=("CREATE",))
    with pytest.raises(ValueError, match="operations"):
        Match(resource="pods", operations=("PATCH",))
