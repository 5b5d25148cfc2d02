"""Every request gets an answer, in time, with the status that says what it was; and each is
counted."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from cloudprovider import current_call
from cloudprovider.testing.waiting import eventually
from controllers.httpserver.messages import Request, Response
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from controllers.webhooks import (
    AdmissionRequest,
    Answer,
    Handler,
    Match,
    Webhook,
    allow,
    change,
    deny,
)
from controllers.webhooks.router import WebhookRouter
from tests.support.clock import FakeClock
from tests.unit.webhooks.support import WEBHOOK, Hanging, Post, Told, response, review

SHORT = "/volumes?timeout=100ms"
GREEDY, OTHER = "10.0.0.1", "10.0.0.2"


def ask(
    handler: Handler,
    request: Request,
    *,
    webhook: Webhook = WEBHOOK,
    metrics: Metrics | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Response:
    return answered(WebhookRouter([(webhook, handler)], metrics=metrics, clock=clock), request)


def answered(router: WebhookRouter, request: Request) -> Response:
    made = router.answer(request)
    return made if isinstance(made, Response) else made()


def test_a_handler_answers_and_is_counted() -> None:
    metrics = Metrics()

    def handle(request: AdmissionRequest) -> Answer:
        changed = request.object
        changed["spec"]["x"] = 1
        return change(request, changed)

    got = ask(Told(handle), Post(), metrics=metrics, clock=FakeClock())
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
def test_what_cannot_be_answered_is_refused_with_its_status(request_: Request, status: int, uid: str) -> None:
    got = ask(Told(), request_)
    assert got.status == status
    assert got.headers == ((("Allow", "POST"),) if status == 405 else ())
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
    [("10s", 3.0, 9.0), ("30s", 23.0, 29.0), ("1h", 23.0, 29.0), ("1s", 0.0, 0.9), ("junk", 3.0, 9.0), ("", 3.0, 9.0)],
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
    hanging = Hanging(late=lambda _request: deny("too slow", code=503))
    got = ask(hanging, Post(target=SHORT))
    hanging.go.set()
    assert got.status == 200
    assert response(got.body)["status"]["message"] == "too slow"


def test_hanging_handlers_keep_a_bounded_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controllers.webhooks.router._HANGS", 0.05)
    hanging = Hanging()
    router = WebhookRouter([(WEBHOOK, hanging)], threads=4)

    def once(peer: str = "10.0.0.1") -> int:
        return answered(router, Post(target=SHORT, peer=peer)).status

    assert [once(), once(), once()] == [504, 504, 503], "half of them is for others"
    assert [once("10.0.0.2"), once("10.0.0.2")] == [504, 503]
    assert once("10.0.0.3") == 504, "and a third client still finds one"
    assert [name for name, _ in router.overdue()] == ["volumes"] * 4
    hanging.go.set()
    eventually(lambda: not router.overdue(), 20)
    eventually(lambda: once() == 200, 20)  # the short time is too short now and then


def test_two_webhooks_cannot_share_a_path_or_a_name() -> None:
    other = Webhook(name="other", path="/volumes", matches=WEBHOOK.matches)
    for pair in (other, Webhook(name="volumes", path="/other", matches=WEBHOOK.matches)):
        with pytest.raises(ValueError, match="same name or path"):
            WebhookRouter([(WEBHOOK, Told()), (pair, Told())])


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


@pytest.mark.row("X12")
def test_a_handler_counts_as_hanging_by_our_time_and_not_by_the_clients() -> None:
    clock, hanging = FakeClock(), Hanging()
    router = WebhookRouter([(WEBHOOK, hanging)], clock=clock)
    made = router.answer(Post(target="/volumes?timeout=1ms"))
    assert not isinstance(made, Response)
    told: list[Response] = []
    thread = threading.Thread(target=lambda: told.append(made()))
    thread.start()
    clock.wait_for_waiters(1)
    clock.advance(1.0)
    thread.join(20)
    assert told[0].status == 504
    assert router.overdue() == []
    clock.advance(29.5)
    assert [name for name, _ in router.overdue()] == ["volumes"]
    hanging.go.set()


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python's objects take at most while this is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def within(part: bytes) -> bytes:
    """A review whose volume also holds this."""
    return GOOD.replace(b'"spec": {', b'"spec": {"x": ' + part + b", ")


GOOD = json.dumps(review()).encode()
MIB = 2**20
GREAT = attrs.evolve(WEBHOOK, max_body=7 * MIB)
BODIES = {
    "a list of objects": within(b"[" + b",".join([b"{}"] * (2 * MIB)) + b"]"),
    "a list of lists": b"[" + b",".join([b"[0]"] * MIB) + b"]",
    "members": b"{" + b",".join([b'"":0'] * MIB) + b"}",
    "numbers": within(b"[" + b",".join([b"0"] * MIB) + b"]"),
    "escaped texts": within(b"[" + b",".join([b'"\\u1234"'] * (MIB // 2)) + b"]"),
    "deep": b"[" * (3 * MIB),
    "deep within a text, then real": within(b'["' + b"[" * MIB + b'",' + b"[" * 300 + b"]" * 300 + b"]"),
    "another encoding": json.dumps(review(x=[{}] * 100_000)).encode("utf-16"),
}


@pytest.mark.row("X10")
@pytest.mark.parametrize("what", BODIES)
def test_a_review_of_many_values_is_refused_before_they_are_made(what: str) -> None:
    body, told = BODIES[what], list[Response]()
    most = peak(lambda: told.append(ask(Told(), Post(body=body), webhook=GREAT)))
    assert told[0].status == 400
    assert most < MIB


@pytest.mark.row("X10")
def test_a_great_text_is_one_value_whatever_it_holds() -> None:
    text = json.dumps({"a": [{"b": ","}] * 100_000})
    body = json.dumps(review(object={"metadata": {"name": "v"}, "data": text})).encode()
    assert len(body) > MIB
    got = ask(Told(lambda request: deny(str(len(request.object["data"])))), Post(body=body), webhook=GREAT)
    assert response(got.body)["status"]["message"] == str(len(text))


@pytest.mark.row("X10")
def test_each_webhook_has_its_own_limit() -> None:
    filled = GOOD + b" " * 1000
    small = attrs.evolve(WEBHOOK, max_body=len(GOOD) + 999)
    assert ask(Told(), Post(body=filled), webhook=small).status == 413
    assert ask(Told(), Post(body=filled[:-1]), webhook=small).status == 200
    few = attrs.evolve(WEBHOOK, max_values=20)
    got = ask(Told(), Post(), webhook=few)
    assert (got.status, "more than 20 values" in got.body.decode()) == (400, True)
    wrongs: list[dict[str, Any]] = [{"max_body": 0}, {"max_body": 8 * MIB}, {"max_values": 0}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="max_body must be"):
            attrs.evolve(WEBHOOK, **wrong)


@pytest.mark.row("X10")
def test_what_reviews_take_together_is_bounded_and_no_client_has_it_all() -> None:
    hanging = Hanging()
    router = WebhookRouter([(attrs.evolve(WEBHOOK, max_values=5_000), hanging)], threads=1000)
    greedy = within(b"[" + b",".join([b"0"] * 4_900) + b"]")
    statuses: dict[str, list[int]] = {GREEDY: [], OTHER: []}

    def send(peer: str, body: bytes, target: str = "/volumes?timeout=1s") -> None:
        statuses[peer].append(answered(router, Post(body=body, target=target, peer=peer)).status)

    for _ in range(8):
        send(GREEDY, greedy, SHORT)
    assert statuses[GREEDY] == [504] * 3 + [503] * 5, "each counts as 5 MB, until its handler has returned"
    send(OTHER, GOOD, SHORT)
    assert statuses[OTHER] == [504], "it had its turn"
    hanging.go.set()
    eventually(lambda: router.overdue() == [], 20)

    def again() -> bool:
        send(GREEDY, greedy)
        return statuses[GREEDY][-1] == 200

    eventually(again, 20)


@pytest.mark.row("X10")
def test_what_waited_too_long_is_not_even_read() -> None:
    clock = FakeClock()
    made = WebhookRouter([(WEBHOOK, Told())], clock=clock).answer(Post(target="/volumes?timeout=1s"))
    assert not isinstance(made, Response)
    clock.advance(0.9)
    assert made().status == 504


@pytest.mark.row("X12")
def test_a_thousand_failed_reviews_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    for handle, change_of, text in (
        (broken, {}, "no luck"),
        (lambda _request: allow(), {"resource": {"group": "", "version": "v1", "resource": "x" * 290}}, "is not for"),
    ):
        caplog.clear()
        router = WebhookRouter([(WEBHOOK, Told(handle))], clock=clock)
        for number in range(1000):
            body = json.dumps(review(name=f"pv-{number:x}", **change_of)).encode()
            assert answered(router, Post(body=body)).status in (400, 500)
        lines = [line for line in caplog.messages if text in line]
        assert 2 <= len(lines) <= 10
        assert "(attempt 512)" in lines[-1], "with the count"


@pytest.mark.row("X12")
def test_failures_between_successes_are_few_lines_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    def handle(request: AdmissionRequest) -> Answer:
        return allow() if request.name == "good" else broken(request)

    router = WebhookRouter([(WEBHOOK, Told(handle))], clock=clock)
    for _ in range(300):
        for name in ("bad", "good"):
            answered(router, Post(body=json.dumps(review(name=name)).encode()))
        clock.advance(0.2)
    assert 2 <= len(caplog.messages) <= 6, "a minute's"
