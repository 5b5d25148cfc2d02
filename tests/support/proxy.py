"""A bad network between the manager and an API server, embedded or real: a reverse proxy that cuts
and spoils.

It forwards every request as it comes, watches included, and can on demand break all connections at
once, refuse new ones, give no answer at all, and spoil what the server says of one object, which no
real API server would do by itself. What else may go wrong with requests, answers and the events of
watches is a `Network`, which `proxy.network` takes: it sees each event of a watch as one piece of
bytes, a line of JSON or a frame of Protobuf.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from typing_extensions import override

from tests.support.kubeconfigs import kubeconfig, write

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


@frozen
class Asked:
    """A request as it came."""

    method: str
    path: str
    """With its query."""
    token: str
    """The client's, without "Bearer"."""
    protobuf: bool = False
    """Of an answer: whether it is encoded so."""

    @property
    def watching(self) -> bool:
        return "watch=" in self.path

    @property
    def writing(self) -> bool:
        return self.method != "GET"

    @property
    def resource(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]


@frozen
class Answer:
    """What the proxy says in the server's place."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(factory=dict)


class Broken(Exception):
    """Raised by a `Network`: the connection breaks, after these bytes of the answer."""

    def __init__(self, sent: bytes = b"") -> None:
        super().__init__("broken")
        self.sent = sent


class Network:
    """How the way to the server is; this one is good. Each method may wait, and may raise `Broken`.
    They are called from many threads."""

    def on_request(self, asked: Asked) -> Asked | Answer:
        """What is sent on in its place, or the answer that it gets."""
        return asked

    def on_answer(self, asked: Asked, status: int, body: bytes) -> bytes:
        """The body of an answer that is no watch."""
        return body

    def on_event(self, asked: Asked, event: bytes) -> Iterable[bytes]:
        """What a client gets for one event of a watch."""
        return (event,)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    context: ssl.SSLContext | None = None

    @override
    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self.context is None:
            return connection, address
        # The handshake is the handler's: it must not hold up the others.
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news here."""


