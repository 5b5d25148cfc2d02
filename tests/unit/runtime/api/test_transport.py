"""Connections: reused by as many threads as there are, replaced when dead, ended by another thread
at once."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientClosed, CredentialsUnavailable, Unreachable
from controllers.runtime.api import transport as transports
from controllers.runtime.api.ratelimit import Sleeper
from controllers.runtime.api.tls import CHECK_SECONDS, TLSFiles, TLSSettings
from controllers.runtime.api.transport import IDLE_SECONDS, Transport
from controllers.runtime.api.wire import connection, dialing
from controllers.runtime.api.wire.cancelscope import Interrupted
from controllers.runtime.api.wire.connection import Connection
from controllers.runtime.api.wire.endpoint import Endpoint
from controllers.runtime.clock import SYSTEM_CLOCK
from tests.support.clock import FakeClock
from tests.support.there import there
from tests.unit.runtime.loopback import (
    LIMIT,
    Authority,
    Call,
    Peer,
    Server,
    answer_all,
    answer_none,
    full_backlog,
)

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PATCH = b"PATCH / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
LONG = 10 * LIMIT
"""Seconds of a deadline that a test does not wait for: what ends within `LIMIT` was interrupted."""


def transport_to(url: str, tls: TLSSettings | None = None, **options: object) -> Transport:
    files = TLSFiles(tls) if tls else None
    return Transport(Endpoint.parse(url), files, **options)  # type: ignore[arg-type]  # a test's shorthand


def send(transport: Transport, method: str = "GET", data: bytes = GET, seconds: float = LIMIT) -> int:
    return transport.exchange(method, "/x", data, transport.clock.monotonic() + seconds)[0]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


Talk = Callable[[Callable[[Peer], None]], AbstractContextManager[tuple[Server, Transport]]]


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def talk(request: pytest.FixtureRequest, authority: Authority) -> Talk:
    """Starts a server with this handler and a transport to it, without TLS and with it."""

    @contextmanager
    def start(handler: Callable[[Peer], None]) -> Iterator[tuple[Server, Transport]]:
        with Server(handler, tls=authority.server_context() if request.param else None) as server:
            settings = TLSSettings(ca_file=str(authority.file)) if request.param else None
            with closing(transport_to(server.url, settings)) as transport:
                yield server, transport

    return start


def test_a_connection_that_is_reset_before_the_handshake_is_closed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wrap_socket` has taken the socket from us by then, and raises."""
    descriptors: list[int] = []
    dialled = threading.Event()

    def dial_and_wait(*args: object) -> socket.socket:
        sock = dialing.dial(*args)  # type: ignore[arg-type]  # whatever it takes
        descriptors.append(sock.fileno())
        dialled.set()
        poll = select.poll()
        poll.register(sock, 0)
        assert poll.poll(LIMIT * 1000) == [(sock.fileno(), select.POLLHUP | select.POLLERR)]
        return sock

    def reset(peer: Peer) -> None:
        assert dialled.wait(LIMIT)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    monkeypatch.setattr(connection, "dial", dial_and_wait)
    made = Connection(TLSSettings(ca_file=str(authority.file)).context())
    with Server(reset) as server:
        endpoint = Endpoint.parse(f"https://127.0.0.1:{server.port}")
        with pytest.raises(ConnectionResetError) as kept:
            made.open(endpoint, SYSTEM_CLOCK.monotonic() + LIMIT)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])
    assert kept.value.errno == errno.ECONNRESET


