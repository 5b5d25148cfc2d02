"""Streams give whole lines, tell a clean end from a broken one, and end at once when they are
closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientClosed, Gone, HalfOpen, RestClient, TooManyRequests, Unreachable, linestream
from controllers.runtime.api.clientconfig import ClientConfig, RequestMetrics
from controllers.runtime.api.credentials import Credentials, Fixed
from controllers.runtime.api.linestream import LineStream
from controllers.runtime.api.ratelimit import Sleeper, TokenBucket
from controllers.runtime.api.tls import TLSFiles, TLSSettings
from controllers.runtime.api.transport import HalfOpenDetection, Transport
from controllers.runtime.api.wire.endpoint import Endpoint
from controllers.runtime.clock import SYSTEM_CLOCK, Clock
from controllers.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.there import there
from tests.unit.runtime.loopback import LIMIT, Authority, Call, Peer, Server, answer_none

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PROTOBUF_HEAD = HEAD[:-2] + b"Content-Type: application/vnd.kubernetes.protobuf;stream=watch\r\n\r\n"
LONG = 10 * LIMIT
"""Seconds of a deadline that a test does not wait for: what ends within `LIMIT` was interrupted."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def client_of(
    url: str,
    tls: TLSSettings | None = None,
    limiter: TokenBucket | None = None,
    clock: Clock = SYSTEM_CLOCK,
    half_open: HalfOpenDetection | None = None,
) -> tuple[RestClient, Transport, Metrics]:
    metrics = Metrics()
    transport = Transport(
        Endpoint.parse(url), TLSFiles(tls) if tls else None, sleeper=Sleeper(clock), half_open=half_open
    )
    return RestClient(transport, config_of(transport, metrics, limiter)), transport, metrics


def config_of(transport: Transport, metrics: Metrics | None = None, limiter: TokenBucket | None = None) -> ClientConfig:
    return ClientConfig(
        name="shared-informers",
        user_agent="test/1 shared-informers",
        credentials=Credentials(Fixed("Bearer t"), transport.sleeper),
        metrics=RequestMetrics(metrics or Metrics(), "api"),
        guard=lambda _method, _path: None,
        limiter=limiter,
    )