class ChaosProxy:
    """A context manager; `url` is what a kubeconfig should name. Thread-safe."""

    def __init__(self, upstream: str, ca_file: Path | None, *, front: ssl.SSLContext | None = None) -> None:
        """With `front` it serves HTTPS; see `serve_with`."""
        parsed = urllib.parse.urlsplit(upstream)
        assert parsed.hostname is not None
        self._host, self._port, self._tls = parsed.hostname, parsed.port, parsed.scheme == "https"
        self._context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        self._lock = threading.Lock()
        self._live: set[socket.socket] = set()
        self._spoilt: bytes | None = None
        self._refused: re.Pattern[str] | None = None
        self._away = False
        self._swallowed: set[socket.socket] = set()
        self._ended = threading.Event()
        self.network = Network()
        self.watches_cut = 0
        self.requests = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with proxy._tracked(self.connection), contextlib.suppress(OSError):
                    super().handle()

            def _forward(self) -> None:
                proxy._forward(self)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _forward  # noqa: N815 - names of the base class

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.context = front
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        scheme = "https" if self._server.context else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ChaosProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self.cut()
        self._server.server_close()
        self._thread.join(5)

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """A kubeconfig that leads through the proxy."""
        return write(path, kubeconfig(self.url, token))

    def serve_with(self, front: ssl.SSLContext) -> None:
        """From now on new connections get this certificate; those that are open stay."""
        self._server.context = front

    def cut(self) -> int:
        """Break every connection that is open, in the middle of whatever it carries; returns how
        many."""
        with self._lock:
            live = list(self._live)
        for connection in live:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(live)

    def spoil(self, name: str | None) -> None:
        """From now on the object of this name arrives with a number for its UID; None: everything
        as it is."""
        self._spoilt = None if name is None else name.encode()

    def refuse(self, pattern: str | None) -> None:
        """From now on answer 500 to requests whose "METHOD path" matches; None: let everything
        through."""
        self._refused = None if pattern is None else re.compile(pattern)

    def swallow(self) -> None:
        """From now on the connections that are open lead nowhere, without a sign, watches included;
        new ones work.

        So it is after a load balancer was replaced that sends no resets.
        """
        with self._lock:
            self._swallowed |= self._live

    def go_away(self) -> None:
        """An outage: every connection breaks, and new ones end without an answer, until
        `come_back`."""
        self._away = True
        self.cut()

    def come_back(self) -> None:
        """The end of the outage."""
        self._away = False

    @contextlib.contextmanager
    def _tracked(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self._live.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._live.discard(connection)

    def _forward(self, handler: BaseHTTPRequestHandler) -> None:
        if self._away:
            handler.close_connection = True
            return
        if handler.connection in self._swallowed:
            self._ended.wait()
            handler.close_connection = True
            return
        self.requests += 1
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        asked = Asked(handler.command, handler.path, token)
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else None
        try:
            changed = self._asked(asked)
            if isinstance(changed, Answer):
                self._say(handler, changed)
            else:
                self._pass_on(handler, changed, body)
        except (OSError, http.client.HTTPException, Broken) as error:
            self.watches_cut += asked.watching
            handler.close_connection = True
            with contextlib.suppress(OSError):
                if isinstance(error, Broken) and error.sent:
                    handler.wfile.write(error.sent)
                handler.connection.shutdown(socket.SHUT_RDWR)

    def _asked(self, asked: Asked) -> Asked | Answer:
        if self._refused is not None and self._refused.search(f"{asked.method} {asked.path}"):
            return Answer(500)
        return self.network.on_request(asked)

    def _say(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        handler.send_response(answer.status)
        for key, value in answer.headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        handler.wfile.write(answer.body)

    def _pass_on(self, handler: BaseHTTPRequestHandler, asked: Asked, body: bytes | None) -> None:
        headers = {key: value for key, value in handler.headers.items() if key.lower() not in _HOP}
        headers["Accept-Encoding"] = "identity"
        upstream = http.client.HTTPConnection(self._host, self._port)
        # Made and closed by us. `wrap_socket` leaks a socket that is connected already and is reset
        # before the handshake; and a response with "Connection: close" owns its socket, which
        # `upstream.close()` then leaves open.
        upstream.sock = connection = socket.socket()
        if self._tls:
            upstream.sock = connection = self._context.wrap_socket(connection, server_hostname=self._host)
        try:
            connection.connect((self._host, self._port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            upstream.request(asked.method, asked.path, body, headers)
            with self._tracked(connection), contextlib.closing(upstream.getresponse()) as answer:
                asked = evolve(asked, protobuf="protobuf" in (answer.getheader("Content-Type") or ""))
                data = None
                if not (asked.watching and answer.status == 200):
                    data = self.network.on_answer(asked, answer.status, self._spoil(answer.read()))
                handler.send_response(answer.status)
                for key, value in answer.getheaders():
                    if key.lower() not in _HOP:
                        handler.send_header(key, value)
                if data is None:
                    self._stream(handler, asked, answer)
                else:
                    handler.send_header("Content-Length", str(len(data)))
                    handler.end_headers()
                    handler.wfile.write(data)
        finally:
            upstream.close()
            connection.close()

    def _stream(self, handler: BaseHTTPRequestHandler, asked: Asked, answer: http.client.HTTPResponse) -> None:
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while event := _event(answer, asked.protobuf):
            try:
                for part in self.network.on_event(asked, self._spoil(event)):
                    if handler.connection in self._swallowed:
                        self._ended.wait()
                        raise Broken
                    handler.wfile.write(_chunk(part))
                    handler.wfile.flush()
            except Broken as broken:
                raise Broken(_chunk(broken.sent) if broken.sent else b"") from None
        handler.wfile.write(b"0\r\n\r\n")

    def _spoil(self, data: bytes) -> bytes:
        name = self._spoilt
        if name is None or name not in data:
            return data
        parsed = json.loads(data)
        for obj in parsed.get("items") or [parsed.get("object", parsed)]:
            meta = obj.get("metadata", {})
            if meta.get("name") == name.decode() and obj.get("kind", "Node") == "Node":
                meta["uid"] = 12345
        return json.dumps(parsed).encode() + b"\n"


def _event(answer: http.client.HTTPResponse, protobuf: bool) -> bytes:
    """The next event of a watch, in its frame; empty at the end."""
    if not protobuf:
        return answer.readline()
    head = answer.read(4)
    return head + answer.read(int.from_bytes(head, "big")) if len(head) == 4 else b""


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
