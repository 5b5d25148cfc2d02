"""Deadlines hold whatever the peer does, and a process that was stopped goes on: against real
sockets and processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from cloudprovider.testing.waiting import eventually
from controllers.runtime.api import ClientBuilder, Unreachable
from controllers.runtime.api.clientconfig import Guard
from controllers.runtime.api.credentials import Fixed
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.ratelimit import Sleeper
from controllers.runtime.api.tls import TLSSettings
from controllers.runtime.api.transport import Transport
from controllers.runtime.api.wire import Endpoint
from tests.support.clock import FakeClock
from tests.unit.runtime.api.test_transport import GET, PATCH, send, transport_to
from tests.unit.runtime.loopback import LIMIT, Authority, Call, Peer, Server, answer_none, shut_down


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def over_tls(port: int, authority: Authority) -> Transport:
    return transport_to(f"https://127.0.0.1:{port}", TLSSettings(ca_file=str(authority.file)))


@contextmanager
def trickling(upstream: int, trickles: Callable[[], bool]) -> Iterator[int]:
    """The port of a relay; what the server sends while `trickles()` arrives byte by byte, four a
    second."""
    ended = threading.Event()

    def relay(peer: Peer) -> None:
        with socket.create_connection(("127.0.0.1", upstream)) as server:

            def back() -> None:
                with suppress(OSError):
                    while data := server.recv(65536):
                        for place in range(len(data)) if trickles() else ():
                            peer.sock.sendall(data[place : place + 1])
                            if ended.wait(0.25):
                                return
                        if not trickles():
                            peer.sock.sendall(data)

            thread = threading.Thread(target=back, daemon=True)
            thread.start()
            with suppress(OSError):
                while data := peer.sock.recv(65536):
                    server.sendall(data)
            shut_down(server)
            ended.set()
            thread.join(LIMIT)

    with Server(relay) as server:
        yield server.port
        ended.set()


class TestTricklingPeers:
    @pytest.mark.row("K5")
    def test_a_tls_record_that_trickles_in_does_not_stretch_the_time(self, authority: Authority) -> None:
        """No byte of the answer is there before its record is whole, which would take minutes."""
        slow = threading.Event()

        def answer(peer: Peer) -> None:
            while peer.request():
                peer.answer(200, b"x" * 1000)

        with Server(answer, tls=authority.server_context()) as server, trickling(server.port, slow.is_set) as port:
            transport = over_tls(port, authority)
            assert send(transport) == 200
            slow.set()
            error = Call(lambda: send(transport, "PATCH", PATCH, 1)).outcome()
            assert isinstance(error, Unreachable)
            assert error.sent
            assert "timed out" in str(error)
            transport.close()

    def test_nor_does_a_handshake_that_trickles_in(self, authority: Authority) -> None:
        with Server(tls=authority.server_context()) as server, trickling(server.port, lambda: True) as port:
            transport = over_tls(port, authority)
            error = Call(lambda: send(transport, "PATCH", PATCH, 1)).outcome()
            assert isinstance(error, Unreachable)
            assert not error.sent
            transport.close()

    def test_a_peer_that_reads_slowly_does_not_stretch_the_writing(self, authority: Authority) -> None:
        """Each part of a large body is taken well within the time, which bounds the whole all the
        same."""
        clock = FakeClock()

        def read_slowly(peer: Peer) -> None:
            while peer.sock.recv(16384):
                clock.advance(1)

        with Server(read_slowly, tls=authority.server_context()) as server:
            settings = TLSSettings(ca_file=str(authority.file))
            transport = transport_to(f"https://127.0.0.1:{server.port}", settings, sleeper=Sleeper(clock))
            call = Call(lambda: send(transport, "POST", b"x" * 50_000_000, 30))
            error = call.outcome()
            assert isinstance(error, Unreachable)
            assert "timed out" in str(error)
            transport.close()


_CHILD = """
import sys, time
from controllers.runtime.api.clients import ClientBuilder
from controllers.runtime.api.credentials import Fixed
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.tls import TLSSettings
from controllers.runtime.api.wire import Endpoint

what, url, ca_file = sys.argv[1:]
rest = ClientBuilder(Access(Endpoint.parse(url), Fixed(), TLSSettings(ca_file=ca_file))).rest("stopped")
if what == "PATCH":
    rest.get("/first")
    print(rest.request("PATCH", "/slow", body={}).status)
else:
    print(next(rest.stream("/slow", read_timeout=60)).decode())