Serve = Callable[..., tuple[LineStream, Transport]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that answers a stream as given; everything is closed at the end."""
    servers: list[tuple[Server, Transport]] = []

    def start(
        handler: Callable[[Peer], None], read_timeout: float = LIMIT, tls: Authority | None = None
    ) -> tuple[LineStream, Transport]:
        server = Server(handler, tls=tls.server_context() if tls else None)
        server.__enter__()
        rest, transport, _ = client_of(server.url, TLSSettings(ca_file=str(tls.file)) if tls else None)
        servers.append((server, transport))
        return rest.stream("/watch", query={"watch": "true"}, read_timeout=read_timeout), transport

    yield start
    for server, transport in servers:
        transport.close()
        server.__exit__()


def sending(*parts: bytes, hold: bool = False) -> Callable[[Peer], None]:
    def handler(peer: Peer) -> None:
        peer.request()
        for part in parts:
            peer.send(part)
        if hold:
            peer.request()

    return handler


class TestLines:
    def test_until_the_clean_end(self, serve: Serve) -> None:
        stream, transport = serve(
            sending(HEAD, chunk(b'{"a":1}\n{"b"'), chunk(b":2}\n\n"), chunk(b"3\n"), b"0\r\n\r\n")
        )
        assert list(stream) == [b'{"a":1}', b'{"b":2}', b"3"]
        assert list(stream) == []
        assert transport.connections() == (0, 0)

    def test_a_line_is_given_before_the_next_one_comes(self, serve: Serve) -> None:
        go_on = threading.Event()

        def handler(peer: Peer) -> None:
            peer.request()
            peer.send(HEAD + chunk(b"first\nsec"))
            assert go_on.wait(LIMIT)
            peer.send(chunk(b"ond\n") + b"0\r\n\r\n")

        stream, _ = serve(handler)
        assert next(stream) == b"first"
        go_on.set()
        assert list(stream) == [b"second"]

    def test_the_request_carries_identity_and_query(self) -> None:
        with Server(sending(HEAD, b"0\r\n\r\n")) as server:
            rest, transport, metrics = client_of(server.url)
            assert list(rest.stream("/w", query={"watch": "true"}, read_timeout=LIMIT, accept="application/x")) == []
            (request,) = server.requests
            assert (request.method, request.target) == ("GET", "/w?watch=true")
            assert request.headers["user-agent"] == "test/1 shared-informers"
            assert request.headers["authorization"] == "Bearer t"
            assert request.headers["accept"] == "application/x"
            assert metrics.value("rest_client_requests_total", code="200", host="api", method="GET") == 1
            transport.close()

    def test_nothing_is_sent_before_it_is_read(self, serve: Serve) -> None:
        stream, transport = serve(sending(HEAD, b"0\r\n\r\n"))
        assert transport.connections() == (0, 0)
        stream.open()
        assert transport.connections() == (1, 0)
        stream.open()
        assert list(stream) == []

    def test_the_cost_of_a_long_line_grows_with_its_length_only(self, serve: Serve) -> None:
        """4 MB in pieces of 4 KB: joined once, where joining each time would copy 2 GB."""
        size, piece = 4_000_000, b"x" * 4000
        stream, _ = serve(sending(HEAD, *[chunk(piece)] * (size // len(piece)), chunk(b"\n"), b"0\r\n\r\n"))
        stream.open()
        began = time.thread_time()
        (line,) = list(stream)
        assert len(line) == size
        assert time.thread_time() - began < 0.5

    def test_frames_where_the_server_says_that_it_sends_protobuf(self, serve: Serve) -> None:
        whole = frame(b"one") + frame(b"two\nlines") + frame(b"")
        stream, _ = serve(sending(PROTOBUF_HEAD, chunk(whole[:5]), chunk(whole[5:]), b"0\r\n\r\n"))
        assert not stream.protobuf
        assert list(stream) == [b"one", b"two\nlines", b""]
        assert stream.protobuf


class TestBrokenStreams:
    @pytest.mark.parametrize(
        "parts",
        [
            [HEAD + chunk(b"whole\n") + b"5\r\nab"],
            [HEAD + chunk(b"whole\n") + b"5"],
            [HEAD + chunk(b"whole\n")],
            [HEAD + chunk(b"whole\nhalf") + b"0\r\n\r\n"],
            [b"HTTP/1.1 200 OK\r\n\r\nwhole\nhalf"],
            [PROTOBUF_HEAD + chunk(frame(b"whole")) + b"5\r\nab"],
            [PROTOBUF_HEAD + chunk(frame(b"whole"))],
            [PROTOBUF_HEAD + chunk(frame(b"whole") + b"\0\0") + b"0\r\n\r\n"],
            [PROTOBUF_HEAD + chunk(frame(b"whole") + b"\0\0\0\3ab") + b"0\r\n\r\n"],
        ],
    )
    def test_truncation_is_told_after_the_whole_pieces(self, serve: Serve, parts: list[bytes]) -> None:
        stream, transport = serve(sending(*parts))
        assert next(stream) == b"whole"
        with pytest.raises(Unreachable, match=r"closed inside|ended inside an event"):
            next(stream)
        assert transport.connections() == (0, 0)

    def test_reset(self, serve: Serve) -> None:
        def handler(peer: Peer) -> None:
            peer.request()
            peer.send(HEAD + chunk(b"whole\n"))
            assert read.wait(LIMIT)
            peer.reset()

        read = threading.Event()
        stream, _ = serve(handler)
        assert next(stream) == b"whole"
        read.set()
        with pytest.raises(Unreachable, match="reset"):
            next(stream)

    def test_a_half_open_connection_is_noticed_by_its_silence(self, serve: Serve) -> None:
        stream, transport = serve(sending(HEAD, chunk(b"one\n"), hold=True), read_timeout=0.05)
        assert next(stream) == b"one"
        with pytest.raises(Unreachable, match=r"nothing came for 0\.05 s"):
            next(stream)
        assert transport.connections() == (0, 0)

    def test_a_refusal_is_the_mapped_error(self) -> None:
        def refuse(peer: Peer) -> None:
            peer.request()
            peer.answer(410, {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})

        with Server(refuse) as server:
            rest, transport, metrics = client_of(server.url)
            with pytest.raises(Gone, match="GET /w: 410 Expired: too old"):
                next(rest.stream("/w", read_timeout=LIMIT))
            assert metrics.value("rest_client_requests_total", code="410", host="api", method="GET") == 1
            assert transport.connections() == (0, 0)
            transport.close()

    def test_a_busy_server_is_not_asked_again_by_the_stream_itself(self) -> None:
        def busy(peer: Peer) -> None:
            peer.request()
            peer.answer(429, {}, Retry_After="7")

        with Server(busy) as server:
            rest, transport, _ = client_of(server.url)
            with pytest.raises(TooManyRequests) as caught:
                rest.stream("/w", read_timeout=LIMIT).open()
            assert caught.value.retry_after == 7
            assert len(server.requests) == 1
            transport.close()

    def test_a_stream_without_lines_is_refused(self, monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
        monkeypatch.setattr(linestream, "MAX_EVENT", 100)
        stream, _ = serve(sending(HEAD, chunk(b"x" * 60), chunk(b"x" * 60), hold=True))
        with pytest.raises(Unreachable, match="a line of more than 100 bytes"):
            next(stream)


class TestClosing:
    """From another thread, in every state, within milliseconds."""

    def _assert_closes(self, stream: LineStream, transport: Transport) -> None:
        call = Call(lambda: list(stream))
        call.wait_until_blocked()
        stream.close()
        assert call.outcome() == []
        assert transport.connections() == (0, 0)

    @pytest.mark.parametrize("tls", [False, True])
    def test_while_blocked_in_a_read(self, tls: bool, serve: Serve, tmp_path: Path) -> None:
        stream, transport = serve(sending(HEAD, hold=True), LONG, Authority(tmp_path) if tls else None)
        stream.open()
        self._assert_closes(stream, transport)

    def test_while_waiting_for_the_status(self, serve: Serve) -> None:
        self._assert_closes(*serve(answer_none, LONG))

    def test_in_the_tls_handshake(self) -> None:
        def mute(peer: Peer) -> None:
            while peer.sock.recv(1000):
                pass

        with Server(mute) as server:
            rest, transport, _ = client_of(server.url.replace("http", "https"), TLSSettings(verify=False))
            self._assert_closes(rest.stream("/w", read_timeout=LONG), transport)
            transport.close()

    def test_while_waiting_for_the_rate_limit(self) -> None:
        limiter = TokenBucket(0.001, 1)
        limiter.reserve()
        rest, transport, _ = client_of("http://127.0.0.1:1", limiter=limiter)
        self._assert_closes(rest.stream("/w", read_timeout=LONG), transport)
        transport.close()

    def test_before_it_was_read(self, serve: Serve) -> None:
        stream, transport = serve(sending(HEAD))
        stream.close()
        stream.close()
        stream.open()
        assert list(stream) == []
        assert transport.connections() == (0, 0)

    def test_lines_that_had_come_are_not_given_any_more(self, serve: Serve) -> None:
        stream, transport = serve(sending(HEAD, chunk(b"1\n2\n3\n"), hold=True))
        with closing(stream):
            assert next(stream) == b"1"
        assert list(stream) == []
        assert transport.connections() == (0, 0)

    def test_closing_the_client_is_told_to_the_reader(self, serve: Serve) -> None:
        stream, transport = serve(sending(HEAD, hold=True))
        stream.open()
        call = Call(lambda: list(stream))
        call.wait_until_blocked()
        transport.close()
        assert isinstance(call.outcome(), ClientClosed)


class TestHalfOpen:
    """All connections of one moment lead nowhere, without a sign; new ones work."""

    GET = b"GET /plain HTTP/1.1\r\nHost: x\r\n\r\n"

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def watched(self) -> list[Peer]:
        """The server's sides of the streams."""
        return []

    @pytest.fixture
    def path(self, clock: FakeClock, watched: list[Peer]) -> Iterator[Callable[[], tuple[Transport, LineStream]]]:
        """A transport with a stream that has brought its first line. Plain requests are answered
        but for those to /lost."""
        opened: list[tuple[Server, Transport, LineStream]] = []

        def handler(peer: Peer) -> None:
            while request := peer.request():
                if request.target.startswith("/watch"):
                    watched.append(peer)
                    peer.send(HEAD + chunk(b"first\n"))
                elif request.target != "/lost":
                    peer.answer()

        def open_() -> tuple[Transport, LineStream]:
            server = Server(handler)
            server.__enter__()
            rest, transport, _ = client_of(server.url, clock=clock)
            stream = rest.stream("/watch", read_timeout=1000 * LONG)
            opened.append((server, transport, stream))
            assert next(stream) == b"first"
            return transport, stream

        yield open_
        for server, transport, stream in opened:
            stream.close()
            transport.close()
            server.__exit__()

    def lose(self, transport: Transport, clock: FakeClock) -> None:
        """A request that is not answered in its time."""
        clock.advance(1)
        deadline = clock.monotonic() + 0.05
        call = Call(lambda: transport.exchange("GET", "/lost", self.GET.replace(b"plain", b"lost"), deadline))
        call.wait_until_blocked()
        clock.advance(1)
        assert "timed out" in str(call.outcome())

    def answered(self, transport: Transport, clock: FakeClock) -> None:
        """A request that is answered."""
        assert transport.exchange("GET", "/plain", self.GET, clock.monotonic() + LIMIT)[0] == 200

    def test_a_silent_stream_is_given_up_once_a_new_connection_works(
        self, path: Callable[[], tuple[Transport, LineStream]], clock: FakeClock
    ) -> None:
        transport, stream = path()
        self.lose(transport, clock)
        reading = Call(lambda: next(stream))
        reading.wait_until_blocked()  # so far nobody knows that the server is well
        self.answered(transport, clock)
        error = reading.outcome()
        assert isinstance(error, HalfOpen)
        assert "another request was not answered" in str(error)
        assert transport.connections() == (1, 1)

    def test_one_on_which_something_came_since_is_kept(
        self, path: Callable[[], tuple[Transport, LineStream]], clock: FakeClock, watched: list[Peer]
    ) -> None:
        transport, stream = path()
        self.lose(transport, clock)
        watched[0].send(chunk(b"second\n"))
        assert next(stream) == b"second"
        self.answered(transport, clock)
        watched[0].send(chunk(b"third\n"))
        assert next(stream) == b"third"

    def test_an_answer_that_is_under_way_is_kept(self, clock: FakeClock) -> None:
        go_on = threading.Event()

        def handler(peer: Peer) -> None:
            while request := peer.request():
                if request.target != "/plain":
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
                    assert go_on.wait(LIMIT)
                    peer.send(b"a")
                    assert went.wait(LIMIT)
                    peer.send(b"b")
                else:
                    peer.answer()

        went, half_open = threading.Event(), HalfOpenDetection(clock)
        with Server(handler) as server:
            _, transport, _ = client_of(server.url, clock=clock, half_open=half_open)
            deadline = clock.monotonic() + 1000 * LONG
            slow = Call(lambda: transport.exchange("GET", "/slow", self.GET.replace(b"plain", b"slow"), deadline))
            server.wait_for_connections(1)
            (connection,) = transport._live
            clock.advance(1)
            half_open.timed_out(clock.monotonic())
            clock.advance(1)
            go_on.set()
            eventually(lambda: connection.last_received == clock.monotonic())
            self.answered(transport, clock)
            went.set()
            assert slow.outcome()[2] == b"ab"
            transport.close()

    def test_streams_are_given_up_once_a_minute_at_most(
        self, path: Callable[[], tuple[Transport, LineStream]], clock: FakeClock
    ) -> None:
        transport, first = path()
        self.lose(transport, clock)
        self.answered(transport, clock)
        with pytest.raises(HalfOpen):
            next(first)
        rest = RestClient(transport, config_of(transport))
        with closing(rest.stream("/watch", read_timeout=1000 * LONG)) as second:
            assert next(second) == b"first"
            connection = there(second._connection)
            self.lose(transport, clock)
            self.answered(transport, clock)
            assert not connection.scope.cancelled
            clock.advance(60)
            self.lose(transport, clock)
            self.answered(transport, clock)
            assert connection.scope.cancelled

    def test_a_request_that_waits_is_tried_again_by_who_sent_it(self, clock: FakeClock) -> None:
        taken = threading.Event()

        def handler(peer: Peer) -> None:
            while request := peer.request():
                if request.target == "/stuck":
                    taken.set()
                else:
                    peer.answer()

        half_open = HalfOpenDetection(clock)
        with Server(handler) as server:
            _, transport, _ = client_of(server.url, clock=clock, half_open=half_open)
            _, election, _ = client_of(server.url, clock=clock, half_open=half_open)
            deadline = clock.monotonic() + 1000 * LONG
            stuck = Call(lambda: transport.exchange("PATCH", "/stuck", self.GET.replace(b"plain", b"stuck"), deadline))
            assert taken.wait(LIMIT)
            clock.advance(1)
            half_open.timed_out(clock.monotonic())
            clock.advance(1)
            self.answered(election, clock)
            error = stuck.outcome()
            assert isinstance(error, Unreachable)
            assert error.sent
            transport.close()
            election.close()
