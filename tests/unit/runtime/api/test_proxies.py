"""Which proxy the environment wants, as Go decides it; and that each kind of proxy leads to the
server."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes.client import CoreV1Api
from urllib3.exceptions import HTTPError

from cloudprovider.internal.proxies import excluded, proxy_from_environment
from controllers.runtime.api import ClientBuilder, ClientSettings, Unreachable
from controllers.runtime.api.credentials import Fixed
from controllers.runtime.api.kubeconfig import Access
from controllers.runtime.api.tls import TLSSettings
from controllers.runtime.api.wire.endpoint import Endpoint, Proxy
from tests.unit.runtime.kubeconfigs import Config
from tests.unit.runtime.loopback import EMPTY_LIST, LIMIT, Authority, Call, Peer, Server, full_backlog, shut_down

API = Endpoint.parse("https://api.internal.example:6443")


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p"}, ("HTTPS_PROXY", "http://p")),
        ({"https_proxy": "http://p"}, ("https_proxy", "http://p")),
        ({"HTTPS_PROXY": "http://upper", "https_proxy": "http://lower"}, ("HTTPS_PROXY", "http://upper")),
        ({"HTTP_PROXY": "http://p", "ALL_PROXY": "http://p"}, None),
        ({"HTTPS_PROXY": "http://p", "no_proxy": "internal.example"}, None),
    ],
)
def test_the_variables(environ: dict[str, str], proxy: tuple[str, str] | None) -> None:
    assert proxy_from_environment(API.host, API.port, API.tls, environ) == proxy


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_excluded"),
    [
        ("api.internal.example", "", False),
        ("api.internal.example", "*", True),
        ("api.internal.example", "internal.example", True),
        ("api.internal.example", ".internal.example", True),
        pytest.param("api.internal.example", "*.internal.example", True, marks=pytest.mark.row("K9")),
        ("internal.example", "internal.example", True),
        ("internal.example", ".internal.example", False),
        ("internal.example", "*.internal.example", False),
        ("notinternal.example", "internal.example", False),
        ("API.Internal.Example", " other , INTERNAL.example ", True),
        ("api.internal.example", "internal.example:6443", True),
        ("api.internal.example", "internal.example:443", False),
        ("10.96.0.1", "10.0.0.0/8", True),
        ("10.96.0.1", "10.96.0.1", True),
        ("10.96.0.1", "10.96.0.1:6443", True),
        ("10.96.0.1", "10.96.0.1:1", False),
        ("10.96.0.1", "0.1", False),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "fd00::1", True),
        ("fd00::1", "[fd00::1]:6443", True),
        ("fd00::1", "[fd00::1]:1", False),
        ("api.internal.example", "10.0.0.0/8,nonsense/99,,:", False),
    ],
)
def test_exceptions(host: str, no_proxy: str, is_excluded: bool) -> None:
    assert excluded(host, 6443, no_proxy) is is_excluded


def test_a_proxys_url_can_be_read_again() -> None:
    proxy = Proxy.parse("https://me%40x:p%3Aw@[fd00::2]")
    assert (proxy.user, proxy.password, proxy.host, proxy.port) == ("me@x", "p:w", "fd00::2", 443)
    assert Proxy.parse(proxy.url) == proxy
    assert "p:w" not in repr(proxy)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://me:secret@host:port", "not a proxy URL"),
        ("ftp://me:secret@proxy:1", "unsupported proxy"),
        ("socks4://me:secret@proxy:1", "unsupported proxy"),
        ("http://", "unsupported proxy"),
    ],
)
def test_what_is_no_proxy_is_refused_without_telling_the_password(url: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as caught:
        Proxy.parse(url)
    assert "secret" not in str(caught.value)


def join(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until one side ends."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        shut_down(sink)
        shut_down(source)

    back = threading.Thread(target=pump, args=(other, one), daemon=True)
    back.start()
    pump(one, other)
    back.join(LIMIT)


def connect_proxy(port: int) -> Callable[[Peer], None]:
    def handler(peer: Peer) -> None:
        request = peer.request()
        assert request is not None
        assert request.method == "CONNECT"
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        with socket.create_connection(("127.0.0.1", port)) as upstream:
            join(peer.sock, upstream)

    return handler


def socks_proxy(port: int, log: list[object], *, password: bool = False, refusal: int = 0) -> Callable[[Peer], None]:
    """A SOCKS5 server that notes what it is asked for, and connects to the port whatever that
    is."""

    def exactly(sock: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = sock.recv(size - len(data))
            assert more
            data += more
        return data

    def handler(peer: Peer) -> None:
        sock = peer.sock
        version, count = exactly(sock, 2)
        assert version == 5
        methods = exactly(sock, count)
        sock.sendall(b"\x05\x02" if password else b"\x05\x00")
        if password:
            assert 2 in methods
            login = [exactly(sock, exactly(sock, 2 if part == 0 else 1)[-1]) for part in range(2)]
            log.append(tuple(login))
            sock.sendall(b"\x01\x00")
        _, _, _, kind = exactly(sock, 4)
        host = exactly(sock, {1: 4, 4: 16}.get(kind) or exactly(sock, 1)[0])
        log.append((kind, host, struct.unpack("!H", exactly(sock, 2))[0]))
        sock.sendall(bytes((5, refusal, 0, 1)) + bytes(6))
        if not refusal:
            with socket.create_connection(("127.0.0.1", port)) as upstream:
                join(sock, upstream)

    return handler


def builder(server: str, proxy: str, authority: Authority) -> ClientBuilder:
    endpoint = Endpoint.parse(server, proxy=proxy)
    return ClientBuilder(Access(endpoint, Fixed("Bearer t"), TLSSettings(ca_file=str(authority.file))))


def big_answers(peer: Peer) -> None:
    while request := peer.request():
        body = {**EMPTY_LIST, "padding": "x" * 200_000}
        peer.answer(200, body if request.method == "GET" else {"got": len(request.body)})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.row("K9")
class TestThroughProxies:
    def _use(self, clients: ClientBuilder) -> None:
        rest = clients.rest("x")
        assert len(rest.get("/a")["padding"]) == 200_000
        assert rest.request("POST", "/b", body=b"y" * 3_000_000).json() == {"got": 3_000_000}
        assert rest.get("/c")["items"] == []
        assert clients.transport.connections() == (1, 1)

    @pytest.mark.parametrize("tls", [False, pytest.param(True, id="tls inside of tls")])
    def test_https_goes_through_a_tunnel(self, tls: bool, authority: Authority) -> None:
        context = authority.server_context("api.example.test", "127.0.0.1")
        with (
            Server(big_answers, tls=context) as server,
            Server(connect_proxy(server.port), tls=context if tls else None) as proxy,
        ):
            url = proxy.url.replace("://", "://user:p%40ss@")
            with builder("https://api.example.test:6443", url, authority) as clients:
                self._use(clients)
                CoreV1Api(clients.client("vendor")).list_namespace()
            connect = proxy.requests[0]
            assert connect.target == "api.example.test:6443"
            assert connect.headers["proxy-authorization"] == "Basic dXNlcjpwQHNz"
            assert server.requests[-1].target == "/api/v1/namespaces"

    @pytest.mark.parametrize("tls", [False, True])
    def test_plain_http_names_the_whole_url(self, tls: bool, authority: Authority) -> None:
        with Server(big_answers, tls=authority.server_context() if tls else None) as proxy:
            url = proxy.url.replace("://", "://a:b@")
            with builder("http://api.example.test:8080/base", url, authority) as clients:
                self._use(clients)
            assert proxy.requests[0].target == "http://api.example.test:8080/base/a"
            assert proxy.requests[0].headers["proxy-authorization"] == "Basic YTpi"

    def test_a_refusal_names_the_proxy(self, authority: Authority) -> None:
        def refuse(peer: Peer) -> None:
            peer.request()
            peer.send(b"HTTP/1.1 407 X\r\n\r\n")

        with Server(refuse) as proxy, builder("https://10.0.0.1", f"127.0.0.1:{proxy.port}", authority) as clients:
            with pytest.raises(Unreachable, match=f"proxy 127.0.0.1:{proxy.port} answered CONNECT with 407") as caught:
                clients.rest("x").get("/a")
            assert not caught.value.sent

    def test_a_tls_proxy_that_is_another(self, authority: Authority) -> None:
        with (
            Server(tls=authority.server_context("other.example.test")) as proxy,
            builder("https://api.example.test", f"https://127.0.0.1:{proxy.port}", authority) as clients,
        ):
            with pytest.raises(Unreachable, match="TLS"):
                clients.rest("x").get("/a")
            assert not proxy.requests

    @pytest.mark.parametrize("password", [False, True])
    def test_socks5(self, password: bool, authority: Authority) -> None:
        """The proxy gets the name; nobody looks it up here."""
        asked: list[object] = []
        with (
            Server(big_answers, tls=authority.server_context("api.example.test")) as server,
            Server(socks_proxy(server.port, asked, password=password)) as proxy,
        ):
            url = f"socks5://{'user:p%40ss@' if password else ''}127.0.0.1:{proxy.port}"
            with builder("https://api.example.test:6443", url, authority) as clients:
                self._use(clients)
                CoreV1Api(clients.client("vendor")).list_namespace()
            host = (3, b"api.example.test", 6443)
            assert asked == ([(b"user", b"p@ss"), host] * 2 if password else [host] * 2)

    @pytest.mark.parametrize(
        ("server", "asked"),
        [
            ("https://10.0.0.1:6443", (1, bytes((10, 0, 0, 1)), 6443)),
            ("https://[fd00::1]:6443", (4, b"\xfd" + bytes(14) + b"\x01", 6443)),
        ],
    )
    def test_what_socks5_refuses_is_told(self, server: str, asked: object, authority: Authority) -> None:
        seen: list[object] = []
        with (
            Server(socks_proxy(0, seen, refusal=2)) as proxy,
            builder(server, f"socks5://127.0.0.1:{proxy.port}", authority) as clients,
        ):
            with pytest.raises(Unreachable, match=r"did not connect to .*:6443: not allowed by its rules") as caught:
                clients.rest("x").request("PATCH", "/a", body={})
            assert not caught.value.sent
        assert seen == [asked]

    def test_a_trailing_dot_is_no_part_of_the_certificates_name(
        self, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = socket.getaddrinfo

        def local(host: str, port: int, **options: int) -> object:
            if host == "api.example.test.":
                if options.get("flags"):
                    raise socket.gaierror(socket.EAI_NONAME, "a name")
                host = "127.0.0.1"
            return real(host, port, **options)

        monkeypatch.setattr(socket, "getaddrinfo", local)
        with Server(big_answers, tls=authority.server_context("api.example.test")) as server:
            endpoint = Endpoint.parse(f"https://api.example.test.:{server.port}")
            with ClientBuilder(Access(endpoint, Fixed(), TLSSettings(ca_file=str(authority.file)))) as clients:
                clients.rest("x").get("/a")

    def test_an_address_that_does_not_answer_costs_a_moment(
        self, authority: Authority, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two addresses, the first one black-holed: formerly each connection cost half of the
        timeout."""
        real = socket.getaddrinfo

        with full_backlog("127.0.0.2") as port, Server(big_answers) as server:

            def two(host: str, wanted: int, **options: int) -> object:
                if options.get("flags"):
                    return real(host, wanted, **options)
                kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
                return [(*kind, ("127.0.0.2", port)), (*kind, ("127.0.0.1", server.port))]

            monkeypatch.setattr(socket, "getaddrinfo", two)
            with ClientBuilder(
                Access(Endpoint.parse("http://api.example.test"), Fixed()), ClientSettings(timeout=600)
            ) as clients:
                # Within LIMIT of 600 s; half of them would be too many.
                assert Call(lambda: clients.rest("x").get("/a")).outcome()["items"] == []


