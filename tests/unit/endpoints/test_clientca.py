"""The cluster's CA of client certificates: asked for now and then, and told once when it cannot be
had."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from controllers.endpoints.access import PATH, ClusterCA
from controllers.endpoints.reviews import TOKEN_RULE, Reviewer
from controllers.runtime.api import ApiError, Forbidden, NotFound, Response, Unreachable
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock


class Rest:
    """A RestClient that answers with what the test says."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] | ApiError = {"data": {"client-ca-file": "PEM 1"}}
        self.asked: list[tuple[str, str, Any]] = []

    def get(self, path: str, *, timeout: float) -> Any:
        assert timeout <= 5.0
        return self._told("GET", path, None)

    def request(self, method: str, path: str, *, body: Any, timeout: float) -> Response:
        assert timeout <= 5.0
        assert self._told(method, path, body)
        return Response(201, {}, b'{"status": {"authenticated": true}}')

    def _told(self, method: str, path: str, body: Any) -> dict[str, Any]:
        self.asked.append((method, path, body))
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


class Bench:
    def __init__(self, *, quiet: bool = False) -> None:
        self.clock = FakeClock()
        self.rest = Rest()
        self.ca = ClusterCA(self.rest, quiet=quiet, clock=self.clock)  # type: ignore[arg-type]  # as much as is used

    def reads(self, seconds: int) -> set[bytes]:
        """What is read once a second for so long."""
        found = set()
        for _ in range(seconds):
            found.add(self.ca.read())
            self.clock.advance(1.0)
        return found


def test_it_is_asked_for_once_a_minute() -> None:
    bench = Bench()
    assert bench.reads(59) == {b"PEM 1"}
    bench.rest.answer = {"data": {"client-ca-file": "PEM 2"}}
    assert bench.reads(1) == {b"PEM 1"}
    assert bench.reads(60) == {b"PEM 2"}
    assert [path for _, path, _ in bench.rest.asked] == [PATH, PATH]


@pytest.mark.parametrize(
    ("error", "told", "asked"),
    [
        (Forbidden("no", status=403), "resourceNames [extension-apiserver-authentication], verbs [get]", 6),
        (NotFound("none", status=404), "there is none", 5),
    ],
)
@pytest.mark.parametrize("quiet", [False, True])
def test_what_cannot_be_read_is_told_once(
    error: ApiError, told: str, asked: int, quiet: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(quiet=quiet)
    bench.rest.answer = error
    with caplog.at_level(logging.INFO):
        assert bench.reads(300) == {b""}
    assert len(bench.rest.asked) == asked
    [line] = caplog.records
    assert told in line.getMessage()
    assert "--client-ca-file" in line.getMessage()
    assert line.levelno == (logging.INFO if quiet else logging.WARNING)
    bench.rest.answer = {"data": {"client-ca-file": "PEM 1"}}
    bench.reads(60)
    assert bench.ca.read() == b"PEM 1"


def test_a_server_that_has_just_started_and_knows_no_roles_yet_is_asked_again_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            bench.rest.answer = Forbidden("no", status=403)
            bench.reads(10)
            bench.rest.answer = {"data": {"client-ca-file": "PEM 1"}}
            bench.reads(60)
            assert bench.ca.read() == b"PEM 1"
    assert not caplog.records


def test_while_the_api_server_is_away_the_last_one_counts() -> None:
    bench = Bench()
    bench.reads(60)
    bench.rest.answer = Unreachable("no answer")
    assert bench.reads(35) == {b"PEM 1"}
    assert len(bench.rest.asked) == 5, "asked again every 10 s"


@pytest.mark.parametrize("answer", [{}, {"data": None}, {"data": {}}])
def test_a_map_without_the_key_is_no_ca(answer: dict[str, Any]) -> None:
    bench = Bench()
    bench.rest.answer = {"kind": "ConfigMap", **answer}
    assert bench.ca.read() == b""


def test_reviews_are_counted_and_what_goes_wrong_is_told_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    rest, metrics, clock = Rest(), Metrics(), FakeClock()
    reviewer = Reviewer(rest, TOKEN_RULE, "TokenReview", "authn", metrics, clock)  # type: ignore[arg-type]  # as much as is used
    assert reviewer.ask({"token": "x"}) == {"authenticated": True}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    assert rest.asked == [("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)]
    with caplog.at_level(logging.WARNING):
        for error in (Forbidden("no", status=403), Forbidden("no", status=403), Unreachable("no answer")):
            rest.answer = error
            with pytest.raises(ApiError):
                reviewer.ask({"token": "x"})
        for _ in range(50):
            with pytest.raises(ApiError):
                reviewer.ask({"token": "x"})
        clock.advance(30.0)
        with pytest.raises(ApiError):
            reviewer.ask({"token": "x"})
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert "missing permission: create on tokenreviews" in lines[0]
    assert "does not answer a TokenReview (1 since the last such line): no answer" in lines[1]
    assert "(51 since" in lines[2]
    total = "apiserver_delegated_authn_request_total"
    counts = {code: metrics.value(total, code=code) for code in ("201", "403", "<error>")}
    assert counts == {"201": 1.0, "403": 2.0, "<error>": 52.0}
    assert metrics.value("apiserver_delegated_authn_request_duration_seconds_count", code="403") == 2.0
