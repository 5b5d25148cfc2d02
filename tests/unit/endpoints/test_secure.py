"""HTTPS end to end in one process: who gets what, what is answered at once, what waits, and for
whom."""

from __future__ import annotations

import io
import logging
import re
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from controllers.endpoints.access import Authentication, Authorization
from controllers.endpoints.health import Check
from controllers.endpoints.pages import Endpoints, set_verbosity
from controllers.endpoints.servers import SecureServer
from controllers.endpoints.serving import LIMITS
from controllers.httpserver.certificates import FilePair
from controllers.httpserver.messages import Limits, Response
from controllers.httpserver.tls import ServerTLS
from controllers.process import logs
from controllers.runtime.api import ApiError
from tests.support.https import ask, context
from tests.support.pki import Authority
from tests.support.there import there
from tests.unit.endpoints.support import Reviews, unreachable
from tests.unit.httpserver.support import running

OPEN = ("/healthz", "/livez", "/readyz", "/debug/*")
RIGHTS = {"reader": {"/metrics", "/", "/healthz/*", "/healthz/cloud"}, "single": {"/healthz/cloud", "/debug/flags/v"}}


def owner(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    name = spec["token"]
    return {"authenticated": True, "user": {"username": name}} if name in ("reader", "single", "stranger") else {}


def right(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"allowed": spec["nonResourceAttributes"]["path"] in RIGHTS.get(spec["user"], ())}


class Bench:
    """A server, and the two kinds of questions that it asks."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.tokens, self.rights = Reviews(owner), Reviews(right)
        certificate, key = Authority().server_files(folder)
        tls = ServerTLS(FilePair(str(certificate), str(key)))
        tls.load()
        bad = Check("cloud", False, "no answer from 10.0.0.9")
        endpoints = Endpoints(
            {"healthz": lambda: [Check("ping", True), bad], "livez": lambda: [Check("ping", True)]},
            {"/metrics": lambda: Response(200, b"x 1\n"), "/large": lambda: Response(200, b"x" * 3_000_000)},
            {"/debug/flags/v": set_verbosity},
        )
        self.server = SecureServer(
            ("127.0.0.1", 0),
            endpoints,
            tls,
            (
                Authentication(self.tokens, 3600.0),  # type: ignore[arg-type]  # as much of one as is used
                Authorization(self.rights, OPEN, 3600.0, 3600.0),  # type: ignore[arg-type]  # the same
            ),
            limits=limits or LIMITS,
        )

    @property
    def port(self) -> int:
        return self.server.address[1]

    def ask(self, path: str, token: str | None = None, **more: Any) -> tuple[int, str]:
        return ask(self.port, path, token=token, **more)


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """With the limits that the test is parametrised with."""
    made = Bench(tmp_path, getattr(request, "param", None))
    with running(made.server):
        yield made


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/livez", None, 200),
        ("/livez", "stranger", 200),
        ("/livez", "wrong", 401),
        ("/livez/", None, 200),
        ("/livez/ping", None, 403),
        ("/metrics", None, 403),
        ("/metrics", "wrong", 401),
        ("/metrics", "stranger", 403),
        ("/metrics", "reader", 200),
        ("/metrics/", "reader", 200),
        ("/healthz", None, 500),
        ("/nothing", None, 403),
        ("/nothing", "reader", 404),
        ("/", "reader", 404),
        ("/healthz/nothing", "reader", 404),
        ("//[", "reader", 400),
    ],
)
def test_who_gets_what(bench: Bench, path: str, token: str | None, status: int) -> None:
    assert bench.ask(path, token)[0] == status


@pytest.mark.row("X7")
def test_reasons_are_for_those_with_a_right_to_the_checks(bench: Bench) -> None:
    reason = "[-]cloud failed: no answer from 10.0.0.9\n"
    withheld = "[-]cloud failed: reason withheld\n"
    assert withheld in bench.ask("/healthz")[1]
    assert withheld in bench.ask("/healthz", "stranger")[1]
    assert withheld in bench.ask("/healthz", "single")[1]
    assert reason in bench.ask("/healthz", "reader")[1]
    assert reason in bench.ask("/healthz/cloud", "single")[1]
    bench.rights.answer = unreachable
    bench.tokens.answer = lambda _spec: {"authenticated": True, "user": {"username": "new"}}
    assert withheld in bench.ask("/healthz", "new")[1]


def test_inventing_paths_makes_one_question(bench: Bench) -> None:
    for number in range(20):
        status, text = bench.ask(f"/invented-{number}")
        assert status == 403
        assert f'cannot get path \\"/invented-{number}\\"' in text
    assert len(bench.rights.asked) == 1


def test_without_the_api_server_tokens_are_wrong_and_rights_unknown(bench: Bench) -> None:
    bench.rights.answer = unreachable
    status, text = bench.ask("/metrics", "reader")
    assert status == 500
    assert text == 'Internal Server Error: "/metrics": no answer\n'
    bench.tokens.answer = unreachable
    assert bench.ask("/metrics", "stranger")[0] == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_no_page_can_be_changed(bench: Bench, method: str) -> None:
    for token in (None, "reader"):
        assert bench.ask("/livez", token, method=method)[0] == 405
        assert bench.ask("/metrics", token, method=method)[0] == 405
    assert bench.ask("/livez", method="HEAD") == (200, "")


@pytest.mark.row("O25")
def test_whoever_may_changes_how_much_is_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ours = "/debug/flags/v", logging.getLogger("controllers")
    monkeypatch.setattr(logs, "_handler", None)

    def put(body: bytes, user: str = "single") -> int:
        return bench.ask(path, user, method="PUT", body=body)[0]

    try:
        assert put(b"4") == 409, "no log of ours"
        logs.setup(stream=io.StringIO())
        assert put(b"4") == 200
        assert "the log's verbosity is 4 now: set by single" in caplog.text
        assert bench.rights.asked[-1]["nonResourceAttributes"] == {"verb": "put", "path": path}
        assert ours.isEnabledFor(logging.DEBUG)
        assert put(b"0\n") == 200
        assert not ours.isEnabledFor(logging.DEBUG)
        for wrong in (b"", b"-1", b"11", b"4x", b"\xff", "\N{ARABIC-INDIC DIGIT FOUR}".encode()):
            assert put(wrong) == 400
        assert put(b"4" * 65) == 413
        assert put(b"4", "stranger") == 403, "an open path is open for reading"
        assert put(b"4", "wrong") == 401
        assert bench.ask(path, "single")[0] == 405
        assert not ours.isEnabledFor(logging.DEBUG)
    finally:
        logging.getLogger().removeHandler(there(logs._handler))


@pytest.mark.row("X1")
@pytest.mark.parametrize("bench", [Limits(answer_seconds=300.0)], indirect=True, ids=["patient"])
def test_an_api_server_that_hangs_costs_the_askers_and_no_probe(bench: Bench) -> None:
    """Nothing is timed but by order: the probes are answered while everybody else still waits."""
    free = threading.Event()

    def hang(_spec: Mapping[str, Any]) -> Mapping[str, Any]:
        free.wait(300)
        raise ApiError("no answer")

    bench.tokens.answer = hang
    with ExitStack() as ends:
        waiting = []
        for number in range(30):
            sock = socket.create_connection(("127.0.0.1", bench.port), timeout=20)
            tls = ends.enter_context(context().wrap_socket(sock))
            tls.sendall(f"GET /livez HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer t-{number}\r\n\r\n".encode())
            waiting.append(tls)
        refused: list[ssl.SSLSocket] = []  # which of them the server reads first is its affair
        while len(refused) < 14:
            ready, _, _ = select.select([tls for tls in waiting if tls not in refused], [], [], 60)
            assert ready, f"of one address no more than 16 may wait; {len(refused)} were refused"
            assert [tls.recv(12) for tls in ready] == [b"HTTP/1.1 503"] * len(ready)
            refused += ready
        for _ in range(10):
            assert bench.ask("/livez")[0] == 200
        names = [thread.name for thread in threading.enumerate()]
        assert sum(name.startswith("https-asks") for name in names) == 8
        free.set()
        assert [tls.recv(12) for tls in waiting if tls not in refused] == [b"HTTP/1.1 401"] * 16
    deadline = time.monotonic() + 60
    while any(thread.name.startswith("https-a") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "threads end when there is nothing to answer"
        time.sleep(0.01)


def test_a_large_answer_arrives_whole_and_connections_are_kept(bench: Bench) -> None:
    bench.rights.answer = lambda _spec: {"allowed": True}
    with context().wrap_socket(socket.create_connection(("127.0.0.1", bench.port), timeout=20)) as tls:
        for _ in range(2):
            tls.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer reader\r\n\r\n")
            got = 0
            data = tls.recv(65536)
            head, _, rest = data.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK")
            got = len(rest)
            while got < 3_000_000:
                got += len(tls.recv(65536))
            assert got == 3_000_000


def test_requests_behind_each_other_are_answered_in_order(bench: Bench) -> None:
    with context().wrap_socket(socket.create_connection(("127.0.0.1", bench.port), timeout=20)) as tls:
        tls.sendall(
            b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.0\r\n\r\n"
        )
        data = b""
        while more := tls.recv(65536):
            data += more
    assert re.findall(rb"HTTP/1.1 (\d+) ", data) == [b"200", b"403", b"200"]


@pytest.mark.row("X1")
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x16",
        b"\x16\x03\x01\xff\xff" + b"x" * 400,
        b"\x15\x03\x03\x00\x02\x02\x00",
        b"\x80\x2e\x01\x03\x01" + b"\0" * 41,
        b"\0" * 100,
        b"SSH-2.0-x\r\n",
    ],
    ids=["nothing", "a byte", "a long record", "an alert", "SSL 2", "zeros", "SSH"],
)
def test_what_is_no_handshake_ends_that_connection_alone(bench: Bench, sent: bytes) -> None:
    # It may be closed by the server before we are through.
    with socket.create_connection(("127.0.0.1", bench.port), timeout=20) as sock, suppress(OSError):
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    assert bench.ask("/livez")[0] == 200


def test_plain_http_is_told_that_this_is_https(bench: Bench) -> None:
    with socket.create_connection(("127.0.0.1", bench.port), timeout=20) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        data = b""
        try:
            while more := sock.recv(65536):
                data += more
        except ConnectionResetError:  # it was closed with a part of our request unread
            pass
    assert data.startswith(b"HTTP/1.0 400 ")


@pytest.mark.row("X1")
@pytest.mark.parametrize("bench", [Limits(request_seconds=0.2)], indirect=True, ids=["impatient"])
def test_a_handshake_has_the_deadline_of_the_request(bench: Bench) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context().wrap_bio(incoming, outgoing).do_handshake()
    hello = outgoing.read()
    with socket.create_connection(("127.0.0.1", bench.port), timeout=20) as sock:
        sock.sendall(hello[:-1])
        assert sock.recv(1) == b""


@pytest.mark.row("X12")
def test_a_client_with_many_invented_tokens_hears_so_and_a_known_one_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controllers.endpoints.access._OF_A_PEER", (0.01, 20))
    assert bench.ask("/metrics", "reader")[0] == 200
    found = Counter(bench.ask("/metrics", f"invented-{number}")[0] for number in range(60))
    assert set(found) == {401, 429}
    assert found[401] == len(bench.tokens.asked) - 1
    assert bench.ask("/metrics", "reader")[0] == 200
    assert bench.ask("/livez")[0] == 200
