"""Requests with bodies: bounded in length, together in memory, and in time; and every one that is
refused hears why."""

from __future__ import annotations

import http.client
import select
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from controllers.httpserver.messages import Request, Response
from controllers.httpserver.server import Server
from tests.unit.httpserver.support import PATIENCE, connected, read_all, served

MOST = 200_000
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % MOST


def answer(request: Request) -> Response:
    return Response(200, f"{request.method} {len(request.body)} ".encode() + request.body[:10])


@pytest.fixture
def server() -> Iterator[Server]:
    with served(answer, max_body=MOST, all_bodies=2 * MOST) as made:
        yield made


def post(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
    connection.request("POST", "/", body)
    got = connection.getresponse()
    return got.status, got.read()


def test_bodies_arrive_whole_one_after_the_other_on_one_connection(server: Server) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
    assert post(connection, b"first") == (200, b"POST 5 first")
    kept = connection.sock
    assert post(connection, b"x" * MOST) == (200, b"POST 200000 xxxxxxxxxx")
    assert post(connection, b"") == (200, b"POST 0 ")
    assert connection.sock is kept
    connection.close()


def test_an_idle_connection_is_kept_longer_than_a_request_may_take() -> None:
    with served(answer, idle_seconds=60.0, request_seconds=0.1) as made, connected(made) as sock:
        for pause in (0.3, 0.0):
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert sock.recv(65536).endswith(b"GET 0 ")
            assert not select.select([sock], [], [], pause)[0]
        sock.sendall(b"GET")  # from here on the request's own time counts
        assert read_all(sock) == b""


def test_half_a_request_behind_another_has_the_time_of_a_request() -> None:
    with (
        served(answer, idle_seconds=60.0, request_seconds=0.2) as made,
        connected(made, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT") as sock,
    ):
        assert read_all(sock).count(b"HTTP/1.1 200") == 1


def test_a_body_that_trickles_is_read_to_its_end(server: Server) -> None:
    parts = (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Len", b"gth: 6\r\n\r\n", b"ab", b"cd", b"ef")
    with connected(server) as sock:
        for part in parts:
            sock.sendall(part)
            with connected(server, b"GET / HTTP/1.0\r\n\r\n") as other:  # answered when the part has been read
                assert read_all(other)
        assert b"POST 6 abcdef" in sock.recv(65536)


def test_a_client_that_waits_is_told_to_go_on_unless_it_is_refused(server: Server) -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with connected(server, head % 5) as sock:
        assert sock.recv(65536).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"hello")
        assert sock.recv(65536).endswith(b"POST 5 hello")
    with connected(server, head % (MOST + 1)) as sock:
        assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_the_client_of_a_body_that_is_too_long_hears_so(server: Server) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
    status, text = post(connection, b"x" * 50 * MOST)
    assert (status, text) == (413, b"Request Entity Too Large\n") or (status, text) == (413, b"Content Too Large\n")
    connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Transfer-Encoding: chunked", b"411"),
        (b"Content-Length: -1", b"400"),
        (b"Content-Length: 5, 6", b"400"),
        (b"Content-Length: 5\r\nContent-Length: 6", b"400"),
        (b"Content-Length: 1e3", b"400"),
        (b"Content-Length: " + b"9" * 400, b"400"),
        (b"Content-Length: 999999999", b"413"),
    ],
)
@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
def test_a_length_that_cannot_be_is_refused(server: Server, method: bytes, headers: bytes, status: bytes) -> None:
    with connected(server, method + b" / HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n\r\n") as sock:
        assert sock.recv(65536).startswith(b"HTTP/1.1 " + status)


def test_a_body_that_never_ends_is_cut_off() -> None:
    impatient = served(answer, max_body=MOST, all_bodies=2 * MOST, request_seconds=0.2)
    with impatient as made, connected(made, HEAD + b"never") as sock:
        assert read_all(sock) == b""


@pytest.mark.row("X12")
def test_the_bodies_of_one_client_leave_room_for_those_of_another() -> None:
    with served(answer, max_body=MOST, all_bodies=4 * MOST) as server, ExitStack() as ends:
        # The oldest body of all is the other client's: it must not be what gives way.
        other = ends.enter_context(connected(server, HEAD + b"x" * (MOST // 2)))
        sent = HEAD + b"x" * (MOST - 1)
        greedy = [ends.enter_context(connected(server, sent, "127.0.0.9")) for _ in range(6)]
        assert read_all(greedy[0]) == b""
        other.sendall(b"x" * (MOST - MOST // 2))
        assert other.recv(65536).startswith(b"HTTP/1.1 200")


def test_bodies_together_are_bounded_and_the_oldest_gives_way(server: Server) -> None:
    with ExitStack() as ends:
        socks = [ends.enter_context(connected(server, HEAD + b"x" * (MOST - 1))) for _ in range(4)]
        assert read_all(socks[0]) == b"", "the oldest was to be closed"
        socks[-1].sendall(b"x")
        assert socks[-1].recv(65536).startswith(b"HTTP/1.1 200")