class TestPool:
    def test_one_thread_uses_one_connection(self) -> None:
        with Server() as server, closing(transport_to(server.url)) as transport:
            assert [send(transport) for _ in range(5)] == [200] * 5
            assert (server.connections, transport.connections()) == (1, (1, 1))

    def test_as_many_connections_as_threads_and_none_closed_for_surplus(self) -> None:
        count = 24
        barrier = threading.Barrier(count)

        def together(peer: Peer) -> None:
            while peer.request():
                barrier.wait(LIMIT)  # answered only once all are under way
                peer.answer()

        with Server(together) as server, closing(transport_to(server.url)) as transport:
            for _ in range(3):
                calls = [Call(lambda: send(transport)) for _ in range(count)]
                assert [call.outcome() for call in calls] == [200] * count
            assert server.connections == count
            assert transport.connections() == (count, count)

    def test_idle_connections_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transports, "MAX_IDLE", 2)
        barrier = threading.Barrier(4)

        def together(peer: Peer) -> None:
            while peer.request():
                barrier.wait(LIMIT)
                peer.answer()

        with Server(together) as server, closing(transport_to(server.url)) as transport:
            calls = [Call(lambda: send(transport)) for _ in range(4)]
            assert [call.outcome() for call in calls] == [200] * 4
            assert transport.connections() == (2, 2)

    def test_a_connection_idle_for_too_long_is_not_reused(self, clock: FakeClock) -> None:
        with Server() as server, closing(transport_to(server.url, sleeper=Sleeper(clock))) as transport:
            send(transport)
            clock.advance(IDLE_SECONDS - 1)
            send(transport)
            assert server.connections == 1
            clock.advance(IDLE_SECONDS)
            send(transport)
            assert server.connections == 2
            assert transport.connections() == (1, 1)

    def test_connection_close_is_obeyed(self) -> None:
        def once(peer: Peer) -> None:
            peer.request()
            peer.answer(Connection="close")

        with Server(once) as server, closing(transport_to(server.url)) as transport:
            assert [send(transport), send(transport)] == [200, 200]
            assert transport.connections() == (0, 0)

    def test_bytes_behind_an_answer_are_not_taken_for_the_next_one(self) -> None:
        def talkative(peer: Peer) -> None:
            while peer.request():
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n")

        with Server(talkative) as server, closing(transport_to(server.url)) as transport:
            assert [send(transport), send(transport)] == [200, 200]
            assert server.connections == 2


class TestDeadConnections:
    """A connection that died while idle costs the caller nothing where repeating is safe, and an
    error where not."""

    @staticmethod
    def _dying(*, reset: bool, after_request: bool) -> Server:
        """The first connection answers once, then dies: at once, or when the next request has
        come."""
        first = threading.Event()

        def handler(peer: Peer) -> None:
            if first.is_set():
                return answer_all(peer)
            first.set()
            peer.request()
            peer.answer()
            if after_request:
                peer.request()
            if reset:
                peer.reset()
            return None

        return Server(handler)

    @pytest.mark.parametrize(
        ("method", "data", "reset"),
        [
            ("GET", GET, False),
            ("GET", GET, True),
            ("PATCH", PATCH, True),
            pytest.param("PATCH", PATCH, False, marks=pytest.mark.row("K13")),  # the others are repeated anyway
        ],
    )
    def test_seen_before_the_request_is_sent(self, method: str, data: bytes, reset: bool) -> None:
        """However short the connection was idle: here no time passes at all."""
        with (
            self._dying(reset=reset, after_request=False) as server,
            closing(transport_to(server.url, sleeper=Sleeper(FakeClock()))) as transport,
        ):
            assert send(transport) == 200
            idle = transport._idle[0]
            eventually(lambda: not idle.quiet())  # the server's end has arrived
            assert send(transport, method, data) == 200
            assert server.connections == 2

    @pytest.mark.parametrize("reset", [False, True])
    def test_a_read_is_repeated_once_on_a_fresh_connection(self, reset: bool) -> None:
        with self._dying(reset=reset, after_request=True) as server, closing(transport_to(server.url)) as transport:
            assert [send(transport), send(transport)] == [200, 200]
            assert len(server.requests) == 3

    def test_a_write_that_may_have_been_applied_is_not_repeated(self) -> None:
        with self._dying(reset=True, after_request=True) as server, closing(transport_to(server.url)) as transport:
            send(transport)
            with pytest.raises(Unreachable) as caught:
                send(transport, "PATCH", PATCH)
            assert caught.value.sent
            assert len(server.requests) == 2
            assert transport.connections() == (0, 0)

    def test_a_fresh_connection_that_dies_is_an_error_even_for_a_read(self) -> None:
        def rude(peer: Peer) -> None:
            peer.request()

        with Server(rude) as server, closing(transport_to(server.url)) as transport:
            with pytest.raises(Unreachable, match="connection closed"):
                send(transport)
            assert server.connections == 1

    def test_a_read_whose_answer_had_begun_is_not_repeated(self) -> None:
        def half(peer: Peer) -> None:
            peer.request()
            peer.answer()
            peer.request()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

        with Server(half) as server, closing(transport_to(server.url)) as transport:
            send(transport)
            with pytest.raises(Unreachable, match="7 bytes of the body missing"):
                send(transport)
            assert server.connections == 1

    def test_nothing_was_sent_when_nobody_listens(self) -> None:
        with Server() as server:
            url = server.url
        transport = transport_to(url)
        with pytest.raises(Unreachable, match="refused") as caught:
            send(transport)
        assert not caught.value.sent
        assert transport.connections() == (0, 0)
        transport.close()


