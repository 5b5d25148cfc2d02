"""Requests with bodies: bounded in length, together in memory, and in time; and every one that is refused hears why."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator

import pytest

from controllers.app.serving import server as serving
from controllers.app.serving.http1 import Request, Response
from controllers.app.serving.limits import Limits
from controllers.app.serving.server import Server

LIMIT = 20.0
MOST = 200_000


@pytest.fixture
def server() -> Iterator[Server]:
    def answer(request: Request) -> Response:
        return Response(200, f"{request.method} {len(request.body)} ".encode() + request.body[:10])

    made = Server(("127.0.0.1", 0), answer, limits=Limits(max_body=MOST, all_bodies=2 * MOST))
    made.start()
    yield made
    assert made.stop(LIMIT)


def post(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", "/", body)
    got = connection.getresponse()
    return got.status, got.read()


def raw(server: Server, data: bytes) -> bytes:
    with socket.create_connection(server.address, timeout=LIMIT) as sock:
        sock.sendall(data)
        return sock.recv(65536)


def test_bodies_arrive_whole_one_after_the_other_on_one_connection(server: Server) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=LIMIT)
    assert post(connection, b"first") == (200, b"POST 5 first")
    kept = connection.sock
    assert post(connection, b"x" * MOST) == (200, b"POST 200000 xxxxxxxxxx")
    assert post(connection, b"") == (200, b"POST 0 ")
    assert connection.sock is kept
    connection.close()


def test_an_idle_connection_is_kept_longer_than_a_request_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.1)
    made = Server(("127.0.0.1", 0), lambda _request: Response(200, b"ok"), limits=Limits(idle_seconds=60.0))
    made.start()
    with socket.create_connection(made.address, timeout=LIMIT) as sock:
        for pause in (0.5, 0.0):
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(65536).endswith(b"ok")
            time.sleep(pause)
        sock.sendall(b"GET")  # from here on the request's own time counts
        assert sock.recv(65536) == b""
    assert made.stop(LIMIT)


def test_a_body_that_trickles_is_read_to_its_end(server: Server) -> None:
    with socket.create_connection(server.address, timeout=LIMIT) as sock:
        for part in (b"POST / HTTP/1.1\r\nContent-Len", b"gth: 6\r\n\r\n", b"ab", b"cd", b"ef"):
            sock.sendall(part)
            time.sleep(0.02)
        assert b"POST 6 abcdef" in sock.recv(65536)


def test_the_client_of_a_body_that_is_too_long_hears_so(server: Server) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=LIMIT)
    status, text = post(connection, b"x" * 50 * MOST)
    assert (status, text) == (413, b"Request Entity Too Large\n") or (status, text) == (413, b"Content Too Large\n")
    connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Transfer-Encoding: chunked", b"411"),
        (b"Content-Length: -1", b"400"),
        (b"Content-Length: 5, 5", b"400"),
        (b"Content-Length: 1e3", b"400"),
        (b"Content-Length: " + b"9" * 400, b"400"),
        (b"Content-Length: 999999999", b"413"),
    ],
)
def test_a_length_that_cannot_be_is_refused(server: Server, headers: bytes, status: bytes) -> None:
    got = raw(server, b"POST / HTTP/1.1\r\n" + headers + b"\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 " + status)


def test_a_body_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.3)
    assert raw(server, b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nnever") == b""


def test_bodies_together_are_bounded_and_the_oldest_gives_way(server: Server) -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % MOST
    socks = [socket.create_connection(server.address, timeout=LIMIT) for _ in range(4)]
    try:
        for sock in socks:
            sock.sendall(head + b"x" * (MOST - 1))
            time.sleep(0.05)
        try:
            first = socks[0].recv(100)
        except ConnectionResetError:
            first = b""
        assert first == b"", "the oldest was to be closed"
        socks[-1].sendall(b"x")
        assert socks[-1].recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for sock in socks:
            sock.close()