@pytest.mark.row("O16")
class TestADeadProxy:
    """Not the API server's "Connection refused": nobody asked it."""

    @pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
    @pytest.mark.parametrize("server", ["https://10.96.0.1:443", "http://10.96.0.1:80"])
    def test_of_the_environment(
        self, server: str, scheme: str, config: Config, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        config.cluster["server"] = server
        proxy = f"{scheme}://me:secret@127.0.0.1:{self.closed_port()}"
        shown = f"proxy {proxy.replace('me:secret@', '')} (https_proxy in the environment)"
        environ = {"https_proxy": proxy}
        if server.startswith("http:"):
            shown, environ = shown.replace("https_proxy", "HTTP_PROXY"), {"HTTP_PROXY": proxy}
        with ClientBuilder(config.load(environ=environ)) as clients:
            with pytest.raises(Unreachable) as caught:
                clients.rest("x").get("/")
            with pytest.raises(HTTPError) as vendors:
                CoreV1Api(clients.client("acme")).list_namespace()
        assert f"{server} through the {shown}: Connection refused" in str(caught.value)
        assert shown in str(vendors.value)
        assert f"the API server {server} is reached through a {shown}" in caplog.text
        assert "secret" not in caplog.text + str(caught.value) + str(vendors.value)

    def test_of_the_kubeconfig(self, config: Config) -> None:
        config.cluster["proxy-url"] = f"http://127.0.0.1:{self.closed_port()}"
        with ClientBuilder(config.load()) as clients, pytest.raises(Unreachable) as caught:
            clients.rest("x").get("/")
        assert f"(proxy-url in the kubeconfig {config.write()}): Connection refused" in str(caught.value)

    @staticmethod
    def closed_port() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return int(listener.getsockname()[1])
