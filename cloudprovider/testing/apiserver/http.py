"""HTTP/1.1 over loopback: the listening socket, stoppable in every state, and its connections, which
read requests and send answers and watches.

One thread per connection (socketserver's), keep-alive, chunked watches, TCP_NODELAY. It parses just
enough of HTTP by itself, because `http.server` spends more time on the headers than the rest of a
small PATCH takes."""

from __future__ import annotations

import contextlib
import logging
import select
import shutil
import socket
import socketserver
import ssl
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from cloudprovider.internal.certificates import issue
from cloudprovider.internal.tlssockets import TLSSocket
from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.rest.api import API, BODY_LIMIT, Request, Response, failure
from cloudprovider.testing.apiserver.rest.watchstream import WatchStream, error_line

_LOG: Final = logging.getLogger("cloudprovider.testing.apiserver")
_LINE_LIMIT: Final = 64 * 1024
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_HANDSHAKE_TIMEOUT: Final = 10.0


class Listener(socketserver.TCPServer):
    """Accepts connections on loopback. `begin()` once, `end()` once; a start makes a new one."""

    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, port: int, api: API, tls: ssl.SSLContext | None) -> None:
        self.api = api
        self.stopping = threading.Event()
        self._tls = tls
        self._lock = threading.Lock()
        self._open: dict[int, socket.socket] = {}
        self._workers: set[threading.Thread] = set()
        self._watches: set[WatchStream] = set()
        super().__init__(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._accept, name="apiserver-accept", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self.server_address[1])

    def begin(self) -> None:
        """Start accepting."""
        self._thread.start()

    def end(self) -> None:
        """Stop accepting, break every connection, and wait for their threads (5 s at most)."""
        self.stopping.set()
        # Closing alone would not wake the thread that waits in accept.
        with contextlib.suppress(OSError):  # a listening socket may refuse shutdown; closing it follows
            self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self.socket.close()
        with self._lock:
            # Outside of the lock from here on: their threads take it as they end.
            connections = list(self._open.values())
            workers, watches = list(self._workers), list(self._watches)
        for connection in connections:
            with contextlib.suppress(OSError):  # closed by its own thread in this moment
                connection.shutdown(socket.SHUT_RDWR)
        for watch in watches:  # it may wait for a change, with nothing to send
            watch.end()
        for worker in workers:
            worker.join(5)

    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._open)

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                connection, address = self.socket.accept()
            except OSError as error:
                if not self.stopping.is_set():
                    _LOG.error("the embedded API server stops accepting: %s", error)
                return
            worker = threading.Thread(target=self._run, args=(connection, address), name="apiserver", daemon=True)
            with self._lock:
                self._workers.add(worker)
                self._open[id(worker)] = connection
            # Known before it runs: `end` could come in between, and leave it behind.
            worker.start()

    def _run(self, connection: socket.socket, address: Any) -> None:
        try:
            self.finish_request(connection, address)
        except (OSError, ssl.SSLError) as error:
            _LOG.debug("connection of %s failed: %s", address, error)
        # One connection's fault must not end the others, nor pass in silence.
        except Exception:  # noqa: BLE001 - top of the connection's thread; logged with its trace
            _LOG.exception("connection of %s failed inside the embedded API server", address)
        finally:
            connection.close()
            with self._lock:
                worker = threading.current_thread()
                self._workers.discard(worker)
                self._open.pop(id(worker), None)

    @contextlib.contextmanager
    def watching(self, stream: WatchStream) -> Iterator[None]:
        """Around a watch as it is sent, so that `end` can end it."""
        with self._lock:
            self._watches.add(stream)
        try:
            yield
        finally:
            with self._lock:
                self._watches.discard(stream)

    def wrap(self, connection: socket.socket) -> socket.socket:
        """TLS in the connection's own thread, with a deadline for the handshake."""
        if self._tls is None:
            return connection
        # A client that connects and says nothing would hold its thread for ever.
        connection.settimeout(_HANDSHAKE_TIMEOUT)
        wrapped = self._tls.wrap_socket(connection, server_side=True)
        wrapped.settimeout(None)
        with self._lock:
            # The TLS socket has taken the descriptor: to break the former one would do nothing.
            self._open[id(threading.current_thread())] = wrapped
        return wrapped


