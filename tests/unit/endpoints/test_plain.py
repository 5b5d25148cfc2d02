"""Health and metrics over HTTP on a free loopback port."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Iterator

import pytest

from controllers.endpoints.health import Check, report
from controllers.endpoints.servers import HealthServer, from_this_machine
from controllers.httpserver.messages import Request, Response
from tests.unit.httpserver.support import running

GOOD = Check("informer-nodes", True, "fresh")
BAD = Check("cloud", False, "31 calls overdue")


@pytest.fixture
def server() -> Iterator[HealthServer]:
    made = HealthServer(
        ("127.0.0.1", 0),
        {"healthz": lambda: [GOOD, BAD], "livez": lambda: [GOOD], "readyz": list},
        lambda: b"# HELP x y\nx 1.0\n",
        pages={"/metrics/slis": lambda: Response(200, b"sli\n")},
    )
    with running(made):
        yield made


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(*server.address, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/livez", 200, "ok"),
        ("/readyz", 200, "ok"),
        ("/livez?verbose", 200, "[+]informer-nodes ok: fresh\nlivez check passed\n"),
        ("/livez?verbose=true", 200, "[+]informer-nodes ok: fresh\nlivez check passed\n"),
        ("/healthz?exclude=cloud", 200, "ok"),
        ("/healthz/informer-nodes", 200, "ok"),
        ("/healthz", 500, "[+]informer-nodes ok: fresh\n[-]cloud failed: 31 calls overdue\nhealthz check failed\n"),
        ("/healthz/cloud", 500, "[-]cloud failed: 31 calls overdue\nhealthz check failed\n"),
        ("/healthz/nope", 404, "no such check\n"),
        ("/metrics", 200, "# HELP x y\nx 1.0\n"),
        ("/metrics/slis", 200, "sli\n"),
        ("/metrics/else", 404, "not found\n"),
        ("/", 404, "not found\n"),
        ("/debug/pprof", 404, "not found\n"),
        ("//[", 400, "not a path\n"),
    ],
)
def test_answers(server: HealthServer, path: str, status: int, body: str) -> None:
    assert ask(server, path)[:2] == (status, body)


def test_metrics_say_that_they_are_prometheus_text_and_only_reading_is_possible(server: HealthServer) -> None:
    _, _, answer = ask(server, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert ask(server, "/livez", "HEAD")[:2] == (200, "")
    assert ask(server, "/livez", "POST")[0] == 405


@pytest.mark.row("X7")
def test_the_reasons_of_failed_checks_are_withheld_from_strangers() -> None:
    assert report("healthz", [GOOD, BAD], details=False) == (
        500,
        "[+]informer-nodes ok\n[-]cloud failed: reason withheld\nhealthz check failed\n",
    )
    assert report("livez", [GOOD], verbose=True, details=False) == (200, "[+]informer-nodes ok\nlivez check passed\n")


@pytest.mark.row("X7")
@pytest.mark.parametrize(
    ("peer", "headers", "told"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {"host": "localhost"}, True),
        ("10.0.0.1", {}, False),
        ("::ffff:10.0.0.1", {}, False),
        ("2001:db8::1", {}, False),
        ("127.0.0.1", {"x-forwarded-for": "10.0.0.1"}, False),
        ("127.0.0.1", {"forwarded": "for=10.0.0.1"}, False),
        ("10.0.0.1", {"x-forwarded-for": "127.0.0.1"}, False),
        ("10.0.0.1", {"authorization": "Bearer x"}, False),
    ],
)
def test_without_authentication_only_this_machine_is_told_details(
    peer: str, headers: dict[str, str], told: bool
) -> None:
    assert from_this_machine(Request(method="GET", target="/", headers=headers, peer=peer)) is told


@pytest.mark.row("X7")
def test_who_may_see_details_is_asked_for_every_request() -> None:
    asked: list[str] = []

    def may_see(request: Request) -> bool:
        asked.append(request.target)
        return request.headers.get("x-user") == "admin"

    with running(HealthServer(("127.0.0.1", 0), {"healthz": lambda: [BAD]}, lambda: b"", may_see=may_see)) as made:
        status, body, _ = ask(made, "/healthz/cloud?verbose")
        assert (status, body) == (500, "[-]cloud failed: reason withheld\nhealthz check failed\n")
        with urllib.request.urlopen(
            urllib.request.Request(f"{made.url}/healthz?exclude=cloud&verbose", headers={"X-User": "admin"}), timeout=20
        ) as answer:
            assert answer.status == 200
    assert asked == ["/healthz/cloud?verbose", "/healthz?exclude=cloud&verbose"]


@pytest.mark.row("X2")
def test_details_are_cleaned() -> None:
    bad = Check("cloud", False, "refused: password=hunter2x\n[+]forged ok\x1b[31m" + "x" * 5000)
    _, body = report("healthz", [bad])
    assert "hunter2x" not in body
    assert "\x1b" not in body
    assert [line[:3] for line in body.splitlines()] == ["[-]", "hea"]
    assert len(body) < 1200


def test_a_check_that_raises_is_a_failure_and_not_silence() -> None:
    def broken() -> list[Check]:
        raise RuntimeError("bug")

    with running(HealthServer(("127.0.0.1", 0), {"healthz": broken}, lambda: b"")) as made:
        status, body, _ = ask(made, "/healthz")
        assert status == 500
        assert "RuntimeError: bug" in body


def test_a_taken_port_raises_and_stop_is_safe_at_any_time(server: HealthServer) -> None:
    second = HealthServer(server.address, {}, lambda: b"")
    with pytest.raises(OSError, match="in use"):
        second.start()
    assert second.stop()
    assert HealthServer(("127.0.0.1", 0), {}, lambda: b"").stop()


def test_ipv6_has_brackets_in_its_url() -> None:
    made = HealthServer(("::1", 0), {"livez": list}, lambda: b"")
    try:
        made.start()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    try:
        assert made.url.startswith("http://[::1]:")
        assert ask(made, "/livez")[0] == 200
    finally:
        assert made.stop()
        assert made.stop()