"""


@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=pytest.mark.row("K5"))])
@pytest.mark.parametrize(("what", "printed"), [("PATCH", "200"), ("watch", "line")])
def test_a_stopped_process_goes_on_when_it_is_continued(
    what: str, printed: str, tls: bool, authority: Authority
) -> None:
    asked, continued = threading.Event(), threading.Event()

    def handler(peer: Peer) -> None:
        while request := peer.request():
            if request.target.startswith("/first"):
                peer.answer()
                continue
            if what == "watch":
                peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            asked.set()
            continued.wait(LIMIT)
            if what == "watch":
                peer.send(b"5\r\nline\n\r\n")
            else:
                peer.answer()

    with Server(handler, tls=authority.server_context() if tls else None) as server:
        command = [sys.executable, "-c", _CHILD, what, server.url, str(authority.file) if tls else ""]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            try:
                assert asked.wait(60)
                eventually(lambda: _state(child.pid) == "S")
                os.kill(child.pid, signal.SIGSTOP)
                eventually(lambda: _state(child.pid) == "T")
                os.kill(child.pid, signal.SIGCONT)
                eventually(lambda: _state(child.pid) != "T")
                # Its wait is over, or begun anew; what the stop did to it shows in what comes of
                # the answer.
                eventually(lambda: _state(child.pid) in "SZ")
                continued.set()
                out, err = child.communicate(timeout=60)
            finally:
                continued.set()
                child.kill()
        assert (out.strip(), err) == (printed, "")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.row("K4")
def test_a_request_without_an_answer_condemns_what_was_idle_before_it() -> None:
    """A load balancer that is replaced without a reset: old connections lead nowhere, new ones
    work."""
    count = 4
    together, hole, ended = threading.Barrier(count), threading.Event(), threading.Event()

    def handler(peer: Peer) -> None:
        old = not hole.is_set()
        while peer.request():
            if not hole.is_set():
                together.wait(LIMIT)
            elif old:
                ended.wait(LIMIT)
                return
            peer.answer()

    with Server(handler) as server, closing(transport_to(server.url)) as transport:
        calls = [Call(lambda: send(transport)) for _ in range(count)]
        assert [call.outcome() for call in calls] == [200] * count
        assert transport.connections() == (count, count)
        hole.set()
        with pytest.raises(Unreachable, match="timed out"):
            send(transport, "PATCH", PATCH, 0.3)
        assert transport.connections() == (0, 0)
        assert send(transport, "PATCH", PATCH, LIMIT) == 200
        ended.set()


@pytest.mark.row("K4")
def test_a_connection_that_answered_meanwhile_is_kept() -> None:
    mute = threading.Event()

    def handler(peer: Peer) -> None:
        while request := peer.request():
            if request.method == "PATCH":
                mute.set()
                peer.request()
                return
            peer.answer()

    with Server(handler) as server:
        clock = FakeClock()
        transport = transport_to(server.url, sleeper=Sleeper(clock))
        call = Call(lambda: send(transport, "PATCH", PATCH, 0.5))
        assert mute.wait(LIMIT)
        clock.advance(0.1)  # the next answer comes after the PATCH was sent
        assert send(transport, "GET", GET) == 200
        assert transport.connections() == (2, 1)
        clock.advance(1)
        assert isinstance(call.outcome(), Unreachable)
        assert transport.connections() == (1, 1)
        transport.close()


class Fenced(Exception):
    pass


class TestFence:
    """A write that waited for a connection is not sent once the lease is lost."""

    @staticmethod
    def _builder(server: Server, guard: Guard, authority: Authority | None = None) -> ClientBuilder:
        if authority is None:
            return ClientBuilder(Access(Endpoint.parse(server.url), Fixed()), guard=guard)
        endpoint, tls = Endpoint.parse(f"https://127.0.0.1:{server.port}"), TLSSettings(ca_file=str(authority.file))
        return ClientBuilder(Access(endpoint, Fixed(), tls), guard=guard)

    @pytest.mark.row("K6")
    def test_asked_again_when_the_connection_is_ready(self, authority: Authority) -> None:
        fenced, connected = threading.Event(), threading.Event()
        context = authority.server_context()
        received: list[bytes] = []

        def stall(peer: Peer) -> None:
            connected.set()
            assert fenced.wait(LIMIT)
            with context.wrap_socket(peer.sock.dup(), server_side=True) as sock:
                try:
                    received.append(sock.recv(65536))
                except OSError:  # the client closed with a reset: nothing came
                    received.append(b"")

        def guard(method: str, path: str) -> None:
            if fenced.is_set():
                raise Fenced

        with Server(stall) as server, self._builder(server, guard, authority) as builder:
            call = Call(lambda: builder.rest("x").request("DELETE", "/api/v1/nodes/n1"))
            assert connected.wait(LIMIT)
            fenced.set()
            assert isinstance(call.outcome(), Fenced)
            eventually(lambda: bool(received) or bool(server.errors))
            assert not any(received)

    @pytest.mark.row("K6")
    def test_asked_again_before_a_second_connection(self) -> None:
        """The idle connection turns out to be dead while the write is sent, so nothing has left
        yet."""
        ended = threading.Event()
        asked: list[str] = []

        def once(peer: Peer) -> None:
            peer.request()
            peer.answer()
            ended.wait(LIMIT)

        def guard(method: str, path: str) -> None:
            asked.append(method)
            if len(asked) == 2:
                raise Fenced

        with Server(once) as server, self._builder(server, guard) as builder:
            assert builder.rest("x").request("GET", "/").status == 200
            (idle,) = builder.transport._live
            (sock,) = idle.scope._sockets
            sock.shutdown(socket.SHUT_WR)  # sending fails from now on, and nothing shows it before
            with pytest.raises(Fenced):
                builder.rest("x").request("PATCH", "/", body={})
            assert server.connections == 1
            ended.set()

    def test_a_refused_write_does_not_connect(self) -> None:
        def guard(method: str, path: str) -> None:
            raise Fenced

        with Server(answer_none) as server, self._builder(server, guard) as builder:
            with pytest.raises(Fenced):
                builder.rest("x").request("PATCH", "/", body={})
            assert server.connections == 0
            assert builder.transport.connections() == (0, 0)
