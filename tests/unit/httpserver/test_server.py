"""Hostile clients by raw sockets: whatever they do, a probe is answered."""

from __future__ import annotations

import http.client
import logging
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudprovider.testing.waiting import eventually
from controllers.httpserver.connections import MAX_HEAD
from controllers.httpserver.messages import Limits, Request, Response, Shares, group_of
from controllers.httpserver.server import Server
from tests.unit.httpserver.support import PATIENCE, connected, read_all, running, served

PROBES = 10
GET = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
HALF = b"GET /livez HTTP/1.1\r\nX-Slow: "
AT = st.integers(0, len(GET))
JUNK = st.binary(min_size=1, max_size=3)
LARGE = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"


def answer(request: Request) -> Response:
    if request.target == "/large":
        return Response(200, b"x" * 20_000_000)
    if request.target == "/broken":
        raise RuntimeError("bug")
    return Response(200, f"{request.method} {request.target} {request.headers.get('host', '')}".encode())


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """With the limits that the test is parametrised with."""
    with served(answer, **getattr(request, "param", {})) as made:
        yield made


@pytest.fixture
def sockets(server: Server) -> Iterator[Callable[..., socket.socket]]:
    """Opens connections to the server, which are closed at the end of the test."""
    with ExitStack() as ends:
        yield lambda *arguments: ends.enter_context(connected(server, *arguments))


def with_limits(**limits: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server", [limits], indirect=True, ids=[" ".join(limits)])


def probe(server: Server, path: str = "/livez") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        got = connection.getresponse()
        return got.status, got.read()
    finally:
        connection.close()


def probes_are_answered(server: Server) -> None:
    for _ in range(PROBES):
        assert probe(server)[0] == 200


def closed(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0]) and not read_all(sock)