class TestTime:
    def test_a_silent_server_costs_the_timeout(self, talk: Talk) -> None:
        with talk(answer_none) as (_, transport):
            with pytest.raises(Unreachable, match="timed out") as caught:
                send(transport, seconds=0.5)
            assert caught.value.sent

    def test_a_server_that_does_not_read_costs_the_timeout(self, talk: Talk) -> None:
        done = threading.Event()

        def read_nothing(peer: Peer) -> None:
            done.wait(LIMIT)

        with talk(read_nothing) as (_, transport):
            with pytest.raises(Unreachable, match="timed out") as caught:
                send(transport, "POST", b"x" * 50_000_000, 0.2)
            assert not caught.value.sent
            done.set()

    def test_each_request_has_a_time_of_its_own(self, talk: Talk) -> None:
        answered = iter([True, False])

        def answer_once(peer: Peer) -> None:
            while peer.request():
                if next(answered):
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        with talk(answer_once) as (_, transport):
            send(transport, seconds=60)
            with pytest.raises(Unreachable, match="timed out"):
                send(transport, seconds=0.05)

    def test_a_dripping_server_does_not_stretch_it(self, clock: FakeClock) -> None:
        """Each byte comes well within the timeout, which bounds the whole all the same."""

        def drip(peer: Peer) -> None:
            peer.request()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(100_000):
                clock.advance(1)
                peer.send(b"x")

        with (
            Server(drip) as server,
            closing(transport_to(server.url, sleeper=Sleeper(clock))) as transport,
            pytest.raises(Unreachable, match="timed out"),
        ):
            send(transport, seconds=30)

    def test_a_deadline_that_has_passed_sends_nothing(self) -> None:
        with Server() as server, closing(transport_to(server.url)) as transport:
            send(transport)
            with pytest.raises(Unreachable, match="timed out"):
                send(transport, seconds=-1)
            assert len(server.requests) == 1


class TestInterruption:
    """`close` from another thread ends every blocking step at once (a watch, a drain, a lost lease
    must not wait)."""

    @staticmethod
    def _assert_closes_promptly(
        transport: Transport, is_blocked: threading.Event | None = None, data: bytes = PATCH
    ) -> None:
        call = Call(lambda: send(transport, "PATCH", data, LONG))
        if is_blocked is not None:
            assert is_blocked.wait(LIMIT)
        call.wait_until_blocked()
        transport.close()
        assert isinstance(call.outcome(), ClientClosed)
        assert transport.connections() == (0, 0)

    def test_while_connecting(self) -> None:
        with full_backlog() as port:
            self._assert_closes_promptly(transport_to(f"https://127.0.0.1:{port}", TLSSettings(verify=False)))

    def test_in_the_tls_handshake(self) -> None:
        accepted = threading.Event()

        def mute(peer: Peer) -> None:
            accepted.set()
            while peer.sock.recv(1000):
                pass

        with Server(mute) as server:
            self._assert_closes_promptly(
                transport_to(server.url.replace("http", "https"), TLSSettings(verify=False)), accepted
            )

    def test_while_waiting_for_the_answer(self, talk: Talk) -> None:
        asked = threading.Event()

        def mute(peer: Peer) -> None:
            peer.request()
            asked.set()
            peer.request()

        with talk(mute) as (_, transport):
            self._assert_closes_promptly(transport, asked)

    def test_while_writing(self) -> None:
        blocked, ended = threading.Event(), threading.Event()

        def deaf(peer: Peer) -> None:
            blocked.set()
            ended.wait(LIMIT)

        with Server(deaf) as server:
            self._assert_closes_promptly(transport_to(server.url), blocked, b"x" * 50_000_000)
            ended.set()

    def test_while_looking_up_the_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looking, answer = threading.Event(), threading.Event()
        real = socket.getaddrinfo

        def slow(host: str, port: int, **options: int) -> object:
            if options.get("flags"):
                return real(host, port, **options)
            looking.set()
            answer.wait(LIMIT)
            raise socket.gaierror(socket.EAI_AGAIN, "later")

        monkeypatch.setattr(socket, "getaddrinfo", slow)
        transport = transport_to("http://api.example.test:6443")
        call = Call(lambda: send(transport))
        assert looking.wait(LIMIT)
        transport.close()
        assert isinstance(call.outcome(), ClientClosed)
        answer.set()

    def test_after_closing_nothing_is_sent(self) -> None:
        with Server() as server:
            transport = transport_to(server.url)
            send(transport)
            transport.close()
            transport.close()
            with pytest.raises(ClientClosed) as caught:
                send(transport)
            assert not caught.value.sent
            assert len(server.requests) == 1

    def test_an_interrupt_before_connecting_counts(self) -> None:
        with Server() as server:
            connection = Connection()
            connection.scope.cancel()
            with pytest.raises(Interrupted):
                connection.open(Endpoint.parse(server.url), SYSTEM_CLOCK.monotonic() + LIMIT)


