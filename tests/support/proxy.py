"""A bad network between the manager and an API server, embedded or real: a reverse proxy that cuts
and spoils.

It forwards every request as it comes, watches included, and can on demand break all connections at
once, refuse new ones, give no answer at all, and spoil what the server says of one object, which no
real API server would do by itself.
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
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


class ChaosProxy:
    """A context manager; `url` is what a kubeconfig should name. Thread-safe."""

    def __init__(self, upstream: str, ca_file: Path | None) -> None:
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

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

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
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
                    "users": [{"name": "user", "user": {"token": token}}],
                    "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "user"}}],
                    "current-context": "proxy",
                }
            )
        )
        return path

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
        """From now on the connections that are open lead nowhere, without a sign; new ones work.

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
        watching = "watch=" in handler.path
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else None
        if self._refused is not None and self._refused.search(f"{handler.command} {handler.path}"):
            handler.send_response(500)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
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
            upstream.request(handler.command, handler.path, body, headers)
            with self._tracked(connection), contextlib.closing(upstream.getresponse()) as answer:
                handler.send_response(answer.status)
                for key, value in answer.getheaders():
                    if key.lower() not in _HOP:
                        handler.send_header(key, value)
                if watching and answer.status == 200:
                    self._stream(handler, answer)
                else:
                    data = self._spoil(answer.read())
                    handler.send_header("Content-Length", str(len(data)))
                    handler.end_headers()
                    handler.wfile.write(data)
        except (OSError, http.client.HTTPException):
            self.watches_cut += watching
            handler.close_connection = True
            with contextlib.suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)
        finally:
            upstream.close()
            connection.close()

    def _stream(self, handler: BaseHTTPRequestHandler, answer: http.client.HTTPResponse) -> None:
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while line := answer.readline():
            line = self._spoil(line)
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            handler.wfile.flush()
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
