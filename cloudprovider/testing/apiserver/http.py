"""HTTP/1.1 over loopback: the listening socket, stoppable in every state, and its connections, which
read requests, send answers and watches, and carry out faults.

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
import struct
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from cloudprovider.internal.certificates import issue
from cloudprovider.internal.tlssockets import TLSSocket
from cloudprovider.testing.apiserver import errors
from cloudprovider.testing.apiserver.errors import StatusError
from cloudprovider.testing.apiserver.faults import Action, Fault, Faults
from cloudprovider.testing.apiserver.rest.api import API, BODY_LIMIT, Request, Response, failure, query_of
from cloudprovider.testing.apiserver.rest.reads import parse_flag
from cloudprovider.testing.apiserver.rest.watchstream import WatchStream, error_line

_LOG: Final = logging.getLogger("cloudprovider.testing.apiserver")
_LINE_LIMIT: Final = 64 * 1024
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_HANDSHAKE_TIMEOUT: Final = 10.0


class Listener(socketserver.TCPServer):
    """Accepts connections on loopback. `begin()` once, `end()` once; a start makes a new one."""

    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, port: int, api: API, faults: Faults, tls: ssl.SSLContext | None) -> None:
        self.api = api
        self.faults = faults
        self.stopping = threading.Event()
        self._tls = tls
        self._lock = threading.Lock()
        self._open: dict[int, socket.socket] = {}
        self._workers: set[threading.Thread] = set()
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
        with contextlib.suppress(OSError):  # a listening socket may refuse shutdown; closing it follows
            self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self.socket.close()
        with self._lock:
            connections = list(self._open.values())
            workers = list(self._workers)
        for connection in connections:
            with contextlib.suppress(OSError):  # closed by its own thread in this moment
                connection.shutdown(socket.SHUT_RDWR)
        self.faults.break_watches(Action.CLOSE)
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
            worker.start()

    def _run(self, connection: socket.socket, address: Any) -> None:
        try:
            self.finish_request(connection, address)
        except (OSError, ssl.SSLError) as error:
            _LOG.debug("connection of %s failed: %s", address, error)
        except Exception:  # noqa: BLE001 - top of the connection's thread; logged with its trace
            _LOG.exception("connection of %s failed inside the embedded API server", address)
        finally:
            connection.close()
            with self._lock:
                worker = threading.current_thread()
                self._workers.discard(worker)
                self._open.pop(id(worker), None)

    def wrap(self, connection: socket.socket) -> socket.socket:
        """TLS in the connection's own thread, with a deadline for the handshake."""
        if self._tls is None:
            return connection
        connection.settimeout(_HANDSHAKE_TIMEOUT)
        wrapped = self._tls.wrap_socket(connection, server_side=True)
        wrapped.settimeout(None)
        with self._lock:
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
    """The connection is to be closed at once; `reset` with RST instead of FIN."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("reset" if reset else "closed")
        self.reset = reset


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
        except Dropped as dropped:
            if dropped.reset:
                self._prepare_reset()
        except (ConnectionError, TimeoutError, ValueError) as error:
            _LOG.debug("connection of %s ended: %s", self.client_address, error)

    def finish(self) -> None:
        with contextlib.suppress(OSError):  # the peer may be gone; there is nothing left to tell it
            super().finish()
        self.request.close()

    # -- reading

    def _read_request(self) -> Request | None:
        """The next request; None when the client closed the connection or sent no HTTP."""
        line = self.rfile.readline(_LINE_LIMIT)
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
        if parts[2] == b"HTTP/1.0":
            headers.setdefault("connection", "close")
        body = self._read_body(headers)
        return Request(parts[0].decode("latin-1"), parts[1].decode("latin-1"), headers, body)

    def _read_body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = int(headers.get("content-length", "0"))
        if length > 4 * BODY_LIMIT:
            raise Dropped(reset=False)
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            raise Dropped(reset=False)
        return body

    def _read_chunks(self) -> bytes:
        pieces: list[bytes] = []
        total = 0
        while True:
            size = int(self.rfile.readline(_LINE_LIMIT).partition(b";")[0], 16)
            total += size
            if total > 4 * BODY_LIMIT:
                raise Dropped(reset=False)
            if size == 0:
                while self.rfile.readline(_LINE_LIMIT) not in (b"\r\n", b"\n", b""):
                    pass
                return b"".join(pieces)
            pieces.append(self.rfile.read(size))
            self.rfile.readline(_LINE_LIMIT)

    # -- serving

    def _serve(self, request: Request) -> bool:
        """Handle one request; returns whether the connection stays open. Raises Dropped."""
        api, faults = self.server.api, self.server.faults
        watching = request.method == "GET" and bool(parse_flag(query_of(request.target), "watch"))
        fault: Fault | None = None
        for struck in faults.strike(request.method, request.target, watching):
            if struck.action is Action.LATENCY:
                self.server.stopping.wait(struck.seconds)
            else:
                fault = struck
        keep = request.headers.get("connection", "").lower() != "close"
        if fault is not None and fault.action is Action.STATUS:
            self._send(request, failure(_injected(fault)), keep)
            return keep
        if fault is not None and fault.action is Action.RESET and not watching:
            raise Dropped(reset=True)
        answer = self._answer(api, request, None if watching else fault)
        if isinstance(answer, WatchStream):
            self._watch(request.target, answer, fault)
            return keep
        if fault is not None and fault.action is Action.LOSE_RESPONSE:
            raise Dropped(reset=True)
        self._send(request, answer, keep, truncate=fault is not None and fault.action is Action.TRUNCATE)
        return keep

    @staticmethod
    def _answer(api: API, request: Request, fault: Fault | None) -> Response | WatchStream:
        try:
            return api.handle(request, fault)
        except Exception as error:  # noqa: BLE001 - top of the connection's loop: the client must see a bug
            _LOG.exception("%s %s failed inside the embedded API server", request.method, request.target)
            return failure(
                StatusError(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")
            )

    def _send(self, request: Request, answer: Response, keep: bool, *, truncate: bool = False) -> None:
        length = len(answer.body)
        sent = 0 if request.method == "HEAD" else length // 2 if truncate else length
        head = _head(answer.code, answer.content_type, keep, answer.headers, f"Content-Length: {length}")
        self.connection.sendall(head + answer.body[:sent])
        if truncate:
            raise Dropped(reset=False)

    # -- watches

    def _watch(self, path: str, stream: WatchStream, fault: Fault | None) -> None:
        """Send a watch until it ends. Raises Dropped."""
        with contextlib.closing(stream), self.server.faults.watching(path, stream.signal):
            self.connection.sendall(_head(200, "application/json", True, {}, "Transfer-Encoding: chunked"))
            self._stream(stream, fault)
            self.connection.sendall(b"0\r\n\r\n")

    def _stream(self, stream: WatchStream, fault: Fault | None) -> None:
        left = fault.after_events if fault is not None else 0
        if fault is not None and left == 0 and fault.action is not Action.TRUNCATE and self._strike(fault, stream, b""):
            return
        try:
            for batch in stream.batches():
                if isinstance(batch, Fault):
                    if self._strike(batch, stream, b""):
                        return
                elif not batch:
                    self._check_peer()
                elif fault is not None and (left < len(batch) or (left == 0 and fault.action is Action.TRUNCATE)):
                    self._send_lines(batch[:left])
                    if self._strike(fault, stream, batch[left]):
                        return
                else:
                    self._send_lines(batch)
                    left -= len(batch)
        except StatusError as error:
            self._send_lines([error_line(error)])

    def _strike(self, fault: Fault, stream: WatchStream, line: bytes) -> bool:
        """Carry out a fault on a watch; `line` is the event under way. Returns True if the watch
        ends in an orderly way.
        """
        if fault.action is Action.RESET or fault.action is Action.LOSE_RESPONSE:
            raise Dropped(reset=True)
        if fault.action is Action.TRUNCATE:
            line = line or b'{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"trunc'
            self.connection.sendall(b"%x\r\n" % len(line) + line[: max(1, len(line) // 2)])
            raise Dropped(reset=False)
        if fault.action is Action.EXPIRE:
            self._send_lines([error_line(errors.expired("The resourceVersion for the provided watch is too old."))])
            return True
        if fault.action is Action.HALF_OPEN:
            self._fall_silent(stream)
        return True

    def _fall_silent(self, stream: WatchStream) -> None:
        """Keep the connection open and say nothing more, until client or server goes."""
        stream.close()
        while not self.server.stopping.wait(0.05):
            self._check_peer()
        raise Dropped(reset=False)

    def _send_lines(self, lines: Sequence[bytes]) -> None:
        if lines:
            data = lines[0] if len(lines) == 1 else b"".join(lines)
            self.connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def _check_peer(self) -> None:
        """Notice a client that has gone away while nothing is to be sent. Raises Dropped."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable:
            raise Dropped(reset=False)

    def _prepare_reset(self) -> None:
        """Make the coming close send RST."""
        with contextlib.suppress(OSError):  # already gone
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _injected(fault: Fault) -> StatusError:
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    details = {} if fault.retry_after is None else {"retryAfterSeconds": fault.retry_after}
    return StatusError(fault.code, fault.reason, fault.message, headers=headers, details=details)


def _head(code: int, content_type: str, keep: bool, headers: Mapping[str, str], length: str) -> bytes:
    lines = [f"HTTP/1.1 {code} {_PHRASES.get(code, 'Unknown')}", f"Content-Type: {content_type}", length]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if not keep:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")