class TestNames:
    def test_every_address_is_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Server() as unused:
            dead = unused.port
        with Server() as server:
            real = socket.getaddrinfo

            def two(host: str, port: int, **options: int) -> object:
                if options.get("flags"):
                    return real(host, port, **options)
                kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
                return [(*kind, ("127.0.0.1", dead)), (*kind, ("127.0.0.1", server.port))]

            monkeypatch.setattr(socket, "getaddrinfo", two)
            transport = transport_to("http://api.example.test:1")
            assert send(transport) == 200
            transport.close()

    def test_an_unknown_name_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def nothing(host: str, port: int, **options: int) -> object:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", nothing)
        transport = transport_to("http://api.example.test:1")
        with pytest.raises(Unreachable, match=r"cannot look up api\.example\.test: Name or service not known"):
            send(transport)
        transport.close()

    def test_ipv6(self) -> None:
        with Server(host="::1") as server, closing(transport_to(server.url)) as transport:
            assert send(transport) == 200
            assert transport.endpoint.authority == f"[::1]:{server.port}"

    @pytest.mark.parametrize(
        ("url", "host", "port", "authority", "base"),
        [
            ("https://api.example.test", "api.example.test", 443, "api.example.test:443", ""),
            ("http://10.0.0.1:8080/", "10.0.0.1", 8080, "10.0.0.1:8080", ""),
            ("https://[fd00::1]:6443", "fd00::1", 6443, "[fd00::1]:6443", ""),
            ("https://[fe80::1%25eth0]:6443", "fe80::1%eth0", 6443, "[fe80::1]:6443", ""),
            ("https://rancher.test/k8s/clusters/c-1/", "rancher.test", 443, "rancher.test:443", "/k8s/clusters/c-1"),
        ],
    )
    def test_urls(self, url: str, host: str, port: int, authority: str, base: str) -> None:
        endpoint = Endpoint.parse(url)
        assert (endpoint.host, endpoint.port, endpoint.authority, endpoint.base_path) == (host, port, authority, base)
        assert Endpoint.parse(endpoint.url) == endpoint

    @pytest.mark.parametrize("url", ["", "host:6443", "ftp://host", "https://", "https://host?x=1"])
    def test_what_is_no_url(self, url: str) -> None:
        with pytest.raises(ValueError, match="not a server URL"):
            Endpoint.parse(url)


