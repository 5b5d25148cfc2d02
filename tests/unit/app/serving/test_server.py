"""Hostile clients by raw sockets: whatever they do, a probe is answered."""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from controllers.app.serving import http1
from controllers.app.serving import server as serving
from controllers.app.serving.connection import group_of
from controllers.app.serving.http1 import Request, Response
from controllers.app.serving.server import Server

LIMIT = 20.0  # for what takes milliseconds, on a machine with other things to do
PROBES = 10


def answer(request: Request) -> Response:
    if request.target == "/large":
        return Response(200, b"x" * 20_000_000)
    if request.target == "/broken":
        raise RuntimeError("bug")
    return Response(200, f"{request.method} {request.target} {request.headers.get('host', '')}".encode())


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), answer)
    made.start()
    yield made
    assert made.stop(LIMIT)
    assert made.stop(LIMIT)


@pytest.fixture
def sockets(server: Server) -> Iterator[Callable[..., socket.socket]]:
    """Opens connections to the server, which are closed at the end of the test."""
    with ExitStack() as ends:

        def connect(data: bytes = b"") -> socket.socket:
            sock = ends.enter_context(socket.create_connection(server.address, timeout=LIMIT))
            if data:
                sock.sendall(data)
            return sock

        yield connect


def probe(server: Server, path: str = "/livez") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=LIMIT)
    try:
        connection.request("GET", path)
        got = connection.getresponse()
        return got.status, got.read()
    finally:
        connection.close()


def read_all(sock: socket.socket) -> bytes:
    """What comes until the server closes."""
    sock.settimeout(LIMIT)
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except ConnectionResetError:  # closed with bytes of ours unread
        return data
    return data


def closed(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0]) and not read_all(sock)


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[None]:
    """`work` again and again while the body runs."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.row("X1")
def test_clients_that_trickle_keep_no_probe_out(server: Server, sockets: Callable[..., socket.socket]) -> None:
    """More of them than connections are allowed, a byte each now and then."""
    tricklers = [sockets(b"GET /livez HTTP/1.1\r\nX-Slow: ") for _ in range(serving.MAX_CONNECTIONS + 40)]

    def trickle() -> None:
        for sock in tricklers:
            try:
                sock.send(b"x")
            except OSError:  # it had to give way
                continue
        time.sleep(0.05)

    with in_background(trickle):
        for _ in range(PROBES):
            assert probe(server)[0] == 200


@pytest.mark.row("X1")
def test_a_request_has_one_deadline_that_no_byte_puts_off(
    server: Server, sockets: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.5)
    sock = sockets(b"GET /livez HTTP/1.1\r\nX-Slow: ")

    def trickle() -> None:
        try:
            sock.send(b"x")
        except OSError:
            time.sleep(0.01)
        time.sleep(0.02)

    with in_background(trickle):
        assert read_all(sock) == b""


@pytest.mark.row("X1")
def test_an_answer_that_nobody_reads_has_a_deadline_too(
    server: Server, sockets: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 0.5)
    lazy = sockets(b"GET /large HTTP/1.1\r\n\r\n")
    select.select([lazy], [], [], LIMIT)
    time.sleep(1.0)  # longer than the deadline, and than the look at it
    assert len(read_all(lazy)) < 20_000_000
    assert probe(server)[0] == 200


@pytest.mark.row("X1")
def test_clients_that_do_not_read_keep_no_probe_out(
    server: Server, sockets: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_PER_PEER", 8)
    lazy = [sockets(b"GET /large HTTP/1.1\r\n\r\n") for _ in range(8)]
    for sock in lazy:
        assert select.select([sock], [], [], LIMIT)[0]
    for _ in range(PROBES):
        assert probe(server)[0] == 200


@pytest.mark.row("X1")
def test_a_flood_of_connections_keeps_no_probe_out(server: Server) -> None:
    held: list[socket.socket] = []

    def flood() -> None:
        held.append(socket.create_connection(server.address, timeout=LIMIT))
        if len(held) > 2 * serving.MAX_PER_PEER:
            held.pop(0).close()

    try:
        with in_background(flood):
            for _ in range(PROBES):
                assert probe(server)[0] == 200
    finally:
        for sock in held:
            sock.close()


@pytest.mark.row("X1")
def test_the_oldest_of_a_peer_with_too_many_gives_way(
    server: Server, sockets: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_PER_PEER", 4)
    first, second, third, fourth = (sockets() for _ in range(4))
    probe(server)  # the fifth; gone by now
    assert read_all(first) == b""
    assert not any(closed(sock) for sock in (second, third, fourth))


@pytest.mark.row("X1")
def test_the_peer_with_the_most_connections_gives_way(
    server: Server, sockets: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 4)
    with ExitStack() as ends:

        def connect(peer: str) -> socket.socket:
            return ends.enter_context(socket.create_connection(server.address, timeout=LIMIT, source_address=(peer, 0)))

        modest = connect("127.0.0.3")
        greedy = [connect("127.0.0.2") for _ in range(3)]
        probe(server)
        assert read_all(greedy[0]) == b""
        assert not closed(modest)


def test_one_peer_is_an_address_or_an_ipv6_network() -> None:
    assert group_of("10.0.0.1") == group_of("::ffff:10.0.0.1") != group_of("10.0.0.2")
    assert group_of("2001:db8::1") == group_of("2001:db8::2") != group_of("2001:db8:0:1::1")
    assert group_of("fe80::1%lo") == group_of("fe80::2%lo")


def test_a_connection_ends_after_a_while(
    server: Server, sockets: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CONNECTION_SECONDS", -1.0)
    assert b"\r\nConnection: close\r\n" in read_all(sockets(b"GET /livez HTTP/1.1\r\n\r\n"))


def test_requests_behind_each_other_are_answered_in_order(
    server: Server, sockets: Callable[..., socket.socket]
) -> None:
    sock = sockets(
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    told = read_all(sock)
    assert told.count(b"HTTP/1.1 200 OK") == 3
    assert told.index(b"GET /1 a") < told.index(b"GET /3")
    assert b"HEAD /2" not in told


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET  HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        ((b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * http1.MAX_HEAD)[: http1.MAX_HEAD], b"431"),
        (b"GET /broken HTTP/1.0\r\n\r\n", b"500"),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"200"),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"200"),
    ],
)
def test_what_is_no_plain_request_is_answered_and_the_connection_closed(
    server: Server, sockets: Callable[..., socket.socket], sent: bytes, status: bytes
) -> None:
    assert read_all(sockets(sent)).startswith(b"HTTP/1.1 " + status)


def test_stopping_closes_what_is_open() -> None:
    made = Server(("127.0.0.1", 0), answer)
    made.start()
    with socket.create_connection(made.address, timeout=LIMIT) as sock:
        assert probe(made)[0] == 200
        assert made.stop(LIMIT)
        assert read_all(sock) == b""


def test_repeated_headers_are_joined() -> None:
    request = http1.parse(b"GET / HTTP/1.1\r\nA: 1\r\na:  2 \r\n\r\n", "10.0.0.1")
    assert request.headers == {"a": "1, 2"}
    assert request.keep_alive


def test_a_port_is_shared_only_if_both_permit_it() -> None:
    first = Server(("127.0.0.1", 0), answer, share_port=True)
    first.start()
    second = Server(first.address, answer, share_port=True)
    second.start()
    alone = Server(first.address, answer)
    with pytest.raises(OSError, match="in use"):
        alone.start()
    assert first.stop(LIMIT)
    assert probe(second)[0] == 200, "the other one goes on serving the address"
    assert second.stop(LIMIT)