class Certificates:
    """A self-signed certificate for 127.0.0.1 and localhost, in a temporary folder as long as this
    object.

    `ca_file` is what a client must trust, `context` what the server wraps its connections with."""

    def __init__(self) -> None:
        issued = issue("embedded-apiserver", ["127.0.0.1", "localhost"])
        folder = Path(tempfile.mkdtemp(prefix="embedded-apiserver-"))  # readable by its owner only
        self._remove = weakref.finalize(self, shutil.rmtree, folder, True)
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(issued.certificate)
        key_file = folder / "server.key"
        key_file.write_bytes(issued.key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.sslsocket_class = TLSSocket
        self.context.load_cert_chain(self.ca_file, key_file)


class Dropped(Exception):
    """The connection is to be closed at once."""


class Handler(socketserver.StreamRequestHandler):
    """One connection, until either side closes it."""

    disable_nagle_algorithm = True
    server: Listener
    connection: socket.socket

    def setup(self) -> None:
        self.request = self.server.wrap(self.request)
        super().setup()

    def handle(self) -> None:
        try:
            while not self.server.stopping.is_set():
                request = self._read_request()
                if request is None or not self._serve(request):
                    return
        except (Dropped, ConnectionError, TimeoutError, ValueError) as error:
            _LOG.debug("connection of %s ended: %s", self.client_address, error)

    def finish(self) -> None:
        with contextlib.suppress(OSError):  # the peer may be gone; there is nothing left to tell it
            super().finish()
        self.request.close()

    # -- reading

    def _read_request(self) -> Request | None:
        """The next request; None when the client closed the connection or sent no HTTP."""
        line = self.rfile.readline(_LINE_LIMIT)
        # Some clients send a line's end behind the body of a POST (RFC 9112, 2.2).
        while line in (b"\r\n", b"\n"):
            line = self.rfile.readline(_LINE_LIMIT)
        parts = line.split()
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return None
        headers: dict[str, str] = {}
        while True:
            line = self.rfile.readline(_LINE_LIMIT)
            if line in (b"\r\n", b"\n"):
                break
            name, colon, value = line.partition(b":")
            if not colon:
                return None
            headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
        # No keep-alive there unless it is asked for.
        if parts[2] == b"HTTP/1.0":
            headers.setdefault("connection", "close")
        body = self._read_body(headers)
        return Request(parts[0].decode("latin-1"), parts[1].decode("latin-1"), headers, body)

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = int(headers.get("content-length", "0"))
        # Read up to that, so that the client gets the 413; beyond, it is not worth the memory.
        if length > 4 * BODY_LIMIT:
            raise Dropped
        body = self.rfile.read(length) if length else b""
        # The client died in the middle of its request, which then never counts.
        if len(body) < length:
            raise Dropped
        return body

    def _read_chunks(self) -> bytes:
        pieces: list[bytes] = []
        total = 0
        while True:
            size = int(self.rfile.readline(_LINE_LIMIT).partition(b";")[0], 16)
            total += size
            if total > 4 * BODY_LIMIT:
                raise Dropped
            # Trailers may follow, which say nothing to us.
            if size == 0:
                while self.rfile.readline(_LINE_LIMIT) not in (b"\r\n", b"\n", b""):
                    pass
                return b"".join(pieces)
            pieces.append(self.rfile.read(size))
            self.rfile.readline(_LINE_LIMIT)

    # -- serving

    def _serve(self, request: Request) -> bool:
        """Handle one request; returns whether the connection stays open. Raises Dropped."""
        keep = request.headers.get("connection", "").lower() != "close"
        answer = self._answer(self.server.api, request)
        if isinstance(answer, WatchStream):
            self._watch(answer)
        else:
            self._send(request, answer, keep)
        return keep

    @staticmethod
    def _answer(api: API, request: Request) -> Response | WatchStream:
        try:
            return api.handle(request)
        except Exception as error:  # noqa: BLE001 - top of the connection's loop: the client must see a bug
            _LOG.exception("%s %s failed inside the embedded API server", request.method, request.target)
            return failure(
                StatusError(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")
            )

    def _send(self, request: Request, answer: Response, keep: bool) -> None:
        # In one send: two would be two packets, and wake the client twice.
        head = _head(answer.code, answer.content_type, keep, answer.headers, f"Content-Length: {len(answer.body)}")
        self.connection.sendall(head + (b"" if request.method == "HEAD" else answer.body))

    # -- watches

    def _watch(self, stream: WatchStream) -> None:
        """Send a watch until it ends. Raises Dropped."""
        with contextlib.closing(stream), self.server.watching(stream):
            self.connection.sendall(_head(200, "application/json", True, {}, "Transfer-Encoding: chunked"))
            try:
                for batch in stream.batches():
                    # A write would show it as well, but there may be nothing to write for hours.
                    if not batch:
                        self._check_peer()
                    self._send_lines(batch)
            # 200 is sent already: from here on a failure is an event of the stream.
            except StatusError as error:
                self._send_lines([error_line(error)])
            self.connection.sendall(b"0\r\n\r\n")

    def _send_lines(self, lines: Sequence[bytes]) -> None:
        if lines:
            data = lines[0] if len(lines) == 1 else b"".join(lines)
            self.connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def _check_peer(self) -> None:
        """Notice a client that has gone away while nothing is to be sent. Raises Dropped."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        # A client says nothing during a watch: what can be read is its end.
        if readable:
            raise Dropped


def _head(code: int, content_type: str, keep: bool, headers: Mapping[str, str], length: str) -> bytes:
    lines = [f"HTTP/1.1 {code} {_PHRASES.get(code, 'Unknown')}", f"Content-Type: {content_type}", length]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not keep:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")