class TestTLS:
    def test_the_server_is_verified(self, authority: Authority, tmp_path: Path) -> None:
        other = Authority(tmp_path, "other")
        with (
            Server(tls=authority.server_context()) as server,
            closing(transport_to(server.url, TLSSettings(ca_file=str(other.file)))) as transport,
        ):
            with pytest.raises(Unreachable, match=r"TLS: .*certificate") as caught:
                send(transport)
            assert not caught.value.sent

    def test_the_name_is_verified_and_can_be_given(self, authority: Authority) -> None:
        settings = TLSSettings(ca_file=str(authority.file))
        with Server(tls=authority.server_context("kubernetes.example.test")) as server:
            transport = transport_to(server.url, settings)
            with pytest.raises(Unreachable, match="TLS: IP address mismatch"):
                send(transport)
            transport.close()
            named = Transport(Endpoint.parse(server.url, server_name="kubernetes.example.test"), TLSFiles(settings))
            assert send(named) == 200
            named.close()

    def test_verification_can_be_turned_off(self, authority: Authority) -> None:
        with (
            Server(tls=authority.server_context("other.test")) as server,
            closing(transport_to(server.url, TLSSettings(verify=False))) as transport,
        ):
            assert send(transport) == 200

    def test_a_rotated_ca_is_loaded(self, authority: Authority, tmp_path: Path, clock: FakeClock) -> None:
        bundle = tmp_path / "bundle.crt"
        bundle.write_bytes(Authority(tmp_path, "former").pem)
        files = TLSFiles(TLSSettings(ca_file=str(bundle)), clock=clock)
        with Server(tls=authority.server_context()) as server:
            transport = Transport(Endpoint.parse(server.url), files, sleeper=Sleeper(clock))
            with pytest.raises(Unreachable, match="TLS"):
                send(transport)
            bundle.write_bytes(authority.pem)
            assert send(transport) == 200  # the failure had the file looked at again, no clock needed
            transport.close()

    def test_a_rotated_client_certificate_replaces_the_connections(self, authority: Authority, tmp_path: Path) -> None:
        clock = FakeClock()
        seen: list[str] = []

        def note(peer: Peer) -> None:
            assert isinstance(peer.sock, ssl.SSLSocket)
            certificate = there(peer.sock.getpeercert())
            seen.append(dict(pair[0] for pair in certificate["subject"])["commonName"])  # type: ignore[misc]  # nested tuples
            answer_all(peer)

        cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

        def install(name: str) -> None:
            for source, target in zip(authority.issue(name), (cert, key), strict=True):
                target.write_bytes(source.read_bytes())

        install("first")
        settings = TLSSettings(ca_file=str(authority.file), cert_file=str(cert), key_file=str(key))
        with Server(note, tls=authority.server_context(ask_client=True)) as server:
            transport = Transport(Endpoint.parse(server.url), TLSFiles(settings, clock=clock), sleeper=Sleeper(clock))
            send(transport)
            send(transport)
            install("second")
            clock.advance(CHECK_SECONDS)
            send(transport)
            send(transport)
            assert seen == ["first", "second"]
            assert transport.connections() == (1, 1)
            transport.close()

    def test_a_half_done_rotation_keeps_the_former_files(self, authority: Authority, tmp_path: Path) -> None:
        clock = FakeClock()
        cert, key = authority.issue("client")
        files = TLSFiles(TLSSettings(ca_file=str(authority.file), cert_file=str(cert), key_file=str(key)), clock=clock)
        former = files.context()
        other_cert, other_key = Authority(tmp_path, "other").issue("other-client")
        cert.write_bytes(other_cert.read_bytes())  # the key is still the former one
        clock.advance(CHECK_SECONDS)
        assert files.context() is former
        key.write_bytes(other_key.read_bytes())
        clock.advance(CHECK_SECONDS)
        renewed = files.context()
        assert renewed is not former
        key.unlink()
        clock.advance(CHECK_SECONDS)
        assert files.context() is renewed

    def test_files_that_never_were_good_are_told(self, tmp_path: Path) -> None:
        empty = tmp_path / "ca.crt"
        empty.touch()
        transport = transport_to("https://127.0.0.1:1", TLSSettings(ca_file=str(empty)))
        with pytest.raises(CredentialsUnavailable, match="TLS files"):
            send(transport)
        transport.close()

    def test_an_encrypted_key_does_not_ask_the_terminal(self, authority: Authority) -> None:
        from cryptography.hazmat.primitives import serialization

        cert, key = authority.issue("client")
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        key.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"x"),
            )
        )
        with pytest.raises(ssl.SSLError, match="encrypted"):
            TLSSettings(ca_file=str(authority.file), cert_file=str(cert), key_file=str(key)).context()