@contextmanager
def in_background(work: Callable[[], None]) -> Iterator[None]:
    """`work` again and again while the body runs."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.01):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def trickle(socks: list[socket.socket]) -> None:
    for sock in socks:
        try:
            sock.send(b"x")
        except OSError:  # it was closed
            continue


@pytest.mark.row("X1")
def test_clients_that_trickle_keep_no_probe_out(server: Server, sockets: Callable[..., socket.socket]) -> None:
    """More of them than connections are allowed, a byte each now and then."""
    tricklers = [sockets(HALF) for _ in range(Limits().connections + 40)]
    with in_background(lambda: trickle(tricklers)):
        probes_are_answered(server)


@pytest.mark.row("X1")
@with_limits(request_seconds=0.3)
def test_a_request_has_one_deadline_that_no_byte_puts_off(
    server: Server, sockets: Callable[..., socket.socket]
) -> None:
    sock = sockets(HALF)
    with in_background(lambda: trickle([sock])):
        assert read_all(sock) == b""


@pytest.mark.row("X1")
@with_limits(answer_seconds=0.2)
def test_an_answer_that_nobody_reads_has_a_deadline_too(
    server: Server, sockets: Callable[..., socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lazy = sockets(LARGE)
    eventually(lambda: "too slow" in caplog.text, PATIENCE)
    assert len(read_all(lazy)) < 20_000_000
    assert probe(server)[0] == 200


@pytest.mark.row("X1")
@with_limits(per_peer=8)
def test_clients_that_do_not_read_keep_no_probe_out(server: Server, sockets: Callable[..., socket.socket]) -> None:
    for sock in [sockets(LARGE) for _ in range(8)]:
        assert select.select([sock], [], [], PATIENCE)[0]
    probes_are_answered(server)


@pytest.mark.row("X1")
def test_a_flood_of_connections_keeps_no_probe_out(server: Server) -> None:
    stop = threading.Event()

    def flood() -> None:
        with ExitStack() as ends:
            while not stop.is_set():
                for _ in range(2 * Limits().per_peer):
                    ends.enter_context(connected(server))
                ends.pop_all().close()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        probes_are_answered(server)
    finally:
        stop.set()
        thread.join()


@pytest.mark.row("X1")
@pytest.mark.row("N5")
@with_limits(per_peer=4)
def test_the_oldest_of_a_peer_with_too_many_gives_way(server: Server, sockets: Callable[..., socket.socket]) -> None:
    first, second, third, fourth = (sockets() for _ in range(4))
    probe(server)  # the fifth; gone by now
    assert read_all(first) == b""
    assert not any(closed(sock) for sock in (second, third, fourth))


@pytest.mark.row("X1")
@with_limits(connections=4)
def test_the_peer_with_the_most_connections_gives_way(server: Server, sockets: Callable[..., socket.socket]) -> None:
    modest = sockets(b"", "127.0.0.3")
    greedy = [sockets(b"", "127.0.0.2") for _ in range(3)]
    probe(server)
    assert read_all(greedy[0]) == b""
    assert not closed(modest)


@pytest.mark.row("X1")
@with_limits(per_peer=2)
def test_who_was_answered_is_the_youngest_again_and_who_is_being_answered_never_gives_way(
    server: Server, sockets: Callable[..., socket.socket]
) -> None:
    first, second = sockets(), sockets()
    first.sendall(GET)
    assert first.recv(65536).startswith(b"HTTP/1.1 200")
    probe(server)
    assert read_all(second) == b"", "it never sent anything"
    first.sendall(GET)
    assert first.recv(65536).startswith(b"HTTP/1.1 200")


def test_one_peer_is_an_address_or_an_ipv6_network() -> None:
    assert group_of("10.0.0.1") == group_of("::ffff:10.0.0.1") != group_of("10.0.0.2")
    assert group_of("2001:db8::1") == group_of("2001:db8::2") != group_of("2001:db8:0:1::1")
    assert group_of("2001:db8::1") == group_of("2001:db8:0:0:ff00::1"), "64 bits"
    assert group_of("fe80::1%lo") == group_of("fe80::2%lo")


def test_no_peer_gets_all_shares_and_all_come_free_again() -> None:
    shares, a, b, c = Shares(5, most=3), b"10.0.0.1", b"10.0.0.2", b"10.0.0.3"
    held = [shares.take(a) for _ in range(4)] + [shares.take(b) for _ in range(3)] + [shares.take(c) for _ in range(2)]
    had = [one is not None for one in held]
    assert had == [True, True, True, False, True, False, False, True, False], "a third one still finds a place"
    for give_back in held:
        if give_back is not None:
            give_back()
    assert shares.take(a, 4) is None
    assert shares.take(a, 3)
    assert Shares(5).take(b, 5), "and without a limit of its own a peer has what it leaves free"


@with_limits(connection_seconds=-1.0)
def test_a_connection_ends_after_a_while(server: Server, sockets: Callable[..., socket.socket]) -> None:
    assert b"\r\nConnection: close\r\n" in read_all(sockets(GET))


def test_requests_behind_each_other_are_answered_in_order(
    server: Server, sockets: Callable[..., socket.socket]
) -> None:
    sock = sockets(
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: a\r\n\r\n"
        b"GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
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
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        ((b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * MAX_HEAD)[:MAX_HEAD], b"431"),
        (b"GET /broken HTTP/1.0\r\n\r\n", b"500"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", b"200"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"200"),
    ],
)
def test_what_is_no_plain_request_is_answered_and_the_connection_closed(
    server: Server, sockets: Callable[..., socket.socket], sent: bytes, status: bytes
) -> None:
    told = read_all(sockets(sent))
    assert told.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nConnection: close\r\n" in told


@pytest.mark.row("X13")
def test_any_bytes_are_answered_or_end_the_connection_and_no_mistake_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    with served(answer) as made:

        @settings(max_examples=60)
        @given(st.binary(max_size=600) | st.builds(lambda at, junk: GET[:at] + junk + GET[at:], AT, JUNK))
        def sent(data: bytes) -> None:
            with connected(made, data) as sock:
                sock.shutdown(socket.SHUT_WR)
                assert read_all(sock)[:9] in (b"", b"HTTP/1.1 ")

        sent()
        assert probe(made)[0] == 200
    assert not caplog.records


def test_repeated_headers_are_joined(server: Server, sockets: Callable[..., socket.socket]) -> None:
    seen: list[Request] = []

    def keep(request: Request) -> Response:
        seen.append(request)
        return Response(200, b"")

    with served(keep) as made, connected(made, b"GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\na:  2 \r\n\r\n") as sock:
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
    assert seen[0].headers == {"host": "x", "a": "1, 2"}


def test_a_server_that_is_stopped_at_once_ends() -> None:
    """Whatever its thread has come to."""
    for _ in range(10):
        with served(answer):
            pass


def test_what_cannot_be_prepared_is_logged_and_closes_the_port(caplog: pytest.LogCaptureFixture) -> None:
    made = Server(("127.0.0.1", 0), answer, name="mine", prepare=lambda: 1 // 0)  # type: ignore[arg-type]
    made.start()
    eventually(lambda: "mine: nothing can be served" in caplog.text, PATIENCE)
    assert made.stop(PATIENCE)


@pytest.mark.row("X12")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RuntimeError("no")])
@pytest.mark.parametrize("late", [False, True])
def test_whatever_a_handler_raises_is_a_500_and_costs_no_thread(
    error: BaseException, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(_request: object = None) -> Response:
        raise error

    with served(lambda request: bad if late else bad(request), slow_threads=1) as made:
        for _ in range(3):
            assert probe(made) == (500, b"internal error\n")
    assert caplog.text.count("GET /livez could not be answered") == 3
    eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("server-a")], PATIENCE)


def test_where_no_thread_can_be_had_the_connection_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        for _ in range(10):  # more than there are threads: each came free
            with connected(server, GET) as sock:
                assert read_all(sock) == b""
        with pytest.raises(RuntimeError, match="new thread"):
            Server(("127.0.0.1", 0), answer).start()
    probes_are_answered(server)


def test_a_handler_that_hangs_keeps_its_thread_and_no_more_begin() -> None:
    """Connections that are closed meanwhile do not give the threads back."""
    free, begun = threading.Event(), list[str]()

    def hang(request: Request) -> Response | Callable[[], Response]:
        def wait() -> Response:
            begun.append(request.target)
            free.wait(PATIENCE)
            return Response(200, b"")

        return wait if request.target.startswith("/hang") else Response(200, b"")

    def answered(path: str) -> bool:
        try:
            return probe(made, path)[0] == 200
        except (OSError, http.client.HTTPException):  # a busy machine takes longer than the answer may
            return False

    limits = {"slow_threads": 2, "slow_places": 8, "slow_per_peer": 7, "answer_seconds": 0.2}
    with served(hang, **limits) as made, ExitStack() as ends:
        ask = GET.replace(b"/livez", b"/hang")
        waiting = [ends.enter_context(connected(made, ask)) for _ in range(4)]
        assert [read_all(sock) for sock in waiting] == [b""] * 4, "their time ran out"
        assert begun == ["/hang"] * 2
        eventually(lambda: answered("/livez"), PATIENCE)
        assert sum(thread.name.startswith("server-asks") for thread in threading.enumerate()) == 2
        free.set()
        eventually(lambda: answered("/hang-no-more"), PATIENCE)
        assert begun.count("/hang") == 2, "for a connection that is gone nothing is begun"


@with_limits(request_seconds=600.0, idle_seconds=600.0)
def test_a_stop_waits_for_no_client(server: Server, sockets: Callable[..., socket.socket]) -> None:
    silent, half, idle = sockets(), sockets(HALF), sockets(GET)
    assert idle.recv(12) == b"HTTP/1.1 200"
    probes_are_answered(server)
    assert server.stop(PATIENCE)
    assert [read_all(sock) for sock in (silent, half)] == [b"", b""]


def test_a_port_is_shared_only_if_both_permit_it() -> None:
    with (
        running(Server(("127.0.0.1", 0), answer, share_port=True)) as first,
        running(Server(first.address, answer, share_port=True)) as second,
    ):
        with pytest.raises(OSError, match="in use"):
            Server(first.address, answer).start()
        assert first.stop(PATIENCE)
        assert probe(second)[0] == 200, "the other one goes on serving the address"


@pytest.mark.row("K23")
@pytest.mark.parametrize(
    ("address", "reached", "others"),
    [
        ("0.0.0.0", ["127.0.0.1", "::1"], []),
        ("::", ["127.0.0.1", "::1"], []),
        ("", ["127.0.0.1", "::1"], []),
        ("127.0.0.1", ["127.0.0.1"], ["::1"]),
    ],
)
def test_every_address_means_those_of_both_families(address: str, reached: list[str], others: list[str]) -> None:
    with running(Server((address, 0), answer)) as server:
        for host in reached if socket.has_dualstack_ipv6() else reached[:1]:
            with socket.create_connection((host, server.address[1]), timeout=PATIENCE) as sock:
                sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        for host in others:
            with pytest.raises(OSError, match=r".*"):
                socket.create_connection((host, server.address[1]), timeout=PATIENCE)


@pytest.mark.row("K23")
def test_without_ipv6_every_address_is_every_one_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with running(Server(("0.0.0.0", 0), answer)) as server:
        assert server.address[0] == "0.0.0.0"
        socket.create_connection(("127.0.0.1", server.address[1]), timeout=PATIENCE).close()


@pytest.mark.row("X1")
def test_probes_beside_hostile_clients_are_fast(server: Server, sockets: Callable[..., socket.socket]) -> None:
    """Each takes a few milliseconds, and is answered before the time of a silent client is over
    that came before it."""
    tricklers = [sockets(HALF) for _ in range(100)] + [sockets(LARGE) for _ in range(8)]
    with in_background(lambda: trickle(tricklers[:100])):
        for _ in range(20):
            silent = sockets()
            assert probe(server)[0] == 200
            assert not closed(silent)
